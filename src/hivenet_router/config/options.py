"""Which options do the two programs have, and what is each one called, worth by default and allowed to be?

Invariant: one row per option and program; the parser, `--help`, `--check-config`, the documents and the golden test are
all made from these rows, so an option cannot exist in one of them only. How texts become values is in `values` and
`addresses`; rules between options are in `checks`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum, StrEnum, auto
from types import MappingProxyType
from typing import Final

from hivenet_router.names.paths import Capability
from hivenet_router.names.protocol_ids import Engine


class Program(StrEnum):
    """The two programs; the value is the name in their messages."""

    ROUTER = "hivenet-router"
    AGENT = "hivenet-agent"


class Kind(Enum):
    """What an option's text is read as."""

    BOOLEAN = auto()
    INTEGER = auto()
    FRACTION = auto()
    DURATION = auto()
    WHOLE_SECONDS = auto()
    TEXT = auto()
    PATH = auto()
    NAME = auto()
    CHOICE = auto()
    WORDS = auto()
    DOMAINS = auto()
    LOG_LEVELS = auto()
    LISTEN_ADDRESS = auto()
    IP = auto()
    MULTIADDR = auto()
    HOST_PORT = auto()
    HOST_PORTS = auto()
    ADVERTISED = auto()
    NETWORKS = auto()
    BACKEND_URL = auto()
    URL = auto()
    OTLP = auto()
    SECRET = auto()
    """The flag takes the path of a file, the environment variable the secret itself."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option of one program.

    `default` and the bounds are written as an operator would type them. `more_than` excludes its value, `at_least` and
    `at_most` include theirs; for names `at_most` is the length. An option that may be empty has an empty default or
    `empty_ok`. `env_also` holds further variables, read in order when `env` is unset. `later` marks an option that is
    accepted and checked but has no effect yet.
    """

    flag: str
    default: str
    kind: Kind
    help: str
    unit: str = ""
    at_least: str = ""
    more_than: str = ""
    at_most: str = ""
    choices: tuple[str, ...] = ()
    empty_ok: bool = False
    env: str = ""
    env_also: tuple[str, ...] = ()
    later: bool = False
    group: str = ""
    program: Program = Program.ROUTER

    @property
    def names_env(self) -> tuple[str, ...]:
        """Every environment variable that sets this option, the one that wins first."""
        return (self.env, *self.env_also)


_INT32_MAX: Final = "2147483647"
_INT32_SECONDS: Final = "596523h"

_ROUTER_NETWORK: Final = (
    Option(
        "--http-port",
        ":8080",
        Kind.LISTEN_ADDRESS,
        "Where clients reach /v1/* and /health, over plain HTTP/1.1; without a host on every interface.",
    ),
    Option(
        "--grpc-port",
        ":50051",
        Kind.LISTEN_ADDRESS,
        "Where agents authenticate (gRPC over TLS 1.3) and are told where the libp2p link is.",
    ),
    Option("--metrics-port", ":2112", Kind.LISTEN_ADDRESS, "Where GET /metrics is served, without authentication."),
    Option(
        "--p2p-listen-addr",
        "127.0.0.1",
        Kind.IP,
        "Interface on which agents' libp2p links are accepted; 0.0.0.0 or :: for all, which agents on other machines "
        "need.",
    ),
    Option(
        "--p2p-port",
        "9000",
        Kind.INTEGER,
        "TCP port of the libp2p listener; 0 takes any free port.",
        at_least="0",
        at_most="65535",
    ),
    Option(
        "--p2p-announce-addr",
        "",
        Kind.MULTIADDR,
        "The one address told to agents instead of the listening ones, for a router behind NAT or in a container, such "
        "as /ip4/203.0.113.7/tcp/9000 or /dns4/router.example.com/tcp/9000; the peer ID is appended.",
    ),
    Option(
        "--p2p-max-conns-per-ip",
        "32",
        Kind.INTEGER,
        "Most libp2p connections from one IPv4 address or IPv6 /56; loopback is not counted.",
        unit="connections",
        at_least="1",
        at_most=_INT32_MAX,
    ),
    Option(
        "--trusted-proxies",
        "",
        Kind.NETWORKS,
        "Addresses and networks whose X-Forwarded-For is believed, comma-separated; empty trusts none.",
        later=True,
    ),
)

