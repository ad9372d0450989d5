"""Does each endpoint answer in the shape its clients expect?"""

import asyncio
import base64
import hashlib
import http.client
import json
import struct
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.raw_http import at, request_bytes
from tests.sim.sim_wire import CHAT, FAST, HELLO, connected, fetch

from hivenet_router.sim import SimOptions, Simulator

pytestmark = pytest.mark.asyncio

WEATHER = {"name": "weather", "parameters": {"type": "object", "required": [], "properties": {}}}


async def test_health_and_head() -> None:
    async with Simulator(FAST) as sim:
        assert (await fetch(sim.url, "/health")).status == 200
        reply = await fetch(sim.url, "/v1/models", method="HEAD")
        assert reply.status == 200
        assert int(reply.header("content-length") or 0) > 0


async def test_models_are_listed_as_vllm_lists_them() -> None:
    async with Simulator(replace(FAST, models=("org/name:7b", "b"), model_len_max=4096)) as sim:
        listed = (await fetch(sim.url, "/v1/models")).json()
    data = listed["data"]
    assert isinstance(data, list)
    assert [(entry["id"], entry["object"], entry["max_model_len"]) for entry in data] == [
        ("org/name:7b", "model", 4096),
        ("b", "model", 4096),
    ]


async def test_a_buffered_chat() -> None:
    async with Simulator(FAST) as sim:
        reply = await fetch(sim.url, CHAT, dict(HELLO), x_request_id="abc")
    answer = reply.json()
    assert (reply.status, reply.header("content-type"), reply.header("x-request-id")) == (
        200,
        "application/json",
        "abc",
    )
    assert answer["object"] == "chat.completion"
    assert answer["usage"] == {"prompt_tokens": 5, "completion_tokens": 8, "total_tokens": 13}
    choices = answer["choices"]
    assert isinstance(choices, list)
    assert choices[0]["finish_reason"] == "stop"
    assert len(choices[0]["message"]["content"].split()) == 8


async def test_a_streamed_chat_says_the_same_as_a_buffered_one() -> None:
    async with Simulator(FAST) as sim:
        buffered = (await fetch(sim.url, CHAT, dict(HELLO))).json()
        streamed = await fetch(sim.url, CHAT, {**HELLO, "stream": True, "stream_options": {"include_usage": True}})
    assert streamed.header("content-type") == "text/event-stream; charset=utf-8"
    events = streamed.events()
    deltas = [at(event, "choices", 0, "delta") for event in events if event["choices"]]
    text = "".join(str(at(delta, "content") or "") for delta in deltas)
    choices = buffered["choices"]
    assert isinstance(choices, list)
    assert text == choices[0]["message"]["content"]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert (events[-1]["choices"], events[-1]["usage"]) == ([], buffered["usage"])
    assert streamed.data()[-1] == "[DONE]"
    assert len(streamed.http_chunks) == len(streamed.data())


async def test_usage_is_streamed_only_on_request() -> None:
    async with Simulator(FAST) as sim:
        reply = await fetch(sim.url, CHAT, {**HELLO, "stream": True})
    assert [event for event in reply.events() if "usage" in event] == []


async def test_several_choices_take_turns() -> None:
    async with Simulator(FAST) as sim:
        reply = await fetch(sim.url, CHAT, {**HELLO, "stream": True, "n": 3, "max_tokens": 2})
        buffered = (await fetch(sim.url, CHAT, {**HELLO, "n": 3, "max_tokens": 2})).json()
    indexes = [at(event, "choices", 0, "index") for event in reply.events()]
    assert indexes == [0, 1, 2] * 4
    assert buffered["usage"] == {"prompt_tokens": 5, "completion_tokens": 6, "total_tokens": 11}


async def test_text_completions_both_ways() -> None:
    body = {"model": "sim-model", "prompt": "once", "max_tokens": 3}
    async with Simulator(FAST) as sim:
        buffered = (await fetch(sim.url, "/v1/completions", body)).json()
        streamed = await fetch(sim.url, "/v1/completions", {**body, "stream": True})
    choices = buffered["choices"]
    assert isinstance(choices, list)
    text = "".join(str(at(event, "choices", 0, "text")) for event in streamed.events())
    assert (buffered["object"], choices[0]["text"], choices[0]["finish_reason"]) == ("text_completion", text, "length")


