"""Which HTTP headers does this product read, write or keep to one hop?

Invariant: every name is lower-case text; compare after lower-casing what a peer sent. Which header crosses a hop is
decided where the hop is; the sets here only say which never do.
"""

from typing import Final

ACCEPT: Final = "accept"
ACCEPT_ENCODING: Final = "accept-encoding"
ALLOW: Final = "allow"
AUTHORIZATION: Final = "authorization"
CACHE_CONTROL: Final = "cache-control"
CONNECTION: Final = "connection"
CONTENT_ENCODING: Final = "content-encoding"
CONTENT_LENGTH: Final = "content-length"
CONTENT_TYPE: Final = "content-type"
DATE: Final = "date"
EXPECT: Final = "expect"
HOST: Final = "host"
KEEP_ALIVE: Final = "keep-alive"
LOCATION: Final = "location"
ORIGIN: Final = "origin"
REFERRER_POLICY: Final = "referrer-policy"
RETRY_AFTER: Final = "retry-after"
SERVER: Final = "server"
TRANSFER_ENCODING: Final = "transfer-encoding"
UPGRADE: Final = "upgrade"
USER_AGENT: Final = "user-agent"
WWW_AUTHENTICATE: Final = "www-authenticate"
X_ACCEL_BUFFERING: Final = "x-accel-buffering"
X_API_KEY: Final = "x-api-key"
X_FORWARDED_FOR: Final = "x-forwarded-for"
X_REAL_IP: Final = "x-real-ip"

ANTHROPIC_VERSION: Final = "anthropic-version"
ANTHROPIC_BETA: Final = "anthropic-beta"
ANTHROPIC_REQUEST_ID: Final = "request-id"
"""The request ID again, on Anthropic paths. Source: http-api.md §15 item 25."""

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
BAGGAGE: Final = "baggage"

X_REQUEST_ID: Final = "x-request-id"
X_CLIENT_REQUEST_ID: Final = "x-client-request-id"
X_SESSION_ID: Final = "x-session-id"
X_HIVENET_SCOPE: Final = "x-hivenet-scope"
X_HIVENET_RESEND: Final = "x-hivenet-resend"
"""From router to agent, with the last try: what may be sent to the engine a second time; `Resend` has the words."""
X_HIVENET_TAKEN: Final = "x-hivenet-taken"
"""From agent to router, with a failure: the engine took the request whole and gave no whole answer. Its words:"""
TAKEN_KEPT: Final = "kept"
"""On a connection kept from an earlier request, and not a byte came: that may have been on its way out."""
TAKEN_FRESH: Final = "fresh"
"""On a connection of its own, and not a byte came."""
TAKEN_PART: Final = "part"
"""It had begun to answer."""

RATE_LIMIT_REMAINING_REQUESTS: Final = "x-ratelimit-remaining-requests"
RATE_LIMIT_REMAINING_TOKENS: Final = "x-ratelimit-remaining-tokens"

CORS_ALLOW_ORIGIN: Final = "access-control-allow-origin"
CORS_ALLOW_METHODS: Final = "access-control-allow-methods"
CORS_ALLOW_HEADERS: Final = "access-control-allow-headers"
CORS_EXPOSE_HEADERS: Final = "access-control-expose-headers"
CORS_MAX_AGE: Final = "access-control-max-age"
CORS_REQUEST_HEADERS: Final = "access-control-request-headers"
CORS_REQUEST_METHOD: Final = "access-control-request-method"

HOP_BY_HOP: Final[frozenset[str]] = frozenset(
    {
        CONNECTION,
        KEEP_ALIVE,
        "proxy-authenticate",
        "proxy-authentication-info",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        TRANSFER_ENCODING,
        UPGRADE,
        "http2-settings",
    }
)
"""Never forwarded in either direction, nor is any header that `connection` names.

Source: RFC 9110 §7.6.1 and §11.7, http-api.md §15 item 10.
"""

HOP_BY_HOP_PREFIX: Final = "proxy-"
"""Any other header that starts so stays on its hop too. Source: http-api.md §15 item 10."""

OWN_PER_HOP: Final[frozenset[str]] = frozenset({EXPECT, ACCEPT_ENCODING, HOST, CONTENT_LENGTH})
"""Request headers each hop writes for itself instead of forwarding. Source: decisions.md 4."""

OF_THE_SITE: Final[frozenset[str]] = frozenset(
    {
        "set-cookie",
        "set-cookie2",
        "clear-site-data",
        "strict-transport-security",
        "public-key-pins",
        "public-key-pins-report-only",
        "expect-ct",
        "alt-svc",
        "refresh",
        "nel",
        "report-to",
        "reporting-endpoints",
        "service-worker-allowed",
        "origin-agent-cluster",
        "access-control-",
        "ratelimit",
        "ratelimit-",
        "x-ratelimit-",
    }
)
"""Response headers that speak for the whole site and not for one answer; a name that ends with a dash stands for all
that begin so. A client sees one site, the router's, so they are the router's to say; an engine's are left out.

Source: http-api.md §15 items 11 and 28; field-cases.md O-10.
"""

BEARER_REALM: Final = 'Bearer realm="hivenet-router"'
"""Value of `www-authenticate` on every 401. Source: http-api.md §2.6."""