_ROUTER_REQUESTS: Final = (
    Option(
        "--queue-size",
        "100",
        Kind.INTEGER,
        "Most requests that wait for one of the --max-concurrent forwards. With 0 nothing waits: a request is taken "
        "only if a forward is free at once.",
        unit="requests",
        at_least="0",
        at_most=_INT32_MAX,
    ),
    Option(
        "--enqueue-timeout",
        "5s",
        Kind.DURATION,
        "Longest wait for a place in a full queue before 503 queue_full; 0 refuses at once.",
        at_least="0s",
    ),
    Option(
        "--max-concurrent",
        "50",
        Kind.INTEGER,
        "Most requests being forwarded at once; a stream stops counting at its headers.",
        unit="forwards",
        at_least="1",
        at_most=_INT32_MAX,
    ),
    Option(
        "--request-timeout",
        "60s",
        Kind.DURATION,
        "Time limit to the first byte of a stream, and of a whole buffered answer, queueing and retries included.",
        more_than="0s",
    ),
    Option(
        "--stream-idle-timeout",
        "60s",
        Kind.DURATION,
        "Longest silence between two chunks of a stream; 0 sets no limit.",
        at_least="0s",
    ),
    Option(
        "--stream-timeout",
        "0s",
        Kind.DURATION,
        "Time limit of a whole stream; 0 sets none. With --sync-store valkey one is required, and the default is "
        "--request-timeout.",
        at_least="0s",
    ),
    Option(
        "--hold-slot-for-stream",
        "false",
        Kind.BOOLEAN,
        "Keep a stream's slot on its agent until the last byte instead of releasing it at the response headers.",
    ),
    Option(
        "--max-tries-per-step",
        "3",
        Kind.INTEGER,
        "Failed forwards after which a policy step is given up, where the policy does not say; without policies there "
        "is one step, each try goes to another agent, and the client gets the last failure.",
        unit="tries",
        at_least="1",
        at_most=_INT32_MAX,
    ),
    Option(
        "--queue-depth",
        "30",
        Kind.INTEGER,
        "Most requests per model that wait for a full agent's slot; 0 turns this wait off.",
        unit="requests",
        at_least="0",
        at_most=_INT32_MAX,
    ),
    Option(
        "--max-request-bytes",
        "10485760",
        Kind.INTEGER,
        "Largest body of an inference request; 0 sets no limit.",
        unit="bytes",
        at_least="0",
    ),
    Option(
        "--max-buffered-response",
        "8388608",
        Kind.INTEGER,
        "Largest answer that is read whole before the client gets it; a larger one is passed through as it comes.",
        unit="bytes",
        at_least="0",
    ),
    Option(
        "--strip-client-authorization",
        "false",
        Kind.BOOLEAN,
        "Do not forward the client's Authorization and x-api-key headers to agents.",
    ),
)

_ROUTER_AGENTS: Final = (
    Option("--health-check-interval", "5s", Kind.DURATION, "How often silent agents are looked for.", more_than="0s"),
    Option(
        "--heartbeat-interval",
        "5s",
        Kind.WHOLE_SECONDS,
        "How often agents are asked to send a heartbeat, in whole seconds; below --unhealthy-after.",
        at_least="1s",
        at_most=_INT32_SECONDS,
    ),
    Option(
        "--unhealthy-after",
        "15s",
        Kind.DURATION,
        "Silence after which an agent gets no requests; below --remove-after.",
        more_than="0s",
    ),
    Option("--remove-after", "30s", Kind.DURATION, "Silence after which an agent is forgotten.", more_than="0s"),
    Option(
        "--session-ttl",
        "1h",
        Kind.WHOLE_SECONDS,
        "Lifetime of an agent's session, in whole seconds; agents renew five minutes before it ends.",
        more_than="5m",
        at_most=_INT32_SECONDS,
    ),
)

