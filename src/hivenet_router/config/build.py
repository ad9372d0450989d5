"""How do checked options become the settings objects that the programs work with?

Invariant: called only when nothing is wrong, so every value is present and of its kind; a limit that is off becomes
None here and nowhere else. Which rules held is settled in `checks`.
"""

import socket
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import cast

from hivenet_router.config.addresses import BackendUrl, HostPort, HostPorts, ListenAddress, Networks
from hivenet_router.config.durations import format_duration
from hivenet_router.config.given import Facts
from hivenet_router.config.keys import Keys
from hivenet_router.config.option import Kind
from hivenet_router.config.secrets_file import Secret, shown_secret_path
from hivenet_router.config.settings import (
    AccessSettings,
    AgentSettings,
    AuthMode,
    LogFormat,
    LogLevel,
    PolicySettings,
    RedirectSettings,
    Resolved,
    RouterSettings,
    StorageSettings,
    SyncSettings,
)
from hivenet_router.config.values import LogLevels, Words
from hivenet_router.names.paths import Capability
from hivenet_router.names.protocol_ids import Engine

_DAY_S = 86_400.0


def program_version() -> str:
    """The version of the installed package, `dev` when it is not installed."""
    try:
        return metadata.version("hivenet-router")
    except metadata.PackageNotFoundError:
        return "dev"


def build_router(facts: Facts, keys: Keys) -> RouterSettings:
    """The settings of a router from options in which there is no mistake."""
    levels = facts.get("--log-level", LogLevels)
    sync = _sync(facts, keys)
    stream_timeout_s = _stream_timeout_s(facts)
    effective = {
        "--stream-timeout": format_duration(stream_timeout_s or 0.0),
        "--sync-site": sync.site,
        "--router-id": sync.router_id,
    }
    return RouterSettings(
        http_listen=facts.get("--http-port", ListenAddress),
        grpc_listen=facts.get("--grpc-port", ListenAddress),
        metrics_listen=facts.get("--metrics-port", ListenAddress),
        p2p_listen_ip=facts.get("--p2p-listen-addr", str),
        p2p_listen_port=facts.get("--p2p-port", int),
        p2p_announce_multiaddr=facts.find("--p2p-announce-addr", str),
        p2p_connections_per_ip_max=facts.get("--p2p-max-conns-per-ip", int),
        trusted_proxies=facts.get("--trusted-proxies", Networks).items,
        queue_requests_max=facts.get("--queue-size", int),
        enqueue_timeout_s=facts.get("--enqueue-timeout", float),
        forwards_max=facts.get("--max-concurrent", int),
        request_timeout_s=facts.get("--request-timeout", float),
        stream_idle_timeout_s=_unless_zero(facts, "--stream-idle-timeout"),
        stream_timeout_s=stream_timeout_s,
        hold_slot_for_stream=facts.get("--hold-slot-for-stream", bool),
        tries_per_step_max=facts.get("--max-tries-per-step", int),
        suspect_after=facts.get("--suspect-after", int),
        capacity_waiters_max=facts.get("--queue-depth", int),
        request_body_bytes_max=facts.get("--max-request-bytes", int) or None,
        buffered_response_bytes_max=facts.get("--max-buffered-response", int),
        strip_client_authorization=facts.get("--strip-client-authorization", bool),
        health_check_interval_s=facts.get("--health-check-interval", float),
        heartbeat_interval_s=facts.get("--heartbeat-interval", float),
        unhealthy_after_s=facts.get("--unhealthy-after", float),
        remove_after_s=facts.get("--remove-after", float),
        session_ttl_s=facts.get("--session-ttl", float),
        jwt_secret=_present(keys.jwt),
        jwt_secret_previous=keys.jwt_previous,
        identity_path=_path(facts, "--identity-path"),
        ready_needs_agents=facts.get("--ready-needs-agents", bool),
        drain_delay_s=facts.get("--drain-delay", float),
        shutdown_timeout_s=facts.get("--shutdown-timeout", float),
        legacy_metric_names=facts.get("--legacy-metric-names", bool),
        audit_log_path=_path(facts, "--audit-log-path"),
        log_level=_level(levels.base),
        log_levels_by_logger=_levels_by_logger(levels),
        log_format=_log_format(facts),
        otlp_endpoint=facts.find("--otlp-endpoint", str),
        policy=_policy(facts),
        access=_access(facts, keys),
        storage=_storage(facts),
        redirect=_redirect(facts, keys),
        sync=sync,
        warnings=tuple(facts.warnings),
        resolved=_resolved_options(facts, effective),
    )


