"""The agent's JSON messages and the router's answers, against what the originals sent and answered."""

import contextlib
import json
import math
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivenet_router.names.paths import PROTOCOL_MAP, ROUTER_MOUNT
from hivenet_router.wire.agent_protocol import (
    AGENT_NOT_FOUND,
    BODY_BYTES_MAX,
    FINISH_REASONS_MAX,
    INVALID_BODY,
    INVALID_PEER_ID,
    INVALID_SESSION,
    PEER_ID_MISMATCH,
    REGISTERED,
    ROUTERS_MAX,
    TAKEN,
    VALUES_MAX,
    Answer,
    BodyInvalid,
    Bucket,
    CpuSample,
    EngineSnapshot,
    GpuSample,
    HardwareSnapshot,
    Heartbeat,
    Histogram,
    MemorySample,
    Registration,
    Signals,
    SnapshotUnsendable,
    decode_engine,
    decode_hardware,
    decode_heartbeat,
    decode_heartbeat_answer,
    decode_protocol_map,
    decode_registration,
    decode_signals,
    encode_heartbeat,
    encode_protocol_map,
    encode_registration,
    encode_signals,
    encode_snapshot,
    heartbeat_answer,
    token_in,
)
from hivenet_router.wire.auth_messages import RouterEndpoint

FOLDER = Path(__file__).parents[1] / "vectors"
UPDATES = json.loads((FOLDER / "wire-agent-updates.json").read_text("utf-8"))
MANAGEMENT = json.loads((FOLDER / "wire-management-http.json").read_text("utf-8"))
RECORDED = {case["name"]: case["request"]["raw"].partition("\r\n\r\n")[2].encode() for case in UPDATES["recorded"]}
COMPLETE = {case["name"]: case["text"].encode() for case in UPDATES["complete"]}
TOKEN = "0" * 63 + "1"
PEER = "12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN"

DECODERS = {"register": decode_registration, "heartbeat": decode_heartbeat, "routing-signals": decode_signals}


def endpoint_of(raw: str) -> str:
    return [*raw.split(" "), ""][1].removeprefix(ROUTER_MOUNT + "/")


BODIES = [
    (case, endpoint_of(case["request"]["raw"]))
    for case in MANAGEMENT["cases"]
    if endpoint_of(case["request"]["raw"]) in DECODERS
    # These are cases of HTTP: two requests in one, and a chunked body.
    and case["name"] not in ("keepalive-two", "register-chunked")
]
OURS_DIFFER = {
    "signals-key-case": "names match exactly, and a known name in another case must not pass as an unknown one",
    "signals-trailing-garbage": "a body is one JSON value and nothing else",
}
"""Bodies that the original takes and we answer with 400. Source: decisions.md 5."""


@pytest.mark.parametrize(
    ("case", "endpoint"), BODIES, ids=lambda value: value["name"] if isinstance(value, dict) else ""
)
def test_a_recorded_body_is_invalid_exactly_where_the_original_says_so(case: dict[str, object], endpoint: str) -> None:
    raw = case["request"]
    assert isinstance(raw, dict)
    body = raw["raw"].partition("\r\n\r\n")[2].encode()
    original_refuses = case["status"] == 400 and case["name"] != "register-badpeer"

    try:
        DECODERS[endpoint](body)
    except BodyInvalid:
        assert original_refuses or case["name"] in OURS_DIFFER
    else:
        assert not original_refuses
        assert case["name"] not in OURS_DIFFER


def answer_to(name: str) -> Answer:
    """The recorded answer of a case, without the headers that HTTP adds."""
    raw = next(case["response"]["raw"] for case in MANAGEMENT["cases"] if case["name"] == name)
    head, _, body = raw.partition("\r\n\r\n")
    status, *lines = head.split("\r\n")
    headers = tuple(tuple(line.split(": ", 1)) for line in lines)
    kept = tuple(header for header in headers if header[0] not in ("Connection", "Date", "Content-Length"))
    return Answer(int(status.split(" ")[1]), kept, body.encode())


def test_every_answer_is_the_original_s() -> None:
    assert answer_to("register-badjson") == INVALID_BODY
    assert answer_to("register-badtoken") == INVALID_SESSION
    assert answer_to("register-badpeer") == INVALID_PEER_ID
    assert answer_to("heartbeat-before-register") == AGENT_NOT_FOUND
    assert answer_to("register-ok-extra-field") == REGISTERED
    assert answer_to("heartbeat-ok") == TAKEN


def test_a_foreign_peer_id_is_answered_403() -> None:
    assert (PEER_ID_MISMATCH.status, PEER_ID_MISMATCH.body) == (403, b"peer ID mismatch\n")


