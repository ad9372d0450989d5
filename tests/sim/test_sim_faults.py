"""Are fault texts read as they are documented, and refused in words when they are wrong?"""

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivenet_router.sim.faults import NO_FAULT, WORDS, Fault, FaultError, parse_fault


def test_an_empty_text_is_an_ordinary_answer() -> None:
    assert parse_fault("") == NO_FAULT
    assert parse_fault(" , ") == NO_FAULT


def test_words_are_joined_by_commas() -> None:
    assert parse_fault("status=429, retry_after=7") == Fault(status=429, retry_after="7")


def test_values_are_percent_decoded() -> None:
    assert parse_fault("body=a%2Cb%0A").body == "a,b\n"
    assert parse_fault("raw=HTTP/1.1 200 OK%0d%0a%ff").raw == b"HTTP/1.1 200 OK\r\n\xff"


def test_milliseconds_become_seconds() -> None:
    assert parse_fault("interval_ms=20").interval_s == 0.02


def test_a_stall_may_last_for_ever() -> None:
    assert parse_fault("stall_before_head=forever").stall_before_head_s == math.inf
    assert parse_fault("stall_before_head=0.5").stall_before_head_s == 0.5


def test_headers_add_up_and_other_words_replace() -> None:
    base = parse_fault("header=X-A:1,status=500,chunks=3")
    over = parse_fault("header=X-B:2,header=X-B:3,status=503", base)
    assert over.header == (("X-A", "1"), ("X-B", "2"), ("X-B", "3"))
    assert (over.status, over.chunks) == (503, 3)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("stauts=500", "unknown word 'stauts'"),
        ("status=abc", "status: needs a status from 200 to 599"),
        ("status=100", "status: needs a status from 200 to 599"),
        ("status", "status: needs a status from 200 to 599|status: needs a value"),
        ("chunks=0", "chunks: needs a whole number from 1 to 1000000"),
        ("chunks=-1", "chunks: needs a whole number from 1 to 1000000"),
        ("chunks=1000001", "chunks: needs a whole number from 1 to 1000000"),
        ("chunk_bytes=1048577", "chunk_bytes: needs a whole number from 1 to 1048576"),
        ("write_bytes=0", "write_bytes: needs a whole number from 1 to"),
        ("reset_after_bytes=1099511627777", "reset_after_bytes: needs a whole number from 0 to 1099511627776"),
        ("reasoning=" + "9" * 5000, "reasoning: needs a whole number from 0 to 1099511627776$"),
        ("status=" + "9" * 5000, "status: needs a status from 200 to 599$"),
        ("delay=1e400", "delay: needs a number of seconds"),
        ("delay=-1", "delay: needs a number of seconds"),
        ("reset_before_head=1", "reset_before_head: takes no value"),
        ("delay=soon", "delay: needs a number of seconds"),
        ("delay=nan", "delay: needs a number of seconds"),
        ("stall_before_head=later", "a number of seconds or the word forever"),
        ("status=500,status=501", "status: given twice"),
        ("usage=4", "PROMPT/COMPLETION"),
        ("header=novalue", "header: needs Name:value"),
        ("header=A b:1", "header: needs Name:value"),
        ("content_type=a%0d%0ab", "content_type: needs printable ASCII text"),
        ("retry_after=%0d", "retry_after: needs printable ASCII text"),
    ],
)
def test_a_wrong_text_is_refused_with_the_word_that_is_wrong(text: str, says: str) -> None:
    with pytest.raises(FaultError, match=says):
        parse_fault(text)


@given(st.text(max_size=60) | st.builds("{}={}".format, st.sampled_from(sorted(WORDS)), st.text(max_size=20)))
def test_any_text_gives_a_fault_or_the_documented_error(text: str) -> None:
    with contextlib.suppress(FaultError):
        assert isinstance(parse_fault(text), Fault)


@given(st.lists(st.sampled_from(["no_done", "gzip", "comments", "late_head"]), unique=True))
def test_flags_can_be_combined_in_any_order(words: list[str]) -> None:
    fault = parse_fault(",".join(words))
    assert [word for word in words if not getattr(fault, word)] == []
