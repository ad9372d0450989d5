"""What an agent posts to the router over its link, and the router's exact answers, as JSON bytes.

Invariant: a decoded body is wholly valid, snapshots included, and an encoded body is one that the original router
takes: it refuses a whole number written with a fraction, and one refusal of a heartbeat ends the agent's session.
Snapshots are decoded at once, not when someone reads them, because only that refuses a bad number: 2-4 microseconds
for a recorded body of 840 bytes, about 1 % of a core for a thousand agents at the default rates. Sessions are
core/sessions.py's question, paths and HTTP are the rooms'.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct

from hivenet_router.wire.auth_messages import RouterEndpoint

BODY_BYTES_MAX: Final = 256 << 10
PROTOCOL_MAP_BYTES_MAX: Final = 8 << 10
ROUTERS_MAX: Final = 256
"""Longer lists of routers, either way, are refused or cut here."""
GPUS_MAX: Final = 256
BUCKETS_MAX: Final = 1024
FINISH_REASONS_MAX: Final = 256
TEXT_CHARS_MAX: Final = 1024
VALUES_MAX: Final = 8192
"""Of one body: more than the largest snapshot has, and a few milliseconds to read, whatever they are."""

Body: TypeAlias = bytes | bytearray | memoryview

_UINT64_MAX: Final = 2**64 - 1

_Text = Annotated[str, Meta(max_length=TEXT_CHARS_MAX)]
_Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Whole = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
# The original counts finish reasons up to 2**64 - 1, a bound that msgspec cannot hold; EngineSnapshot checks it.
_Unsigned = Annotated[int, Meta(ge=0)]

# As an agent writes it: no escapes, and next to no blanks.
_TOKEN: Final = re.compile(rb'"session_token"\s{0,8}:\s{0,8}"([^"\\]{1,1024})"')


class BodyInvalid(ValueError):
    """The body is answered with 400 `invalid request body`; the text says what is wrong, for our own log."""


class SnapshotUnsendable(ValueError):
    """A snapshot holds a value that the router would refuse; send the message without it."""


class GpuSample(Struct, frozen=True, gc=False):
    """One GPU: bytes, percent 0-100, degrees Celsius, watts. A reading that failed is 0."""

    index: _Count = 0
    util_percent: float = 0.0
    vram_used_bytes: _Count = 0
    vram_free_bytes: _Count = 0
    vram_total_bytes: _Count = 0
    temperature_c: float = 0.0
    power_watts: float = 0.0


class CpuSample(Struct, frozen=True, gc=False):
    """The whole host's processor use, percent 0-100."""

    usage_percent: float = 0.0


class MemorySample(Struct, frozen=True, gc=False):
    """The host's memory: percent 0-100, and bytes."""

    used_percent: float = 0.0
    available_bytes: _Count = 0
    total_bytes: _Count = 0


class HardwareSnapshot(Struct, frozen=True):
    """One sample of an agent's host; `timestamp` is in Unix seconds of the agent's clock.

    Source: wire.md §7.4, signals.md §2.1.
    """

    gpu: Annotated[tuple[GpuSample, ...], Meta(max_length=GPUS_MAX)] = ()
    cpu: CpuSample = CpuSample()
    memory: MemorySample = MemorySample()
    timestamp: _Whole = 0


class Bucket(Struct, frozen=True, gc=False):
    """How many observations were at most `le`."""

    le: float
    count: _Count


class Histogram(Struct, frozen=True, omit_defaults=True):
    """A cumulative histogram, buckets ascending and without the one to infinity; seconds or tokens."""

    buckets: Annotated[tuple[Bucket, ...], Meta(max_length=BUCKETS_MAX)] = ()
    # Factories, not defaults: `omit_defaults` must leave these two in, zero or not.
    sum: float = msgspec.field(default_factory=float)
    count: _Count = msgspec.field(default_factory=int)


