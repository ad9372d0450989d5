"""Does the data plane read a request body as Python's `json` does?

It takes a subset of what `json` takes; where both take a body, they agree on what the router acts on. Otherwise router
and engine could read two different requests from one body. Source: architecture.md §2; decisions.md 5.
"""

import json
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hivenet_router._plane import Digest, digest_of

_NAMES: Final = ("model", "stream", "max_tokens", "max_completion_tokens", "n", "messages", "x", "Model", "mod\u0065l")
_VALUES: Final = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.sampled_from([16.0, 1e3, 2.0**63, -1.0, 0.5])
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
_BODIES: Final = st.dictionaries(st.sampled_from(_NAMES) | st.text(max_size=4), _VALUES, max_size=6)


def digested(body: bytes) -> Digest | None:
    try:
        return digest_of(body)
    except ValueError:
        return None


def python_reads(body: bytes) -> dict[str, object] | None:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def whole(value: object) -> int | None:
    """A token limit as `json` reads it; integral floats are whole numbers."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def check(body: bytes) -> None:
    digest = digested(body)
    if digest is None:
        return
    read = python_reads(body)
    assert read is not None, body
    assert digest.model == read.get("model")
    assert digest.stream == bool(read.get("stream"))
    for name in ("max_tokens", "max_completion_tokens", "n"):
        assert getattr(digest, name) == whole(read.get(name)), name


@given(_BODIES, st.booleans(), st.sampled_from([None, 1]))
def test_what_both_take_they_read_alike(body: dict[str, object], ascii_only: bool, indent: int | None) -> None:
    check(json.dumps(body, ensure_ascii=ascii_only, indent=indent).encode("utf-8", "surrogatepass"))


@given(_BODIES, st.data())
def test_a_body_with_any_byte_changed_is_read_alike_or_refused(body: dict[str, object], data: st.DataObject) -> None:
    raw = bytearray(json.dumps(body).encode())
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    check(bytes(raw))


@given(st.binary(max_size=60))
@example(b'{"model":"m"}')
@example(b'\xef\xbb\xbf{"model":"m"}')
def test_garbage_is_never_taken_for_more_than_json_takes(raw: bytes) -> None:
    check(raw)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"model":"a","model":"b"}',
        b'{"model":"a","mod\\u0065l":"b"}',
        b'{"model":"\\ud800"}',
        b'{"max_tokens":NaN}',
        b'{"model":"m"} x',
        b'\xef\xbb\xbf{"model":"m"}',
        b'{"model":"\xff"}',
        b'{"x":' + b"[" * 200 + b"]" * 200 + b"}",
        b'{"stream":"true"}',
        b'{"max_tokens":9223372036854775808}',
    ],
)
def test_what_readers_could_disagree_on_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError):
        digest_of(body)
