"""Is anything lost while agents are killed under their clients? `make soak` asks for longer, and of more clients."""

from pathlib import Path

import pytest
from tests.house import at_rest
from tests.house.asking import Answer, Ending, Question, judged
from tests.house.chaos import Chaos
from tests.house.client import MODEL
from tests.house.fleet import Size, fleet_in
from tests.house.load import Clients, Plan

CLIENTS, SECONDS = 60, 8.0
ANSWERED_RATIO_MIN = 0.98


async def test_whatever_dies_each_request_ends_as_documented_and_nothing_is_held_afterwards(tmp_path: Path) -> None:
    async with fleet_in(tmp_path, Size(engines=1)) as fleet:
        before = await at_rest.footing(fleet)
        chaos = Chaos(fleet, ["kill"], every_s=2.0, seed=1)
        clients = Clients(Plan(fleet.http, MODEL, CLIENTS), seed=1)
        await chaos.during(clients.run(SECONDS))
        assert chaos.struck["kill"] > 0
        assert clients.tally.faults == []
        assert clients.tally.count(Ending.WHOLE) > CLIENTS
        assert clients.tally.answered_ratio >= ANSWERED_RATIO_MIN
        await fleet.all_serve()
        assert await at_rest.not_at_rest(fleet, before) == []
        assert await at_rest.not_ended(fleet) == []


QUESTION = Question("chat stream", "00000000-0000-4000-8000-00000000000a", pieces=2, interval_ms=0)
FIRST, SECOND = (f'data: {{"choices":[{{"delta":{{"content":"{text}"}}}}]}}\n\n' for text in QUESTION.text.split(" "))
SECOND = SECOND.replace('content":"', 'content":" ')
ERROR = 'data: {"error":{"code":"backend_error"}}\n\n'
DONE = "data: [DONE]\n\n"
END = b"0\r\n\r\n"


def streamed(*events: str, end: bytes = END, stopped: bool = False) -> Answer:
    answer = Answer(200, {"transfer-encoding": "chunked"}, stopped="fin" if stopped else "")
    for event in events:
        answer.raw += b"%x\r\n%b\r\n" % (len(event), event.encode())
    answer.raw += end
    return answer


def test_a_stream_is_whole_or_says_that_it_is_cut() -> None:
    assert judged(QUESTION, streamed(FIRST, SECOND, DONE)).ending is Ending.WHOLE
    assert judged(QUESTION, streamed(FIRST, ERROR, end=b"", stopped=True)).ending is Ending.CUT


@pytest.mark.parametrize(
    "answer",
    [
        streamed(FIRST, SECOND),
        streamed(FIRST, DONE),
        streamed(SECOND, DONE),
        streamed(FIRST, FIRST, DONE),
        streamed(FIRST, ERROR),
        streamed(FIRST, ERROR, SECOND, end=b"", stopped=True),
        streamed(FIRST, ERROR[:-1], end=b"", stopped=True),
        streamed(FIRST, SECOND, DONE, end=b"", stopped=True),
        streamed(FIRST, end=b"", stopped=True),
        Answer(stopped="reset"),
        Answer(stopped="late"),
        Answer(200, {"content-length": "5"}, bytearray(b"data:"), stopped=""),
        Answer(404, {"content-length": "2"}, bytearray(b"{}")),
        Answer(503, {"content-length": "9"}, bytearray(b"{}"), stopped="fin"),
        Answer(500, {"content-length": "34"}, bytearray(b'{"error":{"code":"backend_error"}}')),
    ],
)
def test_whatever_else_comes_is_a_fault(answer: Answer) -> None:
    assert judged(QUESTION, answer).ending is Ending.FAULT