def test_the_recorded_messages_are_read_and_written_as_the_agent_sent_them() -> None:
    registration = decode_registration(RECORDED["register"])
    heartbeat = decode_heartbeat(RECORDED["heartbeat"])
    signals = decode_signals(RECORDED["routing signal"])

    assert encode_registration(registration) == RECORDED["register"]
    for written, recorded in ((encode_heartbeat(heartbeat), "heartbeat"), (encode_signals(signals), "routing signal")):
        assert json.loads(written) == json.loads(RECORDED[recorded])
        assert list(json.loads(written)) == list(json.loads(RECORDED[recorded]))
    assert heartbeat.backend_metrics is not None
    assert heartbeat.backend_metrics.ttft_histogram == Histogram((Bucket(0.1, 5), Bucket(1.0, 9)), 4.5, 10)
    assert heartbeat.hardware is not None
    assert heartbeat.hardware.memory.total_bytes == 25276059648


@pytest.mark.parametrize("name", ["hardware, two GPUs", "hardware, CPU only"])
def test_complete_hardware_keeps_every_key(name: str) -> None:
    written = encode_snapshot(decode_hardware(COMPLETE[name]))

    assert json.loads(written) == json.loads(COMPLETE[name])
    assert list(json.loads(written)) == list(json.loads(COMPLETE[name]))


@pytest.mark.parametrize("name", ["backend metrics, every field", "backend metrics, nothing known"])
def test_complete_engine_metrics_keep_what_is_known_and_no_more(name: str) -> None:
    written = encode_snapshot(decode_engine(COMPLETE[name]))

    assert json.loads(written) == json.loads(COMPLETE[name])


def test_a_histogram_without_observations_keeps_sum_and_count() -> None:
    assert json.loads(msgspec.json.encode(Histogram())) == json.loads(COMPLETE["histogram without observations"])
    assert msgspec.json.decode(COMPLETE["histogram without observations"], type=Histogram) == Histogram()


def signals_with(snapshot: str) -> bytes:
    return f'{{"session_token":"{TOKEN}",{snapshot}}}'.encode()


@pytest.mark.parametrize(
    "snapshot",
    [
        '"hardware":{"gpu":[{"vram_used_bytes":1.0}]}',
        '"hardware":{"gpu":[{"vram_used_bytes":1e3}]}',
        '"hardware":{"gpu":[{"vram_used_bytes":-1}]}',
        '"hardware":{"gpu":[{"index":true}]}',
        '"hardware":{"gpu":[{"util_percent":"5"}]}',
        '"hardware":{"gpu":{}}',
        '"hardware":{"timestamp":1795983445.5}',
        '"hardware":{"timestamp":99999999999999999999}',
        '"hardware":{"cpu":{"usage_percent":NaN}}',
        '"hardware":{"cpu":{"usage_percent":Infinity}}',
        '"hardware":{"cpu":{"usage_percent":1e999}}',
        '"hardware":[]',
        '"backend_metrics":{"ttft_histogram":{"sum":1,"count":3.0}}',
        '"backend_metrics":{"ttft_histogram":{"sum":1,"count":-3}}',
        '"backend_metrics":{"ttft_histogram":{"buckets":[{"le":"+Inf","count":1}],"sum":1,"count":1}}',
        '"backend_metrics":{"ttft_histogram":{"buckets":[{"le":1,"count":1.0}],"sum":1,"count":1}}',
        '"backend_metrics":{"finish_reason_counts":{"stop":3.0}}',
        '"backend_metrics":{"finish_reason_counts":{"stop":-1}}',
        '"backend_metrics":{"finish_reason_counts":{"stop":18446744073709551616}}',
        '"backend_metrics":{"running_requests":"1"}',
        '"inflight_total":1.0',
        '"inflight_total":-1',
        '"connected_routers":"' + PEER + '"',
    ],
)
def test_a_number_that_breaks_the_rules_is_refused(snapshot: str) -> None:
    with pytest.raises(BodyInvalid):
        decode_signals(signals_with(snapshot))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nope",
        b"null",
        b"[]",
        b"5",
        b'{"session_token":5}',
        b'{"session_token":"a"} ',
        b'{"session_token":"a"}x',
        b'{"session_token":"\xff"}',
        b'{"session_token":"\\ud800"}',
        b'{"session_token":"a","session_token":"b"}',
        b'{"session_token":"a","session\\u005ftoken":"b"}',
        b'{ "session_token" : "a", "x": 1, "x": 1 }',
        b'{"session_token":"a","Session_Token":"b"}',
        b'{"session_token": "a", "x": ' + b"1" * 5000 + b"}",
        b'{"session_token":"a","BACKEND_HEALTHY":false}',
        '{"\u017fession_token":"a"}'.encode(),  # a long s, which folds to s
        b'{"session_token":"a","x":' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"session_token":"' + b"a" * 2000 + b'"}',
        b'{"x":"' + b"a" * BODY_BYTES_MAX + b'"}',
        b'{"session_token":null,"x":[' + b"{}," * VALUES_MAX + b"{}]}",
        b'{"session_token":null' + b"".join(b',"%x":0' % n for n in range(VALUES_MAX)) + b"}",
        b'{"hardware":{"gpu":[null]}}',
    ],
)
def test_a_body_that_two_parsers_could_read_differently_is_refused(body: bytes) -> None:
    if body.endswith(b"} "):
        assert decode_heartbeat(body).session_token == "a"  # blanks around the value are JSON
        return
    with pytest.raises(BodyInvalid):
        decode_heartbeat(body)


