"""Which options does an agent have, and which do both programs?"""

from typing import Final

from hivenet_router.config.option import INT32_MAX, Kind, Option, Unbuilt
from hivenet_router.names.paths import Capability
from hivenet_router.names.protocol_ids import Engine

_HARDWARE: Final = Unbuilt("hardware is not sampled")
_TRACES: Final = Unbuilt("traces are not sent")
_TOLD_ADDRESS: Final = Unbuilt("the router tells its address")

AGENT_BACKEND: Final = (
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
        "--backend-api-key-file",
        "",
        Kind.SECRET,
        "File with a key that the engine asks for; it goes along as Authorization: Bearer with probes, metrics and "
        "requests, in place of the client's.",
        env="HIVENET_AGENT_BACKEND_API_KEY",
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
        at_most=INT32_MAX,
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

AGENT_ROUTERS: Final = (
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
        unbuilt=_TOLD_ADDRESS,
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

AGENT_METADATA: Final = (
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

AGENT_SAMPLING: Final = (
    Option(
        "--hardware-sample-interval",
        "2s",
        Kind.DURATION,
        "How often the backend's health is probed; hardware is sampled at the same pace where this version does so.",
        more_than="0s",
    ),
    Option(
        "--probe-timeout",
        "5s",
        Kind.DURATION,
        "Time for the answer to a health probe. One that gets none in time counts neither way while the engine sends "
        "bytes of answers.",
        more_than="0s",
        at_most="10m",
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
        unbuilt=_HARDWARE,
    ),
)

AGENT_OPERATION: Final = (
    Option(
        "--shutdown-timeout",
        "30s",
        Kind.DURATION,
        "Time that running requests get to finish on SIGTERM.",
        at_least="0s",
        at_most="1h",
    ),
)

SHARED_OPERATION: Final = (
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
        unbuilt=_TRACES,
    ),
    Option(
        "--check-config",
        "false",
        Kind.BOOLEAN,
        "Start nothing: check all settings, print them without secrets, and exit with 0 if all of them can be used.",
    ),
)
