"""The bootstrap messages as plain values, and their protobuf bytes.

Invariant: the generated protobuf classes do not leave this module; everyone else sees frozen values. Fields we do not
know are ignored. Which outcome a request deserves is core/bootstrap.py's question.
"""

from dataclasses import dataclass, field
from typing import Final

from google.protobuf.message import DecodeError

from hivenet_router.names.protocol_ids import ADVERTISED_PROTOCOL
from hivenet_router.wire import auth_pb2

REQUEST_BYTES_MAX: Final = 16 << 10
"""Of an `AuthRequest`: a token of some 500 bytes, and what an agent says about itself."""
RENEW_BEFORE_S: Final = 300
"""An agent renews its session this long before it ends; a shorter session counts as one of an hour."""
_HEARTBEAT_FALLBACK_S: Final = 10
_SESSION_TTL_FALLBACK_S: Final = 3600
_INT32_MAX: Final = 2**31 - 1


class AuthMessageInvalid(ValueError):
    """The bytes are not the protobuf message they should be."""


@dataclass(frozen=True, slots=True)
class AgentMetadata:
    """What an agent says about itself and its backend; fixed for the life of a session."""

    model: str = ""
    capacity: int = 0
    version: str = ""
    region: str = ""
    tags: tuple[str, ...] = ()
    engine: str = ""
    organization: str = ""
    machine: str = ""
    hide_llm: bool = False
    llm_pretty_name: str = ""
    llm_info: str = ""
    capability: str = ""
    gpu_model: str = ""


@dataclass(frozen=True, slots=True)
class AuthRequest:
    """A call of `Authenticate`: the agent's JWT, and its metadata, which a hostile peer may leave out."""

    credentials: str = field(repr=False)
    metadata: AgentMetadata | None


@dataclass(frozen=True, slots=True)
class LibP2PInfo:
    """Where the agent connects: the router's peer ID and its multiaddrs, each ending in `/p2p/<peer ID>`."""

    peer_id: str
    addresses: tuple[str, ...]
    protocol: str = ADVERTISED_PROTOCOL


@dataclass(frozen=True, slots=True)
class RouterConfig:
    """What the router asks of its agents, in the whole seconds and int32 bytes of the wire.

    Routers make it with `router_config`; agents read the two `effective_…` values.
    """

    heartbeat_interval_s: int = 0
    request_timeout_s: int = 0
    request_bytes_max: int = 0
    session_ttl_s: int = 0

    @property
    def effective_heartbeat_interval_s(self) -> int:
        """Seconds between heartbeats: 10 when the router names none."""
        return self.heartbeat_interval_s if self.heartbeat_interval_s > 0 else _HEARTBEAT_FALLBACK_S

    @property
    def effective_session_ttl_s(self) -> int:
        """Seconds a session lasts: an hour when the router names no life that leaves room for a renewal."""
        return self.session_ttl_s if self.session_ttl_s > RENEW_BEFORE_S else _SESSION_TTL_FALLBACK_S


@dataclass(frozen=True, slots=True)
class RouterEndpoint:
    """A live router of the site that advertises its gRPC address (`host:port`)."""

    grpc_addr: str
    peer_id: str
    router_id: str = ""


@dataclass(frozen=True, slots=True)
class AuthOutcome:
    """The answer to `Authenticate`. On success `libp2p_info` and `config` are always there.

    `routers` empty means that the router has no news of its siblings.
    """

    success: bool
    message: str = ""
    session_token: str = field(default="", repr=False)
    libp2p_info: LibP2PInfo | None = None
    config: RouterConfig | None = None
    routers: tuple[RouterEndpoint, ...] = ()
    router_id: str = ""


@dataclass(frozen=True, slots=True)
class Health:
    """The answer to `HealthCheck`."""

    healthy: bool
    status: str = ""


def router_config(*, heartbeat_interval_s: float, session_ttl_s: float, request_bytes_max: int) -> RouterConfig:
    """The configuration as it fits the wire: whole seconds, at least 1, and sizes up to what an int32 holds.

    Source: wire.md §4.2, §14 no. 25 (a fraction of a second must not become 0, which agents read as 10 s).
    """
    return RouterConfig(
        heartbeat_interval_s=_whole_seconds(heartbeat_interval_s),
        request_bytes_max=min(request_bytes_max, _INT32_MAX),
        session_ttl_s=_whole_seconds(session_ttl_s),
    )


def _whole_seconds(interval_s: float) -> int:
    return min(max(1, int(interval_s)), _INT32_MAX)


