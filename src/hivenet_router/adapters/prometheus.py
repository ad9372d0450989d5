"""Which series does each event move, and what is on the metrics page?

One source a family: what `prometheus_agents` reads from the registry is never counted here, and everything else is
counted here and nowhere else. Invariant: no event waits or raises, and what a client or an agent can invent (methods,
models, label sets without number) is bounded before it is kept. All of it happens on the loop's thread; the page comes
in pieces, so that between them other things can.
"""

from collections.abc import Callable, Iterator
from typing import Final

from hivenet_router.adapters.prometheus_agents import READ_FROM_REGISTRY, AgentSeries
from hivenet_router.adapters.prometheus_process import ProcessFigures
from hivenet_router.adapters.prometheus_series import (
    CONTENT_TYPE,
    LABEL_SETS_MAX,
    OTHER,
    Families,
    blocks_of,
    label_text,
    pieces_of,
)
from hivenet_router.core.agent import Agent
from hivenet_router.core.changes import Change, Registered, Removed
from hivenet_router.core.clock import UnixTime
from hivenet_router.core.ids import ModelName, PeerId
from hivenet_router.core.registry import Registry
from hivenet_router.names import metrics
from hivenet_router.names.errors import ErrorCode
from hivenet_router.ports import Clock, Recorder, RequestEnd

__all__ = ["CONTENT_TYPE", "PrometheusRecorder"]

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_NO_KEY: Final = "anonymous"
"""`key_id` of callers whose key has no ID. Source: observability.md §1.6."""
_NO_TENANT: Final = "anonymous"
"""`tenant_id` of requests that were refused before anybody knew whose they are. Source: observability.md §1.6."""
_NO_DEPLOYMENT: Final = "unset"
"""`deployment_id` where no agent answered or the agent has none. Source: observability.md §8, 12."""
_LINK_DEAD: Final = "forward_failure"
_SERVED: Final = "served"
_CLIENT_GONE: Final = "client_gone"
_FAILED_UNROUTED: Final = frozenset(
    {
        ErrorCode.RATE_LIMIT_EXCEEDED,
        ErrorCode.TOKEN_LIMIT_EXCEEDED,
        ErrorCode.REQUEST_TIMEOUT,
        ErrorCode.NO_AGENTS_AVAILABLE,
        ErrorCode.NO_CAPACITY,
        ErrorCode.MODEL_NOT_FOUND,
    }
)
"""Refusals that are a tenant's failed requests although no agent was chosen. Source: observability.md §1.4."""


def _no_model(model: ModelName) -> bool:
    """For a router whose models are known by its agents alone."""
    return False