_ROUTER_IDENTITY: Final = (
    Option(
        "--jwt-secret-file",
        "",
        Kind.SECRET,
        "File with the secret shared with all agents, at least 32 bytes, white space around it removed. Required; "
        "make one with: openssl rand -hex 32 > secret.txt",
        env="HIVENET_ROUTER_JWT_SECRET",
    ),
    Option(
        "--jwt-secret-previous-file",
        "",
        Kind.SECRET,
        "File with the secret before the current one, still accepted while agents change over.",
        env="HIVENET_ROUTER_JWT_SECRET_PREVIOUS",
    ),
    Option(
        "--identity-path",
        "./router_identity.key",
        Kind.PATH,
        "Key file of this router's peer ID, created when missing; one process per file.",
    ),
)

_ROUTER_POLICY: Final = (
    Option("--policy-file", "", Kind.PATH, "YAML file with the routing policy of all models.", later=True),
    Option(
        "--policy-model-dir",
        "",
        Kind.PATH,
        "Folder of YAML policies, one per set of models; its _default replaces --policy-file.",
        later=True,
    ),
    Option(
        "--extra-strategies",
        "false",
        Kind.BOOLEAN,
        "Let policies use ranking strategies other than least-loaded.",
        later=True,
    ),
    Option(
        "--model-aliases-file",
        "",
        Kind.PATH,
        "YAML file with other names for models.",
        env="HIVENET_ROUTER_MODEL_ALIASES",
        later=True,
    ),
    Option(
        "--lenient-config",
        "false",
        Kind.BOOLEAN,
        "Only warn of unknown fields in policies, keys, aliases and the sibling map instead of refusing them.",
        later=True,
    ),
)

_ROUTER_ACCESS: Final = (
    Option(
        "--auth-config-file",
        "",
        Kind.PATH,
        "YAML file with client keys and modes; it decides --auth-mode too.",
        env="HIVENET_ROUTER_AUTH_CONFIG",
        later=True,
    ),
    Option(
        "--auth-mode",
        "none",
        Kind.CHOICE,
        "How clients authenticate when there is no --auth-config-file; api-key needs that file.",
        choices=("none", "api-key", "dynamic"),
        later=True,
    ),
    Option(
        "--admin-api-keys-file",
        "",
        Kind.SECRET,
        "File with the keys that open /admin/*, comma-separated or one a line.",
        env="HIVENET_ROUTER_ADMIN_API_KEYS",
        later=True,
    ),
    Option("--allow-insecure-admin", "false", Kind.BOOLEAN, "Allow /admin/* without a key.", later=True),
    Option(
        "--quota-backend",
        "memory",
        Kind.CHOICE,
        "Where daily totals live: memory, or the disk store (badger and sqlite mean the same).",
        choices=("memory", "badger", "sqlite"),
        later=True,
    ),
    Option(
        "--admit-fraction",
        "0.90",
        Kind.FRACTION,
        "Share of the token budget of a model that admission hands out.",
        more_than="0",
        at_most="1",
        later=True,
    ),
    Option(
        "--admit-park-timeout",
        "250ms",
        Kind.DURATION,
        "How long a request may wait for token budget; 0 refuses at once.",
        at_least="0s",
        later=True,
    ),
    Option(
        "--rpm-burst-seconds",
        "0",
        Kind.INTEGER,
        "Seconds' worth of a per-minute request limit that may come at once; 0 means the whole minute's.",
        unit="seconds",
        at_least="0",
        at_most="59",
        later=True,
    ),
    Option(
        "--openai-api-key-file",
        "",
        Kind.SECRET,
        "File with the key of the openai fallback provider.",
        env="HIVENET_ROUTER_OPENAI_API_KEY",
        later=True,
    ),
    Option(
        "--anthropic-api-key-file",
        "",
        Kind.SECRET,
        "File with the key of the anthropic fallback provider.",
        env="HIVENET_ROUTER_ANTHROPIC_API_KEY",
        later=True,
    ),
)

