"""Is the command line read as Go's flag package reads it, where it is meant to be?"""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.config.given import good_agent, good_router, good_whole_router, refused, router

from hivenet_router.config.command_line import scan
from hivenet_router.config.option import Kind, Program
from hivenet_router.config.options import OPTIONS_BY_FLAG

FLAGS = list(OPTIONS_BY_FLAG[Program.ROUTER])


@pytest.mark.parametrize(
    "argv",
    [("-queue-size", "7"), ("--queue-size", "7"), ("-queue-size=7",), ("--queue-size=7",)],
)
def test_four_ways_to_write_a_flag_are_equal(argv: tuple[str, ...]) -> None:
    assert good_router(*argv).queue_requests_max == 7


def test_the_last_of_a_repeated_flag_wins() -> None:
    assert good_router("--queue-size", "7", "--queue-size=8").queue_requests_max == 8


def test_an_earlier_occurrence_must_be_readable_all_the_same() -> None:
    exit_ = refused(router("--queue-size", "x", "--queue-size=8"))
    assert exit_.code == 2
    assert '--queue-size "x"' in exit_.stderr


def test_an_earlier_occurrence_out_of_range_does_not_count() -> None:
    assert good_router("--queue-size", "-1", "--queue-size=8").queue_requests_max == 8


def test_a_value_may_hold_an_equals_sign() -> None:
    assert good_agent("--llm-info=a=b").llm_info == "a=b"


def test_a_value_may_begin_with_a_dash() -> None:
    assert good_whole_router("--disk-db-ttl", "-1").storage.history_ttl_s is None
    assert good_agent("--model", "--engine").model == "--engine"


def test_a_bare_boolean_is_true() -> None:
    assert good_router("--hold-slot-for-stream").hold_slot_for_stream


def test_a_boolean_takes_a_value_after_an_equals_sign() -> None:
    assert not good_router("--legacy-metric-names=false").legacy_metric_names


def test_a_boolean_does_not_take_the_next_argument() -> None:
    exit_ = refused(router("--reset-disk-db", "false"))
    assert exit_.code == 2
    assert "argument 2" in exit_.stderr
    assert "--flag=false" in exit_.stderr


@pytest.mark.parametrize("argv", [("serve",), ("-",), ("",), ("--", "x"), ("--queue-size", "7", "x")])
def test_an_argument_that_belongs_to_no_flag_is_refused(argv: tuple[str, ...]) -> None:
    exit_ = refused(router(*argv))
    assert exit_.code == 2
    assert "belongs to no flag" in exit_.stderr


def test_flags_end_at_two_dashes() -> None:
    assert good_router("--queue-size", "7", "--").queue_requests_max == 7


@pytest.mark.parametrize("argument", ["---queue-size", "-=7", "--=7", "---"])
def test_bad_flag_syntax_is_refused(argument: str) -> None:
    exit_ = refused(router(argument))
    assert exit_.code == 2
    assert "is no flag" in exit_.stderr


def test_an_unknown_flag_is_refused_with_the_nearest_known_one() -> None:
    exit_ = refused(router("--queue-sise", "7"))
    assert exit_.code == 2
    assert "did you mean --queue-size?" in exit_.stderr


def test_the_text_after_an_unknown_flag_is_never_shown() -> None:
    for argv in (("--jwt-secret", "hush-hush-hush"), ("--jwt-secret=hush-hush-hush",)):
        exit_ = refused(router(*argv))
        assert "hush" not in exit_.stderr
        assert len(exit_.mistakes) == 1


def test_a_flag_of_the_other_program_is_unknown() -> None:
    assert refused(router("--engine", "vllm")).code == 2


def test_a_flag_without_its_value_is_refused() -> None:
    exit_ = refused(router("--queue-size"))
    assert exit_.code == 2
    assert "--queue-size (command line) needs a value" in exit_.stderr


def test_flag_names_are_case_sensitive() -> None:
    assert refused(router("--Queue-Size", "7")).code == 2


@given(st.lists(st.sampled_from([*FLAGS, "--", "-x", "v", "--a=b", "-h", "---", "", "true", "7"]), max_size=8))
def test_any_command_line_is_taken_in_without_an_exception(argv: list[str]) -> None:
    found = scan(Program.ROUTER, argv)
    assert set(found.texts) <= set(FLAGS)
    assert all(mistake.exit_code == 2 for mistake in found.mistakes)


@given(
    st.dictionaries(
        st.sampled_from([flag for flag in FLAGS if OPTIONS_BY_FLAG[Program.ROUTER][flag].kind is not Kind.SECRET]),
        st.text(max_size=20),
        max_size=5,
    )
)
def test_what_is_written_with_an_equals_sign_is_read_back(texts: dict[str, str]) -> None:
    assert scan(Program.ROUTER, [f"{flag}={text}" for flag, text in texts.items()]).texts == texts
