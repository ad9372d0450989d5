"""Do help, version and check print what an operator needs, and end as they should?"""

import re

import pytest
from tests.config.given import good_agent, refused, router

from hivenet_router.config import OPTIONS, AgentSettings, Exit, Option, Program, RouterSettings, parse
from hivenet_router.config.help_text import IDLE_NOTE, REFUSED_NOTE, help_text


def ended(result: RouterSettings | AgentSettings | Exit) -> Exit:
    assert isinstance(result, Exit)
    assert result.code == 0
    assert result.mistakes == ()
    return result


def entry(option: Option) -> str:
    """The help of one option, on one line."""
    text = help_text(option.program)
    found = re.search(rf"^    {re.escape(option.flag)}[ \[](?:.*\n)(?: {{8}}.*\n)+", text, re.MULTILINE)
    assert found is not None
    return " ".join(found[0].split())


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: f"{option.program} {option.flag}")
def test_help_tells_all_about_every_option(option: Option) -> None:
    text = entry(option)
    assert option.help in text
    assert all(name in text for name in option.names_env)
    assert option.default in text
    assert all(bound in text for bound in (option.at_least, option.at_most, option.more_than))
    assert all(choice in text for choice in option.choices)
    assert (REFUSED_NOTE in text) is (option.unbuilt is not None and option.unbuilt.refuses)
    assert (IDLE_NOTE in text) is (option.unbuilt is not None and not option.unbuilt.refuses)


def test_no_default_speaks_of_one_of_many() -> None:
    assert not any(re.search(r"default 1 \w", entry(option)) for option in OPTIONS)


def test_help_lines_fit_a_terminal() -> None:
    for program in Program:
        assert max(map(len, help_text(program).splitlines())) <= 100


@pytest.mark.parametrize("flag", ["-h", "--h", "-help", "--help", "--help=false"])
@pytest.mark.parametrize("program", list(Program))
def test_help_goes_to_stdout_and_needs_no_secret(program: Program, flag: str) -> None:
    exit_ = ended(parse(program, (flag,), {}))
    assert exit_.stdout.startswith(f"Usage: {program} [flags]")
    assert exit_.stderr == ""


def test_help_is_given_beside_mistakes() -> None:
    ended(parse(Program.ROUTER, ("--queue-size", "x", "--unknown", "--help"), {}))


def test_a_router_tells_its_version() -> None:
    assert ended(parse(Program.ROUTER, ("--version",), {})).stdout.startswith("hivenet-router ")


def test_an_agent_s_version_is_a_value_unless_it_has_none() -> None:
    """The original announces it as metadata, so `--version v1` must stay what it was."""
    assert good_agent("--version", "v1").version == "v1"
    assert good_agent("--version=v1").version == "v1"
    assert ended(parse(Program.AGENT, ("--version",), {})).stdout.startswith("hivenet-agent ")


def test_a_check_prints_every_option_and_ends_well() -> None:
    exit_ = ended(router("--check-config", "--queue-size=7"))
    printed = [line.split("=")[0].strip() for line in exit_.stdout.splitlines()[1:]]
    assert printed == [option.flag for option in OPTIONS if option.program is Program.ROUTER]
    assert "  --queue-size=7  (command line)\n" in exit_.stdout
    assert "  --session-ttl=1h0m0s  (default)\n" in exit_.stdout


def test_a_check_prints_warnings_apart() -> None:
    exit_ = ended(router("--check-config", "--ready-needs-agents"))
    assert exit_.stderr.startswith("warning: ")


def test_a_check_of_unusable_settings_ends_with_1() -> None:
    exit_ = refused(router("--check-config", env={"HIVENET_ROUTER_QUEUE_SIZE": "x"}))
    assert exit_.code == 1


def test_a_check_can_be_asked_for_by_variable() -> None:
    ended(router(env={"HIVENET_ROUTER_CHECK_CONFIG": "true"}))


def test_mistakes_point_to_the_help() -> None:
    assert refused(router("--unknown")).stderr.endswith("see hivenet-router --help\n")


def test_one_mistake_is_counted_as_one() -> None:
    assert refused(router("--unknown")).stderr.startswith("hivenet-router cannot start, 1 mistake:\n")