class EngineSnapshot(Struct, frozen=True, omit_defaults=True):
    """What the inference engine says about itself; None is unknown, which is not zero. Times in seconds.

    Source: wire.md §7.5.
    """

    kv_cache_utilization: float | None = None
    running_requests: float | None = None
    waiting_requests: float | None = None
    preemptions_total: float | None = None
    avg_ttft_seconds: float | None = None
    p90_ttft_seconds: float | None = None
    avg_itl_seconds: float | None = None
    p90_itl_seconds: float | None = None
    predicted_tokens_per_second: float | None = None
    prompt_tokens_per_second: float | None = None
    ttft_histogram: Histogram | None = None
    itl_histogram: Histogram | None = None
    prompt_tokens_histogram: Histogram | None = None
    generation_tokens_histogram: Histogram | None = None
    finish_reason_counts: Annotated[dict[_Text, _Unsigned], Meta(max_length=FINISH_REASONS_MAX)] | None = None

    def __post_init__(self) -> None:
        if self.finish_reason_counts and max(self.finish_reason_counts.values()) > _UINT64_MAX:
            raise ValueError("a finish count does not fit 64 bits")


class _Bearer(Struct, frozen=True):
    """A message under a session token, which its repr keeps to itself."""

    session_token: _Text = ""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"


class Registration(_Bearer, frozen=True):
    """`/register`: the agent with this token is this peer, under these join keys.

    Source: wire.md §7.1.
    """

    peer_id: _Text = ""
    deployment_id: _Text = ""
    replica_id: _Text = ""


class _LoadReport(_Bearer, frozen=True):
    """What an agent of ours adds: peer IDs of its routers, and its requests and slots, in all and of this router.

    In flight lasts to the end of the body, a slot to the response headers. None: the agent reports none.
    Source: several-routers.md S-109.
    """

    connected_routers: Annotated[tuple[_Text, ...], Meta(max_length=ROUTERS_MAX)] | None = None
    inflight_total: _Count | None = None
    inflight_here: _Count | None = None
    slots_total: _Count | None = None
    slots_here: _Count | None = None


class Heartbeat(_LoadReport, frozen=True):
    """`/heartbeat`: the agent lives; is its backend well, and what did it last measure?

    `leaving` is ours: that the agent takes nothing more because it is about to end. It then calls its backend unhealthy
    as well, which is all that an original router understands.
    Source: wire.md §7.2, §14 no. 21.
    """

    hardware: HardwareSnapshot | None = None
    backend_metrics: EngineSnapshot | None = None
    backend_healthy: bool = True
    leaving: bool = False


class Signals(_LoadReport, frozen=True):
    """`/routing-signals`: fresh snapshots only; says nothing about health.

    Source: wire.md §7.3.
    """

    hardware: HardwareSnapshot | None = None
    backend_metrics: EngineSnapshot | None = None


_Message = TypeVar("_Message", Registration, Heartbeat, Signals)

_REGISTRATION: Final = msgspec.json.Decoder(Registration)
_HEARTBEAT: Final = msgspec.json.Decoder(Heartbeat)
_SIGNALS: Final = msgspec.json.Decoder(Signals)
_Snapshot = TypeVar("_Snapshot", HardwareSnapshot, EngineSnapshot)
_HARDWARE: Final = msgspec.json.Decoder(HardwareSnapshot)
_ENGINE: Final = msgspec.json.Decoder(EngineSnapshot)
_MEMBERS: Final = msgspec.json.Decoder(dict[str, Raw])
_NAMES: Final = frozenset(Registration.__struct_fields__ + Heartbeat.__struct_fields__)
_FOLDED_NAMES: Final = frozenset(name.casefold() for name in _NAMES)


def decode_registration(body: Body) -> Registration:
    """The `/register` message in a body; ids that are absent are empty.

    Raises: BodyInvalid.
    """
    return _decode(body, _REGISTRATION)


def decode_heartbeat(body: Body) -> Heartbeat:
    """The `/heartbeat` message in a body; an absent `backend_healthy` is true.

    Raises: BodyInvalid.
    """
    return _decode(body, _HEARTBEAT)


def decode_signals(body: Body) -> Signals:
    """The `/routing-signals` message in a body.

    Raises: BodyInvalid.
    """
    return _decode(body, _SIGNALS)


def token_in(body: Body) -> str | None:
    """The session token that stands first in a body, found without reading the body as JSON.

    None where there is none, or none spelled as agents spell it. It says who may be asked for, not that the body is a
    message: a few microseconds for 8 KiB, whatever they hold.
    """
    found = _TOKEN.search(body)
    return None if found is None else found[1].decode("latin-1")


