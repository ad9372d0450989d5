"""Whenever a request ends, and however, nothing of it stays behind.

One request goes through every wait there is: the line for a permit, the queue for capacity, an agent before and after
its headers, the queue again, a second agent, its stream, or a refusal on its way to the client. In each of these waits,
and in the very moments between them, its client leaves, the plane is told to abort it, or it is cancelled: as a task,
and as the led coroutine that the router makes of it.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Final

import pytest
from tests.core.making import MODEL, OTHER_MODEL, A, B, C
from tests.fakes.exchange import Answers, Fails, FakeExchange, Script
from tests.rooms.building import Rooms, turns

from hivenet_router.core.ids import ModelName
from hivenet_router.core.sessions import SessionStore
from hivenet_router.ports import Exchange, Finished
from hivenet_router.router.attend import AttendingRoom
from hivenet_router.router.door import Door
from hivenet_router.router.led import Led

WAITS: Final = {
    "in the line for a permit": 0.5,
    "as a permit comes free": 1.0,
    "parked for capacity": 1.5,
    "as a slot comes free": 2.0,
    "before the first agent's headers": 2.5,
    "with the first agent's headers": 3.0,
    "after the first agent's headers": 3.5,
    "as the first attempt fails": 4.0,
    "parked between two attempts": 4.5,
    "as another slot comes free": 5.0,
    "before the second agent's headers": 5.5,
    "with the second agent's headers": 6.0,
    "after them, or while a refusal is sent": 6.5,
    "with the first byte": 7.0,
    "in the middle of the answer": 7.5,
    "with the last byte": 8.0,
    "when all is over": 8.5,
}
ENDINGS: Final[dict[str, tuple[Script, set[str]]]] = {
    "answered whole": (Answers(head_after_s=1.0, first_byte_after_s=1.0, lasts_s=1.0), {"served"}),
    "streamed": (
        Answers(head_after_s=1.0, first_byte_after_s=1.0, lasts_s=1.0, is_stream=True),
        {"served", "stream_cut"},
    ),
    "refused": (Fails("status", status=500, after_s=1.0), {"backend_error"}),
}


class Scene:
    """A house in which every wait takes a second, with the request in question and those that make it wait."""

    def __init__(self, ending: str, *, led: bool = False) -> None:
        script, self.own_outcomes = ENDINGS[ending]
        is_stream = ending == "streamed"
        self.rooms = Rooms(forwards_max=3)
        self.rooms.join(
            A, Answers(lasts_s=2.0), Fails("truncated", 1.0, head_after_s=1.0, is_stream=is_stream), Answers()
        )
        self.rooms.join(B, Answers(lasts_s=5.0), script, Answers())
        self.rooms.join(C, Answers(lasts_s=1.0), model=OTHER_MODEL)
        self.is_led = led
        self.running: list[asyncio.Task[None] | Led] = []
        self.ends: list[asyncio.Future[None]] = []
        attending = AttendingRoom(
            self.rooms.registry,
            SessionStore(lambda: "token"),
            self.rooms.clock,
            self.rooms.recorder,
            self.rooms.rejections,
            welcome=self.rooms.plane.welcome,
        )
        self.door = Door(self._spawn, self.rooms.house, nobody_answers, attending, nobody_answers)
        # Two fill the agents, one takes the last permit; one more comes after the request in question.
        for model in (MODEL, MODEL, OTHER_MODEL):
            self.arrive(model)
        self.exchange = self.arrive(MODEL, respond_takes_s=1.0)
        self.run = self.running[-1]
        self.follower = self.arrive(MODEL)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        if not self.is_led:
            task = asyncio.create_task(work)
            self.running.append(task)
            self.ends.append(task)
            return
        loop = asyncio.get_running_loop()
        end: asyncio.Future[None] = loop.create_future()

        def ended(led: Led, error: BaseException | None) -> None:
            assert error is None
            end.set_result(None)

        led = Led(work, ended, loop)
        self.running.append(led)
        self.ends.append(end)
        led.go_on()

    def arrive(self, model: ModelName, *, respond_takes_s: float = 0.0) -> FakeExchange:
        exchange = self.rooms.chat(model, respond_takes_s=respond_takes_s)
        self.door.arrival(exchange)
        return exchange


async def nobody_answers(exchange: Exchange, path: str) -> Finished:
    raise AssertionError("no request of these tests goes there")


def leave(scene: Scene) -> None:
    scene.exchange.leave()


def abort(scene: Scene) -> None:
    scene.exchange.arrived.abort()


def cancel(scene: Scene) -> None:
    scene.run.cancel()


@pytest.mark.parametrize("led", [False, True])
@pytest.mark.parametrize("end", [leave, abort, cancel])
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("wait", WAITS)
async def test_a_request_that_ends_in_any_of_its_waits_leaves_nothing_behind(
    wait: str, ending: str, end: Callable[[Scene], None], led: bool
) -> None:
    scene = Scene(ending, led=led)
    asyncio.get_running_loop().call_at(scene.rooms.clock.now() + WAITS[wait], end, scene)
    await asyncio.wait(scene.ends)
    await turns()
    rooms = scene.rooms
    assert rooms.is_at_rest
    assert rooms.plane.live() == 0
    assert len(rooms.recorder.ends) == len(rooms.recorder.http_ends) == len(scene.ends)
    assert scene.follower.finished is not None
    assert scene.follower.finished.outcome in ("answered", "responded")
    stopped = {"client_gone"} if end is leave else {"no_agents_available"}
    assert set(rooms.recorder.outcomes) <= {"served"} | stopped | scene.own_outcomes


@pytest.mark.parametrize("ending", ENDINGS)
async def test_left_alone_it_goes_through_all_of_them(ending: str) -> None:
    """Otherwise the test above would prove less than it says."""
    scene = Scene(ending)
    rooms = scene.rooms
    agents = [agent for peer in (A, B) if (agent := rooms.registry.agent(peer)) is not None]
    seen = []
    for _ in range(8):
        await asyncio.sleep(0.5)
        held = [agent.peer for agent in agents if agent.active_slots or agent.running_streams]
        seen.append((rooms.recorder.waiting.get(MODEL, 0), held, len(scene.exchange.forwards)))
        await asyncio.sleep(0.5)
    await asyncio.wait(scene.ends)
    # Who is parked, which agents work, how many attempts were made, in the middle of each second.
    assert seen[:6] == [
        (0, [A, B], 0),
        (2, [A, B], 0),
        (1, [A, B], 1),
        # A stream's headers have made room for who comes after it.
        (0 if ending == "streamed" else 1, [A, B], 1),
        (1, [B], 1),
        (0, [B], 2),
    ]
    assert rooms.recorder.outcomes.count("served") == (4 if ending == "refused" else 5)


@pytest.mark.parametrize("number", range(40))
async def test_a_task_that_is_cancelled_at_any_of_its_steps_leaves_nothing_behind(number: int) -> None:
    rooms = Rooms()
    rooms.join(A, Fails("reset"), Answers(is_stream=True))
    rooms.join(B, Fails("status", status=500), Answers(is_stream=True))
    walking = rooms.walk(rooms.chat())
    await turns(number)
    walking.cancel()
    await asyncio.wait([walking])
    assert rooms.is_at_rest
    # A task that never took its first step has not begun to walk.
    assert len(rooms.recorder.ends) == min(number, 1)
