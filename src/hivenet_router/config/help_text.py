"""What do `--help`, `--version` and `--check-config` print?

Invariant: all of it is made from the option rows and the resolved values, so no option is missing and no secret
appears. Who prints it, and with which exit code, is decided in `parse` and `cli`.
"""

import textwrap
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

from hivenet_router.config.given import Mistake
from hivenet_router.config.option import Kind, Option, Program
from hivenet_router.config.options import OPTIONS_BY_FLAG
from hivenet_router.config.reading import bounds_text
from hivenet_router.config.settings import Resolved

REFUSED_NOTE: Final = "Not there yet: a start with it is refused."
IDLE_NOTE: Final = "Without effect in this version."
_WIDTH: Final = 100
_INDENT: Final = "        "
_PURPOSE: Final = {
    Program.ROUTER: "Routes inference requests to agents that stand in front of model backends.",
    Program.AGENT: "Stands in front of one model backend and serves it to routers.",
}
_USUAL: Final = {
    Program.ROUTER: (
        "Usual start, for agents on any machine:",
        "    (umask 077; openssl rand -hex 32 > secret.txt)",
        "    hivenet-router --jwt-secret-file secret.txt --p2p-listen-addr 0.0.0.0",
        "and beside each engine, with the same file:",
        "    hivenet-agent --engine vllm --backend-url http://localhost:8000 \\",
        "        --router-grpc ROUTER:50051 --jwt-secret-file secret.txt",
    ),
    Program.AGENT: (
        "Usual start, beside the engine and with the router's secret:",
        "    hivenet-agent --engine vllm --backend-url http://localhost:8000 \\",
        "        --router-grpc ROUTER:50051 --jwt-secret-file secret.txt",
        "It asks the engine for its model, dials the router and needs no open port.",
    ),
}
_PLACEHOLDERS: Final = {
    Kind.INTEGER: "N",
    Kind.FRACTION: "F",
    Kind.DURATION: "DURATION",
    Kind.WHOLE_SECONDS: "DURATION",
    Kind.TEXT: "TEXT",
    Kind.PATH: "PATH",
    Kind.NAME: "NAME",
    Kind.WORDS: "LIST",
    Kind.DOMAINS: "LIST",
    Kind.LOG_LEVELS: "LEVEL",
    Kind.LISTEN_ADDRESS: "HOST:PORT",
    Kind.IP: "IP",
    Kind.MULTIADDR: "MULTIADDR",
    Kind.HOST_PORT: "HOST:PORT",
    Kind.HOST_PORTS: "LIST",
    Kind.ADVERTISED: "HOST:PORT",
    Kind.NETWORKS: "LIST",
    Kind.BACKEND_URL: "URL",
    Kind.URL: "URL",
    Kind.OTLP: "HOST:PORT",
    Kind.SECRET: "FILE",
}


def help_text(program: Program) -> str:
    """The whole help of one program, every option with its variable, default and range."""
    lines = [
        f"Usage: {program} [flags]",
        "",
        _PURPOSE[program],
        "",
        *_USUAL[program],
        "",
        *_paragraph(
            "Each flag may be written with one dash or two, with its value after '=' or as the next argument; booleans "
            "take a value only after '='. A flag wins over its environment variable, the variable over the default. "
            "Durations are written 500ms, 1.5s or 1h30m.",
            "",
        ),
    ]
    options = OPTIONS_BY_FLAG[program].values()
    for group, rows in groupby(options, key=lambda option: option.group):
        lines += ["", f"{group}:"]
        for option in rows:
            lines += _entry(option)
    lines += ["", "Other:", "    --help", f"{_INDENT}Print this text and exit."]
    if "--version" not in OPTIONS_BY_FLAG[program]:
        lines += ["    --version", f"{_INDENT}Print the version and exit."]
    return "\n".join(lines) + "\n"


def _entry(option: Option) -> Iterable[str]:
    yield f"    {option.flag}{_placeholder(option)}"
    yield from _paragraph(option.help, _INDENT)
    if option.unbuilt is not None:
        yield f"{_INDENT}{REFUSED_NOTE if option.unbuilt.refuses else IDLE_NOTE}"
    yield from _paragraph("; ".join(_facts(option)), _INDENT)


def _placeholder(option: Option) -> str:
    if option.kind is Kind.BOOLEAN:
        return "[=true|false]"
    if option.kind is Kind.CHOICE:
        return " " + "|".join(option.choices)
    return f" {_PLACEHOLDERS[option.kind]}"


def _facts(option: Option) -> Iterable[str]:
    held = " (the secret itself)" if option.kind is Kind.SECRET else ""
    yield f"env {' or '.join(option.names_env)}{held}"
    if option.kind is not Kind.SECRET:
        # One of them would need the singular; the range beside it names the unit anyhow.
        unit = f" {option.unit}" if option.unit and option.default != "1" else ""
        yield f"default {option.default}{unit}" if option.default else "default empty"
    bounds = bounds_text(option)
    if bounds:
        yield bounds
    elif option.kind is Kind.NAME:
        yield f"at most {option.at_most} letters, digits, '.', '_' or '-'"


def _paragraph(text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
    )


def mistakes_text(program: Program, mistakes: Sequence[Mistake]) -> str:
    """All mistakes, one a line, and where to read more."""
    count = "1 mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
    lines = [f"{program} cannot start, {count}:"]
    lines += [f"  {mistake}" for mistake in mistakes]
    lines.append(f"Usage: {program} [flags]; see {program} --help")
    return "\n".join(lines) + "\n"


def check_text(program: Program, resolved: Sequence[Resolved]) -> str:
    """Every option as it stands, with where it came from."""
    lines = [f"{program}: configuration is usable"]
    lines += [f"  {row.flag}={row.text}  ({row.source})" for row in resolved]
    return "\n".join(lines) + "\n"
