"""Which options do the two programs have, and what is each one called, worth by default and allowed to be?

Invariant: one row per option and program; the parser, `--help`, `--check-config`, the documents and the golden test are
all made from these rows, so an option cannot exist in one of them only. How texts become values is in `values` and
`addresses`; rules between options are in `checks`.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from hivenet_router.config.agent_options import (
    AGENT_BACKEND,
    AGENT_METADATA,
    AGENT_OPERATION,
    AGENT_ROUTERS,
    AGENT_SAMPLING,
    SHARED_OPERATION,
)
from hivenet_router.config.option import Option, Program
from hivenet_router.config.router_options import (
    ROUTER_ACCESS,
    ROUTER_AGENTS,
    ROUTER_IDENTITY,
    ROUTER_NETWORK,
    ROUTER_OPERATION,
    ROUTER_POLICY,
    ROUTER_REQUESTS,
    ROUTER_STORAGE,
)
from hivenet_router.config.site_options import ROUTER_REDIRECT, ROUTER_SYNC

_GROUPS: Final[Mapping[Program, Mapping[str, tuple[Option, ...]]]] = {
    Program.ROUTER: {
        "Network": ROUTER_NETWORK,
        "Requests": ROUTER_REQUESTS,
        "Agents": ROUTER_AGENTS,
        "Identity": ROUTER_IDENTITY,
        "Operation": ROUTER_OPERATION + SHARED_OPERATION,
        "Policies": ROUTER_POLICY,
        "Access and limits": ROUTER_ACCESS,
        "Storage": ROUTER_STORAGE,
        "Cross-site redirect": ROUTER_REDIRECT,
        "Several routers": ROUTER_SYNC,
    },
    Program.AGENT: {
        "Backend": AGENT_BACKEND,
        "Routers": AGENT_ROUTERS,
        "Metadata": AGENT_METADATA,
        "Sampling": AGENT_SAMPLING,
        "Operation": AGENT_OPERATION + SHARED_OPERATION,
    },
}

_ENV_PREFIX: Final = {Program.ROUTER: "HIVENET_ROUTER_", Program.AGENT: "HIVENET_AGENT_"}


def _placed(row: Option, program: Program, group: str) -> Option:
    env = row.env or _ENV_PREFIX[program] + row.flag.removeprefix("--").replace("-", "_").upper()
    return replace(row, program=program, group=group, env=env)


OPTIONS: Final[tuple[Option, ...]] = tuple(
    _placed(row, program, group)
    for program, groups in _GROUPS.items()
    for group, rows in groups.items()
    for row in rows
)
"""Every option of both programs. Source: configuration.md §2, §3, §10; decisions.md 2-21, 33; cross-site.md §2."""

OPTIONS_BY_FLAG: Final[Mapping[Program, Mapping[str, Option]]] = MappingProxyType(
    {
        program: MappingProxyType({option.flag: option for option in OPTIONS if option.program is program})
        for program in Program
    }
)
"""The options of one program by flag, in the order of the help text."""