def encode_snapshot(snapshot: HardwareSnapshot | EngineSnapshot) -> bytes:
    """A snapshot on its own, as it stands in a message."""
    return msgspec.json.encode(snapshot)


def decode_hardware(snapshot: Body) -> HardwareSnapshot:
    """A hardware snapshot kept as bytes.

    Raises: BodyInvalid.
    """
    return _decode_snapshot(snapshot, _HARDWARE)


def decode_engine(snapshot: Body) -> EngineSnapshot:
    """An engine snapshot kept as bytes.

    Raises: BodyInvalid.
    """
    return _decode_snapshot(snapshot, _ENGINE)


def _decode_snapshot(snapshot: Body, decoder: msgspec.json.Decoder[_Snapshot]) -> _Snapshot:
    try:
        return decoder.decode(snapshot)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise BodyInvalid(str(error)) from error


def _decode(body: Body, decoder: msgspec.json.Decoder[_Message]) -> _Message:
    """One strict JSON object: no trailing bytes, no member twice, no known name in another case; null is absence.

    The original takes the first value and folds case; two readers of one body must not see different messages.
    """
    if len(body) > BODY_BYTES_MAX:
        raise BodyInvalid(f"the body has {len(body)} bytes, at most {BODY_BYTES_MAX} are read")
    if _values_at_most(body) > VALUES_MAX:
        raise BodyInvalid(f"the body has more than {VALUES_MAX} values")
    try:
        _check_members(body)
        try:
            return decoder.decode(body)
        except msgspec.ValidationError:
            raw = bytes(body)
            if b"null" not in raw:
                raise
            return decoder.decode(msgspec.json.encode(_without_nulls(msgspec.json.decode(raw))))
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise BodyInvalid(str(error)) from error


def _values_at_most(body: Body) -> int:
    """No body has more values than it has commas and brackets; counting them costs next to nothing."""
    raw = bytes(body)
    return 1 + raw.count(b",") + raw.count(b"[") + raw.count(b"{")


def _check_members(body: Body) -> None:
    members = _MEMBERS.decode(body)
    # A body without blanks is exactly as long as its distinct members, each `"name":value`, with commas and braces;
    # if it is longer, something stands twice or is merely spelled at leisure, and the slow way tells which.
    if len(body) != sum(len(name) + len(bytes(value)) for name, value in members.items()) + 4 * len(members) + 1:
        _refuse_repeated(bytes(body))
    for name in members.keys() - _NAMES:
        if name.casefold() in _FOLDED_NAMES:
            raise BodyInvalid("a member's name differs from a known one only in case")


def _refuse_repeated(body: bytes) -> None:
    try:
        names = json.loads(body, object_pairs_hook=lambda pairs: [name for name, _ in pairs])
    except ValueError as error:
        raise BodyInvalid(str(error)) from error
    if len(names) != len(set(names)):
        raise BodyInvalid("a member stands twice")


def _without_nulls(value: object) -> object:
    if isinstance(value, dict):
        return {name: _without_nulls(member) for name, member in value.items() if member is not None}
    if isinstance(value, list):
        return [_without_nulls(element) for element in value]
    return value


def encode_registration(message: Registration) -> bytes:
    """The `/register` body, keys in the original's (alphabetical) order."""
    return msgspec.json.encode(
        {
            "deployment_id": message.deployment_id,
            "peer_id": message.peer_id,
            "replica_id": message.replica_id,
            "session_token": message.session_token,
        }
    )


def encode_heartbeat(message: Heartbeat) -> bytes:
    """The `/heartbeat` body, keys in the original's order and ours behind them.

    Raises: SnapshotUnsendable when a router would refuse a number in it.
    """
    members: dict[str, object] = {
        "session_token": message.session_token,
        "hardware": message.hardware,
        "backend_metrics": message.backend_metrics,
        "backend_healthy": message.backend_healthy,
    }
    if message.leaving:
        members["leaving"] = True
    return _encode(members | _load_members(message), _HEARTBEAT)


def encode_signals(message: Signals) -> bytes:
    """The `/routing-signals` body, keys in the original's order and ours behind them.

    Raises: SnapshotUnsendable when a router would refuse a number in it.
    """
    members: dict[str, object] = {
        "session_token": message.session_token,
        "backend_metrics": message.backend_metrics,
        "hardware": message.hardware,
    }
    return _encode(members | _load_members(message), _SIGNALS)


