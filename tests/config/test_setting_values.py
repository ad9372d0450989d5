"""Does each kind of plain value accept what it should, and nothing else?"""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivenet_router.config.values import (
    INT64_MAX,
    INT64_MIN,
    UnusableError,
    read_boolean,
    read_domain_suffixes,
    read_env_integer,
    read_flag_integer,
    read_fraction,
    read_log_levels,
    read_name,
    read_path,
    read_text,
    read_words,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8", 8),
        ("010", 8),
        ("0", 0),
        ("00", 0),
        ("-0", 0),
        ("+5", 5),
        ("-5", -5),
        ("0x1F", 31),
        ("0X1f", 31),
        ("0o17", 15),
        ("0b101", 5),
        ("1_000", 1000),
        ("0x_ff", 255),
        ("0_7", 7),
        ("-0x10", -16),
        ("9223372036854775807", INT64_MAX),
        ("-9223372036854775808", INT64_MIN),
    ],
)
def test_a_flag_integer_has_go_s_prefixes(text: str, value: int) -> None:
    assert read_flag_integer(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "08",
        "1_",
        "_1",
        "1__0",
        "0x",
        "0x_",
        "0b2",
        "0o8",
        " 1",
        "1 ",
        "1.0",
        "1e3",
        "٣",
        "²",
        "+",
        "--1",
        "0_",
    ],
)
def test_a_flag_integer_go_refuses_is_refused(text: str) -> None:
    with pytest.raises(UnusableError):
        read_flag_integer(text)


@pytest.mark.parametrize("text", ["9223372036854775808", "-9223372036854775809", "0xffffffffffffffff", "9" * 5000])
def test_an_integer_beyond_64_bits_is_refused(text: str) -> None:
    with pytest.raises(UnusableError):
        read_flag_integer(text)
    with pytest.raises(UnusableError):
        read_env_integer(text)


@given(st.integers(INT64_MIN, INT64_MAX))
def test_every_64_bit_integer_reads_back(value: int) -> None:
    assert read_env_integer(str(value)) == value
    assert read_flag_integer(str(value)) == value
    assert read_flag_integer(f"{'-' if value < 0 else ''}{abs(value):#x}") == value
    assert read_flag_integer(f"{'-' if value < 0 else ''}{abs(value):#o}") == value
    assert read_flag_integer(f"{'-' if value < 0 else ''}{abs(value):#b}") == value


def test_a_variable_s_integer_is_decimal_only() -> None:
    assert read_env_integer("010") == 10
    for text in ("0x10", "1_0", "", " 1", "1.0"):
        with pytest.raises(UnusableError):
            read_env_integer(text)


@given(st.text(max_size=40))
def test_any_text_is_an_integer_or_unusable(text: str) -> None:
    for read in (read_flag_integer, read_env_integer):
        with suppress(UnusableError):
            assert INT64_MIN <= read(text) <= INT64_MAX


@pytest.mark.parametrize("text", ["1", "t", "T", "TRUE", "true", "True"])
def test_these_words_are_true(text: str) -> None:
    assert read_boolean(text) is True


@pytest.mark.parametrize("text", ["0", "f", "F", "FALSE", "false", "False"])
def test_these_words_are_false(text: str) -> None:
    assert read_boolean(text) is False


@pytest.mark.parametrize("text", ["", "yes", "no", "on", "off", "tRUE", " true"])
def test_other_words_are_no_boolean(text: str) -> None:
    with pytest.raises(UnusableError):
        read_boolean(text)


@pytest.mark.parametrize(("text", "value"), [("0.9", 0.9), ("1", 1.0), (".5", 0.5), ("1.", 1.0), ("5e-1", 0.5)])
def test_a_fraction_is_a_decimal_number(text: str, value: float) -> None:
    assert read_fraction(text) == value


@pytest.mark.parametrize("text", ["", "nan", "inf", "1_0", "0x1p3", "1e999", " 1", "1,5"])
def test_no_other_number_is_a_fraction(text: str) -> None:
    with pytest.raises(UnusableError):
        read_fraction(text)


def test_a_text_must_be_utf_8_without_control_characters() -> None:
    assert read_text("Größe\n2") == "Größe\n2"
    for text in ("\udcff", "a\x00", "a\x1b[0m", "\x7f"):
        with pytest.raises(UnusableError):
            read_text(text)


def test_a_path_may_hold_any_bytes_but_nul() -> None:
    assert read_path("/tmp/\udcff") == "/tmp/\udcff"
    with pytest.raises(UnusableError):
        read_path("a\x00b")


def test_a_comma_list_is_trimmed_and_drops_empty_items() -> None:
    assert read_words(" a, b ,,c ").items == ("a", "b", "c")
    assert read_words("").items == ()


def test_a_name_has_a_bounded_length_and_few_characters() -> None:
    assert read_name("site-fr_1.a", 64) == "site-fr_1.a"
    for text in ("a" * 65, "a/b", "a b", "é"):
        with pytest.raises(UnusableError):
            read_name(text, 64)


def test_domain_suffixes_are_lower_cased() -> None:
    assert read_domain_suffixes(" .Example.COM , .example.org").items == (".example.com", ".example.org")


@pytest.mark.parametrize("text", ["example.com", ".", "..a", "*.a", ".a b", ".a/", ".a:1", ".-a", ".a-", ".ü"])
def test_other_texts_are_no_domain_suffix(text: str) -> None:
    with pytest.raises(UnusableError):
        read_domain_suffixes(text)


def test_log_levels_have_a_base_and_exceptions() -> None:
    levels = read_log_levels("warn, policy=DEBUG,auth=panic")
    assert (levels.base, levels.by_logger) == ("warn", (("policy", "debug"), ("auth", "fatal")))
    assert str(levels) == "warn,policy=debug,auth=fatal"


def test_log_levels_without_a_bare_word_keep_info() -> None:
    assert read_log_levels("api=error").base == "info"


@pytest.mark.parametrize("text", ["loud", "api=loud", "=debug", "debug="])
def test_an_unknown_log_level_is_refused(text: str) -> None:
    with pytest.raises(UnusableError):
        read_log_levels(text)
