"""Do the `/sim` paths show and change what they say?"""

import hashlib
from dataclasses import replace

import pytest
from tests.raw_http import at, request_bytes
from tests.sim.sim_wire import CHAT, FAST, HELLO, connected, fetch

from hivenet_router.sim import FaultError, Simulator

pytestmark = pytest.mark.asyncio


async def test_stats_count_requests_bytes_and_connections() -> None:
    async with Simulator(FAST) as sim:
        await fetch(sim.url, CHAT, dict(HELLO))
        await fetch(sim.url, CHAT, dict(HELLO), x_sim="reset_before_head,reused_only")
        await fetch(sim.url, "/health")
        shown = (await fetch(sim.url, "/sim/stats")).json()
    assert shown["requests"] == {
        "seen": 2,
        "running": 0,
        "finished": 2,
        "cancelled": 0,
        "broken": 0,
        "incomplete": 0,
    }
    assert shown["connections"] == {"open": 1, "opened": 4}
    last, sizes = shown["last_s"], shown["bytes"]
    assert isinstance(last, dict)
    assert isinstance(sizes, dict)
    assert last["seen"] <= last["finished"]
    assert last["cancelled"] is None
    assert sizes["received"] > 100 < sizes["sent"]


async def test_requests_are_shown_as_they_came() -> None:
    body = b'{"model": "sim-model",  "messages": [{"role": "user", "content": "hi"}]}'
    head = f"POST {CHAT}?a=b HTTP/1.1\r\nhOsT: sim\r\nX-Beta: 2\r\nx-beta: 1\r\nContent-Length: {len(body)}\r\n\r\n"
    async with Simulator(FAST) as sim, connected(sim.url) as wire:
        wire.send(head.encode() + body)
        await wire.reply()
        document = (await fetch(sim.url, f"/sim/requests?path={CHAT}&bodies=1")).json()
    shown = document["requests"]
    assert isinstance(shown, list)
    assert len(shown) == 1
    assert (shown[0]["method"], shown[0]["target"], shown[0]["path"]) == ("POST", f"{CHAT}?a=b", CHAT)
    assert shown[0]["headers"][:3] == [["hOsT", "sim"], ["X-Beta", "2"], ["x-beta", "1"]]
    assert (shown[0]["body_bytes"], shown[0]["body_sha256"]) == (len(body), hashlib.sha256(body).hexdigest())
    assert shown[0]["body_head"] == body.decode()
    assert (shown[0]["outcome"], shown[0]["status"], shown[0]["reused"]) == ("finished", 200, False)
    assert shown[0]["received_s"] <= shown[0]["first_byte_s"] <= shown[0]["finished_s"]


async def test_the_record_is_bounded_and_probes_push_nothing_out() -> None:
    async with Simulator(replace(FAST, requests_kept=2)) as sim, connected(sim.url) as wire:
        for path in (CHAT, "/health", "/health", "/health", "/sim/stats"):
            wire.send(request_bytes(path, dict(HELLO) if path == CHAT else None))
            await wire.reply()
        kept = [(record.sequence, record.path) for record in sim.requests()]
        limited = (await fetch(sim.url, "/sim/requests?limit=1")).json()["requests"]
    assert kept == [(1, CHAT), (3, "/health"), (4, "/health")]
    assert isinstance(limited, list)
    assert [record["sequence"] for record in limited] == [4]


async def test_faults_are_set_and_cleared_while_it_runs() -> None:
    async with Simulator(FAST) as sim:
        rule = {"fault": "status=503,retry_after=2", "count": 1}
        set_now = await fetch(sim.url, "/sim/faults", rule)
        statuses = [(await fetch(sim.url, CHAT, dict(HELLO))).status for _ in range(2)]
        shown = (await fetch(sim.url, "/sim/faults")).json()
        cleared = (await fetch(sim.url, "/sim/faults", method="DELETE")).json()
    assert set_now.status == 200
    assert statuses == [503, 200]
    assert shown["rules"] == [
        {"fault": "status=503,retry_after=2", "probability": 1.0, "count": 0, "path": None, "struck": 1}
    ]
    assert cleared["rules"] == []


