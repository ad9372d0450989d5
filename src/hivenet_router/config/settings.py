"""What did the operator decide, as values that cannot be wrong any more?

Invariant: a settings object exists only when every option was readable and all of them fit together; every duration is
in seconds, every size in bytes, and None means that there is no such limit or no such thing. Only `build` makes them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hivenet_router.config.addresses import BackendUrl, HostPort, IpNetwork, ListenAddress
from hivenet_router.config.secrets_file import RedirectSecret, Secret
from hivenet_router.names.paths import Capability
from hivenet_router.names.protocol_ids import Engine

AuthMode = Literal["none", "api-key", "dynamic"]
LogFormat = Literal["auto", "color", "nocolor", "json"]
LogLevel = Literal["debug", "info", "warn", "error", "fatal"]
QuotaBackend = Literal["memory", "sqlite"]


@dataclass(frozen=True, slots=True)
class Resolved:
    """One option as it stands, fit to be printed: secrets say only whether and from where they were given."""

    flag: str
    text: str
    source: str


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """Where routing policies and aliases are found, and how strictly they are read."""

    policy_path: Path | None
    model_dir: Path | None
    aliases_path: Path | None
    extra_strategies: bool
    lenient: bool


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """Who may ask, and how much. `auth_mode` counts only while `auth_config_path` is None."""

    auth_config_path: Path | None
    auth_mode: AuthMode
    admin_keys: tuple[Secret, ...]
    allow_insecure_admin: bool
    quota_backend: QuotaBackend
    admit_ratio: float
    admit_park_timeout_s: float
    rpm_burst_s: int
    openai_api_key: Secret | None
    anthropic_api_key: Secret | None


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """The persistent store. `history_ttl_s` None keeps history for ever."""

    disk_db_path: Path
    reset_disk_db: bool
    history_ttl_s: float | None
    flush_interval_s: float


@dataclass(frozen=True, slots=True)
class RedirectSettings:
    """Cross-site redirect and hold at zero; redirect is off while `site_id` is None. The first secret signs."""

    site_id: str | None
    secrets: tuple[RedirectSecret, ...]
    token_ttl_s: float
    allowed_domains: tuple[str, ...]
    hold_budget_s: float
    held_per_model_max: int
    held_per_key_max: int
    held_body_bytes_max: int | None


@dataclass(frozen=True, slots=True)
class SyncSettings:
    """What routers of one site share; `store` "none" means nothing."""

    store: Literal["none", "valkey"]
    valkey_addresses: tuple[HostPort, ...]
    sentinel_master: str | None
    site: str
    valkey_password: Secret | None
    valkey_tls: bool
    valkey_tls_ca_path: Path | None
    interval_s: float
    routers_min: int
    router_id: str
    advertised_grpc: HostPort | None


@dataclass(frozen=True, slots=True)
class RouterSettings:
    """Everything a router is told at start; only files it names are read again later."""

    http_listen: ListenAddress
    grpc_listen: ListenAddress
    metrics_listen: ListenAddress
    p2p_listen_ip: str
    p2p_listen_port: int
    p2p_announce_multiaddr: str | None
    p2p_connections_per_ip_max: int
    trusted_proxies: tuple[IpNetwork, ...]

    queue_requests_max: int
    enqueue_timeout_s: float
    forwards_max: int
    request_timeout_s: float
    stream_idle_timeout_s: float | None
    stream_timeout_s: float | None
    hold_slot_for_stream: bool
    tries_per_step_max: int
    suspect_after: int
    capacity_waiters_max: int
    request_body_bytes_max: int | None
    buffered_response_bytes_max: int
    strip_client_authorization: bool

    health_check_interval_s: float
    heartbeat_interval_s: float
    unhealthy_after_s: float
    remove_after_s: float
    session_ttl_s: float

    jwt_secret: Secret
    jwt_secret_previous: Secret | None
    identity_path: Path

    ready_needs_agents: bool
    drain_delay_s: float
    shutdown_timeout_s: float
    legacy_metric_names: bool
    audit_log_path: Path
    log_level: LogLevel
    log_levels_by_logger: Mapping[str, LogLevel]
    log_format: LogFormat
    otlp_endpoint: str | None

    policy: PolicySettings
    access: AccessSettings
    storage: StorageSettings
    redirect: RedirectSettings
    sync: SyncSettings

    warnings: tuple[str, ...]
    resolved: tuple[Resolved, ...]


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """Everything an agent is told at start. `routers` holds one address for each session, never none."""

    engine: Engine
    backend_url: BackendUrl
    model: str | None
    health_url: str | None
    backend_api_key: Secret | None
    capability: Capability
    capacity: int
    http_timeout_s: float | None
    stream_idle_timeout_s: float | None
    stream_write_timeout_s: float | None

    routers: tuple[HostPort, ...]
    p2p_listen_port: int | None
    jwt_secret: Secret
    jwt_secret_previous: Secret | None
    identity_path: Path

    version: str
    region: str
    organization: str
    machine: str
    tags: tuple[str, ...]
    gpu_model: str
    deployment_id: str
    replica_id: str
    hide_llm: bool
    llm_pretty_name: str
    llm_info: str

    hardware_sample_interval_s: float
    probe_timeout_s: float
    engine_sample_interval_s: float
    routing_signal_interval_s: float
    gpu_devices_path: Path | None

    shutdown_timeout_s: float
    log_level: LogLevel
    log_levels_by_logger: Mapping[str, LogLevel]
    log_format: LogFormat
    otlp_endpoint: str | None

    warnings: tuple[str, ...]
    resolved: tuple[Resolved, ...]
