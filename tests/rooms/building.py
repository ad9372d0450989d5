"""The rooms put together with fakes, and short ways to let requests come in."""

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

import pytest
from tests.core.making import MODEL, described
from tests.fakes.clock import VirtualClock
from tests.fakes.exchange import FakeArrived, FakeDigest, FakeExchange, Script
from tests.fakes.plane import FakePlane
from tests.fakes.recorder import RecordingRecorder

from hivenet_router.core.agent import Agent
from hivenet_router.core.attempts import Attempts
from hivenet_router.core.changes import CapacityFreed, Change, LinkLost
from hivenet_router.core.clock import Monotonic
from hivenet_router.core.ids import ModelName, PeerId
from hivenet_router.core.refusals import RefusalReason
from hivenet_router.core.registry import Registry
from hivenet_router.names.paths import CHAT_COMPLETIONS, INFERENCE_PATHS
from hivenet_router.router.forward import ForwardLimits, ForwardRoom
from hivenet_router.router.hand_over import HandingOverRoom
from hivenet_router.router.place import Placed, PlacingRoom
from hivenet_router.router.refuse import Refusal
from hivenet_router.router.rejections import RejectionRoom
from hivenet_router.router.remember import RememberingRoom
from hivenet_router.router.settle import SettlingRoom
from hivenet_router.router.stages import NOBODY_IN_PARTICULAR, Admitted, Request
from hivenet_router.router.suspect import SuspectingRoom
from hivenet_router.router.walk import House, walk

T = TypeVar("T")

TIMEOUT_S = 60.0


class Rooms:
    """A house without doors: registry, placing, forwarding, settling and the walk through them."""

    def __init__(
        self,
        *,
        forwards_max: int = 50,
        queue_requests_max: int = 100,
        enqueue_timeout_s: float = 5.0,
        capacity_waiters_max: int = 30,
        tries_per_step_max: int = 3,
        holds_slot_for_stream: bool = False,
        strips_authorization: bool = False,
        suspect_after: int = 3,
    ) -> None:
        self.forwards_max = forwards_max
        self.plane = FakePlane()
        self.clock = VirtualClock()
        self.recorder = RecordingRecorder()
        self.rejections = RejectionRoom(self.clock, self.recorder)
        self.registry = Registry(self._changed)
        self.placing = PlacingRoom(
            self.registry,
            self.clock,
            self.recorder,
            forwards_max=forwards_max,
            queue_requests_max=queue_requests_max,
            enqueue_timeout_s=enqueue_timeout_s,
            capacity_waiters_max=capacity_waiters_max,
            on_waiting=self.plane.set_eager,
        )
        limits = ForwardLimits(
            stream_idle_s=60.0,
            stream_total_s=None,
            buffered_bytes_max=1 << 20,
            strips_authorization=strips_authorization,
            holds_slot_for_stream=holds_slot_for_stream,
        )
        handing_over = HandingOverRoom(self.placing, self.clock, suspect_after=suspect_after)
        self.forwarding = ForwardRoom(self.clock, self.recorder, handing_over, limits)
        self.house = House(
            placing=self.placing,
            forwarding=self.forwarding,
            settling=SettlingRoom(
                self.clock,
                self.recorder,
                self.rejections,
                SuspectingRoom(self.registry, self.clock, suspect_after=suspect_after, chance=lambda: 0.5),
            ),
            remembering=RememberingRoom(self.clock),
            rejections=self.rejections,
            clock=self.clock,
            recorder=self.recorder,
            named=self.registry.named,
            request_timeout_s=TIMEOUT_S,
            tries_per_step_max=tries_per_step_max,
        )

    def _changed(self, change: Change) -> None:
        self.recorder.registry_changed(change)
        if isinstance(change, CapacityFreed):
            self.placing.slot_freed(change.model)
            return
        if isinstance(change, LinkLost):
            self.placing.expect(change.agent)
        self.placing.revisit(change.agent.model)

    def join(
        self, peer: PeerId, *scripts: Script, capacity: int = 1, model: ModelName = MODEL, capability: str = "llm"
    ) -> Agent:
        """Link and register an agent that does this, attempt after attempt."""
        self.plane.scripts[peer] = list(scripts) or self.plane.scripts.get(peer, [])
        if not self.plane.scripts[peer]:
            del self.plane.scripts[peer]
        self.registry.link_up(peer)
        metadata = described(capacity, model=model, capability=capability)
        return self.registry.register(peer, metadata, now=self.clock.now()).agent

    def chat(
        self, model: str | None = MODEL, *, path: str = CHAT_COMPLETIONS, respond_takes_s: float = 0.0
    ) -> FakeExchange:
        """A client asks for this model."""
        arrived = FakeArrived(path=path, digest=FakeDigest(model))
        return self.plane.arrive(arrived, respond_takes_s=respond_takes_s)

    def admitted(self, exchange: FakeExchange, model: ModelName = MODEL, *, within_s: float = TIMEOUT_S) -> Admitted:
        """The exchange's request, as it comes to the placing room."""
        path = INFERENCE_PATHS[exchange.arrived.path]
        deadline = Monotonic(self.clock.now() + within_s)
        return Admitted(Request(exchange, path, model, path.path.encode(), deadline), NOBODY_IN_PARTICULAR)

    def place(
        self, exchange: FakeExchange, *, within_s: float = TIMEOUT_S, model: ModelName = MODEL
    ) -> asyncio.Task[Placed]:
        """Let the exchange's request look for a place."""
        admitted = self.admitted(exchange, model, within_s=within_s)
        return asyncio.create_task(self.placing.place(admitted, Attempts()))

    def walk(self, exchange: FakeExchange) -> asyncio.Task[int]:
        """Let the exchange's request go the whole way."""
        return asyncio.create_task(walk(exchange, INFERENCE_PATHS[exchange.arrived.path], self.house))

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is held, counted or waited for any more."""
        return (
            self.recorder.at_rest
            and self.placing.waiting == 0
            and self.placing.permits_free == self.forwards_max
            and not self.plane.eager
            and all(agent.active_slots == agent.running_streams == 0 for agent in self.registry)
        )


async def refusal_of(task: "asyncio.Task[Placed]") -> RefusalReason:
    """Why the request gets no place."""
    with pytest.raises(Refusal) as caught:
        await task
    return caught.value.reason


async def turns(number: int = 20) -> None:
    """Let everything happen that can happen without time passing."""
    for _ in range(number):
        await asyncio.sleep(0)


async def soon(work: Coroutine[None, None, T]) -> asyncio.Task[T]:
    """Begin it, and let it come as far as it can at once."""
    task = asyncio.create_task(work)
    await turns()
    return task
