"""Which models can be had here, in the shape that OpenAI's and Anthropic's clients read?

A pure view of the registry: sorted by ID, replicas of one model joined.
Source: http-api.md §8, §15 item 26; field-cases.md O-14.
"""

from collections.abc import Iterable
from datetime import UTC, datetime

from hivenet_router.core.agent import Agent
from hivenet_router.core.clock import Monotonic, UnixTime
from hivenet_router.core.ids import ModelName
from hivenet_router.core.registry import Registry

Json = dict[str, object]
OWNER = "hivenet"


def model_list(registry: Registry, *, now: Monotonic, unix: UnixTime) -> Json:
    """Every model of the registry."""
    models = [_entry(model, registry.agents_of(model), now=now, unix=unix) for model in registry.models()]
    return {
        "object": "list",
        "data": models,
        "has_more": False,
        "first_id": models[0]["id"] if models else None,
        "last_id": models[-1]["id"] if models else None,
    }


def model_detail(registry: Registry, model: ModelName, *, now: Monotonic, unix: UnixTime) -> Json | None:
    """One model with its agents; None when no agent is registered for it."""
    model = registry.named(model)
    agents = registry.agents_of(model)
    if not agents:
        return None
    entry = _entry(model, agents, now=now, unix=unix)
    summary = _summary(agents)
    summary["list"] = [_agent(agent, now=now, unix=unix) for agent in agents]
    return {**entry, "agents": summary}


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
