"""Are bodies read strictly enough, and is the answer to them decided as documented?"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivenet_router.sim.answers import Answer, decide, tool_pieces
from hivenet_router.sim.asks import (
    Ask,
    AskError,
    Tool,
    chat_ask,
    completion_ask,
    messages_ask,
    read_object,
    text_tokens,
)
from hivenet_router.sim.faults import parse_fault
from hivenet_router.sim.options import SimOptions
from hivenet_router.sim.shapes_pooling import embedding_ask, relevance, rerank_ask, unit_vector

WEATHER = {"name": "weather", "parameters": {"type": "object", "properties": {}, "required": []}}
HI = [{"role": "user", "content": "hi"}]


def answer(ask: Ask, fault: str = "", *, echo: bool = False, options: SimOptions | None = None) -> Answer:
    return decide(ask, parse_fault(fault), options or SimOptions(), echo=echo, serial=1, created=0)


def text_of(answered: Answer) -> str:
    """All of an answer's pieces."""
    return "".join(answered.pieces)


def ask_of(**fields: object) -> Ask:
    return chat_ask({"model": "m", "messages": HI} | fields)


def test_a_token_is_four_bytes_of_text_rounded_up() -> None:
    assert [text_tokens(text) for text in ("", "a", "abcd", "abcde", "é" * 4)] == [0, 1, 1, 2, 2]


def test_each_message_costs_four_tokens_more() -> None:
    assert ask_of().prompt_tokens == 5
    assert chat_ask({"model": "m", "messages": HI * 3}).prompt_tokens == 15


def test_parts_images_system_and_tools_count() -> None:
    parts = [{"type": "text", "text": "abcd"}, {"type": "image_url", "image_url": {"url": "data:"}}]
    assert chat_ask({"model": "m", "messages": [{"role": "user", "content": parts}]}).prompt_tokens == 4 + 1 + 256
    result = [{"type": "tool_result", "content": [{"type": "text", "text": "abcdefgh"}]}]
    body = {"model": "m", "max_tokens": 1, "system": "abcd", "messages": [{"role": "user", "content": result}]}
    assert messages_ask(body).prompt_tokens == 4 + 2 + 1
    assert ask_of(tools=[{"type": "function", "function": WEATHER}]).prompt_tokens > 5


def test_the_newer_limit_wins_and_whole_floats_pass() -> None:
    assert ask_of(max_tokens=5, max_completion_tokens=7).output_tokens_max == 7
    assert ask_of(max_tokens=10.0).output_tokens_max == 10


def test_each_prompt_of_a_list_is_a_choice() -> None:
    ask = completion_ask({"model": "m", "prompt": ["a", "b"], "n": 2})
    assert (ask.choices, ask.prompt_tokens) == (4, 2)
    assert completion_ask({"model": "m", "prompt": [1, 2, 3]}).prompt_tokens == 3


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({}, "messages: must be a list"),
        ({"messages": []}, "messages: must be a list"),
        ({"messages": [None]}, r"messages\[0\]: must be an object with a role"),
        ({"messages": HI}, "model: must be a text"),
        ({"messages": HI, "model": 5}, "model: must be a text"),
        ({"messages": HI, "model": "m", "stream": "true"}, "stream: must be true or false"),
        ({"messages": HI, "model": "m", "max_tokens": 0}, "max_tokens: must be a whole number"),
        ({"messages": HI, "model": "m", "max_tokens": "10"}, "max_tokens: must be a whole number"),
        ({"messages": HI, "model": "m", "n": 100_000}, "n: at most 128"),
        ({"messages": HI, "model": "m", "stream_options": 1}, "stream_options: must be an object"),
        ({"messages": HI, "model": "m", "tools": [{}]}, r"tools\[0\]: must hold a name"),
    ],
)
def test_a_wrong_chat_body_is_refused_in_words(body: dict[str, object], says: str) -> None:
    with pytest.raises(AskError, match=says):
        chat_ask(body)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'"x"', b"\xff"])
def test_what_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(AskError, match="JSON"):
        read_object(body)


FIELDS = [
    *("model", "messages", "max_tokens", "tools", "tool_choice", "n", "prompt"),
    *("input", "documents", "query", "system", "stream_options", "top_n", "dimensions"),
]
INNER_FIELDS = ["role", "content", "name", "type", "text", "function"]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(INNER_FIELDS), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(FIELDS), VALUES))
def test_any_object_gives_an_ask_or_the_documented_error(document: dict[str, object]) -> None:
    for read in (chat_ask, completion_ask, messages_ask, lambda body: embedding_ask(body, 64), rerank_ask):
        try:
            read(document)
        except AskError:
            continue


def test_a_message_without_max_tokens_is_refused_but_can_be_counted() -> None:
    with pytest.raises(AskError, match="max_tokens: must be given"):
        messages_ask({"model": "m", "messages": HI})
    assert messages_ask({"model": "m", "messages": HI}, counting=True).prompt_tokens == 5


