"""Multiaddrs as routers tell them: names resolved, loopback recognised."""

from collections.abc import Sequence

import pytest

from hivenet_router.agent.addresses import ADDRESSES_MAX, NoneResolves, are_all_loopback, is_here, with_ips

NAMES = {
    "both": ("192.0.2.1", "2001:db8::1"),
    "six": ("2001:db8::2",),
    "here": ("127.0.0.1", "::1"),
    "mixed": ("127.0.0.1", "192.0.2.1"),
}


async def resolve(host: str, version: int) -> Sequence[str]:
    ips = [ip for ip in NAMES.get(host, ()) if version in (0, 6 if ":" in ip else 4)]
    if not ips:
        raise OSError("no such name")
    return ips


async def test_ip_addresses_pass_as_they_are() -> None:
    told = ("/ip4/192.0.2.1/tcp/9000/p2p/X", "/ip6/::1/udp/9000/quic-v1")
    assert await with_ips(told, resolve) == told


@pytest.mark.parametrize(
    ("told", "dialled"),
    [
        ("/dns/both/tcp/1/p2p/X", ("/ip4/192.0.2.1/tcp/1/p2p/X", "/ip6/2001:db8::1/tcp/1/p2p/X")),
        ("/dns4/both/tcp/1", ("/ip4/192.0.2.1/tcp/1",)),
        ("/dns6/both/tcp/1", ("/ip6/2001:db8::1/tcp/1",)),
    ],
)
async def test_a_name_becomes_its_addresses_of_the_version_asked_for(told: str, dialled: tuple[str, ...]) -> None:
    assert await with_ips([told], resolve) == dialled


async def test_a_name_that_does_not_resolve_is_left_out_while_another_address_is_there() -> None:
    assert await with_ips(["/dns/none/tcp/1", "/ip4/192.0.2.1/tcp/1"], resolve) == ("/ip4/192.0.2.1/tcp/1",)


async def test_names_that_all_do_not_resolve_are_named() -> None:
    with pytest.raises(NoneResolves, match=r"none \(no such name\), six \(no such name\)"):
        await with_ips(["/dns/none/tcp/1", "/dns4/six/tcp/1"], resolve)


async def test_a_router_cannot_make_the_agent_dial_without_end() -> None:
    told = [f"/dns/both/tcp/{port}" for port in range(1, 100)]
    assert len(await with_ips(told, resolve)) == ADDRESSES_MAX


@pytest.mark.parametrize(
    ("addresses", "expected"),
    [
        (["/ip4/127.0.0.1/tcp/1"], True),
        (["/ip4/127.0.0.1/tcp/1", "/ip6/::1/tcp/1"], True),
        (["/ip4/127.0.0.1/tcp/1", "/ip4/192.0.2.1/tcp/1"], False),
        (["/dns/localhost/tcp/1"], False),
        ([], False),
        (["nonsense"], False),
    ],
)
def test_addresses_that_are_all_loopback_are_recognised(addresses: list[str], expected: bool) -> None:
    assert are_all_loopback(addresses) is expected


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("::1", True), ("192.0.2.1", False), ("here", True), ("mixed", False), ("none", False)],
)
async def test_a_host_is_this_machine_when_all_its_addresses_are_loopback(host: str, expected: bool) -> None:
    assert await is_here(host, resolve) is expected
