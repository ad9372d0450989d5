"""What keeps a registered session with a router alive?

Heartbeats, routing signals, renewal in time, and a link that is dialled again when it is lost. Invariant: the old token
stays in use until the router took the new one, and the session ends only by `SessionFailed`: a heartbeat answered with
401, 403 or 404, or a lost link that could not be had again. A router that is too busy for a heartbeat still knows the
session. How a session begins is `connect.py`'s.
Source: wire.md §7.2, §7.3, §10, §11; several-routers.md S-101; decisions.md 25.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Final

import structlog

from hivenet_router.agent.report import Reports
from hivenet_router.agent.world import Links, SessionFailed, Terms
from hivenet_router.names.paths import HEARTBEAT, ROUTING_SIGNALS
from hivenet_router.ports import Reply, RequestFailed

MESSAGE_WITHIN_S: Final = 5.0
"""Time for the answer to a heartbeat or a signal. Source: wire.md §14 no. 19."""
RENEW_RETRY_S: Final = 30.0
SHORT_LIVED_S: Final = 5.0
"""A link that was lost sooner than so after it was had again, or before a heartbeat was answered over it, is no link:
the next dial waits."""
LINK_BACKOFF_S: Final = (0.0, 1.0, 5.0, 15.0, 30.0)
"""The longest wait before a link is dialled again, by how many short-lived ones came before it; chance halves it at
most. Source: decisions.md 25."""
# The plane gives up a little later, so that it is always our own limit that speaks.
_GIVEN_UP_AFTER_S: Final = MESSAGE_WITHIN_S + 1.0

_ENDING: Final = frozenset({401, 403, 404})
"""Answers of a router that does not know the session, or the agent, any more. Source: wire.md §7, §10."""

_TELLING_LOSSES: Final = 2
_UNSTEADY_ADVICE: Final = (
    "the link is lost soon after it is had again: something on the way to the router cuts it, or another agent runs "
    "with the same key file; give each agent its own --identity-path"
)

log = structlog.get_logger("agent")


class KeptSession:
    """A registered session; made anew for each registration, ended by cancelling `run`.

    `dial` connects to the router of the terms, `renew` authenticates and registers again; both raise SessionFailed.
    `until_stale` returns when what was registered is no longer so, which is renewed at once.
    """

    def __init__(
        self,
        target: str,
        terms: Terms,
        *,
        links: Links,
        reports: Reports,
        signal_interval_s: float,
        chance: Callable[[], float],
        dial: Callable[[Terms], Awaitable[None]],
        renew: Callable[[], Awaitable[Terms]],
        until_stale: Callable[[], Awaitable[None]],
    ) -> None:
        self._target = target
        self._terms = terms
        self._links = links
        self._reports = reports
        self._signal_interval_s = signal_interval_s
        self._chance = chance
        self._dial = dial
        self._renew = renew
        self._until_stale = until_stale
        self._news = asyncio.Event()
        self._is_linked = asyncio.Event()
        self._is_linked.set()
        self._is_lost = asyncio.Event()
        self._lost_why = ""
        self._links_had = 1
        self._is_answered = True
        self._told_refused = ""

    async def run(self) -> None:
        """Keep it until it cannot be kept.

        Raises: SessionFailed, always.
        """
        with self._reports.connected(self._terms.peer_id, self._news):
            await _until_one_ends(
                self._send_heartbeats(), self._send_signals(), self._renew_in_time(), self._keep_link()
            )

    def link_lost(self, why: str) -> None:
        """The last connection to the router is gone."""
        self._is_linked.clear()
        self._want_link(why)

    def _want_link(self, why: str) -> None:
        """Have the link dialled again, unless that is under way; one that may be alive is used meanwhile."""
        if not self._is_lost.is_set():
            self._lost_why = why
            self._is_lost.set()

    async def goodbye(self) -> None:
        """Tell the router what `reports` now says, and let it pass if that fails: the agent is on its way out."""
        with contextlib.suppress(RequestFailed, TimeoutError):
            await self._post(HEARTBEAT, self._reports.heartbeat(self._terms.token))

    async def _send_heartbeats(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            begun_at = loop.time()
            self._news.clear()
            is_heard = await self._send_heartbeat()
            # One that was waited for in vain is sent again over a new link, or after a pause over this one.
            next_at = (begun_at if is_heard else loop.time()) + self._terms.heartbeat_interval_s
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(next_at):
                    await self._news.wait()

    async def _send_heartbeat(self) -> bool:
        """Whether there was an answer, whatever it was.

        Raises: SessionFailed.
        """
        await self._is_linked.wait()
        link = self._links_had
        try:
            reply = await self._post(HEARTBEAT, self._reports.heartbeat(self._terms.token))
        except (RequestFailed, TimeoutError) as error:
            # The link may have died before the data plane noticed; a newer one is not to blame.
            if link == self._links_had:
                self._want_link(str(error) or f"no answer to a heartbeat within {MESSAGE_WITHIN_S:g} s")
            return False
        if reply.status in _ENDING:
            raise SessionFailed(f"the router answered a heartbeat with {answered(reply)}")
        self._is_answered = True
        self._tell_refused("" if reply.status == 200 else answered(reply))
        return True

    def _tell_refused(self, why: str) -> None:
        if why and why != self._told_refused:
            log.warning("heartbeat_refused", router=self._target, why=why, retry_in_s=self._terms.heartbeat_interval_s)
        self._told_refused = why

    async def _send_signals(self) -> None:
        while True:
            await asyncio.sleep(self._signal_interval_s)
            body = self._reports.signals(self._terms.token)
            if body is None or not self._is_linked.is_set():
                continue
            try:
                await self._post(ROUTING_SIGNALS, body)
            except (RequestFailed, TimeoutError) as error:
                log.debug("signal_failed", router=self._target, why=str(error) or "no answer in time")

    async def _renew_in_time(self) -> None:
        told: str | None = None
        while True:
            if told is None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._terms.renew_after_s):
                        await self._until_stale()
            else:
                await asyncio.sleep(RENEW_RETRY_S)
            try:
                await self._is_linked.wait()
                terms = await self._renew()
            except SessionFailed as failed:
                if failed.why != told:
                    told = failed.why
                    log.warning(
                        "renewal_failed",
                        router=self._target,
                        why=failed.why,
                        check=failed.check,
                        retry_in_s=RENEW_RETRY_S,
                    )
                continue
            if terms.peer_id != self._terms.peer_id:
                raise SessionFailed("another router answers under this address now")
            self._terms, told = terms, None
            log.debug("session_renewed", router=self._target)

    async def _keep_link(self) -> None:
        loop, short_lived = asyncio.get_running_loop(), 0
        had_at = loop.time()
        while True:
            await self._is_lost.wait()
            log.warning("link_lost", router=self._target, why=self._lost_why)
            is_short_lived = loop.time() - had_at < SHORT_LIVED_S or not self._is_answered
            short_lived = short_lived + 1 if is_short_lived else 0
            wait_s = LINK_BACKOFF_S[min(short_lived, len(LINK_BACKOFF_S) - 1)] * (1.0 - self._chance() / 2.0)
            if short_lived >= _TELLING_LOSSES:
                log.warning("link_unsteady", router=self._target, retry_in_s=round(wait_s, 1), advice=_UNSTEADY_ADVICE)
            await asyncio.sleep(wait_s)
            try:
                await self._dial(self._terms)
            except SessionFailed as failed:
                if self._is_linked.is_set():
                    # It was only doubted: the next heartbeat shows whether it lives.
                    self._is_lost.clear()
                    log.debug("link_not_replaced", router=self._target, why=failed.why)
                    continue
                raise SessionFailed(
                    f"the link was lost ({self._lost_why}) and not had again: {failed.why}", failed.check
                ) from failed
            # What the old connection's end told meanwhile is no news of the new one.
            had_at = loop.time()
            self._links_had += 1
            self._is_answered = False
            self._is_lost.clear()
            self._is_linked.set()
            log.info("link_restored", router=self._target)
            # A router sends requests again only after the next good heartbeat.
            self._news.set()

    async def _post(self, path: str, body: bytes) -> Reply:
        async with asyncio.timeout(MESSAGE_WITHIN_S):
            return await self._links.post(self._terms.peer_id, path, body, within_s=_GIVEN_UP_AFTER_S)


async def _until_one_ends(*works: Coroutine[None, None, None]) -> None:
    """Run them side by side until one fails, then end the others and fail like it.

    No task group: before Python 3.13 one that fails while its task is cancelled forgets the cancelling, and an agent
    that is told to stop at the moment it loses a session would not stop.
    """
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


def answered(reply: Reply) -> str:
    """A router's refusal as it stands in a log line: status, and the first line of the body."""
    lines = reply.body[:200].decode(errors="replace").strip().splitlines()
    return f"{reply.status}: {lines[0]}" if lines else str(reply.status)
