"""Readers of the pages and clients at the same time."""

import asyncio
import json
from pathlib import Path

from tests.house.client import CHAT, ask, hello
from tests.house.running import house_in

READERS = 8


async def test_whoever_was_answered_finds_itself_on_a_page_asked_for_afterwards(tmp_path: Path) -> None:
    async with house_in(tmp_path) as house:
        enough = asyncio.Event()

        async def read() -> int:
            pages = 0
            while not enough.is_set():
                await house.page()
                pages += 1
            return pages

        readers = [asyncio.create_task(read()) for _ in range(READERS)]
        for answered in range(1, 41):
            assert (await ask(house.http, CHAT, hello())).status == 200
            assert (await house.page()).total("hivenet_requests_total", outcome="served") == answered
        enough.set()
        assert all(await asyncio.gather(*readers))


async def test_the_list_of_models_is_whole_for_each_of_many_readers(tmp_path: Path) -> None:
    async with house_in(tmp_path) as house:
        replies = await asyncio.gather(*(ask(house.http, "/v1/models") for _ in range(READERS)))
        for reply in replies:
            assert reply.header("content-type") == "application/json"
            assert [model["id"] for model in json.loads(reply.body)["data"]] == ["m1"]
        assert (await ask(house.http, "/v1/models/m1")).json()["id"] == "m1"
        assert (await ask(house.http, "/v1/models/other")).status == 404
