"""Do the same requests come out whichever way the bytes are cut?"""

import contextlib
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.raw_http import request_bytes

from hivenet_router.sim.reader import HEAD_BYTES_MAX, HEADERS_MAX, Request, RequestReader, RequestRefusedError

TWO_REQUESTS = request_bytes("/a?x=1", b"first body", x_sim="chunks=3") + request_bytes("/b", b"second")
CHUNKED = b"POST /c HTTP/1.1\r\nHost: sim\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n3\r\nefg\r\n0\r\n\r\n"


def read_all(reader: RequestReader, pieces: list[bytes]) -> list[Request]:
    found: list[Request] = []
    for piece in filter(None, pieces):
        reader.feed(piece)
        while (request := reader.poll()) is not None:
            found.append(request)
            if not reader.next_cycle():
                return found
    return found


@given(st.lists(st.integers(0, len(TWO_REQUESTS + CHUNKED)), max_size=20))
def test_any_cut_gives_the_same_requests(cuts: list[int]) -> None:
    data = TWO_REQUESTS + CHUNKED
    edges = [0, *sorted(cuts), len(data)]
    pieces = [data[start:stop] for start, stop in itertools.pairwise(edges) if stop > start]
    found = read_all(RequestReader(body_bytes_max=100), pieces)
    assert [(each.target, each.body) for each in found] == [
        ("/a?x=1", b"first body"),
        ("/b", b"second"),
        ("/c", b"abcdefg"),
    ]


@given(st.binary(max_size=200), st.sampled_from([b"", b"POST / HTTP/1.1\r\nHost: a\r\n", CHUNKED]))
def test_any_bytes_give_requests_or_the_documented_error(data: bytes, before: bytes) -> None:
    with contextlib.suppress(RequestRefusedError):
        read_all(RequestReader(body_bytes_max=100), [before, data])


def test_headers_keep_spelling_order_and_repetition() -> None:
    reader = RequestReader(body_bytes_max=100)
    reader.feed(b"GET / HTTP/1.1\r\nHost: sim\r\nX-bEta: 2\r\nx-Beta: 1\r\n\r\n")
    request = reader.poll()
    assert request is not None
    assert request.headers == (("Host", "sim"), ("X-bEta", "2"), ("x-Beta", "1"))
    assert request.find("x-beta") == ["2", "1"]


def test_an_absolute_target_has_the_same_path() -> None:
    reader = RequestReader(body_bytes_max=100)
    reader.feed(b"GET http://sim:80/v1/models?a=b HTTP/1.1\r\nHost: sim\r\n\r\n")
    request = reader.poll()
    assert request is not None
    assert (request.path, request.query) == ("/v1/models", "a=b")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\nhello", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * (HEAD_BYTES_MAX + 1), 431),
        (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: 1\r\n" * HEADERS_MAX + b"\r\n", 431),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 101\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n" + b"a" * 101, 413),
    ],
)
def test_what_cannot_be_served_is_refused_with_its_status(data: bytes, status: int) -> None:
    reader = RequestReader(body_bytes_max=100)
    reader.feed(data)
    with pytest.raises(RequestRefusedError) as refused:
        reader.poll()
    assert refused.value.status == status


def test_a_client_that_waits_for_leave_gets_it_once() -> None:
    reader = RequestReader(body_bytes_max=100)
    reader.feed(b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
    assert reader.poll() is None
    assert reader.continue_bytes().startswith(b"HTTP/1.1 100 ")
    assert reader.continue_bytes() == b""
    reader.feed(b"ok")
    request = reader.poll()
    assert request is not None
    assert request.body == b"ok"


def test_the_connection_ends_when_the_client_says_so() -> None:
    for head in (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", b"GET / HTTP/1.0\r\n\r\n"):
        reader = RequestReader(body_bytes_max=100)
        reader.feed(head)
        request = reader.poll()
        assert request is not None
        assert not request.keep_alive
        assert not reader.next_cycle()
