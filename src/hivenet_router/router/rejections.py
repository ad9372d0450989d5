"""What is said about connections and requests that the data plane has turned away by itself?

Every one is counted in the metrics; the log has the first of a kind at once and the rest once a minute, so that a flood
of garbage does not become a flood of lines. Source: http-api.md §1.4; field-cases.md O-15.
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
    "too_many_connections": "this listener has as many connections as it may; who holds so many?",
    "too_many_connections_of_address": "--p2p-max-conns-per-ip says how many one address may have",
}
"""For what an operator can do something about, and should."""


class RejectionRoom:
    """Counts what was turned away, and tells of it in measure."""

    def __init__(self, clock: Clock, recorder: Recorder) -> None:
        self._clock = clock
        self._recorder = recorder
        self._rejections = Rejections()

    def rejected(self, listener: str, client: str, status: int, reason: str) -> None:
        """Something was turned away; `status` is 0 where it was a whole connection."""
        self._recorder.edge_rejected(listener, reason)
        told = self._rejections.add(Rejection(listener, client, status, reason), now=self._clock.now())
        if told is not None:
            _tell(told)

    def tell_due(self) -> None:
        """Tell what has waited for its minute."""
        for told in self._rejections.due(now=self._clock.now()):
            _tell(told)


def _tell(told: Told) -> None:
    rejection, advice = told.rejection, _ADVICE.get(told.rejection.reason)
    fields: dict[str, object] = {"client": rejection.client} if rejection.client else {}
    if rejection.status:
        fields["status"] = rejection.status
    say = log.info
    if advice is not None:
        say = log.warning
        fields["advice"] = advice
    say("request_rejected", listener=rejection.listener, why=rejection.reason, times=told.times, **fields)
