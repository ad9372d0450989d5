"""What is said about connections, requests, calls and peers that were turned away, when anybody can make many?

What a listener turns away is counted in the metrics; of everything the log has the first of a kind at once and the rest
once a minute, so that a flood of garbage does not become a flood of lines.
Source: http-api.md §1.4; field-cases.md O-15.
"""

from collections.abc import Mapping
from typing import Final

import structlog

from hivenet_router.core.rejections import Rejection, Rejections, Told
from hivenet_router.ports import Clock, Recorder

log = structlog.get_logger("router")

_ADVICE: Final[Mapping[str, str]] = {
    "out_of_file_descriptors": (
        "each connection takes one; raise the limit of open files of this process (ulimit -n, LimitNOFILE=), or find "
        "out who holds so many connections"
    ),
    "accept_failed": "the system refused a new connection; the listener goes on",
    "too_many_connections": "this listener has as many connections as it may, each with a request; who sends so many?",
    "too_many_connections_of_client": "one address has as many connections to this listener as it may, all at work",
    "too_many_links": "there are as many libp2p connections as there may be in all; who holds so many?",
    "too_many_connections_of_address": "--p2p-max-conns-per-ip says how many one address may have",
    "stranger_made_room": (
        "whoever has not registered gives way to newer connections; if it is an agent of yours, see its log, and "
        "whether many agents share its address"
    ),
    "kept_for_known_peers": "the last sixteenth of the connections is kept for agents that have registered before",
    "not_registered_in_time": (
        "a peer has ten seconds to register; if it is an agent of yours, see its log, and whether it has the secret "
        "of this router"
    ),
}
"""For what an operator can do something about, and should."""

_WHY_LENGTH_MAX: Final = 200


class RejectionRoom:
    """Counts what was turned away, and tells of it in measure."""

    def __init__(self, clock: Clock, recorder: Recorder) -> None:
        self._clock = clock
        self._recorder = recorder
        self._rejections = Rejections()

    def rejected(self, listener: str, client: str, status: int, reason: str, *, peer: str = "") -> None:
        """Something was turned away; `status` is 0 where it was a whole connection. `reason` is a word of ours."""
        self._recorder.edge_rejected(listener, reason)
        self._note(Rejection(listener, client, status, reason, peer=peer))

    def refused(self, event: str, why: str, *, client: str = "", peer: str = "", path: str = "") -> None:
        """Somebody was refused under a line of its own name, a warning."""
        self._note(Rejection("", client, 0, why[:_WHY_LENGTH_MAX], event, peer, path))

    def _note(self, rejection: Rejection) -> None:
        told = self._rejections.add(rejection, now=self._clock.now())
        if told is not None:
            _tell(told)

    def tell_due(self) -> None:
        """Tell what has waited for its minute."""
        for told in self._rejections.due(now=self._clock.now()):
            _tell(told)


def _tell(told: Told) -> None:
    rejection, advice = told.rejection, _ADVICE.get(told.rejection.reason)
    known = {
        "listener": rejection.listener,
        "client": rejection.client,
        "peer_id": rejection.peer,
        "path": rejection.path,
        "status": rejection.status,
        "advice": advice,
    }
    is_trouble = advice is not None or not rejection.listener
    say = log.warning if is_trouble else log.info
    fields = {name: value for name, value in known.items() if value}
    say(rejection.event, why=rejection.reason, times=told.times, **fields)
