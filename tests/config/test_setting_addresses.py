"""Are addresses and URLs accepted exactly when they can be used?"""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivenet_router.config.addresses import (
    HostPort,
    ListenAddress,
    is_host,
    read_advertised,
    read_announce_multiaddr,
    read_backend_url,
    read_host_port,
    read_host_ports,
    read_ip,
    read_listen_address,
    read_networks,
    read_otlp_endpoint,
    read_url,
)
from hivenet_router.config.values import UnusableError

READERS = (
    read_advertised,
    read_announce_multiaddr,
    read_backend_url,
    read_host_port,
    read_host_ports,
    read_ip,
    read_listen_address,
    read_networks,
    read_otlp_endpoint,
    read_url,
)


@given(st.sampled_from(READERS), st.text(max_size=60) | st.text(alphabet="abc0123:/.[]@%-_?#,htp", max_size=30))
def test_any_text_is_read_or_unusable(read: object, text: str) -> None:
    assert callable(read)
    with suppress(UnusableError):
        read(text)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        (":8080", "", 8080),
        ("127.0.0.1:8080", "127.0.0.1", 8080),
        ("[::1]:8080", "::1", 8080),
        ("[::]:0", "::", 0),
        ("localhost:65535", "localhost", 65535),
    ],
)
def test_a_listen_address_has_a_host_or_none_and_a_port(text: str, host: str, port: int) -> None:
    address = read_listen_address(text)
    assert address == ListenAddress(host, port)
    assert str(address) == text


@pytest.mark.parametrize(
    "text",
    ["8080", "", ":", "::1:8080", "[::1]", "[127.0.0.1]:80", ":65536", ":http", "*:80", "a b:80", "1.2.3:80", ":٣"],
)
def test_other_texts_are_no_listen_address(text: str) -> None:
    with pytest.raises(UnusableError, match="must be a listen address"):
        read_listen_address(text)


def test_a_port_alone_is_answered_with_how_to_write_it() -> None:
    with pytest.raises(UnusableError, match="written :8080"):
        read_listen_address("8080")


def test_a_kubernetes_service_link_is_named_as_such() -> None:
    with pytest.raises(UnusableError, match="enableServiceLinks"):
        read_listen_address("tcp://10.0.0.1:8080")


@pytest.mark.parametrize(("text", "ip"), [("0.0.0.0", "0.0.0.0"), ("::", "::"), ("0:0::1", "::1")])
def test_an_ip_may_be_of_either_version(text: str, ip: str) -> None:
    assert read_ip(text) == ip


@pytest.mark.parametrize("text", ["", "localhost", "[::1]", "127.1", "1.2.3.4.5", "127.0.0.1:80"])
def test_a_host_name_is_no_ip(text: str) -> None:
    with pytest.raises(UnusableError):
        read_ip(text)


@pytest.mark.parametrize("text", ["router-0:50051", "router_0.svc.:50051", "[fd00::1]:1", "10.0.0.1:65535"])
def test_what_can_be_dialled_reads_and_prints_the_same(text: str) -> None:
    assert str(read_host_port(text)) == text


@pytest.mark.parametrize("text", ["", "router", ":50051", "router:0", "router:x", "-a:1", "a..b:1", "256.1.1.1:1"])
def test_what_cannot_be_dialled_is_refused(text: str) -> None:
    with pytest.raises(UnusableError):
        read_host_port(text)


def test_a_list_of_addresses_keeps_its_order_and_names_each_once() -> None:
    assert read_host_ports(" b:2, a:1,,b:2 ").items == (HostPort("b", 2), HostPort("a", 1))


def test_no_list_is_not_the_same_as_a_list_of_nothing() -> None:
    assert read_host_ports("").items == read_host_ports(" ").items == ()
    for text in (",", ",,", " , ,"):
        with pytest.raises(UnusableError, match="at least one"):
            read_host_ports(text)


