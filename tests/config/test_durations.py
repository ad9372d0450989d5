"""Are Go durations read and written as Go does?"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivenet_router.config.durations import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("+0", 0.0),
        ("-0", 0.0),
        ("60s", 60.0),
        ("1h30m", 5400.0),
        ("1.5s", 1.5),
        (".5s", 0.5),
        ("5.s", 5.0),
        ("-1m", -60.0),
        ("+1m", 60.0),
        ("250ms", 0.25),
        ("1us", 1e-6),
        ("1\u00b5s", 1e-6),
        ("1\u03bcs", 1e-6),
        ("7ns", 7e-9),
        ("1s1h", 3601.0),
        ("1h1m1s1ms", 3661.001),
        ("0.0000000019s", 1e-9),
    ],
)
def test_a_duration_is_its_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "60",
        "1d",
        "s",
        ".s",
        "1",
        "-",
        "+",
        "1h 30m",
        " 1s",
        "1s ",
        "1S",
        "1e3s",
        "0x1s",
        "--1s",
        "1.2.3s",
        "\u0661s",
    ],
)
def test_what_go_refuses_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be a duration"):
        parse_duration(text)


def test_a_duration_beyond_go_s_range_is_refused() -> None:
    with pytest.raises(ValueError, match="292 years"):
        parse_duration("2562048h")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0s"),
        (-0.0, "0s"),
        (60.0, "1m0s"),
        (5400.0, "1h30m0s"),
        (1.5, "1.5s"),
        (0.25, "250ms"),
        (1.5e-6, "1.5\u00b5s"),
        (7e-9, "7ns"),
        (-90.0, "-1m30s"),
        (3661.001, "1h1m1.001s"),
        (86400.0, "24h0m0s"),
    ],
)
def test_a_duration_is_written_as_go_prints_it(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@given(st.integers(-(2**50), 2**50).map(lambda ns: ns / 1e9))
def test_what_is_written_reads_back_the_same(seconds: float) -> None:
    assert parse_duration(format_duration(seconds)) == seconds


@given(st.text(alphabet="0123456789.+-hmsnuµ ", max_size=20) | st.text(max_size=300))
def test_any_text_gives_seconds_or_the_documented_error(text: str) -> None:
    try:
        seconds = parse_duration(text)
    except ValueError:
        return
    assert abs(seconds) <= 2**63 / 1e9
