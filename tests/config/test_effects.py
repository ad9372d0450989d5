"""Does every option do what it says, or say that it does nothing yet?

Each option is given a value other than its default. What it changes in the settings must be read outside `config`, or
its row must be marked as unbuilt; then the start is refused or warned of, by the class of the option.
"""

import ast
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from tests.config.given import agent, refused, router, whole_router

import hivenet_router
from hivenet_router.config import OPTIONS, AgentSettings, Exit, Option, Program, RouterSettings
from hivenet_router.config.option import Kind

_SECRET: Final = "k1:" + "s" * 40
_OTHERS: Final = {
    Kind.TEXT: "other",
    Kind.PATH: "other/path",
    Kind.NAME: "other",
    Kind.WORDS: "one,two",
    Kind.DOMAINS: ".example.com",
    Kind.LOG_LEVELS: "debug",
    Kind.LISTEN_ADDRESS: "127.0.0.2:1234",
    Kind.IP: "127.0.0.2",
    Kind.MULTIADDR: "/ip4/203.0.113.7/tcp/9000",
    Kind.HOST_PORT: "other:1234",
    Kind.HOST_PORTS: "other:1234",
    Kind.ADVERTISED: "other:1234",
    Kind.NETWORKS: "10.0.0.0/8",
    Kind.BACKEND_URL: "http://other:1234",
    Kind.URL: "http://other:1234/health",
    Kind.OTLP: "other:4317",
    Kind.FRACTION: "0.5",
    Kind.DURATION: "3s",
    Kind.WHOLE_SECONDS: "6m",
    Kind.INTEGER: "7",
    Kind.SECRET: "",
}
_OTHERS_OF_FLAG: Final = {"--heartbeat-interval": "4s", "--unhealthy-after": "10s", "--remove-after": "40s"}
# Refused alone, for a rule of their own.
_NEEDED_BESIDE: Final = {
    "--auth-mode": ("--auth-config-file=a.yaml",),
    "--site-id": ("--redirect-allowed-domains=.example.com",),
    "--redirect-secret-file": ("--site-id=other", "--redirect-allowed-domains=.example.com"),
    "--redirect-allowed-domains": ("--site-id=other",),
    "--sync-store": ("--sync-valkey-addrs=a:1",),
}
# Settings that an option changes beside its own, where it is of more than one part.
_BY_THE_WAY: Final = {"--sync-store": {"stream_timeout_s"}}
# What `parse` itself acts on; the settings never hold it.
_OF_THE_PARSER: Final = {"--check-config"}

every_option = pytest.mark.parametrize("option", OPTIONS, ids=lambda option: f"{option.program} {option.flag}")


def another_value(option: Option) -> str:
    if option.flag in _OTHERS_OF_FLAG:
        return _OTHERS_OF_FLAG[option.flag]
    match option.kind:
        case Kind.BOOLEAN:
            return "false" if option.default == "true" else "true"
        case Kind.CHOICE:
            return next(choice for choice in option.choices if choice != option.default)
        case kind:
            return _OTHERS[kind]


def given(option: Option, text: str, folder: Path) -> tuple[str, ...]:
    if option.kind is Kind.SECRET:
        path = folder / "secret"
        path.write_text(_SECRET)
        path.chmod(0o600)
        text = str(path)
    return (*_NEEDED_BESIDE.get(option.flag, ()), f"{option.flag}={text}")


def parsed(option: Option, *argv: str, env: dict[str, str] | None = None) -> RouterSettings | AgentSettings | Exit:
    return router(*argv, env=env) if option.program is Program.ROUTER else agent(*argv, env=env)


def whole(option: Option, *argv: str) -> RouterSettings | AgentSettings:
    names_a_site = any(argument.startswith("--site-id=") for argument in argv)
    env = {"HIVENET_ROUTER_REDIRECT_SECRETS": _SECRET} if names_a_site else {}
    settings = whole_router(*argv, env=env) if option.program is Program.ROUTER else agent(*argv)
    assert not isinstance(settings, Exit), settings.stderr
    return settings