@pytest.mark.parametrize("text", ["0.0.0.0:50051", "[::]:50051", ":50051"])
def test_the_address_of_all_interfaces_is_not_advertised(text: str) -> None:
    with pytest.raises(UnusableError):
        read_advertised(text)


def test_networks_may_be_single_addresses() -> None:
    assert str(read_networks("10.0.0.0/8, ::1")) == "10.0.0.0/8,::1/128"


def test_a_network_with_host_bits_is_refused_with_the_reason() -> None:
    with pytest.raises(UnusableError, match="host bits"):
        read_networks("10.0.0.1/8")


@pytest.mark.parametrize(
    "text",
    ["/ip4/203.0.113.7/tcp/9000", "/ip6/::1/tcp/1", "/dns4/router.example.com/tcp/9000", "/dns/a/tcp/1"],
)
def test_a_tcp_multiaddr_is_announced_as_written(text: str) -> None:
    assert read_announce_multiaddr(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/",
        "203.0.113.7:9000",
        "/ip4/203.0.113.7",
        "/ip4/::1/tcp/1",
        "/ip6/1.2.3.4/tcp/1",
        "/ip4/1.2.3.4/udp/1",
        "/ip4/1.2.3.4/tcp/0",
        "/ip4/1.2.3.4/tcp/65536",
        "/dns4/1.2.3.4/tcp/1",
        "/ip4/1.2.3.4/tcp/1/ws",
        "x/ip4/1.2.3.4/tcp/1",
    ],
)
def test_another_multiaddr_is_refused(text: str) -> None:
    with pytest.raises(UnusableError):
        read_announce_multiaddr(text)


def test_a_multiaddr_with_a_peer_id_is_told_to_leave_it_off() -> None:
    with pytest.raises(UnusableError, match="peer ID is appended"):
        read_announce_multiaddr("/ip4/1.2.3.4/tcp/1/p2p/12D3KooW")


@pytest.mark.parametrize(
    ("text", "effective"),
    [
        ("http://localhost:8888", "http://localhost:8888"),
        ("http://localhost:8888/", "http://localhost:8888"),
        ("http://localhost:8888/v1", "http://localhost:8888"),
        ("http://localhost:8888/v1/", "http://localhost:8888"),
        ("https://h/api/v1", "https://h:443/api"),
        ("http://h/av1", "http://h:80/av1"),
        ("http://[::1]:80/x/", "http://[::1]:80/x"),
    ],
)
def test_a_backend_url_loses_what_paths_bring_along(text: str, effective: str) -> None:
    assert str(read_backend_url(text)) == effective


@pytest.mark.parametrize(
    "text",
    [
        "",
        "localhost:8888",
        "ftp://h",
        "http://",
        "http://h:0",
        "http://h:99999",
        "http://h:x",
        "http://h?x=1",
        "http://h/#a",
        "http://h/?",
        "http:// h",
        "http://h\n",
        "http://u:p@h",
        "http://[::1",
        "http://a b/",
        "http://h\\x",
    ],
)
def test_a_bad_backend_url_is_refused(text: str) -> None:
    with pytest.raises(UnusableError, match="must be the base URL"):
        read_backend_url(text)


def test_a_health_url_is_kept_as_written() -> None:
    assert read_url("http://h:1/healthz?full=1") == "http://h:1/healthz?full=1"


@pytest.mark.parametrize("text", ["collector:4317", "http://collector:4317"])
def test_a_collector_is_given_with_or_without_a_scheme(text: str) -> None:
    assert read_otlp_endpoint(text) == text


@pytest.mark.parametrize(
    ("text", "usable"),
    [
        ("a", True),
        ("a.", True),
        ("a_b", True),
        ("1a", True),
        ("a." * 127 + "a", False),
        ("", False),
        (".", False),
        ("a-", False),
        ("1.2.3.999", False),
    ],
)
def test_a_host_has_the_shape_of_a_dns_name_or_an_ip(text: str, usable: bool) -> None:
    assert is_host(text) is usable
