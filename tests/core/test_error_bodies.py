"""Whatever a backend writes is read without failing."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivenet_router.core.error_bodies import BODY_BYTES_MAX, ErrorBody, bounded, raw_text, read_error_body


def test_the_nested_form_is_read() -> None:
    said = read_error_body(b'{"error":{"message":"too long","type":"t","param":null,"code":"c","source":"s"}}')
    assert said == ErrorBody("too long", "", frozenset({"t", "c"}), "c", "s")


def test_the_flat_form_is_read_and_a_numeric_code_is_left_out() -> None:
    said = read_error_body(b'{"object":"error","message":"bad","type":"BadRequestError","code":400}')
    assert said == ErrorBody("bad", "", frozenset({"BadRequestError"}))


@pytest.mark.parametrize(
    ("detail", "line"),
    [
        ("Not Found", "Not Found"),
        ([{"loc": ["body", "messages", 0], "msg": "field required"}], "body.messages.0: field required"),
        ([{"msg": "a"}, {"loc": ["x"]}, {"loc": "y", "msg": "b"}, 5], "a; b"),
        ({"unknown": "shape"}, ""),
    ],
)
def test_a_detail_becomes_one_line(detail: object, line: str) -> None:
    assert read_error_body(json.dumps({"detail": detail}).encode()).detail == line


@pytest.mark.parametrize(
    "body",
    [b"", b"plain", b"[]", b"5", b"null", b'"x"', b"{", b"\xff\xfe", b"[" * 60_000, b'{"error":"text"}', b"1" * 5000],
)
def test_a_body_in_no_known_shape_says_nothing(body: bytes) -> None:
    assert read_error_body(body) == ErrorBody()


def test_no_more_than_64_kib_are_read() -> None:
    body = json.dumps({"message": "m", "padding": "x" * BODY_BYTES_MAX}).encode()
    assert read_error_body(body) == ErrorBody()


def test_a_message_is_cut_between_characters() -> None:
    assert bounded("x" * 511 + "é") == "x" * 511
    assert raw_text(b"x" * 600) == "x" * 512


def test_half_a_surrogate_pair_can_be_sent() -> None:
    assert bounded("a\ud800b") == "a\ufffdb"


@given(st.binary(max_size=400))
def test_garbage_is_read_as_text_that_can_be_sent(body: bytes) -> None:
    read_error_body(body)
    assert len(raw_text(body).encode()) <= 512


@given(
    st.recursive(
        st.none() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(["error", "message", "type", "code", "detail", "loc", "msg", "source"]), inner
            )
        ),
    )
)
def test_any_json_is_read(body: object) -> None:
    said = read_error_body(json.dumps(body).encode())
    assert len(bounded(said.message or said.detail).encode()) <= 512
