"""What can happen in the registry that somebody else must hear of?

Each change is a value, handed to the one listener the registry was built with, after the registry is consistent again.
The feed of registrations, the metric series and the waiting requests all live from it. Nothing here decides who hears
what.
"""

from dataclasses import dataclass
from enum import Enum, auto

from hivenet_router.core.agent import Agent, SeriesIdentity
from hivenet_router.core.ids import ModelName


class HealthCause(Enum):
    """Why an agent's health changed."""

    HEARTBEAT = auto()
    """Its heartbeats, or a registration, came again."""
    SILENCE = auto()
    """Its heartbeats stayed away."""
    BACKEND = auto()
    """It reported another state of its backend."""
    LEAVING = auto()
    """It said that it takes nothing more, since it is about to end."""


@dataclass(frozen=True, slots=True)
class Registered:
    """An agent registered, for the first time or again."""

    agent: Agent
    previous: SeriesIdentity | None
    """The labels it had before; None for an agent that was not in the registry."""


@dataclass(frozen=True, slots=True)
class Removed:
    """An agent left the registry."""

    agent: Agent


@dataclass(frozen=True, slots=True)
class LinkLost:
    """A registered agent's last connection is gone; it is still registered."""

    agent: Agent


@dataclass(frozen=True, slots=True)
class LinkReturned:
    """A registered agent is connected again, without having registered anew."""

    agent: Agent


@dataclass(frozen=True, slots=True)
class HealthChanged:
    """An agent's health, as its gauge shows it, is another; `agent.healthy` is the new one."""

    agent: Agent
    cause: HealthCause


@dataclass(frozen=True, slots=True)
class CapacityFreed:
    """At least one slot of this model can be taken that could not be before."""

    model: ModelName


Change = Registered | Removed | LinkLost | LinkReturned | HealthChanged | CapacityFreed