def leaves(settings: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Every value of the settings under its path, such as `sync.site`."""
    assert is_dataclass(settings)
    for field in fields(settings):
        value = getattr(settings, field.name)
        if field.name in ("warnings", "resolved"):
            continue
        if field.name in ("policy", "access", "storage", "redirect", "sync"):
            yield from leaves(value, f"{field.name}.")
        else:
            yield f"{path}{field.name}", value


def changed_by(option: Option, folder: Path) -> set[str]:
    argv = given(option, another_value(option), folder)
    before = dict(leaves(whole(option)))
    after = dict(leaves(whole(option, *argv)))
    changed = {path for path, value in after.items() if value != before[path]}
    return changed - _BY_THE_WAY.get(option.flag, set())


@cache
def paths_read() -> frozenset[str]:
    """What the programs outside `config` read of the settings: `x.y` of `settings.x.y`, `x` of `settings.x`."""
    source = Path(hivenet_router.__file__).parent
    modules = [path for path in source.rglob("*.py") if "config" not in path.relative_to(source).parts]
    chains = (chain for path in modules for chain in chains_in(ast.parse(path.read_text())))
    return frozenset(
        ".".join(chain[number + 1 :])
        for chain in chains
        for number, name in enumerate(chain)
        if name in ("settings", "_settings", "parsed")
    )


def chains_in(tree: ast.AST) -> Iterator[list[str]]:
    for node in ast.walk(tree):
        names: list[str] = []
        at: ast.AST = node
        while isinstance(at, ast.Attribute):
            names.append(at.attr)
            at = at.value
        if names and isinstance(at, ast.Name):
            yield [*reversed([*names, at.id])]


@every_option
def test_an_option_is_used_or_marked_as_unbuilt(option: Option, tmp_path: Path) -> None:
    if option.flag in _OF_THE_PARSER:
        assert option.unbuilt is None
        return
    changed = changed_by(option, tmp_path)
    is_used = bool(changed & paths_read())
    assert is_used is (option.unbuilt is None), f"{option.flag} changes {changed or 'nothing'}"


@every_option
def test_an_option_without_effect_refuses_the_start_or_is_warned_of(option: Option, tmp_path: Path) -> None:
    (*beside, argument) = given(option, another_value(option), tmp_path)
    for check in ((), ("--check-config",)):
        ended = parsed(option, *beside, argument, *check)
        if option.unbuilt is not None and option.unbuilt.refuses:
            rules = [mistake.rule for mistake in refused(ended).mistakes if mistake.name == option.flag]
            assert any(rule.endswith(option.unbuilt.why) for rule in rules)
            assert refused(ended).code == 1
            continue
        told = ended.stderr if isinstance(ended, Exit) else "\n".join(ended.warnings)
        assert not isinstance(ended, Exit) or ended.code == 0
        assert (f"{option.flag} has no effect in this version" in told) is (option.unbuilt is not None)


@every_option
def test_a_variable_is_judged_as_the_flag_is(option: Option) -> None:
    if option.unbuilt is None:
        return
    text = _SECRET if option.kind is Kind.SECRET else another_value(option)
    for name in option.names_env:
        ended = parsed(option, env={name: text})
        if option.unbuilt.refuses:
            assert any(mistake.name == name for mistake in refused(ended).mistakes)
        else:
            assert not isinstance(ended, Exit)
            assert any(warning.startswith(f"{name} has no effect") for warning in ended.warnings)


@every_option
def test_a_value_that_asks_for_nothing_refuses_no_start(option: Option) -> None:
    texts = [option.default, *([option.off] if option.off else [])]
    for text in texts if option.kind is not Kind.SECRET or option.unbuilt is not None else []:
        ended = parsed(option, f"{option.flag}={text}")
        assert not isinstance(ended, Exit), ended.stderr


def test_all_that_is_not_there_yet_is_told_at_once() -> None:
    exit_ = refused(
        router(
            "--auth-config-file=missing.yaml",
            "--trusted-proxies=10.0.0.0/8",
            "--queue-size=x",
            env={"HIVENET_ROUTER_SYNC_STORE": "valkey", "HIVENET_ROUTER_ADMIN_API_KEYS": "hush-hush-hush"},
        )
    )
    named = {mistake.name for mistake in exit_.mistakes}
    assert named >= {
        "--auth-config-file",
        "--trusted-proxies",
        "--queue-size",
        "HIVENET_ROUTER_SYNC_STORE",
        "HIVENET_ROUTER_ADMIN_API_KEYS",
    }
    assert "hush" not in exit_.stderr


def test_a_refusal_says_what_is_not_there() -> None:
    line = refused(router("--auth-config-file=a.yaml")).stderr.splitlines()[1]
    assert line == (
        '  --auth-config-file "a.yaml" (command line) must be left out, because this version does not have it yet: '
        "client keys are not checked, so everybody would be served"
    )


def test_what_protects_limits_or_persists_is_never_only_warned_of() -> None:
    """By group, so that a row that is added cannot slip into the milder class unseen."""
    mild = {option.flag for option in OPTIONS if option.unbuilt is not None and not option.unbuilt.refuses}
    assert mild == {
        "--lenient-config",
        "--allow-insecure-admin",
        "--openai-api-key-file",
        "--anthropic-api-key-file",
        "--ready-needs-agents",
        "--otlp-endpoint",
        "--gpu-devices-file",
        "--router-p2p",
    }


def test_what_is_not_there_is_told_before_what_it_would_need() -> None:
    mistakes = refused(router("--sync-store=valkey")).mistakes
    assert [mistake.name for mistake in mistakes] == ["--sync-store", "--sync-valkey-addrs"]
