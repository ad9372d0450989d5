"""Do the fixed words on the wire stay as other programs expect them?"""

import pytest

from hivenet_router.names import headers, paths, protocol_ids


@pytest.mark.parametrize(
    ("path", "capability", "dialect", "kind"),
    [
        ("/v1/chat/completions", "llm", "openai", "chat"),
        ("/v1/completions", "llm", "openai", "chat"),
        ("/v1/responses", "llm", "responses", "chat"),
        ("/v1/messages", "llm", "anthropic", "chat"),
        ("/v1/messages/count_tokens", "llm", "anthropic", "chat"),
        ("/v1/embeddings", "embedding", "openai", "embedding"),
        ("/v1/rerank", "reranker", "openai", "rerank"),
    ],
)
def test_an_inference_path_says_what_it_needs(path: str, capability: str, dialect: str, kind: str) -> None:
    row = paths.INFERENCE_PATHS[path]
    assert (row.path, row.capability, row.dialect, row.kind) == (path, capability, dialect, kind)


def test_seven_paths_and_no_other_reach_an_agent() -> None:
    assert len(paths.INFERENCE_PATHS) == 7


def test_mounts_are_those_of_the_original() -> None:
    assert paths.ROUTER_MOUNT == "/hivenet_router/router/1.0.0"
    assert paths.INFERENCE_MOUNT == "/hivenet_router/inference/1.0.0"
    assert paths.PROTOCOL_MAP == "/.well-known/libp2p/protocols"


def test_what_keys_and_tokens_are_made_from_is_fixed() -> None:
    assert protocol_ids.TLS_HKDF_SALT == b"hivenet-router-grpc-tls-v2"
    assert protocol_ids.TLS_HKDF_INFO == b"ed25519"
    assert protocol_ids.TLS_COMMON_NAME == "hivenet-router-grpc"
    assert protocol_ids.JWT_ISSUER == "hivenet-router"
    assert protocol_ids.JWT_SUBJECT_PREFIX == "agent-"


def test_the_service_and_its_method_are_those_of_the_original() -> None:
    assert f"/{protocol_ids.GRPC_SERVICE}/Authenticate" == protocol_ids.GRPC_AUTHENTICATE
    assert protocol_ids.ADVERTISED_PROTOCOL == "/hivenet_router/1.0.0"
    assert protocol_ids.LIBP2P_HTTP == "/http/1.1"
    assert protocol_ids.ORIGINAL_AGENT_VERSION_PREFIX == "hivenet_router@"
    assert protocol_ids.OWN_AGENT_VERSION_PREFIX == "hivenet-router-py/"


def test_the_engines_are_those_agents_announce() -> None:
    assert [engine.value for engine in protocol_ids.Engine] == [
        "vllm",
        "ollama",
        "sglang",
        "llamacpp",
        "infinity",
        "custom",
    ]


def test_header_names_are_lower_case() -> None:
    names = [value for name, value in vars(headers).items() if name.isupper() and isinstance(value, str)]
    assert [name for name in names if name != headers.BEARER_REALM and name != name.lower()] == []


@pytest.mark.parametrize(
    "name", ["connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "proxy-authorization"]
)
def test_a_header_of_one_hop_stays_there(name: str) -> None:
    assert name in headers.HOP_BY_HOP


@pytest.mark.parametrize("name", ["authorization", "cookie", "x-api-key", "content-type", "anthropic-beta"])
def test_a_header_of_the_request_may_travel(name: str) -> None:
    assert name not in headers.HOP_BY_HOP | headers.OWN_PER_HOP
