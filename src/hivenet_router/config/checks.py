"""Do the given options fit together?

Invariant: each rule is checked only when all the values it speaks of could be read, and reports under the name of the
option to change. What single values may be is settled before, in `reading`; nothing here touches the system.
"""

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Final
from urllib.parse import urlsplit

from hivenet_router.config.addresses import BackendUrl, HostPorts, ListenAddress, is_loopback
from hivenet_router.config.durations import format_duration
from hivenet_router.config.given import Facts
from hivenet_router.config.keys import REDIRECT_SECRETS
from hivenet_router.config.option import Kind
from hivenet_router.config.options import OPTIONS
from hivenet_router.config.reading import read_value
from hivenet_router.config.secrets_file import shown_secret_path
from hivenet_router.config.values import Words
from hivenet_router.names.paths import Capability
from hivenet_router.names.protocol_ids import Engine

MODEL_BYTES_MAX: Final = 256
"""Longest model name a request may carry, so no longer one is announced. Source: http-api.md §2.2."""

_SERVICE_LINK: Final = re.compile(r".*(?:_SERVICE_HOST|_SERVICE_PORT(?:_.*)?|_PORT(?:_[0-9]+_(?:TCP|UDP).*)?)")
_OWN_PREFIXES: Final = ("HIVENET_ROUTER_", "HIVENET_AGENT_")
_LOG_VARIABLES_UNREAD: Final = ("GOLOG_OUTPUT", "GOLOG_FILE", "GOLOG_URL", "GOLOG_LOG_LABELS")
_KNOWN_VARIABLES: Final = frozenset(name for option in OPTIONS for name in option.names_env)


def check_router(facts: Facts) -> None:
    """Note every rule between router options that is broken. Source: configuration.md §2, §3, §13 item 1."""
    _check_silence(facts)
    _warn_of_links_out_of_reach(facts)
    _check_access(facts)
    _check_redirect(facts)
    _check_sync(facts)
    _warn_of_readable_secrets(facts)


def check_agent(facts: Facts) -> None:
    """Note every rule between agent options that is broken. Source: configuration.md §9.3, §10; signals.md §1.2."""
    engine, capability = facts.find("--engine", str), facts.find("--capability", str)
    _check_schemes(facts, engine)
    if engine == Engine.CUSTOM:
        for flag in ("--model", "--health-url"):
            if flag in facts.values and facts.values[flag] is None:
                facts.object(flag, "must be given with --engine custom")
    elif engine is not None and facts.find("--health-url", str) is not None:
        facts.warnings.append(f"--health-url has no effect with --engine {engine}")
    if engine == Engine.OLLAMA and capability == Capability.RERANKER:
        facts.object("--capability", "must not be reranker with --engine ollama, which cannot rerank")
    if engine == Engine.INFINITY and capability == Capability.LLM:
        facts.warnings.append(
            "--engine infinity serves no chat: every chat request will fail; use --capability embedding or reranker"
        )
    model = facts.find("--model", str) or ""
    if len(model.encode()) > MODEL_BYTES_MAX:
        facts.object("--model", f"must be at most {MODEL_BYTES_MAX} bytes, or no request could ask for it")
    routers = facts.find("--routers", HostPorts)
    if routers and routers.items and facts.was_given("--router-grpc"):
        facts.warnings.append("--router-grpc has no effect because --routers is set")
    _warn_of_dropped_url_ending(facts)
    _warn_of_readable_secrets(facts)


def check_effects(facts: Facts) -> None:
    """Note every option that was set and has no effect yet: as a mistake where somebody would rely on it."""
    for flag, given in facts.given.items():
        unbuilt = given.option.unbuilt
        if unbuilt is None or not facts.was_given(flag):
            continue
        if unbuilt.refuses and _asks_for_something(facts, flag):
            facts.object(flag, f"must be left out, because this version does not have it yet: {unbuilt.why}")
        else:
            facts.warnings.append(f"{given.name} has no effect in this version: {unbuilt.why}")


def _asks_for_something(facts: Facts, flag: str) -> bool:
    option, text = facts.given[flag].option, facts.given[flag].text
    if option.kind is Kind.SECRET or flag not in facts.values:
        return bool(text)
    asks_for_nothing = [option.default, *([option.off] if option.off else [])]
    return facts.values[flag] not in [read_value(option, each, from_flag=True) for each in asks_for_nothing]


def warn_of_variables(facts: Facts, environ: Mapping[str, str]) -> None:
    """Warn of variables that look like settings of these programs but are none."""
    for name in sorted(environ):
        if not name.startswith(_OWN_PREFIXES) or name in _KNOWN_VARIABLES or _SERVICE_LINK.fullmatch(name):
            continue
        facts.warnings.append(f"{name} is set but is no setting; {facts.program} --help lists them all")
    unread = [name for name in _LOG_VARIABLES_UNREAD if environ.get(name)]
    if unread:
        facts.warnings.append(f"{', '.join(unread)}: not read; the log goes to stderr")


def _check_silence(facts: Facts) -> None:
    rising = ("--heartbeat-interval", "--unhealthy-after", "--remove-after")
    for lower, upper in pairwise(rising):
        lower_s, upper_s = facts.find(lower, float), facts.find(upper, float)
        if lower_s is not None and upper_s is not None and lower_s >= upper_s:
            # The option the operator touched is the one to name; a default is not their mistake.
            to_change, rule = (
                (upper, f"must be above {lower}, which is {format_duration(lower_s)}")
                if facts.was_given(upper) and not facts.was_given(lower)
                else (lower, f"must be below {upper}, which is {format_duration(upper_s)}")
            )
            facts.object(to_change, rule)