async def test_a_wrong_rule_changes_nothing() -> None:
    async with Simulator(FAST) as sim:
        await fetch(sim.url, "/sim/faults", {"fault": "status=503"})
        reply = await fetch(sim.url, "/sim/faults", {"rules": [{"fault": "status=700"}]})
        shown = (await fetch(sim.url, "/sim/faults")).json()["rules"]
    assert reply.status == 400
    assert b"rule 0: status: needs a status from 200 to 599" in reply.body
    assert isinstance(shown, list)
    assert shown[0]["fault"] == "status=503"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b'{"fault":"status=500","fault":"status=501"}', b"fault: stands twice"),
        (b'{"rules":[{"fault":"status=500","count":1,"count":2}]}', b"count: stands twice"),
        (b'{"rules":[],"rules":[]}', b"rules: stands twice"),
        (b'{"fault":"stall_before_head=forever","path":"/sim/faults"}', b"/sim/ is spared"),
    ],
)
async def test_a_rule_that_means_two_things_or_nothing_is_refused(body: bytes, says: bytes) -> None:
    async with Simulator(FAST) as sim:
        await fetch(sim.url, "/sim/faults", {"fault": "status=503"})
        reply = await fetch(sim.url, "/sim/faults", body)
        shown = (await fetch(sim.url, "/sim/faults")).json()["rules"]
    assert (reply.status, says in reply.body) == (400, True)
    assert isinstance(shown, list)
    assert [rule["fault"] for rule in shown] == ["status=503"]


async def test_the_requests_own_words_go_over_the_rules() -> None:
    async with Simulator(FAST) as sim:
        sim.set_fault("status=503,retry_after=2")
        reply = await fetch(sim.url, CHAT, dict(HELLO), x_sim="status=429")
    assert (reply.status, reply.header("retry-after")) == (429, "2")


async def test_rules_are_set_from_the_same_process() -> None:
    async with Simulator(FAST) as sim:
        sim.set_fault("status=503", path="/health")
        sim.add_fault("status=500", count=1)
        statuses = [(await fetch(sim.url, path)).status for path in ("/health", "/v1/models")]
        assert [*statuses, (await fetch(sim.url, CHAT, dict(HELLO))).status] == [503, 200, 500]
        sim.clear_faults()
        assert (await fetch(sim.url, "/health")).status == 200
        with pytest.raises(FaultError):
            sim.set_fault("explode")


async def test_waiting_for_what_does_not_happen_ends() -> None:
    async with Simulator(FAST) as sim:
        with pytest.raises(TimeoutError):
            await sim.wait_for(lambda stats: stats.seen > 0, timeout_s=0.01)


@pytest.mark.parametrize("limit", ["0", "-1", "many", "9" * 5000, "%C2%B2"])
async def test_a_limit_that_is_none_is_refused_by_name(limit: str) -> None:
    async with Simulator(FAST) as sim:
        reply = await fetch(sim.url, f"/sim/requests?limit={limit}")
    assert reply.status == 400
    assert at(reply.json(), "error", "param") == "limit"


async def test_the_error_rate_is_read_and_changed_while_it_runs() -> None:
    async with Simulator(replace(FAST, error_rate=1.0, error_status=503)) as sim:
        before = (await fetch(sim.url, "/sim/faults")).json()
        await fetch(sim.url, CHAT, dict(HELLO))
        struck = (await fetch(sim.url, "/sim/faults")).json()["errors_struck"]
        refused = await fetch(sim.url, "/sim/faults", b'{"error_rate":1' + b"0" * 400 + b"}")
        await fetch(sim.url, "/sim/faults", {"error_rate": 0})
        assert (await fetch(sim.url, CHAT, dict(HELLO))).status == 200
    assert before == {"rules": [], "error_rate": 1.0, "error_status": 503, "errors_struck": 0}
    assert (struck, refused.status) == (1, 400)
    assert b"error_rate: must be a number from 0 to 1" in refused.body


async def test_control_is_never_struck() -> None:
    async with Simulator(FAST) as sim:
        assert (await fetch(sim.url, "/sim/stats", x_sim="status=500")).status == 200
