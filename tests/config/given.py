"""What the tests of this folder share: a usable secret and short ways to parse."""

from collections.abc import Mapping

from hivenet_router.config import AgentSettings, Exit, Program, RouterSettings, parse

SECRET = "0123456789abcdef0123456789abcdef"
WITH_SECRET = {"HIVENET_ROUTER_JWT_SECRET": SECRET}


def router(*argv: str, env: Mapping[str, str] | None = None) -> RouterSettings | Exit:
    return parse(Program.ROUTER, argv, {**WITH_SECRET, **(env or {})})


def agent(*argv: str, env: Mapping[str, str] | None = None) -> AgentSettings | Exit:
    return parse(Program.AGENT, argv, {**WITH_SECRET, **(env or {})})


def good_router(*argv: str, env: Mapping[str, str] | None = None) -> RouterSettings:
    settings = router(*argv, env=env)
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