def _warn_of_links_out_of_reach(facts: Facts) -> None:
    """An agent elsewhere would authenticate well and then dial an address of its own machine."""
    grpc, links = facts.find("--grpc-port", ListenAddress), facts.find("--p2p-listen-addr", str)
    if grpc is None or links is None or facts.given["--p2p-announce-addr"].text:
        return
    if is_loopback(links) and not is_loopback(grpc.host):
        facts.warnings.append(
            f"agents on other machines reach --grpc-port {grpc} but not the libp2p link that follows, which listens on "
            f"{links} only: start with --p2p-listen-addr 0.0.0.0, and behind NAT or Docker with --p2p-announce-addr "
            f"too; if all agents run on this machine, --grpc-port 127.0.0.1:{grpc.port} says so"
        )


def _check_access(facts: Facts) -> None:
    mode = facts.find("--auth-mode", str)
    has_file = facts.find("--auth-config-file", str) is not None
    if mode == "api-key" and not has_file and "--auth-config-file" in facts.values:
        facts.object("--auth-mode", "must not be api-key without --auth-config-file, which holds the keys")
    if has_file and facts.was_given("--auth-mode"):
        facts.warnings.append("--auth-mode has no effect because --auth-config-file decides the mode")


def _check_redirect(facts: Facts) -> None:
    if "--site-id" not in facts.values:
        return
    site_id = facts.find("--site-id", str)
    domains = facts.find("--redirect-allowed-domains", Words)
    if site_id is None:
        if facts.given[REDIRECT_SECRETS].text:
            facts.object(REDIRECT_SECRETS, "must not be given without --site-id")
        unused = [flag for flag in ("--redirect-allowed-domains", "--redirect-token-ttl") if facts.was_given(flag)]
        if unused:
            facts.warnings.append(f"{', '.join(unused)}: no effect without --site-id")
        return
    if not facts.given[REDIRECT_SECRETS].text:
        facts.object(REDIRECT_SECRETS, "must be given with --site-id")
    if domains is not None and not domains.items:
        facts.object("--redirect-allowed-domains", "must be given with --site-id")
    if facts.find("--auth-mode", str) == "api-key" and facts.find("--auth-config-file", str) is None:
        facts.object("--site-id", "must not be given with --auth-mode api-key: a sibling cannot look up static keys")
    short = [suffix for suffix in (domains.items if domains else ()) if suffix.count(".") == 1]
    if short:
        facts.warnings.append(f"--redirect-allowed-domains: {', '.join(short)} covers a whole top-level domain")


def _check_sync(facts: Facts) -> None:
    store = facts.find("--sync-store", str)
    if store == "none":
        unused = [flag for flag in facts.given if flag.startswith("--sync-") and facts.was_given(flag)]
        unused = [flag for flag in unused if flag != "--sync-store"]
        if unused:
            facts.warnings.append(f"{', '.join(unused)}: no effect without --sync-store valkey")
        return
    if store != "valkey":
        return
    addresses = facts.find("--sync-valkey-addrs", HostPorts)
    if addresses is not None and not addresses.items:
        facts.object("--sync-valkey-addrs", "must be given with --sync-store valkey")
    if (
        addresses is not None
        and len(addresses.items) > 1
        and "--sync-valkey-sentinel-master" in facts.values
        and facts.find("--sync-valkey-sentinel-master", str) is None
    ):
        facts.object(
            "--sync-valkey-addrs",
            "must be one address, or Sentinels with --sync-valkey-sentinel-master to name the set",
        )
    if facts.find("--quota-backend", str) in ("badger", "sqlite"):
        facts.object("--quota-backend", "must be memory with --sync-store valkey, which keeps the daily totals itself")
    if facts.was_given("--stream-timeout") and facts.find("--stream-timeout", float) == 0:
        facts.object("--stream-timeout", "must be more than 0s with --sync-store valkey")
    if facts.find("--sync-min-routers", int) == 1:
        facts.warnings.append(
            "--sync-min-routers is 1: while the store does not answer, this router grants whole limits; set it to the "
            "number of routers you run"
        )


def _check_schemes(facts: Facts, engine: str | None) -> None:
    rule = "must be http://: https backends are not served; end TLS in front of the agent, or use http://"
    backend, health = facts.find("--backend-url", BackendUrl), facts.find("--health-url", str)
    if backend is not None and backend.scheme == "https":
        facts.object("--backend-url", rule)
    # The health URL of an engine that has its own is not used, and is warned of above.
    if engine == Engine.CUSTOM and health is not None and urlsplit(health).scheme == "https":
        facts.object("--health-url", rule)


def _warn_of_readable_secrets(facts: Facts) -> None:
    for flag, secret in facts.secrets.items():
        if secret.is_readable_by_others:
            path = shown_secret_path(facts.given[flag].text)
            facts.warnings.append(f"{flag}: other users of this machine can read {path}; give it mode 0600")


def _warn_of_dropped_url_ending(facts: Facts) -> None:
    text = facts.given["--backend-url"].text
    if text.rstrip("/").endswith("/v1") and "--backend-url" in facts.values:
        facts.warnings.append(
            f"--backend-url: the ending /v1 was dropped; requests go to {facts.values['--backend-url']}/v1/…"
        )