def build_agent(facts: Facts, keys: Keys) -> AgentSettings:
    """The settings of an agent from options in which there is no mistake."""
    levels = facts.get("--log-level", LogLevels)
    version = facts.find("--version", str) or program_version()
    return AgentSettings(
        engine=Engine(facts.get("--engine", str)),
        backend_url=facts.get("--backend-url", BackendUrl),
        model=facts.find("--model", str),
        health_url=facts.find("--health-url", str),
        backend_api_key=keys.backend,
        capability=Capability(facts.get("--capability", str)),
        capacity=facts.get("--capacity", int),
        http_timeout_s=_unless_zero(facts, "--http-timeout"),
        stream_idle_timeout_s=_unless_zero(facts, "--stream-idle-timeout"),
        stream_write_timeout_s=_unless_zero(facts, "--stream-write-timeout"),
        routers=facts.get("--routers", HostPorts).items or (facts.get("--router-grpc", HostPort),),
        p2p_listen_port=facts.find("--p2p-listen-port", int),
        jwt_secret=_present(keys.jwt),
        jwt_secret_previous=keys.jwt_previous,
        identity_path=_path(facts, "--identity-path"),
        version=version,
        region=facts.get("--region", str),
        organization=facts.get("--organization", str),
        machine=facts.get("--machine", str),
        tags=facts.get("--tags", Words).items,
        gpu_model=facts.find("--gpu-model", str) or "",
        deployment_id=facts.find("--deployment-id", str) or "",
        replica_id=facts.find("--replica-id", str) or "",
        hide_llm=facts.get("--hide-llm", bool),
        llm_pretty_name=facts.find("--llm-pretty-name", str) or "",
        llm_info=facts.find("--llm-info", str) or "",
        hardware_sample_interval_s=facts.get("--hardware-sample-interval", float),
        probe_timeout_s=facts.get("--probe-timeout", float),
        engine_sample_interval_s=facts.get("--engine-sample-interval", float),
        routing_signal_interval_s=facts.get("--routing-signal-interval", float),
        gpu_devices_path=_path_or_none(facts, "--gpu-devices-file"),
        shutdown_timeout_s=facts.get("--shutdown-timeout", float),
        log_level=_level(levels.base),
        log_levels_by_logger=_levels_by_logger(levels),
        log_format=_log_format(facts),
        otlp_endpoint=facts.find("--otlp-endpoint", str),
        warnings=tuple(facts.warnings),
        resolved=_resolved_options(facts, {"--version": version}),
    )


def _resolved_options(facts: Facts, effective: Mapping[str, str]) -> tuple[Resolved, ...]:
    """Every option as it stands, in the order of the help text; `effective` holds those that depend on others."""
    return tuple(
        Resolved(
            flag,
            effective.get(flag) or _resolved_text(facts, flag),
            given.name if given.source == "environment" else given.source,
        )
        for flag, given in facts.given.items()
    )


def _resolved_text(facts: Facts, flag: str) -> str:
    given = facts.given[flag]
    if given.option.kind is Kind.SECRET:
        if given.source == "command line" and given.text:
            return f"file {shown_secret_path(given.text)}"
        return "given" if given.text else ""
    value = facts.values.get(flag)
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case float() if given.option.kind in (Kind.DURATION, Kind.WHOLE_SECONDS):
            return format_duration(value)
        case _:
            return str(value)


def _policy(facts: Facts) -> PolicySettings:
    return PolicySettings(
        policy_path=_path_or_none(facts, "--policy-file"),
        model_dir=_path_or_none(facts, "--policy-model-dir"),
        aliases_path=_path_or_none(facts, "--model-aliases-file"),
        extra_strategies=facts.get("--extra-strategies", bool),
        lenient=facts.get("--lenient-config", bool),
    )


