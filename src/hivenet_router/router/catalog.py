"""Which models can be had here, in the shape that OpenAI's and Anthropic's clients read?

A pure view of the registry: sorted by ID, replicas of one model joined. It is written in pieces, each of less than a
millisecond's work, between which the registry may change: an entry is true of the moment it was written.
Source: http-api.md §8, §15 item 26; field-cases.md O-14.
"""

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Final

from hivenet_router.core.agent import Agent
from hivenet_router.core.clock import Monotonic, UnixTime
from hivenet_router.core.ids import ModelName
from hivenet_router.core.registry import Registry

Json = dict[str, object]
OWNER = "hivenet"
_WORK_OF_PIECE: Final = 300
"""How many agents are read for a piece: some 0.3 ms of work."""
_WORK_OF_MODEL: Final = 20
"""What an entry takes besides its agents, in the same measure."""


def model_list(registry: Registry, *, now: Monotonic, unix: UnixTime) -> Iterator[bytes]:
    """Every model of the registry, as JSON."""
    piece, work = ['{"object":"list","data":['], 0
    first: ModelName | None = None
    last: ModelName | None = None
    for model in registry.models():
        agents = registry.agents_of(model)
        # The last of them may have left since the first piece.
        if not agents:
            continue
        piece.append(f"{',' if last is not None else ''}{_text(_entry(model, agents, now=now, unix=unix))}")
        first, last = model if first is None else first, model
        work += _WORK_OF_MODEL + len(agents)
        if work >= _WORK_OF_PIECE:
            yield "".join(piece).encode()
            piece, work = [], 0
    piece.append(f'],"has_more":false,"first_id":{_text(first)},"last_id":{_text(last)}}}')
    yield "".join(piece).encode()


def model_detail(registry: Registry, model: ModelName, *, now: Monotonic, unix: UnixTime) -> Iterator[bytes]:
    """One model with its agents, as JSON; nothing when no agent is registered for it."""
    agents = registry.agents_of(model)
    if not agents:
        return
    # The agents are the last member of the entry, and their list is the last of theirs.
    head = _text(_entry(model, agents, now=now, unix=unix)).removesuffix("}}") + ',"list":['
    for start in range(0, len(agents), _WORK_OF_PIECE // 4):
        facts = (_text(_agent(agent, now=now, unix=unix)) for agent in agents[start : start + _WORK_OF_PIECE // 4])
        yield (head + ",".join(facts)).encode()
        head = ","
    yield b"]}}"


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _entry(model: ModelName, agents: tuple[Agent, ...], *, now: Monotonic, unix: UnixTime) -> Json:
    created = int(unix - (now - min(agent.first_registered_at for agent in agents)))
    pretty_name = _first(agent.metadata.llm_pretty_name for agent in agents)
    entry: Json = {
        "id": model,
        "object": "model",
        "created": created,
        "owned_by": OWNER,
        "type": "model",
        "display_name": pretty_name or model,
        "created_at": datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    optional = {
        "pretty_name": pretty_name,
        "info": _first(agent.metadata.llm_info for agent in agents),
        "capability": _first(agent.metadata.capability for agent in agents),
        "hide_llm": any(agent.metadata.hide_llm for agent in agents),
    }
    return {**entry, **{name: value for name, value in optional.items() if value}, "agents": _summary(agents)}


def _summary(agents: tuple[Agent, ...]) -> Json:
    return {
        "total": len(agents),
        "healthy": sum(agent.routable for agent in agents),
        "total_capacity": sum(agent.metadata.capacity for agent in agents),
        "engines": sorted({agent.metadata.engine for agent in agents}),
        "regions": sorted({agent.metadata.region for agent in agents}),
    }


def _agent(agent: Agent, *, now: Monotonic, unix: UnixTime) -> Json:
    metadata = agent.metadata
    named = {
        "peer_id": agent.peer,
        "engine": metadata.engine,
        "version": metadata.version,
        "region": metadata.region,
        "organization": metadata.organization,
        "machine": metadata.machine,
    }
    facts: Json = {name: value for name, value in named.items() if value}
    facts["capacity"] = metadata.capacity
    facts["is_healthy"] = agent.routable
    facts["last_seen"] = int(unix - (now - agent.last_seen_at))
    return facts


def _first(values: Iterable[str]) -> str:
    return next((value for value in values if value), "")
