"""Which options does a router have that knows other routers: sibling sites, and those it shares its limits with?"""

from typing import Final

from hivenet_router.config.option import INT32_MAX, Kind, Option, Unbuilt

_REDIRECT: Final = Unbuilt("requests are not redirected to other sites", refuses=True)
_HOLD: Final = Unbuilt("requests are not held while a model wakes", refuses=True)
_SYNC: Final = Unbuilt("routers do not share their limits, so each would grant the whole", refuses=True)

ROUTER_REDIRECT: Final = (
    Option(
        "--site-id",
        "",
        Kind.NAME,
        "This router's site in the sibling map; empty turns cross-site redirect off.",
        at_most="64",
        unbuilt=_REDIRECT,
    ),
    Option(
        "--redirect-secret-file",
        "",
        Kind.SECRET,
        "File with the redirect secrets, id:secret, one a line (comma-separated in the environment). The first signs, "
        "all verify. Required with --site-id.",
        env="HIVENET_ROUTER_REDIRECT_SECRETS",
        unbuilt=_REDIRECT,
    ),
    Option(
        "--redirect-token-ttl",
        "60s",
        Kind.DURATION,
        "Lifetime of a redirect token.",
        at_least="1s",
        at_most="10m",
        unbuilt=_REDIRECT,
    ),
    Option(
        "--redirect-allowed-domains",
        "",
        Kind.DOMAINS,
        "Host suffixes a sibling's URL may have, comma-separated, each starting with '.'. Required with --site-id.",
        unbuilt=_REDIRECT,
    ),
    Option(
        "--wake-hold-budget",
        "120s",
        Kind.DURATION,
        "How long a request is held while a model wakes, where its placement does not say; 0 holds only where it does.",
        at_least="0s",
        at_most="1h",
        unbuilt=_HOLD,
        off="0s",
    ),
    Option(
        "--wake-max-waiters",
        "200",
        Kind.INTEGER,
        "Most requests held per model and kind.",
        unit="requests",
        at_least="1",
        at_most=INT32_MAX,
        unbuilt=_HOLD,
    ),
    Option(
        "--wake-max-waiters-per-key",
        "50",
        Kind.INTEGER,
        "Most requests held per key, model and kind.",
        unit="requests",
        at_least="1",
        at_most=INT32_MAX,
        unbuilt=_HOLD,
    ),
    Option(
        "--wake-max-body-bytes",
        "268435456",
        Kind.INTEGER,
        "Most bytes that the bodies of held requests take together; 0 sets no limit.",
        unit="bytes",
        at_least="0",
        unbuilt=_HOLD,
        off="0",
    ),
)

ROUTER_SYNC: Final = (
    Option(
        "--sync-store",
        "none",
        Kind.CHOICE,
        "Store through which the routers of a site enforce limits together.",
        choices=("none", "valkey"),
        unbuilt=_SYNC,
    ),
    Option(
        "--sync-valkey-addrs",
        "",
        Kind.HOST_PORTS,
        "host:port of the Sentinels, comma-separated, or of one Valkey. Required with --sync-store valkey.",
        unbuilt=_SYNC,
    ),
    Option(
        "--sync-valkey-sentinel-master",
        "",
        Kind.TEXT,
        "Name of the Sentinel master set; empty connects to Valkey directly.",
        unbuilt=_SYNC,
    ),
    Option(
        "--sync-site",
        "",
        Kind.NAME,
        "Name of this site in the store, equal on all its routers; by default --site-id, else 'default'.",
        at_most="64",
        unbuilt=_SYNC,
    ),
    Option(
        "--sync-valkey-password-file",
        "",
        Kind.SECRET,
        "File with the password of Valkey and the Sentinels.",
        env="HIVENET_ROUTER_SYNC_VALKEY_PASSWORD",
        unbuilt=_SYNC,
    ),
    Option("--sync-valkey-tls", "false", Kind.BOOLEAN, "Use TLS to Valkey and the Sentinels.", unbuilt=_SYNC),
    Option(
        "--sync-valkey-tls-ca-file",
        "",
        Kind.PATH,
        "PEM file of the CAs that verify them; empty uses the system's.",
        unbuilt=_SYNC,
    ),
    Option(
        "--sync-interval",
        "1s",
        Kind.DURATION,
        "Time between two rounds of exchange with the store.",
        at_least="100ms",
        at_most="10s",
        unbuilt=_SYNC,
    ),
    Option(
        "--sync-min-routers",
        "1",
        Kind.INTEGER,
        "Routers assumed to share the limits while the store does not answer; set it to the number you run.",
        unit="routers",
        at_least="1",
        at_most=INT32_MAX,
        unbuilt=_SYNC,
    ),
    Option(
        "--router-id",
        "",
        Kind.NAME,
        "Stable name of this router, one live process per name; by default the host name.",
        at_most="128",
        unbuilt=_SYNC,
    ),
    Option(
        "--advertise-grpc-addr",
        "",
        Kind.ADVERTISED,
        "host:port at which agents reach this router's gRPC listener, told to agents of the site; empty tells nothing.",
        unbuilt=_SYNC,
    ),
)
