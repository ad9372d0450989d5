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
    ("reason", "words"),
    [
        ("out_of_file_descriptors", "ulimit -n"),
        ("too_many_connections_of_address", "--p2p-max"),
        ("too_many_links", "as many libp2p connections as there may be"),
        ("stranger_made_room", "gives way to newer connections"),
        ("kept_for_known_peers", "registered before"),
        ("not_registered_in_time", "ten seconds"),
    ],
)
async def test_what_an_operator_can_mend_is_a_warning_with_what_to_do(reason: str, words: str) -> None:
    room = RejectionRoom(VirtualClock(), RecordingRecorder())
    with capture_logs() as logs:
        room.rejected("api", "", 0, reason)
    (line,) = logs
    assert line["log_level"] == "warning"
    assert words in line["advice"]
    assert not line.keys() & {"client", "status"}


async def test_a_refusal_under_its_own_name_is_a_warning_and_its_flood_is_counted() -> None:
    recorder = RecordingRecorder()
    room = RejectionRoom(VirtualClock(), recorder)
    with capture_logs() as logs:
        for _ in range(7):
            room.refused("agent_refused", "x" * 1000, client="192.0.2.9")
        await passing(TELL_EVERY_S, room)
    assert [(line["event"], line["log_level"], line["times"]) for line in logs] == [
        ("agent_refused", "warning", 1),
        ("agent_refused", "warning", 6),
    ]
    assert logs[0]["client"] == "192.0.2.9"
    assert len(logs[0]["why"]) == 200
    assert not recorder.rejections


async def test_a_rejected_message_names_its_peer() -> None:
    room = RejectionRoom(VirtualClock(), RecordingRecorder())
    with capture_logs() as logs:
        room.rejected("peers", "", 413, "too_large", peer="12D3KooWPeer")
    assert [(line["peer_id"], line["log_level"]) for line in logs] == [("12D3KooWPeer", "info")]
