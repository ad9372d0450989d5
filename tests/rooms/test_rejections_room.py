"""What is turned away at the edge is counted each time and told in measure."""

import asyncio

import pytest
from structlog.testing import capture_logs
from tests.fakes.clock import VirtualClock
from tests.fakes.recorder import RecordingRecorder

from hivenet_router.core.rejections import TELL_EVERY_S
from hivenet_router.router.rejections import RejectionRoom
from hivenet_router.router.serve import every


async def test_a_flood_is_two_lines_a_minute_apart() -> None:
    clock, recorder = VirtualClock(), RecordingRecorder()
    room = RejectionRoom(clock, recorder)
    with capture_logs() as logs:
        for _ in range(500):
            room.rejected("api", "192.0.2.1", 400, "request_line")
        room.tell_due()
        (line,) = logs
        assert line == {
            "event": "request_rejected",
            "log_level": "info",
            "listener": "api",
            "client": "192.0.2.1",
            "status": 400,
            "why": "request_line",
            "times": 1,
        }
        await passing(TELL_EVERY_S, room)
    assert [entry["times"] for entry in logs] == [1, 499]
    assert recorder.rejections["api", "request_line"] == 500


async def passing(seconds: float, room: RejectionRoom) -> None:
    """That long, on the virtual clock, with the room asked every few seconds."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(seconds + 1):
            await every(5.0, room.tell_due)


@pytest.mark.parametrize(
    ("reason", "words"), [("out_of_file_descriptors", "ulimit -n"), ("too_many_connections_of_address", "--p2p-max")]
)
async def test_what_an_operator_can_mend_is_a_warning_with_what_to_do(reason: str, words: str) -> None:
    room = RejectionRoom(VirtualClock(), RecordingRecorder())
    with capture_logs() as logs:
        room.rejected("api", "", 0, reason)
    (line,) = logs
    assert line["log_level"] == "warning"
    assert words in line["advice"]
    assert not line.keys() & {"client", "status"}