def encode_request(request: AuthRequest) -> bytes:
    """The protobuf bytes of a request.

    Raises: ValueError when the capacity does not fit an int32.
    """
    message = auth_pb2.AuthRequest(credentials=request.credentials)
    given = request.metadata
    if given is not None:
        message.metadata.CopyFrom(
            auth_pb2.AgentMetadata(
                model=given.model,
                capacity=given.capacity,
                version=given.version,
                region=given.region,
                tags=given.tags,
                engine=given.engine,
                organization=given.organization,
                machine=given.machine,
                hide_llm=given.hide_llm,
                llm_pretty_name=given.llm_pretty_name,
                llm_info=given.llm_info,
                capability=given.capability,
                gpu_model=given.gpu_model,
            )
        )
    return message.SerializeToString(deterministic=True)


def decode_request(data: bytes) -> AuthRequest:
    """The request in protobuf bytes.

    Raises: AuthMessageInvalid.
    """
    message = auth_pb2.AuthRequest()
    _parse(message, data)
    if not message.HasField("metadata"):
        return AuthRequest(message.credentials, None)
    sent = message.metadata
    metadata = AgentMetadata(
        model=sent.model,
        capacity=sent.capacity,
        version=sent.version,
        region=sent.region,
        tags=tuple(sent.tags),
        engine=sent.engine,
        organization=sent.organization,
        machine=sent.machine,
        hide_llm=sent.hide_llm,
        llm_pretty_name=sent.llm_pretty_name,
        llm_info=sent.llm_info,
        capability=sent.capability,
        gpu_model=sent.gpu_model,
    )
    return AuthRequest(message.credentials, metadata)


def encode_outcome(outcome: AuthOutcome) -> bytes:
    """The protobuf bytes of an answer.

    Raises: ValueError for a success without an address or a configuration: the original agent would stop for good.
    Source: wire.md §4.2.
    """
    if outcome.success and (outcome.config is None or outcome.libp2p_info is None or not outcome.libp2p_info.addresses):
        raise ValueError("a successful answer names at least one libp2p address and carries the configuration")
    message = auth_pb2.AuthResponse(
        success=outcome.success,
        message=outcome.message,
        session_token=outcome.session_token,
        router_id=outcome.router_id,
    )
    if outcome.libp2p_info is not None:
        info = outcome.libp2p_info
        message.libp2p_info.CopyFrom(
            auth_pb2.LibP2PInfo(peer_id=info.peer_id, addresses=info.addresses, protocol=info.protocol)
        )
    if outcome.config is not None:
        message.config.CopyFrom(
            auth_pb2.RouterConfig(
                heartbeat_interval=outcome.config.heartbeat_interval_s,
                request_timeout=outcome.config.request_timeout_s,
                max_request_size=outcome.config.request_bytes_max,
                session_ttl=outcome.config.session_ttl_s,
            )
        )
    message.routers.extend(
        auth_pb2.RouterEndpoint(grpc_addr=router.grpc_addr, peer_id=router.peer_id, router_id=router.router_id)
        for router in outcome.routers
    )
    return message.SerializeToString(deterministic=True)


def decode_outcome(data: bytes) -> AuthOutcome:
    """The answer in protobuf bytes, as the router sent it; a success may still lack what it must carry.

    Raises: AuthMessageInvalid.
    """
    message = auth_pb2.AuthResponse()
    _parse(message, data)
    info = message.libp2p_info
    config = message.config
    return AuthOutcome(
        success=message.success,
        message=message.message,
        session_token=message.session_token,
        libp2p_info=LibP2PInfo(info.peer_id, tuple(info.addresses), info.protocol)
        if message.HasField("libp2p_info")
        else None,
        config=RouterConfig(
            heartbeat_interval_s=config.heartbeat_interval,
            request_timeout_s=config.request_timeout,
            request_bytes_max=config.max_request_size,
            session_ttl_s=config.session_ttl,
        )
        if message.HasField("config")
        else None,
        routers=tuple(RouterEndpoint(each.grpc_addr, each.peer_id, each.router_id) for each in message.routers),
        router_id=message.router_id,
    )


def encode_health(health: Health) -> bytes:
    """The protobuf bytes of the answer to `HealthCheck`; the request is empty."""
    return auth_pb2.HealthResponse(healthy=health.healthy, status=health.status).SerializeToString(deterministic=True)


def decode_health(data: bytes) -> Health:
    """The answer to `HealthCheck` in protobuf bytes.

    Raises: AuthMessageInvalid.
    """
    message = auth_pb2.HealthResponse()
    _parse(message, data)
    return Health(message.healthy, message.status)


def _parse(message: auth_pb2.AuthRequest | auth_pb2.AuthResponse | auth_pb2.HealthResponse, data: bytes) -> None:
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise AuthMessageInvalid(f"not a {type(message).__name__} message") from error
