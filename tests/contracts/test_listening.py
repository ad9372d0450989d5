"""On which addresses does a listener open: one rule for every port."""

import asyncio
import errno
import socket
from collections.abc import Sequence

import pytest
import structlog

from hivenet_router.adapters.listening import addresses_to_bind, why_not

Found = list[tuple[int, int, int, str, tuple[str, int]]]


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as tried:
            tried.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")


def names(monkeypatch: pytest.MonkeyPatch, *ips: str) -> None:
    """Every name stands for these addresses from now on."""

    async def found(*_: object, **__: object) -> Found:
        return [(0, 0, 0, "", (ip, 0)) for ip in (*ips, *ips)]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", found)


@needs_ipv6
@pytest.mark.parametrize(
    ("host", "ips"),
    [
        ("", ["0.0.0.0", "::"]),
        ("::", ["0.0.0.0", "::"]),
        ("0.0.0.0", ["0.0.0.0"]),
        ("127.0.0.1", ["127.0.0.1"]),
        ("::1", ["::1"]),
    ],
)
async def test_no_host_is_every_interface_and_a_literal_is_itself(host: str, ips: Sequence[str]) -> None:
    assert list(await addresses_to_bind(host)) == ips


@needs_ipv6
async def test_a_name_is_all_of_its_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    names(monkeypatch, "::1", "127.0.0.1", "127.0.0.2")
    assert list(await addresses_to_bind("here")) == ["::1", "127.0.0.1", "127.0.0.2"]


async def test_what_is_not_of_this_machine_is_left_out_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    names(monkeypatch, "192.0.2.1", "127.0.0.1", "fe80::1%lo")
    with structlog.testing.capture_logs() as said:
        assert list(await addresses_to_bind("here")) == ["127.0.0.1"]
    told = [(line["event"], line["host"], line["address"]) for line in said if line["log_level"] == "warning"]
    assert told == [("address_not_bound", "here", each) for each in ("192.0.2.1", "fe80::1%lo")]
    assert all(line["why"] for line in said)


async def test_a_name_without_an_address_of_this_machine_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    names(monkeypatch, "192.0.2.1")
    with pytest.raises(OSError, match="assign requested address"):
        await addresses_to_bind("elsewhere")


async def test_a_name_that_means_nothing_is_an_error() -> None:
    with pytest.raises(OSError, match="no host name"):
        await addresses_to_bind("x" * 70)


async def test_nobody_waits_while_a_name_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    found: asyncio.Future[Found] = asyncio.get_running_loop().create_future()

    async def slowly(*_: object, **__: object) -> Found:
        return await found

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", slowly)
    looking = asyncio.create_task(addresses_to_bind("slow"))
    await asyncio.sleep(0)
    assert not looking.done()
    found.set_result([(0, 0, 0, "", ("127.0.0.1", 0))])
    assert list(await looking) == ["127.0.0.1"]


async def test_what_to_do_depends_on_why_a_listener_cannot_open() -> None:
    taken = OSError(errno.EADDRINUSE, "Address already in use")
    unknown = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    assert why_not(taken) == "Address already in use; choose another address or end the program that uses it"
    assert why_not(unknown).endswith("not known; write an IP address, or a name that this machine can look up")
