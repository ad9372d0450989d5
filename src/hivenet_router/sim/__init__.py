"""A simulated inference engine, to try routers, agents and policies on without a GPU.

It speaks the OpenAI and Anthropic shapes, keeps the pace, queue and cache of an engine, shows vLLM's series and
misbehaves on command. Run it as `hivenet-sim`, or in a test as `async with Simulator(SimOptions(...)) as sim`.
Nothing in the router or the agent may import it.
"""

from hivenet_router.sim.faults import Fault, FaultError, parse_fault
from hivenet_router.sim.ledger import RecordedRequest, Stats
from hivenet_router.sim.options import OptionError, SimOptions
from hivenet_router.sim.server import Simulator

__all__ = [
    "Fault",
    "FaultError",
    "OptionError",
    "RecordedRequest",
    "SimOptions",
    "Simulator",
    "Stats",
    "parse_fault",
]
