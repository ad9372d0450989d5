"""The outcomes of `Authenticate`, in the original's words and order."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hivenet_router.core.bootstrap import Welcome, acceptance, judge
from hivenet_router.wire.auth_messages import (
    AgentMetadata,
    AuthOutcome,
    AuthRequest,
    LibP2PInfo,
    RouterConfig,
    RouterEndpoint,
    decode_outcome,
    encode_outcome,
)
from hivenet_router.wire.jwt import AgentClaims, TokenRefused

OUTCOMES: list[dict[str, object]] = json.loads(
    (Path(__file__).parents[1] / "vectors" / "wire-grpc-auth.json").read_text("utf-8")
)["outcomes"]
CLAIMS = AgentClaims("agent-p", 10.0)
COMPLETE = AgentMetadata(
    model="m", capacity=1, version="v", region="r", engine="vllm", organization="o", machine="x", capability="llm"
)
CLEARED = {
    "model empty": replace(COMPLETE, model=""),
    "capacity <= 0": replace(COMPLETE, capacity=0),
    "version empty": replace(COMPLETE, version=""),
    "engine empty": replace(COMPLETE, engine=""),
    "region empty": replace(COMPLETE, region=""),
    "organization empty": replace(COMPLETE, organization=""),
}


@pytest.mark.parametrize(
    "outcome", [each for each in OUTCOMES if each["when"] in CLEARED], ids=lambda each: each["when"]
)
def test_incomplete_metadata_is_refused_in_the_original_s_words(outcome: dict[str, object]) -> None:
    metadata = CLEARED[str(outcome["when"])]

    assert judge(AuthRequest("t", metadata), CLAIMS) == AuthOutcome(False, str(outcome["message"]))


def test_absent_metadata_is_refused_like_an_empty_model() -> None:
    refused = AuthOutcome(False, "Invalid metadata: model is required")

    assert judge(AuthRequest("t", None), CLAIMS) == refused
    assert judge(AuthRequest("t", AgentMetadata()), CLAIMS) == refused


def test_the_token_is_judged_before_the_metadata() -> None:
    outcome = judge(AuthRequest("t", None), TokenRefused("token missing required 'sub' claim"))

    assert outcome == AuthOutcome(False, "Authentication failed: token missing required 'sub' claim")


def test_the_first_fault_in_the_original_s_order_is_named() -> None:
    faults = [
        (AgentMetadata(), "model is required"),
        (AgentMetadata(model="m"), "capacity must be positive"),
        (AgentMetadata(model="m", capacity=1), "version is required"),
        (AgentMetadata(model="m", capacity=1, version="v"), "engine is required"),
        (AgentMetadata(model="m", capacity=1, version="v", engine="e"), "region is required"),
        (AgentMetadata(model="m", capacity=1, version="v", engine="e", region="r"), "organization is required"),
    ]
    for metadata, fault in faults:
        assert judge(AuthRequest("t", metadata), CLAIMS) == AuthOutcome(False, f"Invalid metadata: {fault}")


@pytest.mark.parametrize("capacity", [0, -1, -(2**31)])
def test_a_capacity_must_be_positive(capacity: int) -> None:
    outcome = judge(AuthRequest("t", replace(COMPLETE, capacity=capacity)), CLAIMS)

    assert outcome == AuthOutcome(False, "Invalid metadata: capacity must be positive")


@pytest.mark.parametrize(("sent", "used"), [("", "llm"), ("embedding", "embedding"), ("zzz", "zzz")])
def test_an_agent_without_capability_serves_language_models(sent: str, used: str) -> None:
    welcome = judge(AuthRequest("t", replace(COMPLETE, capability=sent, machine="")), CLAIMS)

    assert welcome == Welcome("agent-p", replace(COMPLETE, capability=used, machine=""))


def test_an_acceptance_has_all_that_the_original_agent_needs() -> None:
    outcome = acceptance(
        "token",
        libp2p_info=LibP2PInfo("p", ("/ip4/127.0.0.1/tcp/9000/p2p/p",)),
        config=RouterConfig(heartbeat_interval_s=5, session_ttl_s=3600),
        routers=[RouterEndpoint("r:1", "q")],
        router_id="r0",
    )

    assert outcome.message == "Authentication successful"
    assert decode_outcome(encode_outcome(outcome)) == outcome


@pytest.mark.parametrize(
    ("engine", "announced", "served"),
    [
        ("ollama", "llama3:latest", "llama3"),
        ("ollama", "llama3", "llama3"),
        ("ollama", "llama3:70b", "llama3:70b"),
        ("ollama", ":latest", ":latest"),
        ("vllm", "llama3:latest", "llama3:latest"),
    ],
)
def test_ollamas_default_tag_is_left_out_of_what_its_agents_serve(engine: str, announced: str, served: str) -> None:
    """field-cases.md O-24 (e): one model, whoever wrote the tag out."""
    request = AuthRequest("token", replace(COMPLETE, engine=engine, model=announced))
    welcome = judge(request, CLAIMS)
    assert isinstance(welcome, Welcome)
    assert welcome.metadata.model == served
