"""How does the agent get a session with one router, and get it back when it is lost?

`wait_backend` → `authenticate` → `dial` → `register` → `serving`, and after any failure `back_off` and around again,
for as long as the agent runs. Invariant: a session touches no other; a failure is told once, not at each repetition,
with what to look at, and never with the token or the secret. What happens while serving is `keep.py`'s.
Source: signals.md §1.3; wire.md §1, §11; several-routers.md S-100 to S-103; decisions.md 25.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import structlog

from hivenet_router.agent.addresses import NoneResolves, are_all_loopback, is_here, with_ips
from hivenet_router.agent.claims import Claims, Taken
from hivenet_router.agent.keep import KeptSession, answered
from hivenet_router.agent.probe import BackendWatch
from hivenet_router.agent.report import Reports
from hivenet_router.agent.world import Admit, Links, Resolve, SessionFailed, Terms, terms_of
from hivenet_router.config import HostPort
from hivenet_router.core.backoff import reconnect_delay_s
from hivenet_router.names.paths import REGISTER
from hivenet_router.ports import RequestFailed
from hivenet_router.wire.agent_protocol import Registration, encode_registration
from hivenet_router.wire.auth_messages import RENEW_BEFORE_S, AgentMetadata

STEP_WITHIN_S: Final = 30.0
"""Time for each step of the way: authentication, link, registration."""

log = structlog.get_logger("agent")


class Stage(StrEnum):
    """Where on its way a session is."""

    WAIT_BACKEND = "wait_backend"
    AUTHENTICATE = "authenticate"
    DIAL = "dial"
    REGISTER = "register"
    SERVING = "serving"
    BACK_OFF = "back_off"
    STAND_BY = "stand_by"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all sessions of an agent share. `metadata` holds everything but the model; `chance` draws from [0, 1)."""

    peer_id: str
    metadata: AgentMetadata
    deployment_id: str
    replica_id: str
    signal_interval_s: float
    backend: BackendWatch
    reports: Reports
    claims: Claims
    links: Links
    admit: Admit
    resolve: Resolve
    chance: Callable[[], float]