_ROUTER_STORAGE: Final = (
    Option("--disk-db-path", "./badger_disk", Kind.PATH, "Folder of the persistent store.", later=True),
    Option("--reset-disk-db", "false", Kind.BOOLEAN, "Delete the persistent store before opening it.", later=True),
    Option(
        "--disk-db-ttl",
        "30",
        Kind.INTEGER,
        "Days for which an agent's history is kept; 0 or less keeps it for ever.",
        unit="days",
        at_most="36500",
        later=True,
    ),
    Option(
        "--universal-flush-interval",
        "30s",
        Kind.DURATION,
        "How often agent history and daily totals are written to disk.",
        more_than="0s",
        later=True,
    ),
)

_ROUTER_OPERATION: Final = (
    Option(
        "--ready-needs-agents",
        "false",
        Kind.BOOLEAN,
        "Answer 503 on /ready while no healthy agent is registered.",
        later=True,
    ),
    Option(
        "--drain-delay",
        "0s",
        Kind.DURATION,
        "Time on SIGTERM in which new requests are still served, so that load balancers can turn away first.",
        at_least="0s",
        at_most="5m",
    ),
    Option(
        "--shutdown-timeout",
        "30s",
        Kind.DURATION,
        "Time that running requests get to finish on SIGTERM.",
        at_least="0s",
        at_most="1h",
    ),
    Option(
        "--legacy-metric-names",
        "true",
        Kind.BOOLEAN,
        "Export some metrics under their older hivenet_router_ names as well.",
    ),
    Option(
        "--audit-log-path",
        "/var/log/hivenet-router/audit.jsonl",
        Kind.PATH,
        "File to which one JSON line per request is appended.",
        later=True,
    ),
)

_SHARED_OPERATION: Final = (
    Option(
        "--log-level",
        "info",
        Kind.LOG_LEVELS,
        "Lowest level that is logged: debug, info, warn, error or fatal; logger=level sets one logger, and both may be "
        "combined in a comma list.",
        env_also=("GOLOG_LOG_LEVEL",),
    ),
    Option(
        "--log-format",
        "auto",
        Kind.CHOICE,
        "Log lines on stderr as text (auto colours them on a terminal) or as JSON.",
        choices=("auto", "color", "nocolor", "json"),
        env_also=("GOLOG_LOG_FMT",),
    ),
    Option(
        "--otlp-endpoint",
        "",
        Kind.OTLP,
        "host:port of an OpenTelemetry collector for traces; empty turns tracing off.",
        env="OTEL_EXPORTER_OTLP_ENDPOINT",
        later=True,
    ),
    Option(
        "--check-config",
        "false",
        Kind.BOOLEAN,
        "Start nothing: check all settings, print them without secrets, and exit with 0 if all of them can be used.",
    ),
)

