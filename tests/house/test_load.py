"""Many requests at once and one after another: none is lost, and what was counted adds up."""

import asyncio
import random
import uuid
from collections import Counter
from pathlib import Path

from tests.house.client import CHAT, MESSAGES, MODEL, ask, connected, hello
from tests.house.running import house_in, until, until_so

from hivenet_router.sim import SimOptions

WIDE = ("--max-concurrent=5000", "--queue-size=5000", "--queue-depth=5000")


async def test_a_burst_of_2000_requests_to_one_agent_loses_none(tmp_path: Path) -> None:
    engine = SimOptions(models=(MODEL,), decode_tokens_per_s=0, prefill_tokens_per_s=0, concurrency=4000)
    async with house_in(tmp_path, engines=(engine,), router=WIDE, agent=("--capacity=2500",)) as house:
        numbers = range(2000)
        replies = await asyncio.gather(
            *(
                ask(house.http, CHAT, hello(stream=number % 2 == 0, max_tokens=4), x_sim="delay=1.5")
                for number in numbers
            )
        )
        assert Counter((reply.status, reply.whole) for reply in replies) == {(200, True): 2000}
        assert house.engine.stats.finished == 2000
        await house.rests()
        assert (await house.page()).total("hivenet_requests_total", outcome="served") == 2000


# What a request may meet, and the statuses a client may see of it; 0: it leaves.
MIX: list[tuple[str, bool, set[int]]] = [
    ("", False, {200}),
    ("", True, {200}),
    ("status=400", False, {400}),
    ("status=500", False, {502}),
    ("status=503", True, {503}),
    ("reset_before_head", False, {503, 502}),
    ("reset_after_chunks=2", True, {200}),
    ("truncate_body=9", False, {502, 503}),
    ("delay=60", False, {0}),
    ("stall_after_chunks=2", True, {0}),
    ("stall_before_head=60", True, {0}),
    ("raw=x", False, {502, 503}),
]


async def test_a_thousand_requests_of_all_kinds_leave_nothing_behind_and_are_counted_once(tmp_path: Path) -> None:
    chance = random.Random(7)
    engine = SimOptions(models=(MODEL,), decode_tokens_per_s=0, prefill_tokens_per_s=0)
    async with house_in(tmp_path, engines=(engine, engine), router=WIDE) as house:

        async def one(number: int) -> None:
            fault, is_stream, expected = chance.choice(MIX)
            path = chance.choice((CHAT, MESSAGES))
            body = hello(stream=is_stream, max_tokens=5)
            headers = {"x_sim": fault} if fault else {}
            if expected != {0}:
                reply = await ask(house.http, path, body, **headers)
                assert reply.status in expected, (fault, reply)
                return
            async with connected(house.http) as client:
                request_id = str(uuid.UUID(int=chance.getrandbits(128)))
                client.ask(path, body, x_request_id=request_id, **headers)
                await client.drain()
                if chance.random() < 0.5:
                    # Leaves behind a whole request, read or not yet.
                    await asyncio.sleep(chance.random() * 0.1)
                    client.leave()
                else:
                    # A reset in front of the router's accept takes the request with it: it never arrived.
                    await until(lambda: request_id in house.requests_there())
                    await asyncio.sleep(chance.random() * 0.1)
                    client.abort()

        async def some(numbers: range) -> None:
            for number in numbers:
                await one(number)

        async def are_counted() -> bool:
            return (await house.page()).total("hivenet_requests_total") >= 1000

        await asyncio.gather(*(some(range(50)) for _ in range(20)))
        # Of those that left, the last may not have been read when nothing runs.
        await until_so(are_counted)
        await house.rests()
        page = await house.page()
        outcomes = {labels["outcome"]: value for labels, value in page.samples("hivenet_requests_total")}
        assert sum(outcomes.values()) == 1000, outcomes
        assert {"served", "client_gone", "invalid_parameter", "backend_error", "stream_cut"} <= outcomes.keys()
        counted = page.total("http_server_request_duration_seconds_count", method="POST")
        assert counted == 1000
        for simulator in house.engines:
            assert simulator.load.running == 0
        for path in (CHAT, MESSAGES):
            assert (await ask(house.http, path, hello(max_tokens=5))).status == 200