async def test_a_tool_call_both_ways() -> None:
    body = {**HELLO, "tools": [{"type": "function", "function": WEATHER}], "tool_choice": "required"}
    async with Simulator(FAST) as sim:
        buffered = (await fetch(sim.url, CHAT, body)).json()
        streamed = (await fetch(sim.url, CHAT, {**body, "stream": True})).events()
    choices = buffered["choices"]
    assert isinstance(choices, list)
    assert choices[0]["finish_reason"] == "tool_calls"
    assert choices[0]["message"]["tool_calls"][0]["function"] == {"name": "weather", "arguments": "{}"}
    deltas = [at(event, "choices", 0, "delta") for event in streamed]
    calls = [at(delta, "tool_calls", 0, "function") for delta in deltas if at(delta, "tool_calls")]
    assert calls[0] == {"name": "weather", "arguments": ""}
    assert "".join(str(at(call, "arguments")) for call in calls) == "{}"


async def test_a_streamed_message_has_the_full_sequence() -> None:
    body = {**HELLO, "max_tokens": 2, "stream": True}
    async with Simulator(FAST) as sim:
        reply = await fetch(sim.url, "/v1/messages?beta=true", body, x_request_id="abc")
    assert reply.header("request-id") == "abc"
    assert [event["type"] for event in reply.events()] == [
        "message_start",
        "ping",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    names = [line[7:] for line in reply.body.decode().split("\n") if line.startswith("event: ")]
    assert names == [event["type"] for event in reply.events()]


async def test_a_buffered_message_and_its_tool_call() -> None:
    tool = {
        "name": "weather",
        "input_schema": {"type": "object", "required": ["d"], "properties": {"d": {"type": "integer"}}},
    }
    async with Simulator(FAST) as sim:
        plain = (await fetch(sim.url, "/v1/messages", {**HELLO, "max_tokens": 99})).json()
        called = (
            await fetch(
                sim.url, "/v1/messages", {**HELLO, "max_tokens": 99, "tools": [tool], "tool_choice": {"type": "any"}}
            )
        ).json()
    assert (plain["type"], plain["stop_reason"]) == ("message", "end_turn")
    assert plain["usage"] == {"input_tokens": 5, "output_tokens": 8}
    content = called["content"]
    assert isinstance(content, list)
    assert (called["stop_reason"], content[0]["name"], content[0]["input"]) == ("tool_use", "weather", {"d": 1})


async def test_reasoning_comes_before_the_text() -> None:
    async with Simulator(FAST) as sim:
        chat = (await fetch(sim.url, CHAT, dict(HELLO), x_sim="reasoning=3")).json()
        message = await fetch(sim.url, "/v1/messages", {**HELLO, "max_tokens": 9, "stream": True}, x_sim="reasoning=3")
    choices = chat["choices"]
    assert isinstance(choices, list)
    assert len(choices[0]["message"]["reasoning_content"].split()) == 3
    kinds = [at(event, "delta", "type") for event in message.events() if event["type"] == "content_block_delta"]
    assert kinds == ["thinking_delta"] * 3 + ["text_delta"] * 5


async def test_tokens_are_counted_without_work() -> None:
    async with Simulator(FAST) as sim:
        reply = await fetch(sim.url, "/v1/messages/count_tokens", dict(HELLO))
        page = (await fetch(sim.url, "/metrics")).body.decode()
    assert reply.json() == {"input_tokens": 5}
    assert 'finished_reason="stop"} 0.0' in page


async def test_embeddings_as_numbers_and_as_base64() -> None:
    body = {"model": "sim-model", "input": ["abcd", "efgh"], "dimensions": 16}
    async with Simulator(FAST) as sim:
        numbers = (await fetch(sim.url, "/v1/embeddings", body)).json()
        packed = (await fetch(sim.url, "/v1/embeddings", {**body, "encoding_format": "base64"})).json()
    assert numbers["usage"] == {"prompt_tokens": 2, "total_tokens": 2}
    first, second = numbers["data"], packed["data"]
    assert isinstance(first, list)
    assert isinstance(second, list)
    unpacked = struct.unpack("<16f", base64.b64decode(second[1]["embedding"]))
    assert list(unpacked) == pytest.approx(first[1]["embedding"], abs=1e-6)


async def test_rerank_puts_the_best_first() -> None:
    body = {"model": "sim-model", "query": "red fox", "documents": ["a hen", "a red fox", "red"], "top_n": 2}
    async with Simulator(FAST) as sim:
        answer = (await fetch(sim.url, "/v1/rerank", body)).json()
    results = answer["results"]
    assert isinstance(results, list)
    assert [result["index"] for result in results] == [1, 2]
    assert results[0]["document"] == {"text": "a red fox"}


async def test_the_metrics_page_tells_of_requests_that_ran() -> None:
    async with Simulator(FAST) as sim:
        await fetch(sim.url, CHAT, dict(HELLO))
        reply = await fetch(sim.url, "/metrics")
    values = {
        (sample.name, sample.labels.get("finished_reason")): sample.value
        for family in text_string_to_metric_families(reply.body.decode())
        for sample in family.samples
        if "le" not in sample.labels
    }
    assert values["vllm:request_success_total", "stop"] == 1
    assert values["vllm:request_generation_tokens_sum", None] == 8
    assert values["vllm:time_to_first_token_seconds_count", None] == 1
    assert values["vllm:num_requests_running", None] == 0


async def test_the_users_text_is_echoed_on_request() -> None:
    text = 'hé 🌍 "quoted"\n<end>'
    body = {"model": "sim-model", "messages": [{"role": "user", "content": text}], "stream": True}
    async with Simulator(FAST) as sim:
        reply = await fetch(sim.url, CHAT, body, x_sim_echo="1")
    parts = [str(at(event, "choices", 0, "delta", "content") or "") for event in reply.events()]
    assert "".join(parts) == text


async def test_stamps_are_in_every_event() -> None:
    async with Simulator(replace(FAST, stamp_chunks=True)) as sim:
        chat = await fetch(sim.url, CHAT, {**HELLO, "stream": True})
        message = await fetch(sim.url, "/v1/messages", {**HELLO, "max_tokens": 3, "stream": True})
    for reply in (chat, message):
        stamps = [int(str(event["sim_ns"])) for event in reply.events()]
        assert stamps == sorted(stamps)


@pytest.mark.parametrize(
    ("path", "body", "method", "status"),
    [
        ("/", None, "GET", 404),
        ("/v1/unknown", {}, "POST", 404),
        (CHAT, None, "GET", 405),
        (CHAT, b"{", "POST", 400),
        (CHAT, {**HELLO, "model": "other"}, "POST", 404),
        (CHAT, {"model": "sim-model"}, "POST", 400),
        ("/sim/unknown", None, "GET", 404),
        ("/sim/stats", {}, "POST", 405),
    ],
)
async def test_what_is_wrong_is_answered_in_json(path: str, body: object, method: str, status: int) -> None:
    async with Simulator(FAST) as sim:
        reply = await fetch(sim.url, path, body, method=method)
    error = reply.json()["error"]
    assert isinstance(error, dict)
    assert (reply.status, error["code"]) == (status, status)
    assert (reply.header("allow") is not None) == (status == 405)


async def test_errors_take_the_clients_dialect() -> None:
    async with Simulator(FAST) as sim:
        reply = await fetch(sim.url, "/v1/messages", {**HELLO, "model": "other", "max_tokens": 1})
    assert reply.json()["type"] == "error"


async def test_a_key_is_asked_for_below_v1_only() -> None:
    async with Simulator(replace(FAST, api_key="k1")) as sim:
        assert (await fetch(sim.url, "/health")).status == 200
        assert (await fetch(sim.url, "/v1/models")).status == 401
        assert (await fetch(sim.url, "/v1/models", authorization="Bearer k2")).status == 401
        assert (await fetch(sim.url, "/v1/models", authorization="bearer k1")).status == 200
        assert (await fetch(sim.url, "/v1/models", x_api_key="k1")).status == 200
    assert "k1" not in repr(sim.options)


async def test_a_prompt_past_the_context_is_refused_in_the_engines_words() -> None:
    async with Simulator(replace(FAST, model_len_max=8)) as sim:
        reply = await fetch(sim.url, CHAT, {**HELLO, "max_tokens": 9})
    assert reply.status == 400
    assert b"maximum context length is 8 tokens" in reply.body


async def test_one_connection_carries_many_requests() -> None:
    async with Simulator(FAST) as sim, connected(sim.url) as wire:
        for _ in range(3):
            wire.ask(CHAT, {**HELLO, "stream": True})
            assert (await wire.reply()).data()[-1] == "[DONE]"
        assert sim.stats.connections_opened == 1


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with Simulator(FAST) as sim, connected(sim.url) as wire:
        wire.send(request_bytes(CHAT, {**HELLO, "stream": True}) + request_bytes("/health") + request_bytes("/x"))
        assert [(await wire.reply()).status for _ in range(3)] == [200, 200, 404]


async def test_a_body_sent_byte_by_byte_and_in_chunks() -> None:
    payload = json.dumps(HELLO).encode()
    framed = b"".join(b"1\r\n%c\r\n" % byte for byte in payload) + b"0\r\n\r\n"
    head = f"POST {CHAT} HTTP/1.1\r\nHost: sim\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    async with Simulator(FAST) as sim, connected(sim.url) as wire:
        for at in range(0, len(head + framed), 7):
            wire.send((head + framed)[at : at + 7])
            await asyncio.sleep(0)
        assert (await wire.reply()).status == 200
        assert sim.requests()[0].body_sha256 == hashlib.sha256(payload).hexdigest()


async def test_a_body_of_twenty_mebibytes() -> None:
    text = "word " * (4 * 1024 * 1024)
    body = json.dumps({"model": "sim-model", "messages": [{"role": "user", "content": text}]}).encode()
    async with Simulator(FAST) as sim:
        assert (await fetch(sim.url, CHAT, body)).status == 200
        assert sim.requests()[0].body_bytes == len(body) > 20 * 1024 * 1024


async def test_a_body_past_the_bound_is_refused_readably_while_it_is_still_sent() -> None:
    async with Simulator(replace(FAST, body_bytes_max=1000)) as sim, connected(sim.url) as wire:
        wire.send(request_bytes(CHAT, b"x" * 5_000_000))
        assert (await wire.reply()).status == 413
        assert (await wire.rest())[1] == "fin"


async def test_leave_to_send_a_body_is_given() -> None:
    request = request_bytes(CHAT, dict(HELLO), expect="100-continue")
    head, _, body = request.partition(b"\r\n\r\n")
    async with Simulator(FAST) as sim, connected(sim.url) as wire:
        wire.send(head + b"\r\n\r\n")
        assert (await wire.reply(bodiless=True)).status == 100
        wire.send(body)
        assert (await wire.reply()).status == 200


async def test_what_is_no_request_is_answered_400() -> None:
    async with Simulator(FAST) as sim, connected(sim.url) as wire:
        wire.send(b"nonsense\r\n\r\n")
        assert (await wire.reply()).status == 400
        assert sim.stats.incomplete == 1


@pytest.mark.parametrize("method", ["CONNECT", "TRACE", "OPTIONS", "PATCH"])
async def test_unusual_methods_are_refused_and_the_connection_goes_on(method: str) -> None:
    async with Simulator(FAST) as sim, connected(sim.url) as wire:
        wire.ask("/v1/models", method=method, upgrade="h2c", connection="upgrade")
        assert (await wire.reply()).status == 405
        wire.ask("/health")
        assert (await wire.reply()).status == 200


async def test_http_1_0_gets_a_stream_without_chunks() -> None:
    payload = json.dumps({**HELLO, "stream": True}).encode()
    head = f"POST {CHAT} HTTP/1.0\r\nContent-Length: {len(payload)}\r\n\r\n".encode()
    async with Simulator(FAST) as sim, connected(sim.url) as wire:
        wire.send(head + payload)
        reply = await wire.reply()
    assert (reply.header("transfer-encoding"), reply.header("connection"), reply.ending) == (None, "close", "fin")
    assert reply.data()[-1] == "[DONE]"


async def test_the_standard_library_client_reads_a_stream() -> None:
    def talk(port: int) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("POST", CHAT, json.dumps({**HELLO, "stream": True}))
        try:
            return connection.getresponse().read()
        finally:
            connection.close()

    async with Simulator(FAST) as sim:
        assert (await asyncio.to_thread(talk, sim.port)).endswith(b"data: [DONE]\n\n")


async def test_idle_connections_are_closed_after_their_time() -> None:
    async with Simulator(replace(FAST, idle_timeout_s=0.05)) as sim, connected(sim.url) as wire:
        wire.ask("/health")
        assert (await wire.reply()).status == 200
        assert await wire.rest() == (b"", "fin")


async def test_two_simulators_cannot_have_one_port() -> None:
    async with Simulator(FAST) as sim:
        with pytest.raises(OSError, match="in use"):
            async with Simulator(SimOptions(port=sim.port)):
                pass


@pytest.mark.parametrize("depth", [100, 480, 970, 980, 990, 2_000])
@pytest.mark.parametrize("place", ["tools", "content"])
async def test_a_body_nested_too_deeply_is_answered(place: str, depth: int) -> None:
    # How deep Python reads JSON, and how deep it calls, differs from version to version.
    if place == "tools":
        text = "[" * depth + "]" * depth
        tool = f'{{"function":{{"name":"f","parameters":{{"x":{text}}}}}}}'
        body = f'{{"model":"sim-model","messages":[{{"role":"user"}}],"tools":[{tool}]}}'
    else:
        text = '[{"content":' * depth + "1" + "}]" * depth
        body = f'{{"model":"sim-model","messages":[{{"role":"user","content":{text}}}]}}'
    async with Simulator(FAST) as sim:
        reply = await fetch(sim.url, CHAT, body.encode())
    assert reply.status == 200 or b"nested too deeply" in reply.body
