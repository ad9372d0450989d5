"""How long does a reader of the pages hold the loop at a time?

With a thousand agents, each of a model of its own and then all of one model, and a durations series for each of them.
What is measured is the longest piece that is written between two turns of the loop, taking stock included.
"""

import time
from collections.abc import Callable, Iterator
from typing import Final

from hivenet_router.adapters.prometheus import PrometheusRecorder
from hivenet_router.core.clock import Monotonic, UnixTime
from hivenet_router.core.ids import ModelName, PeerId
from hivenet_router.core.registry import Registry
from hivenet_router.ports import RequestEnd
from hivenet_router.router.catalog import model_detail, model_list
from hivenet_router.wire.auth_messages import AgentMetadata

AGENTS: Final = 1000
_ROUNDS: Final = 5
_NOW: Final = Monotonic(1000.0)
_UNIX: Final = UnixTime(1_764_000_000.0)


class _StillClock:
    def now(self) -> Monotonic:
        return _NOW

    def unix(self) -> UnixTime:
        return _UNIX


def measure() -> list[tuple[str, float]]:
    """The pages by name, and for how many milliseconds the loop is held by one at most."""
    found = []
    for models, words in ((AGENTS, "a model each"), (1, "one model")):
        registry, recorder = _town(models)
        pages = _pages(registry, recorder)
        found += [(f"{path}, {AGENTS} agents of {words}", _longest_ms(write)) for path, write in pages.items()]
    return found


def _pages(registry: Registry, recorder: PrometheusRecorder) -> dict[str, Callable[[], Iterator[bytes]]]:
    return {
        "/metrics": recorder.page_in_pieces,
        "/v1/models": lambda: model_list(registry, now=_NOW, unix=_UNIX),
        "/v1/models/{id}": lambda: model_detail(registry, ModelName("m0"), now=_NOW, unix=_UNIX),
    }


def _town(models: int) -> tuple[Registry, PrometheusRecorder]:
    registry = Registry(lambda change: recorder.registry_changed(change))
    recorder = PrometheusRecorder(registry, legacy_names=True, clock=_StillClock())
    for number in range(AGENTS):
        metadata = AgentMetadata(
            model=f"m{number % models}", capacity=8, version="1", region="eu", engine="vllm", organization="o"
        )
        peer = PeerId(f"12D3KooW{number:044d}")
        registry.link_up(peer)
        agent = registry.register(peer, metadata, now=_NOW).agent
        recorder.agent_seen(agent, at=_UNIX)
        recorder.request_ended(
            RequestEnd(
                model=agent.model,
                outcome="served",
                status=200,
                agent=agent,
                tenant="default",
                first_byte_s=0.5,
                duration_s=1.0,
                input_tokens=1,
                output_tokens=1,
                was_routed=True,
            )
        )
    return registry, recorder


def _longest_ms(write: Callable[[], Iterator[bytes]]) -> float:
    """The longest piece, each by its quickest round: what else runs on the machine is not the page's work."""
    rounds = [list(_pieces_ms(write)) for _ in range(_ROUNDS)]
    quickest: list[float] = [min(times) for times in zip(*rounds, strict=True)]
    return max(quickest)


def _pieces_ms(write: Callable[[], Iterator[bytes]]) -> Iterator[float]:
    began = time.perf_counter()
    for _ in write():
        yield (time.perf_counter() - began) * 1000
        began = time.perf_counter()
