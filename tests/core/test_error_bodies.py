"""Whatever a backend writes is read without failing."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivenet_router.core.error_bodies import BODY_BYTES_MAX, ErrorBody, bounded, raw_text, read_error_body


def test_the_nested_form_is_read() -> None:
    said = read_error_body(b'{"error":{"message":"too long","type":"t","param":null,"code":"c","source":"s"}}')
    assert said == ErrorBody("too long", frozenset({"t", "c"}), "c", "s", is_json=True, plain_message="too long")


def test_the_flat_form_is_read_and_a_numeric_code_is_left_out() -> None:
    said = read_error_body(b'{"object":"error","message":"bad","type":"BadRequestError","code":400}')
    assert said == ErrorBody("bad", frozenset({"BadRequestError"}), is_json=True, plain_message="bad")


WORDS = "max_tokens must be positive"


@pytest.mark.parametrize(
    "body",
    [
        {"error": WORDS},
        {"error": WORDS, "error_type": "validation"},
        {"error": {"message": WORDS, "type": "t"}},
        {"error": {"error": {"msg": WORDS}}},
        {"detail": WORDS},
        {"detail": {"message": WORDS}},
        {"detail": {"error": {"message": WORDS}}},
        [{"error": {"message": WORDS}}],
        [WORDS],
        WORDS,
        {"object": "error", "message": WORDS},
        {"message": WORDS},
        {"message": "", "error": {"message": None}, "detail": WORDS},
        {"errors": [{"message": WORDS}]},
        {"type": "about:blank", "title": WORDS, "status": 400},
        {"error": {"message": json.dumps({"error": {"message": WORDS}})}},
        {"error": {"code": "backend_error", "source": "backend", "message": json.dumps({"detail": [{"msg": WORDS}]})}},
    ],
    ids=str,
)
@pytest.mark.parametrize("lead", [b"", b" \n", b"data: ", b"event: error\ndata:"])
def test_the_words_are_found_whatever_shape_they_come_in(body: object, lead: bytes) -> None:
    """field-cases.md O-22; the last two as an original agent hands them on."""
    said = read_error_body(lead + json.dumps(body).encode() + b"\n")
    assert (said.message, said.is_json) == (WORDS, True)


@pytest.mark.parametrize(
    ("detail", "line"),
    [
        ("Not Found", "Not Found"),
        ([{"loc": ["body", "messages", 0], "msg": "field required"}], "body.messages.0: field required"),
        ([{"msg": "a"}, {"loc": ["x"]}, {"loc": "y", "msg": "b"}, 5], "a; b"),
        ([{"msg": str(number)} for number in range(20)], "0; 1; 2; 3; 4; 5; 6; 7"),
        ({"unknown": "shape"}, ""),
    ],
)
def test_a_detail_becomes_one_line(detail: object, line: str) -> None:
    assert read_error_body(json.dumps({"detail": detail}).encode()).message == line


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"5",
        b"null",
        b"{",
        b"[" * 60_000,
        b'{"id":"x"}',
        b'{"error":{"message":"cut in the mid',
        b'[{"error":',
        b'{"message":"{\\"error\\":{\\"message\\":\\"cut"}',
        b"<!DOCTYPE html><h1>413</h1>",
        b"<html>\n",
        b"\0\1\2",
        b'{"error":{"error":{"error":{"error":{"error":{"error":{"error":{"error":{"message":"deep"}}}}}}}}}',
    ],
)
def test_no_message_is_json_or_a_page(body: bytes) -> None:
    assert read_error_body(body).message == ""


@pytest.mark.parametrize("body", ["plain", "<tag> is not known", "[{'loc': ('body',)}]", "{x} is not known"])
def test_a_text_is_its_own_message(body: str) -> None:
    assert read_error_body(body.encode()) == ErrorBody(body)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"message": "m", "padding": "x" * BODY_BYTES_MAX}, "m"),
        ({"detail": [{"type": "missing", "loc": ["body"], "msg": WORDS, "input": {"p": "x" * 70_000}}]}, WORDS),
        ({"error": "x" * 70_000}, "x" * 512),
        ({"error": "\\" * 70_000}, "\\" * 512),
        ({"error": "\U0001f600" * 12_000}, "\U0001f600" * 128),
        ({"padding": "x" * 70_000, "message": "m"}, ""),
        ({"message": json.dumps({"padding": "x" * 70_000})}, ""),
    ],
)
def test_of_json_beyond_64_kib_the_first_words_are_told(body: object, message: str) -> None:
    assert read_error_body(json.dumps(body).encode()).message == message
    assert read_error_body(json.dumps(body).encode()[:BODY_BYTES_MAX]).message == message


def test_controls_and_colours_cost_no_words() -> None:
    assert read_error_body(json.dumps({"error": "a \x1b[31mred\x1b[0m\0 one"}).encode()).message == "a red one"


def test_a_message_is_cut_between_characters() -> None:
    assert bounded("x" * 511 + "é") == "x" * 511
    assert raw_text(b"x" * 600) == "x" * 512


def test_half_a_surrogate_pair_can_be_sent() -> None:
    assert bounded("a\ud800b") == "a\ufffdb"


@given(st.binary(max_size=400))
def test_garbage_is_read_as_text_that_can_be_sent(body: bytes) -> None:
    assert len(read_error_body(body).message.encode()) <= 512
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
    assert len(read_error_body(json.dumps(body).encode()).message.encode()) <= 512