_ROUTER_REDIRECT: Final = (
    Option(
        "--site-id",
        "",
        Kind.NAME,
        "This router's site in the sibling map; empty turns cross-site redirect off.",
        at_most="64",
        later=True,
    ),
    Option(
        "--redirect-secret-file",
        "",
        Kind.SECRET,
        "File with the redirect secrets, id:secret, one a line (comma-separated in the environment). The first signs, "
        "all verify. Required with --site-id.",
        env="HIVENET_ROUTER_REDIRECT_SECRETS",
        later=True,
    ),
    Option(
        "--redirect-token-ttl",
        "60s",
        Kind.DURATION,
        "Lifetime of a redirect token.",
        at_least="1s",
        at_most="10m",
        later=True,
    ),
    Option(
        "--redirect-allowed-domains",
        "",
        Kind.DOMAINS,
        "Host suffixes a sibling's URL may have, comma-separated, each starting with '.'. Required with --site-id.",
        later=True,
    ),
    Option(
        "--wake-hold-budget",
        "120s",
        Kind.DURATION,
        "How long a request is held while a model wakes, where its placement does not say; 0 holds only where it does.",
        at_least="0s",
        at_most="1h",
        later=True,
    ),
    Option(
        "--wake-max-waiters",
        "200",
        Kind.INTEGER,
        "Most requests held per model and kind.",
        unit="requests",
        at_least="1",
        at_most=_INT32_MAX,
        later=True,
    ),
    Option(
        "--wake-max-waiters-per-key",
        "50",
        Kind.INTEGER,
        "Most requests held per key, model and kind.",
        unit="requests",
        at_least="1",
        at_most=_INT32_MAX,
        later=True,
    ),
    Option(
        "--wake-max-body-bytes",
        "268435456",
        Kind.INTEGER,
        "Most bytes that the bodies of held requests take together; 0 sets no limit.",
        unit="bytes",
        at_least="0",
        later=True,
    ),
)

_ROUTER_SYNC: Final = (
    Option(
        "--sync-store",
        "none",
        Kind.CHOICE,
        "Store through which the routers of a site enforce limits together.",
        choices=("none", "valkey"),
        later=True,
    ),
    Option(
        "--sync-valkey-addrs",
        "",
        Kind.HOST_PORTS,
        "host:port of the Sentinels, comma-separated, or of one Valkey. Required with --sync-store valkey.",
        later=True,
    ),
    Option(
        "--sync-valkey-sentinel-master",
        "",
        Kind.TEXT,
        "Name of the Sentinel master set; empty connects to Valkey directly.",
        later=True,
    ),
    Option(
        "--sync-site",
        "",
        Kind.NAME,
        "Name of this site in the store, equal on all its routers; by default --site-id, else 'default'.",
        at_most="64",
        later=True,
    ),
    Option(
        "--sync-valkey-password-file",
        "",
        Kind.SECRET,
        "File with the password of Valkey and the Sentinels.",
        env="HIVENET_ROUTER_SYNC_VALKEY_PASSWORD",
        later=True,
    ),
    Option("--sync-valkey-tls", "false", Kind.BOOLEAN, "Use TLS to Valkey and the Sentinels.", later=True),
    Option(
        "--sync-valkey-tls-ca-file",
        "",
        Kind.PATH,
        "PEM file of the CAs that verify them; empty uses the system's.",
        later=True,
    ),
    Option(
        "--sync-interval",
        "1s",
        Kind.DURATION,
        "Time between two rounds of exchange with the store.",
        at_least="100ms",
        at_most="10s",
        later=True,
    ),
    Option(
        "--sync-min-routers",
        "1",
        Kind.INTEGER,
        "Routers assumed to share the limits while the store does not answer; set it to the number you run.",
        unit="routers",
        at_least="1",
        at_most=_INT32_MAX,
        later=True,
    ),
    Option(
        "--router-id",
        "",
        Kind.NAME,
        "Stable name of this router, one live process per name; by default the host name.",
        at_most="128",
        later=True,
    ),
    Option(
        "--advertise-grpc-addr",
        "",
        Kind.ADVERTISED,
        "host:port at which agents reach this router's gRPC listener, told to agents of the site; empty tells nothing.",
        later=True,
    ),
)