class RouterSession:
    """The session with the router at one address; `run` keeps it, or tries to, until cancelled."""

    def __init__(self, target: HostPort, around: Surroundings) -> None:
        self.target: Final = target
        self.stage = Stage.WAIT_BACKEND
        self._around = around
        self._name = str(target)
        self._kept: KeptSession | None = None
        self._peer_id: str | None = None
        self._was_registered = False
        self._told: str | None = None

    @property
    def is_registered(self) -> bool:
        """Whether the router knows the agent through this session now."""
        return self._kept is not None

    async def run(self) -> None:
        """Have a session, again and again; returns only when the agent is leaving."""
        failures = 0
        while not self._around.reports.leaving:
            self.stage = Stage.WAIT_BACKEND
            model = await self._around.backend.ready_model()
            self._was_registered = False
            try:
                await self._have_session(model)
            except Taken as taken:
                await self._stand_by(taken)
            except SessionFailed as failed:
                failures = 0 if self._was_registered else failures
                delay_s = reconnect_delay_s(failures, chance=self._around.chance())
                failures += 1
                self._tell(failed, delay_s)
                self.stage = Stage.BACK_OFF
                await asyncio.sleep(delay_s)

    def link_lost(self, peer_id: str, why: str) -> None:
        """The data plane has lost the last connection to this peer, whoever it is."""
        if self._kept is not None and peer_id == self._peer_id:
            self._kept.link_lost(why)

    async def goodbye(self) -> None:
        """Tell the router that the agent is leaving, if there is a session."""
        if self._kept is not None:
            await self._kept.goodbye()

    async def _have_session(self, model: str) -> None:
        metadata = replace(self._around.metadata, model=model)
        self.stage = Stage.AUTHENTICATE
        terms = await self._authenticate(metadata)
        with self._around.claims.claim(terms.peer_id, self._name):
            self._peer_id = terms.peer_id
            try:
                self.stage = Stage.DIAL
                await self._dial(terms)
                self.stage = Stage.REGISTER
                await self._register(terms)
                await self._serve(terms, metadata)
            finally:
                self._kept = self._peer_id = None
                self._around.links.close(terms.peer_id)

    async def _serve(self, terms: Terms, metadata: AgentMetadata) -> None:
        around = self._around
        model = metadata.model

        async def renew() -> Terms:
            # The same link, so that requests on their way are not cut when only the model is another.
            nonlocal model
            current = around.backend.model or model
            renewed = await self._authenticate(replace(metadata, model=current))
            if renewed.peer_id == terms.peer_id:
                await self._register(renewed)
                if current != model:
                    self._say_registered(terms, current)
                model = current
            return renewed

        self._kept = KeptSession(
            self._name,
            terms,
            links=around.links,
            reports=around.reports,
            signal_interval_s=around.signal_interval_s,
            chance=around.chance,
            dial=self._dial,
            renew=renew,
            until_stale=lambda: around.backend.until_other_than(model),
        )
        self.stage = Stage.SERVING
        self._was_registered = True
        self._told = None
        self._say_registered(terms, model)
        await self._kept.run()

    def _say_registered(self, terms: Terms, model: str) -> None:
        log.info("registered", router=self._name, router_peer_id=terms.peer_id, model=model)

    async def _authenticate(self, metadata: AgentMetadata) -> Terms:
        try:
            async with asyncio.timeout(STEP_WITHIN_S):
                outcome = await self._around.admit(self._name, metadata)
        except TimeoutError:
            raise SessionFailed(f"the router did not answer within {STEP_WITHIN_S:g} s") from None
        return terms_of(outcome, RENEW_BEFORE_S)

    async def _dial(self, terms: Terms) -> None:
        try:
            async with asyncio.timeout(STEP_WITHIN_S):
                addresses = await with_ips(terms.addresses, self._around.resolve)
                await self._around.links.dial(terms.peer_id, addresses, within_s=STEP_WITHIN_S)
        except TimeoutError:
            why = f"no link within {STEP_WITHIN_S:g} s"
        except (RequestFailed, NoneResolves) as error:
            why = str(error)
        else:
            return
        told = ", ".join(terms.addresses)
        raise SessionFailed(f"no link to the router at {told}: {why}", await self._what_to_check(terms))

    async def _what_to_check(self, terms: Terms) -> str:
        if are_all_loopback(terms.addresses) and not await is_here(self.target.host, self._around.resolve):
            return (
                "the router told a loopback address, which only its own machine can dial; start it with "
                "--p2p-listen-addr 0.0.0.0, or with --p2p-announce-addr when it is behind NAT"
            )
        return (
            "is the router's libp2p port open to this machine? Behind NAT the router needs --p2p-announce-addr; "
            "behind a load balancer --routers must name each router itself"
        )

    async def _register(self, terms: Terms) -> None:
        around = self._around
        message = Registration(
            session_token=terms.token,
            peer_id=around.peer_id,
            deployment_id=around.deployment_id,
            replica_id=around.replica_id,
        )
        try:
            async with asyncio.timeout(STEP_WITHIN_S):
                reply = await around.links.post(
                    terms.peer_id, REGISTER, encode_registration(message), within_s=STEP_WITHIN_S + 1.0
                )
        except TimeoutError:
            raise SessionFailed(f"no answer to the registration within {STEP_WITHIN_S:g} s") from None
        except RequestFailed as error:
            raise SessionFailed(f"the registration could not be sent: {error}") from error
        if reply.status != 200:
            raise SessionFailed(
                f"the router answered the registration with {answered(reply)}",
                "does --routers lead to one router at a time, without a load balancer between?",
            )

    async def _stand_by(self, taken: Taken) -> None:
        self.stage = Stage.STAND_BY
        if self._told != str(taken):
            self._told = str(taken)
            log.warning(
                "session_on_stand_by",
                router=self._name,
                why=f"it is the router that is already reached under {taken.by}",
                check="name each router once in --routers",
            )
        await self._around.claims.until_free(taken.peer_id)

    def _tell(self, failed: SessionFailed, delay_s: float) -> None:
        event = "session_lost" if self._was_registered else "no_session"
        # A router that stays away is told about once; each further try would only repeat it.
        is_news = self._was_registered or failed.why != self._told
        self._told = failed.why
        say = log.warning if is_news else log.debug
        fields = {"check": failed.check} if failed.check else {}
        say(event, router=self._name, why=failed.why, **fields, reconnect_in_s=round(delay_s, 1))