def test_the_answer_ends_by_length_when_the_client_wants_less() -> None:
    assert answer(ask_of()).finish == "stop"
    short = answer(ask_of(max_tokens=3))
    assert (len(short.pieces), short.finish) == (3, "length")


def test_ignore_eos_writes_all_that_was_asked_for() -> None:
    assert len(answer(ask_of(max_tokens=500, ignore_eos=True)).pieces) == 500


def test_the_same_prompt_gives_the_same_text_and_the_seed_changes_it() -> None:
    assert text_of(answer(ask_of())) == text_of(answer(ask_of()))
    assert text_of(answer(ask_of())) != text_of(answer(ask_of(), options=SimOptions(seed=1)))


def test_a_range_of_lengths_is_kept() -> None:
    options = SimOptions(output_tokens=(5, 9))
    lengths = {
        len(decide(ask_of(), parse_fault(""), options, echo=False, serial=serial, created=0).pieces)
        for serial in range(100)
    }
    assert lengths == {5, 6, 7, 8, 9}


@given(st.text(min_size=1, max_size=200))
def test_an_echo_is_the_users_text(text: str) -> None:
    ask = chat_ask({"model": "m", "messages": [{"role": "user", "content": text}]})
    assert text_of(answer(ask, echo=True)) == text


def test_an_echo_stops_at_the_limit() -> None:
    ask = chat_ask({"model": "m", "max_tokens": 2, "messages": [{"role": "user", "content": "one two three"}]})
    echoed = answer(ask, echo=True)
    assert (text_of(echoed), echoed.finish) == ("one two ", "length")


def test_chunks_and_their_size_can_be_set() -> None:
    shaped = answer(ask_of(max_tokens=1), "chunks=5,chunk_bytes=1000")
    assert [len(piece) for piece in shaped.pieces] == [1000] * 5


def test_usage_can_be_set_or_left_out() -> None:
    told = answer(ask_of(), "usage=4/100").usage
    assert told is not None
    assert (told.prompt, told.completion) == (4, 100)
    assert answer(ask_of(), "no_usage").usage is None


def test_a_prompt_past_the_context_is_refused() -> None:
    with pytest.raises(AskError, match="maximum context length is 10 tokens"):
        answer(ask_of(max_tokens=6), options=SimOptions(model_len_max=10))


@pytest.mark.parametrize(
    ("fields", "called"),
    [
        ({}, False),
        ({"tool_choice": "auto"}, False),
        ({"tool_choice": "required"}, True),
        ({"tool_choice": {"type": "function", "function": {"name": "weather"}}}, True),
        ({"messages": [{"role": "user", "content": "use a #tool please"}]}, True),
        ({"messages": [{"role": "user", "content": "#tool"}], "tool_choice": "none"}, False),
    ],
)
def test_a_tool_is_called_when_it_is_asked_for(fields: dict[str, object], called: bool) -> None:
    ask = ask_of(tools=[{"type": "function", "function": WEATHER}], **fields)
    assert (answer(ask).finish == "tool") is called


def test_an_unknown_tool_is_refused() -> None:
    with pytest.raises(AskError, match="no tool is named 'x'"):
        ask_of(tools=[{"function": WEATHER}], tool_choice={"function": {"name": "x"}})


def test_tool_arguments_fit_the_schema() -> None:
    schema = {
        "type": "object",
        "required": ["city", "days", "unit"],
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "unit": {"enum": ["C", "F"]}},
    }
    assert json.loads("".join(tool_pieces(Tool("weather", schema)))) == {"city": "amber", "days": 1, "unit": "C"}


def test_a_schema_that_names_a_property_again_and_again_is_filled_in_once() -> None:
    schema: dict[str, object] = {"type": "string"}
    for _ in range(8):
        schema = {"type": "object", "required": ["a"] * 100, "properties": {"a": schema}}
    assert "".join(tool_pieces(Tool("deep", schema))).count('"a"') == 8


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b'{"n":NaN}', "not valid JSON: NaN is no JSON value"),
        (b'{"n":-Infinity}', "not valid JSON: -Infinity is no JSON value"),
        (b'{"n":1' + b"0" * 5000 + b"}", "a number with too many digits"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_what_json_readers_let_pass_or_stumble_over_is_refused_in_words(body: bytes, says: str) -> None:
    with pytest.raises(AskError, match=says):
        read_object(body)


def test_vectors_are_bounded_with_the_usual_length_too() -> None:
    body = {"model": "m", "input": ["x"] * 100}
    assert embedding_ask(body, 10_000).dimensions == 10_000
    with pytest.raises(AskError, match="at most 1000000 numbers"):
        embedding_ask(body, 10_001)


def test_vectors_have_length_one_and_relevance_follows_shared_words() -> None:
    assert sum(number * number for number in unit_vector("x", 48)) == pytest.approx(1.0)
    assert relevance("red fox", "a red fox") > relevance("red fox", "a red hen") > relevance("red fox", "nothing")
