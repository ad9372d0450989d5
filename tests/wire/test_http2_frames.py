"""Frames are counted by their headers, however the bytes are cut, and one too many is one too many."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivenet_router.wire.http2_frames import (
    DATA,
    FRAMES_MAX,
    GOAWAY,
    HEADER_BYTES_MAX,
    HEADERS,
    PING,
    SETTINGS,
    UNKNOWN_FRAMES_MAX,
    WINDOW_UPDATE,
    FrameBudget,
    TooMuchHttp2,
)

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
# What grpc-go 1.82 sends for a unary call: settings, the acknowledgement of ours, a call, and pings and window updates
# by which it measures the link.
GRPC_GO = (
    (SETTINGS, 0), (SETTINGS, 0), (HEADERS, 310), (DATA, 5 + (9 << 10)), (DATA, 7 << 10), (WINDOW_UPDATE, 4), (PING, 8),
    (PING, 8), (GOAWAY, 8),
)  # fmt: skip


def frame(kind: int, payload_bytes: int = 0) -> bytes:
    return payload_bytes.to_bytes(3) + bytes([kind, 0]) + bytes(4) + bytes(payload_bytes)


def test_a_call_of_grpc_go_is_within_the_budget_twice_over() -> None:
    FrameBudget().spend(PREFACE + b"".join(frame(*each) for each in GRPC_GO) * 2)


@pytest.mark.parametrize("kind", range(12))
def test_each_kind_has_its_most_and_not_one_more(kind: int) -> None:
    most = FRAMES_MAX.get(kind, UNKNOWN_FRAMES_MAX)
    budget = FrameBudget()

    budget.spend(PREFACE + frame(kind) * most)

    with pytest.raises(TooMuchHttp2, match=f"more than {most} "):
        budget.spend(frame(kind)[:9])


def test_kinds_that_nobody_knows_share_one_count() -> None:
    with pytest.raises(TooMuchHttp2, match="other"):
        FrameBudget().spend(PREFACE + b"".join(frame(kind) for kind in range(100, 101 + UNKNOWN_FRAMES_MAX)))


def test_header_blocks_have_a_sum_for_the_connection() -> None:
    budget = FrameBudget()
    budget.spend(PREFACE + frame(HEADERS, HEADER_BYTES_MAX - 1))

    with pytest.raises(TooMuchHttp2, match="8192 bytes of headers"):
        budget.spend(frame(HEADERS, 2)[:9])


@pytest.mark.parametrize(("kind", "payload_bytes"), [(SETTINGS, 198), (GOAWAY, 1025)])
def test_a_frame_too_long_for_its_kind_is_refused_by_its_head(kind: int, payload_bytes: int) -> None:
    with pytest.raises(TooMuchHttp2, match=f"of {payload_bytes} bytes"):
        FrameBudget().spend(PREFACE + frame(kind, payload_bytes)[:9])


@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 300)), max_size=40),
    st.lists(st.integers(1, 60), min_size=1, max_size=30),
)
def test_it_does_not_matter_how_the_bytes_are_cut(frames: list[tuple[int, int]], sizes: list[int]) -> None:
    data = PREFACE + b"".join(frame(*each) for each in frames)

    whole = _refusal([data])
    cut: list[bytes] = []
    at = 0
    while at < len(data):
        size = sizes[len(cut) % len(sizes)]
        cut.append(data[at : at + size])
        at += size

    assert _refusal(cut) == whole


def _refusal(pieces: list[bytes]) -> str | None:
    budget = FrameBudget()
    try:
        for piece in pieces:
            budget.spend(piece)
    except TooMuchHttp2 as refused:
        return str(refused)
    return None
