"""Which Prometheus series does the router export, under which labels?

Invariant: one row per family, and a family is registered from its row alone, so that names, labels and buckets cannot
drift between code, documents and tests. When a series moves is decided by the rooms; rendering is the adapter's.
"""

from dataclasses import dataclass
from typing import Final, Literal

MetricKind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One family: exposition name (with `_total` on counters), kind, label names in order, help, bucket bounds.

    `buckets` are upper bounds without `+Inf`, in the unit of the name. `aliases` are further names under which the
    same values are exposed while `--legacy-metric-names` is on. Source: observability.md §1.3, decisions.md 1.
    """

    name: str
    kind: MetricKind
    labels: tuple[str, ...]
    help: str
    buckets: tuple[float, ...] | None = None
    aliases: tuple[str, ...] = ()


REGISTRATION_LABELS: Final = ("peer_id", "region", "engine", "model", "capacity", "organization", "machine")
ROUTING_LABELS: Final = ("region", "engine", "model", "tenant_id")
AGENT_LABELS: Final = ("peer_id", "model", "engine", "organization", "machine")
TENANT_LABELS: Final = ("tenant_id", "key_id", "deployment_id", "model")

_ANSWER_BUCKETS_S: Final = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
_QUEUE_BUCKETS_S: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96)
_HTTP_BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

ROUTING_AGENT_INFO: Final = Metric(
    "hivenet_routing_agent_info", "gauge", REGISTRATION_LABELS, "1 for each registered agent; its labels describe it."
)
ROUTING_AGENT_HEALTHY: Final = Metric(
    "hivenet_routing_agent_healthy",
    "gauge",
    REGISTRATION_LABELS,
    "1 while the agent's heartbeats arrive and report a healthy backend, else 0.",
)
ROUTING_AGENT_SUSPECT: Final = Metric(
    "hivenet_routing_agent_suspect",
    "gauge",
    REGISTRATION_LABELS,
    "1 while requests go to others first because the agent failed too often in a row (--suspect-after), else 0.",
)
ROUTING_AGENT_LAST_SEEN: Final = Metric(
    "hivenet_routing_agent_last_seen_timestamp",
    "gauge",
    REGISTRATION_LABELS,
    "When the agent last registered or sent a heartbeat, one that reports a sick backend included, in milliseconds "
    "since 1970.",
)

ROUTING_REQUESTS_ROUTED: Final = Metric(
    "hivenet_routing_requests_routed_total",
    "counter",
    ROUTING_LABELS,
    "Attempts that an agent answered with 200; a stream counts when its headers arrive.",
    aliases=("hivenet_router_routing_requests_routed_total",),
)
ROUTING_REQUESTS_FAILED: Final = Metric(
    "hivenet_routing_requests_failed_total",
    "counter",
    ROUTING_LABELS,
    "Attempts that failed, and one more for each request that no step of its policy could serve.",
)
POLICY_PRIMARY_ROUTED: Final = Metric(
    "hivenet_policy_primary_routed_total",
    "counter",
    ("model",),
    "Requests served by the first step of their policy.",
    aliases=("hivenet_router_policy_primary_routed_total",),
)
POLICY_EXHAUSTED: Final = Metric(
    "hivenet_policy_exhausted_total",
    "counter",
    ("model",),
    "Requests that every step of their policy left unserved.",
    aliases=("hivenet_router_policy_exhausted_total",),
)

AGENT_REQUESTS_SUCCESS: Final = Metric(
    "hivenet_agent_requests_success_total", "counter", AGENT_LABELS, "Requests the agent answered with 200."
)
AGENT_REQUESTS_FAILED: Final = Metric(
    "hivenet_agent_requests_failed_total", "counter", AGENT_LABELS, "Attempts on the agent that failed."
)
AGENT_INPUT_TOKENS: Final = Metric(
    "hivenet_agent_input_tokens_total", "counter", AGENT_LABELS, "Prompt tokens of requests the agent answered."
)
AGENT_OUTPUT_TOKENS: Final = Metric(
    "hivenet_agent_output_tokens_total", "counter", AGENT_LABELS, "Tokens the agent generated."
)
AGENT_REJECTED_REQUESTS: Final = Metric(
    "hivenet_agent_rejected_requests_total",
    "counter",
    AGENT_LABELS,
    "Times the agent was chosen but its last slot was taken first.",
)
AGENT_DISCONNECTIONS: Final = Metric(
    "hivenet_agent_disconnections_total", "counter", AGENT_LABELS, "Times the agent was removed after silence."
)
AGENT_FAILURE: Final = Metric(
    "hivenet_agent_failure_total", "counter", AGENT_LABELS, "Times the agent fell silent and was marked unhealthy."
)
MODEL_BACKEND_FAILURE: Final = Metric(
    "hivenet_model_backend_failure_total",
    "counter",
    AGENT_LABELS,
    "Times the agent reported that its backend had become unhealthy.",
)
AGENT_CONNECTION_RESETS: Final = Metric(
    "hivenet_agent_connection_resets_total",
    "counter",
    ("model", "reason"),
    "Agent links the router closed because a forward failed in transport.",
    aliases=("hivenet_router_agent_connection_resets_total",),
)

AGENT_SUCCESS_RATE: Final = Metric(
    "hivenet_agent_success_rate", "gauge", AGENT_LABELS, "Share of the agent's attempts that succeeded, 0 to 1."
)
AGENT_CAPACITY_UTILIZATION: Final = Metric(
    "hivenet_agent_capacity_utilization", "gauge", AGENT_LABELS, "Slots in use divided by declared capacity."
)
AGENT_SRTT_MS: Final = Metric(
    "hivenet_agent_srtt_ms", "gauge", AGENT_LABELS, "Smoothed time to response headers, in milliseconds."
)
AGENT_RTTVAR_MS: Final = Metric(
    "hivenet_agent_rttvar_ms", "gauge", AGENT_LABELS, "Smoothed deviation of that time, in milliseconds."
)
AGENT_ACTIVE_REQUESTS: Final = Metric(
    "hivenet_agent_active_requests",
    "gauge",
    AGENT_LABELS,
    "Slots held on the agent: requests until their response headers came, "
    "with --hold-slot-for-stream until their last byte.",
)

REQUESTS: Final = Metric(
    "hivenet_requests_total",
    "counter",
    ("model", "outcome"),
    "Inference requests, each counted once when it ends, refusals included.",
)
REQUEST_DURATION: Final = Metric(
    "hivenet_request_duration_seconds",
    "histogram",
    ("tenant_id", "peer_id", "model", "status_code"),
    "Time from arrival to the first byte of a served answer, by agent.",
    _ANSWER_BUCKETS_S,
)
QUEUE_DEPTH: Final = Metric(
    "hivenet_queue_depth", "gauge", ("model",), "Requests parked until an agent of the model has a free slot."
)
QUEUE_WAIT: Final = Metric(
    "hivenet_queue_wait_seconds",
    "histogram",
    ("model",),
    "How long a request was parked before a slot woke it.",
    _QUEUE_BUCKETS_S,
)

TENANT_REQUESTS_SUCCESS: Final = Metric(
    "hivenet_tenant_requests_success_total", "counter", TENANT_LABELS, "Requests of the tenant that were served."
)
TENANT_REQUESTS_FAILED: Final = Metric(
    "hivenet_tenant_requests_failed_total", "counter", TENANT_LABELS, "Requests of the tenant that failed."
)
TENANT_INPUT_TOKENS: Final = Metric(
    "hivenet_tenant_input_tokens_total", "counter", TENANT_LABELS, "Prompt tokens charged to the tenant."
)
TENANT_OUTPUT_TOKENS: Final = Metric(
    "hivenet_tenant_output_tokens_total", "counter", TENANT_LABELS, "Generated tokens charged to the tenant."
)
TENANT_REQUEST_DURATION: Final = Metric(
    "hivenet_tenant_request_duration_seconds",
    "histogram",
    TENANT_LABELS,
    "Time from arrival to the first byte of a served answer, by tenant.",
    _ANSWER_BUCKETS_S,
)

HTTP_SERVER_REQUEST_DURATION: Final = Metric(
    "http_server_request_duration_seconds",
    "histogram",
    ("method", "route", "status_code"),
    "Time from arrival to the last byte of an HTTP answer.",
    _HTTP_BUCKETS_S,
)
HTTP_SERVER_ACTIVE_REQUESTS: Final = Metric(
    "http_server_active_requests", "gauge", ("method", "route"), "HTTP requests being served now."
)
HTTP_REJECTED: Final = Metric(
    "hivenet_http_rejected_total",
    "counter",
    ("listener", "reason"),
    "Connections and requests refused at the edge before they became a request.",
)
STREAMS_IN_PROGRESS: Final = Metric(
    "hivenet_streams_in_progress", "gauge", ("model",), "Streamed answers between first and last byte."
)

METRICS_OVERFLOW: Final = Metric(
    "hivenet_metrics_overflow_total",
    "counter",
    ("family",),
    "Updates counted under _overflow because their family has as many label sets as it may.",
)
"""Not in `METRICS`, as its families are what it counts: the adapter adds it. Source: observability.md §1.7."""

METRICS: Final[tuple[Metric, ...]] = (
    ROUTING_AGENT_INFO,
    ROUTING_AGENT_HEALTHY,
    ROUTING_AGENT_SUSPECT,
    ROUTING_AGENT_LAST_SEEN,
    ROUTING_REQUESTS_ROUTED,
    ROUTING_REQUESTS_FAILED,
    POLICY_PRIMARY_ROUTED,
    POLICY_EXHAUSTED,
    AGENT_REQUESTS_SUCCESS,
    AGENT_REQUESTS_FAILED,
    AGENT_INPUT_TOKENS,
    AGENT_OUTPUT_TOKENS,
    AGENT_REJECTED_REQUESTS,
    AGENT_DISCONNECTIONS,
    AGENT_FAILURE,
    MODEL_BACKEND_FAILURE,
    AGENT_CONNECTION_RESETS,
    AGENT_SUCCESS_RATE,
    AGENT_CAPACITY_UTILIZATION,
    AGENT_SRTT_MS,
    AGENT_RTTVAR_MS,
    AGENT_ACTIVE_REQUESTS,
    REQUESTS,
    REQUEST_DURATION,
    QUEUE_DEPTH,
    QUEUE_WAIT,
    TENANT_REQUESTS_SUCCESS,
    TENANT_REQUESTS_FAILED,
    TENANT_INPUT_TOKENS,
    TENANT_OUTPUT_TOKENS,
    TENANT_REQUEST_DURATION,
    HTTP_SERVER_REQUEST_DURATION,
    HTTP_SERVER_ACTIVE_REQUESTS,
    HTTP_REJECTED,
    STREAMS_IN_PROGRESS,
)
"""Every family that rooms count in; an adapter registers from this list."""