def test_blanks_escapes_and_members_of_others_do_no_harm() -> None:
    body = (
        b'\n{ "session_token" : "\\u0061", "zzz": {"a": [1, {"b": null}]}, "in_flight":3 ,"backend_healthy" : false}\n'
    )

    assert decode_heartbeat(body) == Heartbeat("a", backend_healthy=False)


def test_null_is_absence_at_every_depth() -> None:
    body = signals_with(
        '"hardware":{"gpu":null,"cpu":{"usage_percent":null},"memory":null,"timestamp":7},'
        '"backend_metrics":{"running_requests":1.5,"waiting_requests":null,"ttft_histogram":null},"slots_here":null'
    )

    signals = decode_signals(body)

    assert signals == Signals(
        TOKEN, hardware=HardwareSnapshot(timestamp=7), backend_metrics=EngineSnapshot(running_requests=1.5)
    )
    assert decode_heartbeat(b'{"session_token":"a","backend_healthy":null}').backend_healthy


def test_null_does_not_let_a_bad_number_through() -> None:
    with pytest.raises(BodyInvalid):
        decode_signals(signals_with('"hardware":{"gpu":null,"timestamp":1.0}'))


def test_memory_is_read_without_a_copy_first() -> None:
    assert decode_registration(memoryview(RECORDED["register"])).deployment_id == "dep-1"


def test_an_absent_health_is_healthy_and_absent_ids_are_empty() -> None:
    assert decode_heartbeat(b"{}") == Heartbeat()
    assert decode_registration(b"{}") == Registration()


def test_the_load_report_stands_behind_what_the_original_sends() -> None:
    heartbeat = Heartbeat(TOKEN, (PEER,), 7, 2, 5, 1)

    body = encode_heartbeat(heartbeat)

    assert body.startswith(
        f'{{"session_token":"{TOKEN}","backend_healthy":true,"connected_routers":["{PEER}"]'.encode()
    )
    assert decode_heartbeat(body) == heartbeat
    assert decode_signals(encode_signals(Signals(TOKEN, (PEER,), 7, 2, 5, 1))).slots_total == 5


def test_only_an_agent_that_leaves_says_so() -> None:
    leaving = Heartbeat(TOKEN, backend_healthy=False, leaving=True)
    assert decode_heartbeat(encode_heartbeat(leaving)) == leaving
    assert b"leaving" not in encode_heartbeat(Heartbeat(TOKEN, backend_healthy=False))


def test_a_token_is_not_printed() -> None:
    for message in (Registration(TOKEN), Heartbeat(TOKEN), Signals(TOKEN)):
        assert TOKEN not in repr(message)


@pytest.mark.parametrize(
    "message",
    [
        Signals(TOKEN, hardware=HardwareSnapshot(cpu=CpuSample(math.nan))),
        Signals(TOKEN, hardware=HardwareSnapshot(memory=MemorySample(total_bytes=-1))),
        Signals(TOKEN, hardware=HardwareSnapshot(gpu=(GpuSample(index=1.0),))),  # type: ignore[arg-type]
        Signals(TOKEN, backend_metrics=EngineSnapshot(ttft_histogram=Histogram((Bucket(math.inf, 1),), 1.0, 1))),
        Signals(TOKEN, backend_metrics=EngineSnapshot(finish_reason_counts={"stop": -1})),
        Signals(TOKEN, slots_here=-1),
    ],
)
def test_what_a_router_would_refuse_is_not_sent(message: Signals) -> None:
    with pytest.raises(SnapshotUnsendable):
        encode_signals(message)


def test_an_unknown_engine_number_is_left_out_not_sent_as_nan() -> None:
    body = encode_signals(Signals(TOKEN, backend_metrics=EngineSnapshot(running_requests=math.nan)))

    assert b"NaN" not in body
    assert decode_signals(body).backend_metrics == EngineSnapshot()