_AGENT_BACKEND: Final = (
    Option(
        "--engine",
        Engine.VLLM.value,
        Kind.CHOICE,
        "The inference engine behind this agent; it decides how health and models are asked for.",
        choices=tuple(engine.value for engine in Engine),
    ),
    Option(
        "--backend-url",
        "http://localhost:8888",
        Kind.BACKEND_URL,
        "Base URL of the engine; a trailing / or /v1 is dropped, as paths such as /v1/chat/completions are appended.",
    ),
    Option(
        "--model",
        "",
        Kind.TEXT,
        "Model to announce; empty takes the first one the engine lists. Required with --engine custom.",
    ),
    Option(
        "--health-url",
        "",
        Kind.URL,
        "URL that answers 200 while the backend is healthy. Required with --engine custom, unused with the others.",
    ),
    Option(
        "--capability",
        Capability.LLM.value,
        Kind.CHOICE,
        "What the model does.",
        choices=tuple(capability.value for capability in Capability),
    ),
    Option(
        "--capacity",
        "10",
        Kind.INTEGER,
        "Requests that a router sends to this agent at once; a stream counts to its headers, or to its end where the "
        "router has --hold-slot-for-stream.",
        unit="requests",
        at_least="1",
        at_most=_INT32_MAX,
    ),
    Option(
        "--http-timeout",
        "120s",
        Kind.DURATION,
        "Time limit to the backend's headers, and of a whole buffered answer; 0 sets none.",
        at_least="0s",
    ),
    Option(
        "--stream-idle-timeout",
        "60s",
        Kind.DURATION,
        "Longest silence of the backend between two chunks of a stream; 0 sets no limit.",
        at_least="0s",
    ),
    Option(
        "--stream-write-timeout",
        "60s",
        Kind.DURATION,
        "Longest time one chunk may take to be written to the router; 0 sets no limit.",
        at_least="0s",
    ),
)

_AGENT_ROUTERS: Final = (
    Option(
        "--routers",
        "",
        Kind.HOST_PORTS,
        "gRPC addresses (host:port) of all routers, comma-separated; the agent serves each of them. Name each router "
        "itself, not a load balancer.",
    ),
    Option(
        "--router-grpc",
        "localhost:50051",
        Kind.HOST_PORT,
        "gRPC address (host:port) of the router, where there is only one; used while --routers is empty.",
    ),
    Option(
        "--router-p2p",
        "/ip4/127.0.0.1/tcp/9000",
        Kind.TEXT,
        "Accepted for old command lines and not used: the router tells its address.",
        empty_ok=True,
    ),
    Option(
        "--p2p-listen-port",
        "",
        Kind.INTEGER,
        "TCP port on which this agent accepts libp2p links; 0 takes any free port, empty opens none (the agent dials).",
        at_least="0",
        at_most="65535",
    ),
    Option(
        "--jwt-secret-file",
        "",
        Kind.SECRET,
        "File with the secret shared with the routers, the same as theirs: at least 32 bytes, white space around it "
        "removed. Required.",
        env="HIVENET_ROUTER_JWT_SECRET",
        env_also=("HIVENET_AGENT_JWT_SECRET",),
    ),
    Option(
        "--jwt-secret-previous-file",
        "",
        Kind.SECRET,
        "File with the secret before the current one; a router that still presents it is accepted.",
        env="HIVENET_ROUTER_JWT_SECRET_PREVIOUS",
        env_also=("HIVENET_AGENT_JWT_SECRET_PREVIOUS",),
    ),
    Option(
        "--identity-path",
        "./agent_identity.key",
        Kind.PATH,
        "Key file of this agent's peer ID, created when missing; one process per file.",
    ),
)

