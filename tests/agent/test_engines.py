"""What each engine is asked, and how its list of models is read."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivenet_router.agent.engines import FACES, ModelsUnreadable
from hivenet_router.names.protocol_ids import Engine


def test_every_engine_that_can_be_chosen_has_a_row() -> None:
    assert set(FACES) == set(Engine)


@pytest.mark.parametrize("engine", [Engine.VLLM, Engine.SGLANG, Engine.LLAMACPP, Engine.INFINITY])
def test_engines_that_speak_openai_list_their_models_in_their_own_order(engine: Engine) -> None:
    face = FACES[engine]
    assert (face.probe_path, face.models_path) == ("/health", "/v1/models")
    assert face.models_in(b'{"object":"list","data":[{"id":"b","object":"model"},{"id":"a"}]}') == ("b", "a")


def test_ollama_loses_the_latest_tag_and_keeps_others() -> None:
    """Source: signals.md EX-1.1."""
    face = FACES[Engine.OLLAMA]
    assert (face.probe_path, face.models_path) == ("/api/tags", "/api/tags")
    assert face.models_in(b'{"models":[{"name":"llama3:latest"},{"name":"qwen:v2"}]}') == ("llama3", "qwen:v2")


def test_a_custom_engine_has_no_paths_of_its_own() -> None:
    assert (FACES[Engine.CUSTOM].probe_path, FACES[Engine.CUSTOM].models_path) == (None, None)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"data":[]}', b'{"data":[{"id":""}]}', b'{"data":{"id":"a"}}'])
def test_a_list_without_a_model_is_refused(body: bytes) -> None:
    with pytest.raises(ModelsUnreadable):
        FACES[Engine.VLLM].models_in(body)


@given(body=st.binary(max_size=200), engine=st.sampled_from([Engine.VLLM, Engine.OLLAMA]))
def test_whatever_an_engine_answers_only_the_documented_error_is_raised(body: bytes, engine: Engine) -> None:
    with contextlib.suppress(ModelsUnreadable):
        assert all(FACES[engine].models_in(body))
