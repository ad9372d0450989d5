"""The bootstrap messages, against bytes of the original."""

import contextlib
import json
from pathlib import Path

import pytest
from google.protobuf import unknown_fields
from hypothesis import given
from hypothesis import strategies as st

from hivenet_router.wire import auth_pb2
from hivenet_router.wire.auth_messages import (
    AgentMetadata,
    AuthMessageInvalid,
    AuthOutcome,
    AuthRequest,
    Health,
    LibP2PInfo,
    RouterConfig,
    RouterEndpoint,
    decode_health,
    decode_outcome,
    decode_request,
    encode_health,
    encode_outcome,
    encode_request,
    router_config,
)

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "wire-grpc-auth.json").read_text("utf-8"))
BYTES = {case["name"]: bytes.fromhex(case["hex"]) for case in VECTORS["constructed"] + VECTORS["live"]}
ROUTER = "12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN"

EVERY_FIELD = AuthRequest(
    "header.payload.signature",
    AgentMetadata(
        model="m1",
        capacity=4,
        version="dev",
        region="eu-west",
        tags=("production", "a b"),
        engine="vllm",
        organization="Org",
        machine="box1",
        hide_llm=True,
        llm_pretty_name="M One",
        llm_info="info",
        capability="llm",
        gpu_model="RTX4090",
    ),
)
ACCEPTED = AuthOutcome(
    success=True,
    message="Authentication successful",
    session_token="00112233445566778899aabbccddeeff" * 2,
    libp2p_info=LibP2PInfo(ROUTER, (f"/ip4/127.0.0.1/tcp/9000/p2p/{ROUTER}",)),
    config=router_config(heartbeat_interval_s=5.0, session_ttl_s=3600.0, request_bytes_max=10485760),
)
REFUSED = AuthOutcome(success=False, message="Invalid metadata: model is required")


def test_the_constructed_messages_are_made_and_read_byte_for_byte() -> None:
    assert encode_request(EVERY_FIELD) == BYTES["request, every field"]
    assert decode_request(BYTES["request, every field"]) == EVERY_FIELD
    assert encode_outcome(ACCEPTED) == BYTES["response, accepted"]
    assert decode_outcome(BYTES["response, accepted"]) == ACCEPTED
    assert encode_outcome(REFUSED) == BYTES["response, refused"]
    assert decode_outcome(BYTES["response, refused"]) == REFUSED


def test_the_captured_messages_survive_a_round_trip() -> None:
    request = BYTES["request of the original agent (all flags set)"]
    response = BYTES["response of the original router"]

    assert encode_request(decode_request(request)) == request
    assert encode_outcome(decode_outcome(response)) == response
    assert decode_outcome(response).libp2p_info is not None


def test_absent_metadata_is_told_from_empty_metadata() -> None:
    assert decode_request(encode_request(AuthRequest("t", None))).metadata is None
    assert decode_request(encode_request(AuthRequest("t", AgentMetadata()))).metadata == AgentMetadata()


def test_routers_and_router_id_stand_in_fields_1001_and_1002() -> None:
    endpoint = RouterEndpoint("r1:50051", ROUTER, "r1")
    plain = encode_outcome(REFUSED)

    ours = encode_outcome(AuthOutcome(False, REFUSED.message, routers=(endpoint, endpoint), router_id="r0"))

    assert decode_outcome(ours).routers == (endpoint, endpoint)
    assert decode_outcome(ours).router_id == "r0"
    # An original agent, which does not know the two fields, reads the rest: they come last.
    assert ours.startswith(plain)
    later = unknown_fields.UnknownFieldSet(auth_pb2.HealthResponse.FromString(ours[len(plain) :]))
    assert [later[index].field_number for index in range(len(later))] == [1001, 1001, 1002]


def test_unknown_fields_are_ignored_both_ways() -> None:
    stranger = b"\xfa\x3e\x02hi"  # field 1007, text
    assert decode_request(BYTES["request, every field"] + stranger) == EVERY_FIELD
    assert decode_outcome(BYTES["response, accepted"] + stranger) == ACCEPTED


@pytest.mark.parametrize(
    "lacking",
    [
        AuthOutcome(True, config=RouterConfig()),
        AuthOutcome(True, libp2p_info=LibP2PInfo(ROUTER, ("/ip4/127.0.0.1",))),
        AuthOutcome(True, libp2p_info=LibP2PInfo(ROUTER, ()), config=RouterConfig()),
    ],
)
def test_a_success_that_would_stop_an_original_agent_for_good_is_not_sent(lacking: AuthOutcome) -> None:
    with pytest.raises(ValueError, match="at least one libp2p address"):
        encode_outcome(lacking)


def test_a_router_without_addresses_is_still_read() -> None:
    sent = auth_pb2.AuthResponse(success=True).SerializeToString()

    assert decode_outcome(sent) == AuthOutcome(True)


@pytest.mark.parametrize(
    ("interval_s", "on_the_wire"), [(0.5, 1), (0.0, 1), (1.5, 1), (5.0, 5), (90.0, 90), (1e12, 2**31 - 1)]
)
def test_intervals_are_whole_seconds_and_never_zero(interval_s: float, on_the_wire: int) -> None:
    config = router_config(heartbeat_interval_s=interval_s, session_ttl_s=interval_s, request_bytes_max=2**40)

    assert config.heartbeat_interval_s == config.session_ttl_s == on_the_wire
    assert config.request_bytes_max == 2**31 - 1


@pytest.mark.parametrize(("sent", "used"), [(0, 10), (-1, 10), (1, 1), (5, 5)])
def test_an_agent_beats_every_ten_seconds_when_no_interval_is_named(sent: int, used: int) -> None:
    assert RouterConfig(heartbeat_interval_s=sent).effective_heartbeat_interval_s == used


@pytest.mark.parametrize(("sent", "used"), [(0, 3600), (300, 3600), (301, 301), (7200, 7200)])
def test_a_session_too_short_to_renew_counts_as_an_hour(sent: int, used: int) -> None:
    assert RouterConfig(session_ttl_s=sent).effective_session_ttl_s == used


def test_credentials_and_tokens_are_not_printed() -> None:
    assert EVERY_FIELD.credentials not in repr(EVERY_FIELD)
    assert ACCEPTED.session_token not in repr(ACCEPTED)


def test_health_goes_round() -> None:
    health = Health(healthy=True, status="serving")

    assert decode_health(encode_health(health)) == health


def test_a_capacity_beyond_int32_is_not_sent() -> None:
    with pytest.raises(ValueError, match="out of range"):
        encode_request(AuthRequest("t", AgentMetadata(capacity=2**31)))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_invalid(data: bytes) -> None:
    for decode in (decode_request, decode_outcome, decode_health):
        with contextlib.suppress(AuthMessageInvalid):
            decode(data)


TEXT = st.text(max_size=20)
METADATA = st.builds(
    AgentMetadata,
    model=TEXT,
    capacity=st.integers(-(2**31), 2**31 - 1),
    tags=st.lists(TEXT, max_size=3).map(tuple),
    hide_llm=st.booleans(),
    gpu_model=TEXT,
)


@given(st.builds(AuthRequest, TEXT, st.none() | METADATA))
def test_every_request_goes_round(request: AuthRequest) -> None:
    assert decode_request(encode_request(request)) == request
