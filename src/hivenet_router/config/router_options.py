"""Which options does a router by itself have, and what is each worth by default and allowed to be?"""

from typing import Final

from hivenet_router.config.option import INT32_MAX, INT32_SECONDS, Kind, Option, Unbuilt

_CLIENT_KEYS: Final = Unbuilt("client keys are not checked, so everybody would be served", refuses=True)
_ADMIN_KEYS: Final = Unbuilt("there is no /admin/* whose callers could be asked for a key", refuses=True)
_ADMIN: Final = Unbuilt("there is no /admin/* to open")
_PROXIES: Final = Unbuilt(
    "X-Forwarded-For is not read, so every client would be known by the proxy's address", refuses=True
)
_POLICIES: Final = Unbuilt("policies are not read, so requests would go where they must not", refuses=True)
_ALIASES: Final = Unbuilt("aliases are not read, so requests that use one would get 404", refuses=True)
_FILES: Final = Unbuilt("policies, keys, aliases and the sibling map are not read")
_QUOTAS: Final = Unbuilt("quotas are not counted, so nothing would be limited", refuses=True)
_ADMISSION: Final = Unbuilt("there is no token budget, so nothing would be limited", refuses=True)
_FALLBACK: Final = Unbuilt("there are no fallback providers")
_DISK: Final = Unbuilt("there is no persistent store, so nothing would be kept", refuses=True)
_READY: Final = Unbuilt("there is no /ready")
_AUDIT: Final = Unbuilt("no audit log is written", refuses=True)

ROUTER_NETWORK: Final = (
    Option(
        "--http-port",
        ":8080",
        Kind.LISTEN_ADDRESS,
        "Where clients reach /v1/* and /health, over plain HTTP/1.1; no host is every interface, a name all "
        "its addresses, as on the other ports.",
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
        "Interface on which agents' libp2p links are accepted; 0.0.0.0 for all of IPv4 or :: for all, which agents on "
        "other machines need.",
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
        at_most=INT32_MAX,
    ),
    Option(
        "--trusted-proxies",
        "",
        Kind.NETWORKS,
        "Addresses and networks whose X-Forwarded-For is believed, comma-separated; empty trusts none.",
        unbuilt=_PROXIES,
    ),
)