def test_too_many_finish_reasons_are_refused() -> None:
    reasons = {f"r{number}": 1 for number in range(FINISH_REASONS_MAX + 1)}
    with pytest.raises(BodyInvalid):
        decode_engine(json.dumps({"finish_reason_counts": reasons}).encode())


def test_a_heartbeat_answer_carries_the_routers_or_nothing() -> None:
    routers = (RouterEndpoint("r1:50051", PEER, "r1"), RouterEndpoint("r2:50051", PEER, ""))

    answer = heartbeat_answer(routers)

    assert json.loads(answer.body)["routers"][0] == {"grpc_addr": "r1:50051", "peer_id": PEER, "router_id": "r1"}
    assert answer.headers == (("Content-Type", "application/json"),)
    assert decode_heartbeat_answer(answer.body) == routers
    assert heartbeat_answer(()) is TAKEN
    assert len(decode_heartbeat_answer(heartbeat_answer(routers * 200).body) or ()) == ROUTERS_MAX


@pytest.mark.parametrize(
    ("body", "routers"),
    [
        (b"", None),
        (b"{}", None),
        (b'{"routers":null}', None),
        (b'{"routers":[]}', ()),
        (b'{"routers":[{"grpc_addr":"r1:1","peer_id":"p","later":1}],"more":2}', (RouterEndpoint("r1:1", "p"),)),
        (b'{"routers":["r1:1"]}', None),
        (b"ok", None),
        (b"[" * 5000, None),
    ],
)
def test_an_answer_without_news_ends_no_session(body: bytes, routers: tuple[RouterEndpoint, ...] | None) -> None:
    assert decode_heartbeat_answer(body) == routers


def test_the_protocol_map_is_the_original_s() -> None:
    raw = next(case["response"]["raw"] for case in MANAGEMENT["cases"] if case["name"] == "wellknown")
    body = raw.partition("\r\n\r\n")[2].encode()

    assert encode_protocol_map([ROUTER_MOUNT]) == body
    assert decode_protocol_map(body) == {ROUTER_MOUNT: ROUTER_MOUNT}
    assert decode_protocol_map(b'{"/x":{"path":"/else//"},"/y":{"path":""}}') == {"/x": "/else/", "/y": ""}
    assert PROTOCOL_MAP == "/.well-known/libp2p/protocols"


@pytest.mark.parametrize("body", [b"", b"[]", b'{"/x":"/x/"}', b'{"/x":{}}', b'{"/x":{"path":"' + b"a" * 8192 + b'"}}'])
def test_what_is_no_protocol_map_is_refused(body: bytes) -> None:
    with pytest.raises(BodyInvalid):
        decode_protocol_map(body)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["gpu", "cpu", "sum", "count", "le", "buckets", "timestamp"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)
MEMBERS = st.dictionaries(st.sampled_from([*Heartbeat.__struct_fields__, "zzz", "é"]), JSON, max_size=5)


@given(MEMBERS, st.sampled_from([None, 1]))
def test_any_json_object_is_a_message_that_goes_round_or_invalid(
    members: dict[str, object], indent: int | None
) -> None:
    body = json.dumps(members, indent=indent).encode()
    try:
        message = decode_heartbeat(body)
    except BodyInvalid:
        return
    assert decode_heartbeat(encode_heartbeat(message)) == message


@given(st.binary(max_size=60))
def test_any_bytes_are_invalid_or_a_message(body: bytes) -> None:
    for decode in (decode_registration, decode_heartbeat, decode_signals, decode_hardware, decode_engine):
        with contextlib.suppress(BodyInvalid):
            decode(body)


@given(MEMBERS, st.sampled_from(sorted(Heartbeat.__struct_fields__)), st.booleans())
def test_a_member_that_stands_twice_is_always_refused(members: dict[str, object], name: str, blanks: bool) -> None:
    separators = (" , ", " : ") if blanks else (",", ":")
    inner = json.dumps(members | {name: None}, separators=separators, allow_nan=True)
    body = f"{{{json.dumps(name)}:null,{inner[1:]}".encode()
    with pytest.raises(BodyInvalid):
        decode_heartbeat(body)


@pytest.mark.parametrize(
    ("body", "token"),
    [
        (b'{"session_token":"a-_9","x":1}', "a-_9"),
        (b'{"x": 1, "session_token" : "a"', "a"),
        (b'{"session_token":null}', None),
        (b'{"session_token":"a', None),
        (b'{"session_token":""}', None),
        (b'{"session_token":"\\u0061"}', None),
        (b'{"session_token":"' + b"a" * 1025 + b'"}', None),
        (b"\xff", None),
    ],
)
def test_the_token_is_found_without_reading_the_body(body: bytes, token: str | None) -> None:
    assert token_in(body) == token
