"""Who has which router, and who hears of it."""

import asyncio
from collections.abc import Collection

import pytest

from hivenet_router.agent.claims import Claims, Taken


def test_a_router_is_claimed_once_and_free_again_afterwards() -> None:
    claims = Claims()
    with claims.claim("a", "one:1"):
        assert "a" in claims
        with pytest.raises(Taken, match="one:1"), claims.claim("a", "two:1"):
            pass
        assert "a" in claims
    assert "a" not in claims


def test_all_that_are_claimed_are_told_at_the_start_and_at_each_change() -> None:
    told: list[tuple[str, ...]] = []

    def hear(routers: Collection[str]) -> None:
        told.append(tuple(routers))

    claims = Claims(hear)
    with claims.claim("a", "one:1"), claims.claim("b", "two:1"):
        assert told[-1] == ("a", "b")
    assert told == [(), ("a",), ("a", "b"), ("a",), ()]


async def test_who_waits_for_a_router_has_it_when_it_is_free() -> None:
    claims = Claims()
    with claims.claim("a", "one:1"):
        waiting = asyncio.create_task(claims.until_free("a"))
        await asyncio.sleep(0)
        assert not waiting.done()
    await waiting