ROUTER_REQUESTS: Final = (
    Option(
        "--queue-size",
        "100",
        Kind.INTEGER,
        "Most requests that wait for one of the --max-concurrent forwards. With 0 nothing waits: a request is taken "
        "only if a forward is free at once.",
        unit="requests",
        at_least="0",
        at_most=INT32_MAX,
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
        at_most=INT32_MAX,
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
        at_most=INT32_MAX,
    ),
    Option(
        "--suspect-after",
        "3",
        Kind.INTEGER,
        "Failures in a row, timeouts before the first byte included, after which an agent is suspect: others that can "
        "take a request come first, and it is tried again by one request after 10s, then after pauses that double up "
        "to 2m, until one succeeds; 0 turns this off.",
        unit="failures",
        at_least="0",
        at_most=INT32_MAX,
    ),
    Option(
        "--queue-depth",
        "30",
        Kind.INTEGER,
        "Most requests per model that wait for a full agent's slot; 0 turns this wait off.",
        unit="requests",
        at_least="0",
        at_most=INT32_MAX,
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

ROUTER_AGENTS: Final = (
    Option("--health-check-interval", "5s", Kind.DURATION, "How often silent agents are looked for.", more_than="0s"),
    Option(
        "--heartbeat-interval",
        "5s",
        Kind.WHOLE_SECONDS,
        "How often agents are asked to send a heartbeat, in whole seconds; below --unhealthy-after.",
        at_least="1s",
        at_most=INT32_SECONDS,
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
        at_most=INT32_SECONDS,
    ),
)

ROUTER_IDENTITY: Final = (
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

ROUTER_POLICY: Final = (
    Option("--policy-file", "", Kind.PATH, "YAML file with the routing policy of all models.", unbuilt=_POLICIES),
    Option(
        "--policy-model-dir",
        "",
        Kind.PATH,
        "Folder of YAML policies, one per set of models; its _default replaces --policy-file.",
        unbuilt=_POLICIES,
    ),
    Option(
        "--extra-strategies",
        "false",
        Kind.BOOLEAN,
        "Let policies use ranking strategies other than least-loaded.",
        unbuilt=_POLICIES,
    ),
    Option(
        "--model-aliases-file",
        "",
        Kind.PATH,
        "YAML file with other names for models.",
        env="HIVENET_ROUTER_MODEL_ALIASES",
        unbuilt=_ALIASES,
    ),
    Option(
        "--lenient-config",
        "false",
        Kind.BOOLEAN,
        "Only warn of unknown fields in policies, keys, aliases and the sibling map instead of refusing them.",
        unbuilt=_FILES,
    ),
)

ROUTER_ACCESS: Final = (
    Option(
        "--auth-config-file",
        "",
        Kind.PATH,
        "YAML file with client keys and modes; it decides --auth-mode too.",
        env="HIVENET_ROUTER_AUTH_CONFIG",
        unbuilt=_CLIENT_KEYS,
    ),
    Option(
        "--auth-mode",
        "none",
        Kind.CHOICE,
        "How clients authenticate when there is no --auth-config-file; api-key needs that file.",
        choices=("none", "api-key", "dynamic"),
        unbuilt=_CLIENT_KEYS,
    ),
    Option(
        "--admin-api-keys-file",
        "",
        Kind.SECRET,
        "File with the keys that open /admin/*, comma-separated or one a line.",
        env="HIVENET_ROUTER_ADMIN_API_KEYS",
        unbuilt=_ADMIN_KEYS,
    ),
    Option("--allow-insecure-admin", "false", Kind.BOOLEAN, "Allow /admin/* without a key.", unbuilt=_ADMIN),
    Option(
        "--quota-backend",
        "memory",
        Kind.CHOICE,
        "Where daily totals live: memory, or the disk store (badger and sqlite mean the same).",
        choices=("memory", "badger", "sqlite"),
        unbuilt=_QUOTAS,
    ),
    Option(
        "--admit-fraction",
        "0.90",
        Kind.FRACTION,
        "Share of the token budget of a model that admission hands out.",
        more_than="0",
        at_most="1",
        unbuilt=_ADMISSION,
    ),
    Option(
        "--admit-park-timeout",
        "250ms",
        Kind.DURATION,
        "How long a request may wait for token budget; 0 refuses at once.",
        at_least="0s",
        unbuilt=_ADMISSION,
    ),
    Option(
        "--rpm-burst-seconds",
        "0",
        Kind.INTEGER,
        "Seconds' worth of a per-minute request limit that may come at once; 0 means the whole minute's.",
        unit="seconds",
        at_least="0",
        at_most="59",
        unbuilt=_QUOTAS,
    ),
    Option(
        "--openai-api-key-file",
        "",
        Kind.SECRET,
        "File with the key of the openai fallback provider.",
        env="HIVENET_ROUTER_OPENAI_API_KEY",
        unbuilt=_FALLBACK,
    ),
    Option(
        "--anthropic-api-key-file",
        "",
        Kind.SECRET,
        "File with the key of the anthropic fallback provider.",
        env="HIVENET_ROUTER_ANTHROPIC_API_KEY",
        unbuilt=_FALLBACK,
    ),
)

ROUTER_STORAGE: Final = (
    Option("--disk-db-path", "./badger_disk", Kind.PATH, "Folder of the persistent store.", unbuilt=_DISK),
    Option("--reset-disk-db", "false", Kind.BOOLEAN, "Delete the persistent store before opening it.", unbuilt=_DISK),
    Option(
        "--disk-db-ttl",
        "30",
        Kind.INTEGER,
        "Days for which an agent's history is kept; 0 or less keeps it for ever.",
        unit="days",
        at_most="36500",
        unbuilt=_DISK,
    ),
    Option(
        "--universal-flush-interval",
        "30s",
        Kind.DURATION,
        "How often agent history and daily totals are written to disk.",
        more_than="0s",
        unbuilt=_DISK,
    ),
)

ROUTER_OPERATION: Final = (
    Option(
        "--ready-needs-agents",
        "false",
        Kind.BOOLEAN,
        "Answer 503 on /ready while no healthy agent is registered.",
        unbuilt=_READY,
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
        unbuilt=_AUDIT,
    ),
)
