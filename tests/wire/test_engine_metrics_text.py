"""The Prometheus text parser: what it takes, what it drops, and that nothing upsets it."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivenet_router.wire.engine_metrics.text import (
    LINE_BYTES_MAX,
    PAGE_BYTES_MAX,
    SERIES_MAX,
    bound_in,
    label_reader,
    series_in,
)

NAMES = frozenset((b"e:foo", b"e:bar", b"e:foo_bucket"))


def found(page: str | bytes) -> dict[bytes, dict[bytes, float]]:
    raw = page.encode() if isinstance(page, str) else page
    return {name: dict(series) for name, series in series_in(raw, prefix=b"e:", names=NAMES).items()}


def value(line: str) -> float | None:
    return next(iter(found(line).get(b"e:foo", {}).values()), None)


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ("e:foo 1e+06", 1_000_000.0),
        ('e:foo{a="b"} 4.5 1700000000', 4.5),
        ('e:foo{x="y"} NaN', None),
        ('e:foo{x="y"} +Inf', None),
    ],
)
def test_the_examples_of_the_original(line: str, read: float | None) -> None:
    """signals.md EX-1.2."""
    assert value(line) == read


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ("e:foo  7", 7.0),
        ("e:foo\t7", 7.0),
        ('e:foo{x="} y"} 3', 3.0),
        ('e:foo {x="y" , z = "\\"}" , }  3 ', 3.0),
        ("e:foo{} 3", 3.0),
        ('e:foo{x="y"}3', 3.0),
        ("e:foo 3\r", 3.0),
        ('e:foo -.5e1 # {trace_id="x"} 0.1', -5.0),
        ("e:foo 1.", 1.0),
    ],
)
def test_labels_are_read_in_full_and_any_blanks_will_do(line: str, read: float) -> None:
    """The original drops the first and the third; signals.md §9.1, "Parser"."""
    assert value(line) == read


@pytest.mark.parametrize(
    "line",
    [
        "e:foo",
        "e:foo ",
        "e:foo7",
        "e:food 7",
        " e:foo 7",
        "# e:foo 7",
        "e:foo x",
        "e:foo 7x",
        "e:foo 1_000",
        "e:foo 0x1p3",
        "e:foo 1e999",
        "e:foo ٣",
        "e:foo{ 7",
        "e:foo{x} 7",
        'e:foo{x="} 7',
        'e:foo{x="y" z="w"} 7',
        'e:foo{x="y"',
        'e:foo{x="y\n"} 7',
    ],
)
def test_what_is_no_sample_is_as_if_it_were_not_there(line: str) -> None:
    assert found(f"{line}\ne:bar 1\n") == {b"e:bar": {b"": 1.0}}


def test_only_the_names_that_were_asked_for_come_back() -> None:
    assert found("other 1\ne:other 2\ne:foo 3\ne:bar 4") == {b"e:foo": {b"": 3.0}, b"e:bar": {b"": 4.0}}


def test_series_are_told_apart_by_their_labels_and_the_first_of_two_equal_ones_counts() -> None:
    page = 'e:foo{a="1"} 1\ne:foo{a="2"} 2\ne:foo{a="1"} 9\n'
    assert found(page) == {b"e:foo": {b'a="1"': 1.0, b'a="2"': 2.0}}


def test_a_long_line_is_skipped() -> None:
    fits = b'e:foo{a="' + b"x" * (LINE_BYTES_MAX - 13) + b'"} 1'
    assert len(fits) == LINE_BYTES_MAX
    assert b"e:foo" in found(fits)
    assert found(fits.replace(b"} 1", b"} 11") + b"\ne:bar 1") == {b"e:bar": {b"": 1.0}}


def test_a_page_past_its_bounds_counts_as_empty() -> None:
    full = b"e:foo 1\n" + b"#" * (PAGE_BYTES_MAX - 8)
    assert found(full) == {b"e:foo": {b"": 1.0}}
    assert found(full + b"#") == {}
    lines = b"e:foo 1\n" * SERIES_MAX
    assert found(lines) == {b"e:foo": {b"": 1.0}}
    assert found(lines + b"e:foo 1\n") == {}


@pytest.mark.parametrize(
    ("labels", "bound"),
    [
        (b'le="0.5"', 0.5),
        (b'a="b",le="1e3"', 1000.0),
        (b'a="le=\\"7\\"", le = "2",', 2.0),
        (b'le="+Inf"', math.inf),
        (b'le="inf"', math.inf),
        (b'le="NaN"', None),
        (b'le="-Inf"', None),
        (b'le="1e999"', None),
        (b'le=""', None),
        (b'le="x"', None),
        (b'ale="1"', None),
        (b'a="le=1"', None),
        (b"", None),
    ],
)
def test_the_bound_of_a_bucket(labels: bytes, bound: float | None) -> None:
    assert bound_in(labels) == bound


@given(st.dictionaries(st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]*", fullmatch=True), st.text(), min_size=1), st.floats())
def test_every_label_comes_back_as_it_was_written(labels: dict[str, str], number: float) -> None:
    def escaped(text: str) -> str:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    block = ",".join(f'{name}="{escaped(text)}"' for name, text in labels.items()).encode(errors="replace")
    page = b"e:foo{%b} %b\n" % (block, repr(number).encode())
    read = {block: number} if math.isfinite(number) and len(page) < LINE_BYTES_MAX else None
    assert found(page).get(b"e:foo") == read
    for name, text in labels.items():
        assert label_reader(name.encode())(block) == text.encode(errors="replace").decode()
    assert label_reader(b"none-such")(block) is None


_PIECES = st.sampled_from([b"e:foo", b"e:foo_bucket", b"{", b"}", b'"', b"\\", b'le="', b"=", b",", b" ", b"1", b"\n"])


@given(st.lists(_PIECES | st.binary(max_size=4), max_size=60).map(b"".join))
def test_garbage_yields_finite_values_or_none(page: bytes) -> None:
    for series in found(page).values():
        for labels, number in series.items():
            assert math.isfinite(number)
            bound_in(labels)