def _load_members(message: _LoadReport) -> dict[str, object]:
    return {
        "connected_routers": message.connected_routers,
        "inflight_total": message.inflight_total,
        "inflight_here": message.inflight_here,
        "slots_total": message.slots_total,
        "slots_here": message.slots_here,
    }


def _encode(members: Mapping[str, object], decoder: msgspec.json.Decoder[_Message]) -> bytes:
    body = msgspec.json.encode({name: value for name, value in members.items() if value is not None})
    if _values_at_most(body) > VALUES_MAX:
        raise SnapshotUnsendable(f"a router would refuse this message: it has more than {VALUES_MAX} values")
    try:
        # Structs do not check what they are built from, and NaN is written as null: read it back as a router would.
        decoder.decode(body)
    except msgspec.ValidationError as error:
        raise SnapshotUnsendable(f"a router would refuse this message: {error}") from error
    return body


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer of the management endpoints; the HTTP side adds `Content-Length`."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


_JSON_HEADERS: Final = (("Content-Type", "application/json"),)


def text_answer(status: int, text: str) -> Answer:
    """An error as the original writes it: one line of plain text."""
    headers = (("Content-Type", "text/plain; charset=utf-8"), ("X-Content-Type-Options", "nosniff"))
    return Answer(status, headers, text.encode() + b"\n")


INVALID_BODY: Final = text_answer(400, "invalid request body")
INVALID_SESSION: Final = text_answer(401, "invalid or expired session token")
INVALID_PEER_ID: Final = text_answer(400, "invalid peer ID")
PEER_ID_MISMATCH: Final = text_answer(403, "peer ID mismatch")
AGENT_NOT_FOUND: Final = text_answer(404, "agent not found")
REGISTERED: Final = Answer(200, _JSON_HEADERS, b'{"status":"registered"}\n')
TAKEN: Final = Answer(200, (), b"")
"""The answer to a heartbeat or signal that was taken, when there is no news of other routers."""


class _RouterList(Struct, frozen=True):
    routers: list[RouterEndpoint] | None = None


_ROUTER_LIST: Final = msgspec.json.Decoder(_RouterList)


def heartbeat_answer(routers: Sequence[RouterEndpoint]) -> Answer:
    """The 200 to a heartbeat, with the live routers if any are known; at most 256 are named.

    Source: several-routers.md S-105.
    """
    if not routers:
        return TAKEN
    return Answer(200, _JSON_HEADERS, msgspec.json.encode({"routers": routers[:ROUTERS_MAX]}))


def decode_heartbeat_answer(body: Body) -> tuple[RouterEndpoint, ...] | None:
    """The live routers in the answer to a heartbeat; None when it brings no news.

    An answer that cannot be read is no news: it must not end a session that works.
    Source: several-routers.md S-105, S-107.
    """
    if not body or len(body) > BODY_BYTES_MAX:
        return None
    try:
        routers = _ROUTER_LIST.decode(body).routers
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None
    return None if routers is None else tuple(routers[:ROUTERS_MAX])


class _Mount(Struct, frozen=True):
    path: str


_PROTOCOL_MAP: Final = msgspec.json.Decoder(dict[str, _Mount])


def encode_protocol_map(mounts: Sequence[str]) -> bytes:
    """What a side serves at `/.well-known/libp2p/protocols`: each protocol under the path of its own name."""
    return msgspec.json.encode({mount: _Mount(mount + "/") for mount in mounts})


def decode_protocol_map(body: Body) -> dict[str, str]:
    """The path prefix of each protocol, without a slash at its end.

    Raises: BodyInvalid when it is longer than 8 KiB or not such a map.
    Source: wire.md §6.3.
    """
    if len(body) > PROTOCOL_MAP_BYTES_MAX:
        raise BodyInvalid(f"the protocol map has {len(body)} bytes, at most {PROTOCOL_MAP_BYTES_MAX} are read")
    try:
        mounts = _PROTOCOL_MAP.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise BodyInvalid(str(error)) from error
    return {name: mount.path.removesuffix("/") for name, mount in mounts.items()}
