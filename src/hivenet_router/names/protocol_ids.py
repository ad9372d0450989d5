"""Which fixed words and byte strings must two programs share to understand each other?

Invariant: each value is compared byte for byte by the other side, so changing one is a wire change. How they are used
(key derivation, tokens, negotiation) is left to `wire` and to the data plane.
"""

from enum import StrEnum
from typing import Final


class Engine(StrEnum):
    """The inference engines an agent can stand in front of; sent as metadata. Source: configuration.md §10."""

    VLLM = "vllm"
    OLLAMA = "ollama"
    SGLANG = "sglang"
    LLAMACPP = "llamacpp"
    INFINITY = "infinity"
    CUSTOM = "custom"


OLLAMA_DEFAULT_TAG: Final = ":latest"
"""What a name of Ollama's without a tag stands for. Source: field-cases.md O-24."""

ADVERTISED_PROTOCOL: Final = "/hivenet_router/1.0.0"
"""`protocol` of the authentication answer; agents ignore it. Source: wire.md §4.2."""

LIBP2P_HTTP: Final = "/http/1.1"
"""Stream protocol of all HTTP over the peer link, both directions. Source: wire.md §6.1."""

MULTISTREAM: Final = "/multistream/1.0.0"
NOISE: Final = "/noise"
YAMUX: Final = "/yamux/1.0.0"
IDENTIFY: Final = "/ipfs/id/1.0.0"
IDENTIFY_PUSH: Final = "/ipfs/id/push/1.0.0"
PING: Final = "/ipfs/ping/1.0.0"

ORIGINAL_AGENT_VERSION_PREFIX: Final = "hivenet_router@"
"""How the identify `agentVersion` of a Go build begins; such an agent gets at most 64 streams. Source: wire.md §5.6."""

OWN_AGENT_VERSION_PREFIX: Final = "hivenet-router-py/"
"""How that of our own kind begins; the data plane writes it, and opens more streams to such a peer only."""

GRPC_SERVICE: Final = "hivenet_router.AuthService"
GRPC_AUTHENTICATE: Final = "/hivenet_router.AuthService/Authenticate"
GRPC_HEALTH_CHECK: Final = "/hivenet_router.AuthService/HealthCheck"
GRPC_ALPN: Final = "h2"

JWT_ISSUER: Final = "hivenet-router"
JWT_SUBJECT_PREFIX: Final = "agent-"
"""Followed by the agent's peer ID. Source: wire.md §4.3."""
JWT_ALGORITHM: Final = "HS256"

TLS_HKDF_SALT: Final = b"hivenet-router-grpc-tls-v2"
TLS_HKDF_INFO: Final = b"ed25519"
"""With the salt, what turns the shared secret into the gRPC key seed. Source: wire.md §4.1."""
TLS_COMMON_NAME: Final = "hivenet-router-grpc"