def _access(facts: Facts, keys: Keys) -> AccessSettings:
    return AccessSettings(
        auth_config_path=_path_or_none(facts, "--auth-config-file"),
        # The reader accepts only the words of the option's row, which are those of the type.
        auth_mode=cast("AuthMode", facts.get("--auth-mode", str)),
        admin_keys=keys.admin,
        allow_insecure_admin=facts.get("--allow-insecure-admin", bool),
        quota_backend="memory" if facts.get("--quota-backend", str) == "memory" else "sqlite",
        admit_ratio=facts.get("--admit-fraction", float),
        admit_park_timeout_s=facts.get("--admit-park-timeout", float),
        rpm_burst_s=facts.get("--rpm-burst-seconds", int),
        openai_api_key=keys.openai,
        anthropic_api_key=keys.anthropic,
    )


def _storage(facts: Facts) -> StorageSettings:
    ttl_days = facts.get("--disk-db-ttl", int)
    return StorageSettings(
        disk_db_path=_path(facts, "--disk-db-path"),
        reset_disk_db=facts.get("--reset-disk-db", bool),
        history_ttl_s=ttl_days * _DAY_S if ttl_days > 0 else None,
        flush_interval_s=facts.get("--universal-flush-interval", float),
    )


def _redirect(facts: Facts, keys: Keys) -> RedirectSettings:
    return RedirectSettings(
        site_id=facts.find("--site-id", str),
        secrets=keys.redirect,
        token_ttl_s=facts.get("--redirect-token-ttl", float),
        allowed_domains=facts.get("--redirect-allowed-domains", Words).items,
        hold_budget_s=facts.get("--wake-hold-budget", float),
        held_per_model_max=facts.get("--wake-max-waiters", int),
        held_per_key_max=facts.get("--wake-max-waiters-per-key", int),
        held_body_bytes_max=facts.get("--wake-max-body-bytes", int) or None,
    )


def _sync(facts: Facts, keys: Keys) -> SyncSettings:
    return SyncSettings(
        store="valkey" if facts.get("--sync-store", str) == "valkey" else "none",
        valkey_addresses=facts.get("--sync-valkey-addrs", HostPorts).items,
        sentinel_master=facts.find("--sync-valkey-sentinel-master", str),
        site=facts.find("--sync-site", str) or facts.find("--site-id", str) or "default",
        valkey_password=keys.valkey_password,
        valkey_tls=facts.get("--sync-valkey-tls", bool),
        valkey_tls_ca_path=_path_or_none(facts, "--sync-valkey-tls-ca-file"),
        interval_s=facts.get("--sync-interval", float),
        routers_min=facts.get("--sync-min-routers", int),
        router_id=facts.find("--router-id", str) or socket.gethostname(),
        advertised_grpc=facts.find("--advertise-grpc-addr", HostPort),
    )


def _stream_timeout_s(facts: Facts) -> float | None:
    stated = _unless_zero(facts, "--stream-timeout")
    if stated is None and facts.get("--sync-store", str) == "valkey":
        return facts.get("--request-timeout", float)
    return stated


def _unless_zero(facts: Facts, flag: str) -> float | None:
    return facts.get(flag, float) or None


def _path(facts: Facts, flag: str) -> Path:
    return Path(facts.get(flag, str))


def _path_or_none(facts: Facts, flag: str) -> Path | None:
    text = facts.find(flag, str)
    return Path(text) if text else None


def _present(secret: Secret | None) -> Secret:
    if secret is None:
        raise TypeError("settings are built only when the shared secret is present")
    return secret


def _level(word: str) -> LogLevel:
    # The reader maps every accepted word to one of the five levels.
    return cast("LogLevel", word)


def _levels_by_logger(levels: LogLevels) -> Mapping[str, LogLevel]:
    return MappingProxyType({logger: _level(word) for logger, word in levels.by_logger})


def _log_format(facts: Facts) -> LogFormat:
    # The reader accepts only the words of the option's row, which are those of the type.
    return cast("LogFormat", facts.get("--log-format", str))
