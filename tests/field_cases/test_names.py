"""O-14: a model's name is what it is, slashes, colons and all.

That a model which a key may not use looks like one that does not exist is tried with keys, which the router does not
have yet.
"""

import json
from typing import Final

import pytest
from tests.field_cases.bench import BEYOND_ASCII, BODIES, EMBEDDINGS, RERANK, SEATS, SLASHED, TWO, Bench
from tests.house.client import ask, connected, error_of
from tests.raw_http import Reply, at

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def get(bench: Bench, target: str, *, method: str = "GET") -> Reply:
    """The answer for this target, sent as it is written."""
    async with connected(bench.http) as client:
        client.send(f"{method} {target} HTTP/1.1\r\nHost: h\r\n\r\n".encode())
        return await client.reply(bodiless=method == "HEAD")


def without_time(reply: Reply) -> object:
    """What it says, but for when each agent was last heard of."""
    document = reply.json()
    agents = at(document, "agents", "list")
    for agent in agents if isinstance(agents, list) else []:
        del agent["last_seen"]
    return document


SPELLINGS: Final = [
    "org/name:7b",
    "org%2Fname:7b",
    "org%2fname%3A7b",
    "%6Frg/name:7b",
    "org/name:7b/",
    "org%2Fname:7b/",
    "org/name:7b?limit=1",
]


@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_o14_a_name_with_slash_and_colon_is_found_however_it_is_spelled(bench: Bench, spelling: str) -> None:
    """With one slash behind it as well as without."""
    reply = await get(bench, f"/v1/models/{spelling}")
    assert (reply.status, reply.json()["id"]) == (200, SLASHED)
    assert without_time(reply) == without_time(await get(bench, "/v1/models/org/name:7b"))
    assert (await get(bench, f"/v1/models/{spelling}", method="HEAD")).status == 200


async def test_o14_the_list_with_a_slash_behind_it_is_the_list(bench: Bench) -> None:
    plain, slashed = await get(bench, "/v1/models"), await get(bench, "/v1/models/")
    assert (plain.status, slashed.status) == (200, 200)
    assert plain.json() == slashed.json()


async def test_o14_the_list_is_sorted_and_names_a_model_of_two_agents_once(bench: Bench) -> None:
    document = (await get(bench, "/v1/models")).json()
    data = document["data"]
    assert isinstance(data, list)
    ids = [entry["id"] for entry in data]
    assert ids == sorted({seat.model for seat in SEATS})
    assert (document["object"], document["first_id"], document["last_id"]) == ("list", ids[0], ids[-1])
    assert [at(entry, "agents", "total") for entry in data if entry["id"] == TWO] == [2]
    detail = (await get(bench, f"/v1/models/{TWO}")).json()
    agents = at(detail, "agents", "list")
    assert isinstance(agents, list)
    assert len({agent["peer_id"] for agent in agents}) == 2


@pytest.mark.parametrize(
    "name",
    [
        "nobody-s",
        "org/name:7b//",
        "org//name:7b",
        "/org/name:7b",
        "org",
        "org/",
        "name:7b",
        "ORG/name:7b",
        "org/name:7B",
        "org/name:7b%20",
        "%20org/name:7b",
        "org/name%3A7b%2F%2F",
        "org%252Fname:7b",
        "..%2f",
        "..%2fhealth",
        "../models/org/name:7b",
        "%2e%2e/health",
        "/",
        "%00",
        "%zz",
        "%FF",
        "x%0d%0aSet-Cookie:%20a=b",
        "a" * 9000,
    ],
)
async def test_o14_any_other_name_is_not_found_in_the_envelope(bench: Bench, name: str) -> None:
    """Case counts, blanks count, and a path is not cleaned: two spellings that differ are two names."""
    reply = await get(bench, f"/v1/models/{name}")
    assert (reply.status, error_of(reply)["code"], error_of(reply)["source"]) == (404, "model_not_found", "router")
    assert reply.header("set-cookie") is None


@pytest.mark.parametrize("target", ["//v1/models", "/v1//models", "/V1/models", "/v1/models%2f", "/v1/Models", "/v1"])
async def test_o14_another_path_is_no_path(bench: Bench, target: str) -> None:
    reply = await get(bench, target)
    assert (reply.status, error_of(reply)["code"]) == (404, "not_found")


@pytest.mark.parametrize("spelling", ["%E6%A8%A1%E5%9E%8B", "%e6%a8%a1%e5%9e%8b"])
async def test_o14_a_name_beyond_ascii_is_found(bench: Bench, spelling: str) -> None:
    reply = await get(bench, f"/v1/models/{spelling}")
    assert (reply.status, reply.json()["id"]) == (200, BEYOND_ASCII)


async def test_o14_a_target_beyond_ascii_is_none(bench: Bench) -> None:
    """What is read before the router might read its bytes in another way."""
    reply = await get(bench, f"/v1/models/{BEYOND_ASCII}")
    assert (reply.status, error_of(reply)["code"]) == (400, "request_invalid")


@pytest.mark.parametrize("path", [path for path in BODIES if path not in (EMBEDDINGS, RERANK)])
async def test_o14_requests_name_models_just_so(bench: Bench, path: str) -> None:
    """In a body nothing is decoded but JSON."""
    for seat, spelled in (("slashed", SLASHED), ("slashed", "org\\/name:7b"), ("beyond", BEYOND_ASCII)):
        body = f'{{"model":"{spelled}","messages":[],"max_tokens":5}}'.encode()
        assert (await ask(bench.http, path, body)).status == 200
        assert bench.engines[seat].turns[-1].request.body == body
    asked = sum(len(engine.turns) for engine in bench.engines.values())
    for name in ("org/name:7b ", " org/name:7b", "Org/Name:7B", "org%2Fname:7b", "org/name:7b/", "模", "模型 "):
        reply = await ask(bench.http, path, json.dumps({"model": name, "messages": []}).encode())
        assert (reply.status, error_of(reply)["code"]) == (404, "model_not_found")
    assert sum(len(engine.turns) for engine in bench.engines.values()) == asked
