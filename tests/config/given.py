"""What the tests of this folder share: a usable secret and short ways to parse."""

from collections.abc import Mapping

from hivenet_router.config import AgentSettings, Exit, Program, RouterSettings, parse
from hivenet_router.config.build import build_router
from hivenet_router.config.checks import check_router, warn_of_variables
from hivenet_router.config.command_line import scan
from hivenet_router.config.given import Facts, read_all, resolve
from hivenet_router.config.help_text import mistakes_text
from hivenet_router.config.keys import read_keys

SECRET = "0123456789abcdef0123456789abcdef"
WITH_SECRET = {"HIVENET_ROUTER_JWT_SECRET": SECRET}


def router(*argv: str, env: Mapping[str, str] | None = None) -> RouterSettings | Exit:
    return parse(Program.ROUTER, argv, {**WITH_SECRET, **(env or {})})


def whole_router(*argv: str, env: Mapping[str, str] | None = None) -> RouterSettings | Exit:
    """As `router`, in a version in which no option is without effect: the rules of those that are not there yet."""
    environ = {**WITH_SECRET, **(env or {})}
    line = scan(Program.ROUTER, argv)
    facts = Facts(Program.ROUTER, resolve(Program.ROUTER, line.texts, environ), mistakes=line.mistakes)
    read_all(facts)
    keys = read_keys(facts)
    check_router(facts)
    warn_of_variables(facts, environ)
    if facts.mistakes:
        code = max(mistake.exit_code for mistake in facts.mistakes)
        return Exit(code, stderr=mistakes_text(Program.ROUTER, facts.mistakes), mistakes=tuple(facts.mistakes))
    return build_router(facts, keys)


def agent(*argv: str, env: Mapping[str, str] | None = None) -> AgentSettings | Exit:
    return parse(Program.AGENT, argv, {**WITH_SECRET, **(env or {})})


def good_router(*argv: str, env: Mapping[str, str] | None = None) -> RouterSettings:
    settings = router(*argv, env=env)
    assert isinstance(settings, RouterSettings), settings
    return settings


def good_whole_router(*argv: str, env: Mapping[str, str] | None = None) -> RouterSettings:
    settings = whole_router(*argv, env=env)
    assert isinstance(settings, RouterSettings), settings
    return settings


def good_agent(*argv: str, env: Mapping[str, str] | None = None) -> AgentSettings:
    settings = agent(*argv, env=env)
    assert isinstance(settings, AgentSettings), settings
    return settings


def refused(result: RouterSettings | AgentSettings | Exit) -> Exit:
    assert isinstance(result, Exit), result
    assert result.code != 0, result.stdout
    assert result.stdout == ""
    return result