class PrometheusRecorder(Recorder):
    """Counts for the metrics page and writes it.

    `is_configured` tells whether a policy, a key or the sibling map names a model; a model that neither these nor any
    agent of this process ever named is counted as `_other`. Source: observability.md §1.3 to §1.7.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        legacy_names: bool,
        clock: Clock,
        is_configured: Callable[[ModelName], bool] = _no_model,
        label_sets_max: int = LABEL_SETS_MAX,
    ) -> None:
        self._clock: Final = clock
        self._legacy_names: Final = legacy_names
        self._is_configured: Final = is_configured
        self._label_sets_max: Final = label_sets_max
        self._served_models: Final[set[str]] = set()
        self._process: Final = ProcessFigures()
        counted = [row for row in metrics.METRICS if row not in READ_FROM_REGISTRY]
        families = self._families = Families(counted, label_sets_max=label_sets_max)
        self._agents: Final = AgentSeries(registry, families.overflowed, label_sets_max=label_sets_max)
        self._routed: Final = families.amounts(metrics.ROUTING_REQUESTS_ROUTED)
        self._failed: Final = families.amounts(metrics.ROUTING_REQUESTS_FAILED)
        self._primary_routed: Final = families.amounts(metrics.POLICY_PRIMARY_ROUTED)
        self._exhausted: Final = families.amounts(metrics.POLICY_EXHAUSTED)
        self._link_resets: Final = families.amounts(metrics.AGENT_CONNECTION_RESETS)
        self._requests: Final = families.amounts(metrics.REQUESTS)
        self._durations: Final = families.distributions(metrics.REQUEST_DURATION)
        self._queue_depth: Final = families.amounts(metrics.QUEUE_DEPTH)
        self._queue_waits: Final = families.distributions(metrics.QUEUE_WAIT)
        self._tenant_successes: Final = families.amounts(metrics.TENANT_REQUESTS_SUCCESS)
        self._tenant_failures: Final = families.amounts(metrics.TENANT_REQUESTS_FAILED)
        self._tenant_input: Final = families.amounts(metrics.TENANT_INPUT_TOKENS)
        self._tenant_output: Final = families.amounts(metrics.TENANT_OUTPUT_TOKENS)
        self._tenant_durations: Final = families.distributions(metrics.TENANT_REQUEST_DURATION)
        self._http_durations: Final = families.distributions(metrics.HTTP_SERVER_REQUEST_DURATION)
        self._http_active: Final = families.amounts(metrics.HTTP_SERVER_ACTIVE_REQUESTS)
        self._edge_rejections: Final = families.amounts(metrics.HTTP_REJECTED)
        self._streams: Final = families.amounts(metrics.STREAMS_IN_PROGRESS)

    # Agents

    def registry_changed(self, change: Change) -> None:
        """Follow who comes, changes and leaves; health and load are read when the page is asked for."""
        match change:
            case Registered(agent, previous):
                self._agents.registered(agent, at=self._clock.unix())
                self._begin_model(agent.model)
                if previous is not None and previous.model != agent.model:
                    self._drop_durations(agent.peer, previous.model)
            case Removed(agent):
                self._forget(self._agents.removed(agent, now=self._clock.now()))
            case _:
                pass

    def agent_seen(self, agent: Agent, *, at: UnixTime) -> None:
        """Keep it for the last-seen gauge."""
        self._agents.seen(agent, at=at)

    def agent_link_reset(self, model: ModelName, reason: str) -> None:
        """Count a link closed because a forward failed in transport."""
        self._link_resets[self._known(model), reason].value += 1

    # Attempts

    def attempt_answered(self, agent: Agent, tenant: str) -> None:
        """Count an attempt that will serve its request, and the policy step that chose the agent."""
        metadata = agent.metadata
        self._routed[metadata.region, metadata.engine, metadata.model, tenant].value += 1
        self._primary_routed[(metadata.model,)].value += 1

    def attempt_failed(self, agent: Agent, tenant: str) -> None:
        """Count a failed attempt under its agent's labels."""
        metadata = agent.metadata
        self._failed[metadata.region, metadata.engine, metadata.model, tenant].value += 1

    def policy_exhausted(self, model: ModelName, tenant: str) -> None:
        """Count a request that no step could serve, once more as a failed attempt of no agent."""
        model = self._known(model)
        self._failed["", "", model, tenant].value += 1
        self._exhausted[(model,)].value += 1

    # Requests

    def request_ended(self, end: RequestEnd) -> None:
        """Count a request once, for its model and, where it came so far, for its tenant and its agent."""
        model = self._known(end.model)
        self._requests[model, end.outcome].value += 1
        answered = end.agent is not None
        # A client that leaves an answer it was getting has been served; one that leaves before counts for nobody.
        is_success = end.outcome == _SERVED or (end.outcome == _CLIENT_GONE and answered)
        is_failure = end.outcome in _FAILED_UNROUTED or (end.was_routed and end.outcome != _CLIENT_GONE)
        if is_success or is_failure:
            self._count_for_tenant(end, model, is_success=is_success)
        if end.agent is not None and end.first_byte_s > 0 and self._agents.remembers(end.agent.peer):
            self._durations[end.tenant, end.agent.peer, model, str(end.status)].observe(end.first_byte_s)

    def _count_for_tenant(self, end: RequestEnd, model: ModelName, *, is_success: bool) -> None:
        deployment = _NO_DEPLOYMENT if end.agent is None else end.agent.deployment_id or _NO_DEPLOYMENT
        labels = (end.tenant or _NO_TENANT, _NO_KEY, deployment, model)
        # All four at once, so that each exists at zero before it moves.
        self._tenant_successes[labels].value += int(is_success)
        self._tenant_failures[labels].value += int(not is_success)
        self._tenant_input[labels].value += end.input_tokens
        self._tenant_output[labels].value += end.output_tokens
        if end.agent is not None and end.first_byte_s > 0:
            self._tenant_durations[labels].observe(end.first_byte_s)

    def parked(self, model: ModelName, waiting: int) -> None:
        """Show how many wait."""
        self._queue_depth[(self._known(model),)].value = waiting

    def waited(self, model: ModelName, seconds: float) -> None:
        """Count how long one waited."""
        self._queue_waits[(self._known(model),)].observe(seconds)

    def streams(self, model: ModelName, change: int) -> None:
        """Count a stream in or out."""
        self._streams[(self._known(model),)].value += change

    # The edge

    def http_began(self, method: str, route: str) -> None:
        """Count a request in; `route` is the template it matched."""
        self._http_active[_method(method), route].value += 1

    def http_ended(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count it out, with its duration."""
        method = _method(method)
        self._http_active[method, route].value -= 1
        self._http_durations[method, route, str(status)].observe(seconds)

    def edge_rejected(self, listener: str, reason: str) -> None:
        """Count what was refused before it became a request."""
        self._edge_rejections[listener, reason].value += 1

    # The page

    def page(self) -> bytes:
        """The page in text format 0.0.4, families sorted by name; of the type `CONTENT_TYPE`."""
        return b"".join(self.page_in_pieces())

    def page_in_pieces(self) -> Iterator[bytes]:
        """As `page`: who is on it is settled now, each figure is read with its piece, and a piece is soon written.

        With many series the whole takes longer than the loop can stand still. Source: observability.md §1.7.
        """
        self._forget(self._agents.forget_departed(now=self._clock.now()))
        blocks = [*self._process.blocks(), *self._agents.blocks()]
        for row, series in self._families.stock():
            blocks.extend(blocks_of(row, series, legacy_names=self._legacy_names))
        return pieces_of(blocks)

    # Within

    def _known(self, model: ModelName) -> ModelName:
        return model if model in self._served_models or self._is_configured(model) else ModelName(OTHER)

    def _begin_model(self, model: ModelName) -> None:
        """Show a new model's counts at zero, so that the first event is seen as an increase."""
        if model in self._served_models or len(self._served_models) >= self._label_sets_max:
            return
        self._served_models.add(model)
        for family in (self._primary_routed, self._exhausted, self._queue_depth, self._streams):
            family[(model,)].value += 0
        self._link_resets[model, _LINK_DEAD].value += 0

    def _drop_durations(self, peer: PeerId, model: ModelName) -> None:
        gone = (label_text(peer), label_text(model))
        self._durations.drop(lambda labels: labels[1:3] == gone)

    def _forget(self, peers: list[PeerId]) -> None:
        if peers:
            gone = frozenset(map(label_text, peers))
            self._durations.drop(lambda labels: labels[1] in gone)


def _method(method: str) -> str:
    return method if method in _METHODS else OTHER
