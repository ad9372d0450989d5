"""Registry and slots against a plain model: whatever happens in whatever order, no slot is given twice or lost."""

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule
from hypothesis.strategies import SearchStrategy
from tests.core.making import MODEL, OTHER_MODEL, START, A, B, C, at, described

from hivenet_router.core.agent import LOAD_FRESH_S, Agent, Load, Report
from hivenet_router.core.changes import CapacityFreed, Change
from hivenet_router.core.ids import PeerId
from hivenet_router.core.policy import BUILT_IN_STEP, choose
from hivenet_router.core.ranking import load_ratio
from hivenet_router.core.registry import Registry
from hivenet_router.core.slots import Slot
from hivenet_router.names.paths import Capability

peers: SearchStrategy[PeerId] = st.sampled_from([A, B, C])
models = st.sampled_from([MODEL, OTHER_MODEL])


@dataclass
class Plain:
    """What the model believes of one registered agent."""

    agent: Agent
    capacity: int
    streams_max: int | None
    process_healthy: bool = True
    backend_healthy: bool = True
    load: Load = field(default_factory=Load)
    held: set[int] = field(default_factory=set)
    streaming: set[int] = field(default_factory=set)

    def free(self, *, linked: bool) -> int:
        if not (linked and self.process_healthy and self.backend_healthy):
            return 0
        by_capacity = self.capacity - len(self.held) - max(0, self.load.slots_total - self.load.slots_here)
        by_transport = (self.streams_max or 10**6) - len(self.held) - len(self.streaming)
        return max(0, min(by_capacity, by_transport))


