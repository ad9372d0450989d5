"""What the fuzzer of HTTP/2 bytes begins with, and whatever it found once, breaks no rule."""

import asyncio
import random

import pytest
from bench.work.grpc import shapes
from tests.fuzz.http2 import CORPUS, INPUT_BYTES_MAX, BrokeARule, Target, changed, seeds

PIECES = (1, 9, 4096)


@pytest.mark.parametrize("name", sorted(path.name for path in CORPUS.iterdir()))
async def test_an_input_of_the_corpus_breaks_no_rule(name: str) -> None:
    for piece_bytes in PIECES:
        await Target().check(seeds()[name], piece_bytes)


@pytest.mark.parametrize("shape", shapes())
async def test_the_costly_shapes_break_no_rule(shape: str) -> None:
    await Target().check(shapes()[shape][:INPUT_BYTES_MAX], 4096)


async def test_some_changes_of_the_corpus_break_no_rule() -> None:
    chance, target, corpus = random.Random(7), Target(), list(seeds().values())
    for _ in range(200):
        await target.check(changed(chance.choice(corpus), corpus, chance), 100)


async def test_the_target_sees_a_service_that_an_input_has_broken() -> None:
    target = Target()
    await target.check(b"", 1)
    target._service._grpc._mapping.clear()
    with pytest.raises(BrokeARule, match="not served"):
        await target.check(b"", 1)


async def test_the_target_sees_a_task_that_is_left() -> None:
    target = Target()
    plain, left = target._connection, list[asyncio.Task[None]]()

    async def leaving(data: bytes, piece_bytes: int) -> bytes:
        left.append(asyncio.create_task(asyncio.sleep(9)))
        return await plain(data, piece_bytes)

    target._connection = leaving  # type: ignore[method-assign]
    with pytest.raises(BrokeARule, match="left running"):
        await target.check(b"", 1)
    for task in left:
        task.cancel()