_AGENT_METADATA: Final = (
    Option(
        "--version",
        "",
        Kind.TEXT,
        "Version to announce, by default the program's. As the last argument without a value: print the program's "
        "version and exit.",
    ),
    Option("--region", "UE-France", Kind.TEXT, "Region to announce."),
    Option("--organization", "Unknown", Kind.TEXT, "Organization to announce."),
    Option("--machine", "Unknown", Kind.TEXT, "Machine to announce.", empty_ok=True),
    Option("--tags", "production", Kind.WORDS, "Tags to announce, comma-separated.", empty_ok=True),
    Option(
        "--gpu-model",
        "",
        Kind.TEXT,
        "GPU model to announce; it is not detected.",
        env="HIVENET_ROUTER_GPU_MODEL",
        env_also=("HIVENET_AGENT_GPU_MODEL",),
    ),
    Option(
        "--deployment-id",
        "",
        Kind.TEXT,
        "Deployment this agent belongs to; a label of metrics.",
        env="HIVENET_ROUTER_DEPLOYMENT_ID",
        env_also=("HIVENET_AGENT_DEPLOYMENT_ID",),
    ),
    Option(
        "--replica-id",
        "",
        Kind.TEXT,
        "Replica within its deployment.",
        env="HIVENET_ROUTER_REPLICA_ID",
        env_also=("HIVENET_AGENT_REPLICA_ID",),
    ),
    Option(
        "--hide-llm",
        "false",
        Kind.BOOLEAN,
        "Mark the model as hidden in the catalogue; it is listed and served all the same.",
    ),
    Option("--llm-pretty-name", "", Kind.TEXT, "Display name of the model in the catalogue."),
    Option("--llm-info", "", Kind.TEXT, "Description of the model in the catalogue."),
)

_AGENT_SAMPLING: Final = (
    Option(
        "--hardware-sample-interval",
        "2s",
        Kind.DURATION,
        "How often the backend's health is probed; hardware is sampled at the same pace where this version does so.",
        more_than="0s",
    ),
    Option(
        "--engine-sample-interval",
        "500ms",
        Kind.DURATION,
        "How often the engine's metrics are read.",
        more_than="0s",
    ),
    Option(
        "--routing-signal-interval",
        "500ms",
        Kind.DURATION,
        "How often signals are pushed to the routers.",
        more_than="0s",
    ),
    Option(
        "--gpu-devices-file",
        "",
        Kind.PATH,
        "File with the UUIDs of the GPUs to report, one a line or comma-separated; empty reports all.",
        later=True,
    ),
)

_AGENT_OPERATION: Final = (
    Option(
        "--shutdown-timeout",
        "30s",
        Kind.DURATION,
        "Time that running requests get to finish on SIGTERM.",
        at_least="0s",
        at_most="1h",
    ),
)

_GROUPS: Final[Mapping[Program, Mapping[str, tuple[Option, ...]]]] = {
    Program.ROUTER: {
        "Network": _ROUTER_NETWORK,
        "Requests": _ROUTER_REQUESTS,
        "Agents": _ROUTER_AGENTS,
        "Identity": _ROUTER_IDENTITY,
        "Operation": _ROUTER_OPERATION + _SHARED_OPERATION,
        "Policies": _ROUTER_POLICY,
        "Access and limits": _ROUTER_ACCESS,
        "Storage": _ROUTER_STORAGE,
        "Cross-site redirect": _ROUTER_REDIRECT,
        "Several routers": _ROUTER_SYNC,
    },
    Program.AGENT: {
        "Backend": _AGENT_BACKEND,
        "Routers": _AGENT_ROUTERS,
        "Metadata": _AGENT_METADATA,
        "Sampling": _AGENT_SAMPLING,
        "Operation": _AGENT_OPERATION + _SHARED_OPERATION,
    },
}

_ENV_PREFIX: Final = {Program.ROUTER: "HIVENET_ROUTER_", Program.AGENT: "HIVENET_AGENT_"}


def _placed(row: Option, program: Program, group: str) -> Option:
    env = row.env or _ENV_PREFIX[program] + row.flag.removeprefix("--").replace("-", "_").upper()
    return replace(row, program=program, group=group, env=env)


OPTIONS: Final[tuple[Option, ...]] = tuple(
    _placed(row, program, group)
    for program, groups in _GROUPS.items()
    for group, rows in groups.items()
    for row in rows
)
"""Every option of both programs. Source: configuration.md §2, §3, §10; decisions.md 2-21, 33; cross-site.md §2."""

OPTIONS_BY_FLAG: Final[Mapping[Program, Mapping[str, Option]]] = MappingProxyType(
    {
        program: MappingProxyType({option.flag: option for option in OPTIONS if option.program is program})
        for program in Program
    }
)
"""The options of one program by flag, in the order of the help text."""
