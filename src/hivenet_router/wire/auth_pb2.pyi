from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AuthRequest(_message.Message):
    __slots__ = ("credentials", "metadata")
    CREDENTIALS_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    credentials: str
    metadata: AgentMetadata
    def __init__(self, credentials: _Optional[str] = ..., metadata: _Optional[_Union[AgentMetadata, _Mapping]] = ...) -> None: ...

class AgentMetadata(_message.Message):
    __slots__ = ("model", "capacity", "version", "region", "tags", "engine", "organization", "machine", "hide_llm", "llm_pretty_name", "llm_info", "capability", "gpu_model")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    ORGANIZATION_FIELD_NUMBER: _ClassVar[int]
    MACHINE_FIELD_NUMBER: _ClassVar[int]
    HIDE_LLM_FIELD_NUMBER: _ClassVar[int]
    LLM_PRETTY_NAME_FIELD_NUMBER: _ClassVar[int]
    LLM_INFO_FIELD_NUMBER: _ClassVar[int]
    CAPABILITY_FIELD_NUMBER: _ClassVar[int]
    GPU_MODEL_FIELD_NUMBER: _ClassVar[int]
    model: str
    capacity: int
    version: str
    region: str
    tags: _containers.RepeatedScalarFieldContainer[str]
    engine: str
    organization: str
    machine: str
    hide_llm: bool
    llm_pretty_name: str
    llm_info: str
    capability: str
    gpu_model: str
    def __init__(self, model: _Optional[str] = ..., capacity: _Optional[int] = ..., version: _Optional[str] = ..., region: _Optional[str] = ..., tags: _Optional[_Iterable[str]] = ..., engine: _Optional[str] = ..., organization: _Optional[str] = ..., machine: _Optional[str] = ..., hide_llm: _Optional[bool] = ..., llm_pretty_name: _Optional[str] = ..., llm_info: _Optional[str] = ..., capability: _Optional[str] = ..., gpu_model: _Optional[str] = ...) -> None: ...

class AuthResponse(_message.Message):
    __slots__ = ("success", "message", "session_token", "libp2p_info", "config", "routers", "router_id")
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    SESSION_TOKEN_FIELD_NUMBER: _ClassVar[int]
    LIBP2P_INFO_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    ROUTERS_FIELD_NUMBER: _ClassVar[int]
    ROUTER_ID_FIELD_NUMBER: _ClassVar[int]
    success: bool
    message: str
    session_token: str
    libp2p_info: LibP2PInfo
    config: RouterConfig
    routers: _containers.RepeatedCompositeFieldContainer[RouterEndpoint]
    router_id: str
    def __init__(self, success: _Optional[bool] = ..., message: _Optional[str] = ..., session_token: _Optional[str] = ..., libp2p_info: _Optional[_Union[LibP2PInfo, _Mapping]] = ..., config: _Optional[_Union[RouterConfig, _Mapping]] = ..., routers: _Optional[_Iterable[_Union[RouterEndpoint, _Mapping]]] = ..., router_id: _Optional[str] = ...) -> None: ...

class LibP2PInfo(_message.Message):
    __slots__ = ("peer_id", "addresses", "protocol")
    PEER_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    peer_id: str
    addresses: _containers.RepeatedScalarFieldContainer[str]
    protocol: str
    def __init__(self, peer_id: _Optional[str] = ..., addresses: _Optional[_Iterable[str]] = ..., protocol: _Optional[str] = ...) -> None: ...

class RouterConfig(_message.Message):
    __slots__ = ("heartbeat_interval", "request_timeout", "max_request_size", "session_ttl")
    HEARTBEAT_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    REQUEST_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    MAX_REQUEST_SIZE_FIELD_NUMBER: _ClassVar[int]
    SESSION_TTL_FIELD_NUMBER: _ClassVar[int]
    heartbeat_interval: int
    request_timeout: int
    max_request_size: int
    session_ttl: int
    def __init__(self, heartbeat_interval: _Optional[int] = ..., request_timeout: _Optional[int] = ..., max_request_size: _Optional[int] = ..., session_ttl: _Optional[int] = ...) -> None: ...

class RouterEndpoint(_message.Message):
    __slots__ = ("grpc_addr", "peer_id", "router_id")
    GRPC_ADDR_FIELD_NUMBER: _ClassVar[int]
    PEER_ID_FIELD_NUMBER: _ClassVar[int]
    ROUTER_ID_FIELD_NUMBER: _ClassVar[int]
    grpc_addr: str
    peer_id: str
    router_id: str
    def __init__(self, grpc_addr: _Optional[str] = ..., peer_id: _Optional[str] = ..., router_id: _Optional[str] = ...) -> None: ...

class HealthRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class HealthResponse(_message.Message):
    __slots__ = ("healthy", "status")
    HEALTHY_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    healthy: bool
    status: str
    def __init__(self, healthy: _Optional[bool] = ..., status: _Optional[str] = ...) -> None: ...
