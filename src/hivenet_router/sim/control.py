"""What can an operator ask or change while the simulator runs?

`/sim/stats` counts, `/sim/requests` shows what came over the wire, `/sim/faults` reads and changes the rules.
Invariant: these paths are never struck by a fault and never counted. Source: docs/simulator.md.
"""

import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Final
from urllib.parse import parse_qs

from hivenet_router.sim.asks import AskError, read_object
from hivenet_router.sim.fault_board import change_of
from hivenet_router.sim.faults import FaultError
from hivenet_router.sim.framing import Reply
from hivenet_router.sim.house import House
from hivenet_router.sim.reader import Request
from hivenet_router.sim.shapes_openai import compact, error_body

CONTROL_METHODS: Final[Mapping[str, tuple[str, ...]]] = {
    "/sim/stats": ("GET",),
    "/sim/requests": ("GET",),
    "/sim/faults": ("GET", "POST", "DELETE"),
}

LIMIT_DIGITS_MAX: Final = 9


def control_reply(house: House, request: Request) -> Reply:
    """The answer to a request below `/sim/`."""
    methods = CONTROL_METHODS.get(request.path)
    if methods is None:
        return Reply(404, error_body(404, f"there is nothing at {request.path[:200]}"))
    if request.method not in methods:
        allow = ", ".join(methods)
        return Reply(405, error_body(405, f"{request.path} takes {allow}"), headers=(("Allow", allow),))
    if request.path == "/sim/stats":
        return Reply(200, compact(stats_document(house)))
    if request.path == "/sim/requests":
        return _requests_reply(house, request)
    return _faults_reply(house, request)


def stats_document(house: House) -> dict[str, object]:
    """All counters as JSON shows them."""
    stats = asdict(house.ledger.stats())
    requests = {name: stats[name] for name in ("seen", "running", "finished", "cancelled", "broken", "incomplete")}
    last = {name: stats[f"last_{name}_s"] for name in ("seen", "finished", "cancelled")}
    load = house.pacer.core.load()
    return {
        "now_s": time.monotonic(),
        "started_s": house.started_s,
        "requests": requests,
        "last_s": last,
        "cancelled_at_s": stats["cancelled_at_s"],
        "bytes": {"received": stats["received_bytes"], "sent": stats["sent_bytes"]},
        "connections": {"open": stats["connections_open"], "opened": stats["connections_opened"]},
        "engine": {
            "running": load.running,
            "waiting": load.waiting,
            "kv_cache_tokens_held": house.pacer.core.held_tokens,
            "kv_cache_usage": load.kv_usage_ratio,
            "preemptions": house.pacer.core.metrics.preemptions,
        },
    }


def _requests_reply(house: House, request: Request) -> Reply:
    query = parse_qs(request.query)
    limit = query.get("limit", ["100"])[-1]
    if not (limit.isascii() and limit.isdigit() and len(limit) <= LIMIT_DIGITS_MAX) or int(limit) < 1:
        return Reply(400, error_body(400, "limit: must be a whole number from 1 to 999999999", param="limit"))
    path = query.get("path", [None])[-1]
    bodies = query.get("bodies", ["0"])[-1] == "1"
    records = house.ledger.requests(path)[-int(limit) :]
    return Reply(200, compact({"requests": [record.as_json(bodies=bodies) for record in records]}))


def _faults_reply(house: House, request: Request) -> Reply:
    try:
        if request.method == "POST":
            house.board.change(change_of(read_object(request.take_body(), each_member_once=True)))
        elif request.method == "DELETE":
            house.board.replace(())
    except (FaultError, AskError) as wrong:
        return Reply(400, error_body(400, str(wrong)))
    return Reply(200, compact(house.board.as_json()))