class RegistryMachine(RuleBasedStateMachine):
    """Agents join, move, fall ill, lose links and leave while requests come and go."""

    slots: Bundle[Slot] = Bundle("slots")

    def __init__(self) -> None:
        super().__init__()
        self.registry = Registry(self.hear)
        self.heard: list[Change] = []
        self.plain: dict[PeerId, Plain] = {}
        self.linked: set[PeerId] = set()

    def hear(self, change: Change) -> None:
        self.heard.append(change)

    def free_by_model(self) -> dict[str, int]:
        free: dict[str, int] = {MODEL: 0, OTHER_MODEL: 0}
        for peer, plain in self.plain.items():
            free[plain.agent.model] += plain.free(linked=peer in self.linked)
        return free

    @initialize(peer=peers)
    def one_agent_is_there(self, peer: PeerId) -> None:
        self.link_up(peer)
        self.register(peer, MODEL, 2, None)

    @rule(peer=peers, model=models, capacity=st.integers(1, 3), streams_max=st.none() | st.integers(1, 4))
    def register(self, peer: PeerId, model: str, capacity: int, streams_max: int | None) -> None:
        metadata = described(capacity, model=MODEL if model == MODEL else OTHER_MODEL)
        agent = self.registry.register(peer, metadata, streams_max=streams_max, now=START).agent
        plain = self.plain.setdefault(peer, Plain(agent, capacity, streams_max))
        assert plain.agent is agent
        plain.capacity, plain.streams_max, plain.process_healthy = capacity, streams_max, True

    @rule(peer=peers)
    def link_up(self, peer: PeerId) -> None:
        self.registry.link_up(peer)
        self.linked.add(peer)

    @rule(peer=peers)
    def link_down(self, peer: PeerId) -> None:
        self.registry.link_down(peer)
        self.linked.discard(peer)

    @rule(peer=peers, well=st.booleans())
    def heartbeat(self, peer: PeerId, well: bool) -> None:
        assert self.registry.heartbeat(peer, backend_healthy=well, now=START) == (peer in self.plain)
        if peer in self.plain:
            self.plain[peer].process_healthy, self.plain[peer].backend_healthy = True, well

    @rule(peer=peers, total=st.integers(0, 4), here=st.integers(0, 4), inflight=st.integers(0, 6))
    def signals(self, peer: PeerId, total: int, here: int, inflight: int) -> None:
        load = Load(inflight, total, here)
        if self.registry.signals(peer, report=Report(load=load), now=START):
            self.plain[peer].load = load

    @rule()
    def reports_grow_old(self) -> None:
        self.registry.forget_stale_loads(now=at(LOAD_FRESH_S + 1))
        for plain in self.plain.values():
            plain.load = Load()

    @rule(peer=peers)
    def fall_silent(self, peer: PeerId) -> None:
        if peer in self.plain:
            self.registry.fell_silent(self.plain[peer].agent)
            self.plain[peer].process_healthy = False

    @rule(peer=peers)
    def remove(self, peer: PeerId) -> None:
        self.registry.remove(peer, now=START)
        self.plain.pop(peer, None)

    @rule(target=slots, model=models)
    def request(self, model: str) -> Slot:
        name = MODEL if model == MODEL else OTHER_MODEL
        agent = choose(BUILT_IN_STEP, self.registry.pool(name), Capability.LLM, now=START)
        if agent is None:
            assert self.free_by_model()[name] == 0  # refuses only when it must
            return multiple()  # type: ignore[return-value]  # hypothesis: nothing goes into the bundle
        plain = self.plain[agent.peer]
        assert plain.free(linked=agent.peer in self.linked) > 0
        open_ratios = [
            load_ratio(other.agent)
            for peer, other in self.plain.items()
            if other.agent.model == name and other.free(linked=peer in self.linked)
        ]
        assert load_ratio(agent) == min(open_ratios)
        slot = self.registry.take_slot(agent)
        assert slot is not None  # nobody came between the choice and the take
        plain.held.add(id(slot))
        return slot

    @rule(slot=slots)
    def headers(self, slot: Slot) -> None:
        slot.headers_arrived()
        plain = self.plain.get(slot.agent.peer)
        if plain is not None and plain.agent is slot.agent and id(slot) in plain.held:
            plain.held.discard(id(slot))
            plain.streaming.add(id(slot))

    @rule(slot=slots)
    def end_and_end_again(self, slot: Slot) -> None:
        slot.release()
        self.forget(slot)

    @rule(slot=consumes(slots))
    def end_for_good(self, slot: Slot) -> None:
        slot.release()
        slot.release()
        self.forget(slot)

    def forget(self, slot: Slot) -> None:
        plain = self.plain.get(slot.agent.peer)
        if plain is not None and plain.agent is slot.agent:
            plain.held.discard(id(slot))
            plain.streaming.discard(id(slot))

    @invariant()
    def counts_agree(self) -> None:
        for peer, plain in self.plain.items():
            assert plain.agent.active_slots == len(plain.held)
            assert plain.agent.running_streams == len(plain.streaming)
            assert plain.agent.free_slots == plain.free(linked=peer in self.linked)

    @invariant()
    def every_agent_is_in_one_pool_and_in_order(self) -> None:
        found = [agent for model in self.registry.models() for agent in self.registry.agents_of(model)]
        assert {agent.peer for agent in found} == self.plain.keys()
        assert len(found) == len(self.plain)
        for model in self.registry.models():
            pool = self.registry.pool(model)
            assert pool is not None
            of_model = [agent for agent in found if agent.model == model]
            assert [agent.peer for agent in pool] == sorted(agent.peer for agent in of_model)
            open_agents = sorted((load_ratio(a), a.peer) for a in of_model if a.free_slots)
            assert [(ratio, peer) for ratio, peer, _ in pool.ranked()] == open_agents
            assert self.registry.replicas_of(model) == sum(agent.routable for agent in of_model)


class NewsMachine(RegistryMachine):
    """The same life, and whenever a model has more free slots than before, somebody is told."""

    def __init__(self) -> None:
        super().__init__()
        self.free_before = self.free_by_model()

    @invariant()
    def more_room_is_always_told(self) -> None:
        told = {change.model for change in self.heard if isinstance(change, CapacityFreed)}
        free = self.free_by_model()
        for model, free_slots in free.items():
            assert free_slots <= self.free_before[model] or model in told
        self.free_before = free
        self.heard.clear()


TestRegistry = RegistryMachine.TestCase
TestRegistry.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestNews = NewsMachine.TestCase
TestNews.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
