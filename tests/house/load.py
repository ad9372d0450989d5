"""How do many clients ask at once, and what comes of it?

Each client asks one question after the other on a kept connection, streamed and buffered mixed, and leaves some of them
unheard. Invariant: no request is waited for longer than its time limit, and each one is in the tally exactly once.
What an ending means is `asking.py`'s business.
"""

import asyncio
import contextlib
import random
import socket
import struct
import uuid
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from tests.house.asking import Answer, Ending, Kind, Question, Verdict, judged
from tests.house.client import Address

KINDS: Final[tuple[Kind, ...]] = ("chat stream", "messages stream", "chat whole")
FAULTS_KEPT: Final = 40
NEW_CONNECTION: Final = 0.1
"""Part of the requests after which a client takes a new connection though it need not."""
SLACK_S: Final = 5.0
"""How much later than promised an answer may be seen by a client on a crowded machine."""
_WEIGHTS: Final = (50, 20, 30)
_READ_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Plan:
    """Who asks what, and how long it may take."""

    address: Address
    model: str
    clients: int
    pieces: tuple[int, int] = (20, 40)
    interval_ms: int = 20
    whole_interval_ms: int = 20
    leaving: float = 0.03
    """Part of the requests whose client leaves before the end, 0 to 1."""
    head_within_s: float = 30.0
    """The router's time limit to the first byte of a stream, and of a whole buffered answer."""
    silent_within_s: float = 30.0
    """The router's limit on silence in a stream."""


@dataclass(slots=True)
class Tally:
    """What came of all requests so far."""

    counts: Counter[tuple[Kind, Ending, str]] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    streaming: int = 0
    streaming_most: int = 0
    first_s: list[float] = field(default_factory=list)

    def add(self, question: Question, verdict: Verdict, answer: Answer) -> None:
        """Enter a request that has ended."""
        self.counts[question.kind, verdict.ending, verdict.detail] += 1
        if verdict.ending is Ending.FAULT and len(self.faults) < FAULTS_KEPT:
            self.faults.append(f"{question.request_id} ({question.kind}): {verdict.detail}")
        if verdict.ending is Ending.WHOLE and question.is_stream:
            self.first_s.append(answer.first_s)

    def count(self, *endings: Ending) -> int:
        """How many requests ended so."""
        return sum(number for (_, ending, _), number in self.counts.items() if ending in endings)

    @property
    def asked(self) -> int:
        """All requests that have ended."""
        return self.counts.total()

    @property
    def answered_ratio(self) -> float:
        """Of the requests that were neither cut mid-way nor left by their client, the part that ended in 200."""
        counted = self.count(Ending.WHOLE, Ending.REFUSED, Ending.FAULT)
        return self.count(Ending.WHOLE) / counted if counted else 1.0


class Clients:
    """The clients of one plan; `run` lets them ask for some seconds, and then finish what they have begun."""

    def __init__(self, plan: Plan, *, seed: int) -> None:
        self._plan = plan
        self._seed = seed
        self._is_stopping = False
        self.tally = Tally()

    async def run(self, seconds: float) -> None:
        """Ask for so long; returns when every request has ended."""
        self._is_stopping = False
        async with asyncio.TaskGroup() as group:
            for number in range(self._plan.clients):
                group.create_task(self._client(random.Random(self._seed * 100_003 + number)))
            await asyncio.sleep(seconds)
            self._is_stopping = True

    async def _client(self, chance: random.Random) -> None:
        # Not all in the same moment: a crowd at the door is another test's business.
        await asyncio.sleep(chance.random())
        connection: _Connection | None = None
        while not self._is_stopping:
            try:
                connection = connection or await _Connection.to(self._plan.address)
            except OSError as error:
                self.tally.faults.append(f"no connection to the router: {error}")
                return
            question = self._question(chance)
            leaves_after_s = chance.random() * 2 if chance.random() < self._plan.leaving else None
            verdict, is_kept = await self._ask(connection, question, leaves_after_s)
            if verdict.ending is Ending.REFUSED:
                await asyncio.sleep(0.5 + chance.random())
            if not is_kept or chance.random() < NEW_CONNECTION:
                connection.abort(with_reset=chance.random() < 0.5)
                connection = None
        if connection is not None:
            connection.abort(with_reset=False)

    def _question(self, chance: random.Random) -> Question:
        plan = self._plan
        (kind,) = chance.choices(KINDS, _WEIGHTS)
        interval_ms = plan.whole_interval_ms if kind == "chat whole" else plan.interval_ms
        return Question(kind, str(uuid.UUID(int=chance.getrandbits(128))), chance.randint(*plan.pieces), interval_ms)

    async def _ask(
        self, connection: "_Connection", question: Question, leaves_after_s: float | None
    ) -> tuple[Verdict, bool]:
        """Ask and enter what came of it; also whether the connection can be used again."""
        answer = Answer()
        self._streams(question, +1)
        try:
            async with asyncio.timeout(leaves_after_s):
                connection.send(question.request(self._plan.model))
                await connection.read(answer, question, self._plan)
        except TimeoutError:
            verdict, is_kept = Verdict(Ending.LEFT), False
        else:
            verdict = judged(question, answer)
            is_kept = not answer.stopped and answer.fields.get("connection") != "close"
        finally:
            self._streams(question, -1)
        self.tally.add(question, verdict, answer)
        return verdict, is_kept

    def _streams(self, question: Question, change: int) -> None:
        if question.is_stream:
            self.tally.streaming += change
            self.tally.streaming_most = max(self.tally.streaming_most, self.tally.streaming)


class _Connection:
    """One connection of a client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def to(cls, address: Address) -> "_Connection":
        """A connection to this address. Raises: OSError."""
        return cls(*await asyncio.open_connection(*address))

    def send(self, data: bytes) -> None:
        """Send this."""
        self._writer.write(data)

    async def read(self, answer: Answer, question: Question, plan: Plan) -> None:
        """Read the answer to its end, or to where it stopped."""
        loop = asyncio.get_running_loop()
        began = last = loop.time()
        got = bytearray()
        while not answer.is_whole():
            is_waited_whole = not answer.status or not question.is_stream
            until = began + plan.head_within_s if is_waited_whole else last + plan.silent_within_s
            try:
                async with asyncio.timeout_at(until + SLACK_S):
                    data = await self._reader.read(_READ_BYTES)
            except TimeoutError:
                answer.stopped = "late"
                return
            except ConnectionError:
                data, answer.stopped = b"", "reset"
            if not data:
                answer.stopped = answer.stopped or "fin"
                return
            now = loop.time()
            answer.longest_silence_s, last = max(answer.longest_silence_s, now - last), now
            if answer.status:
                answer.raw += data
                continue
            got += data
            head, found, rest = bytes(got).partition(b"\r\n\r\n")
            if found:
                answer.first_s = now - began
                answer.status, answer.fields = _read_head(head)
                answer.raw += rest

    def abort(self, *, with_reset: bool) -> None:
        """Close at once, with RST or with FIN."""
        endpoint = self._writer.get_extra_info("socket")
        with contextlib.suppress(OSError):
            if with_reset:
                endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


def _read_head(head: bytes) -> tuple[int, dict[str, str]]:
    status, *lines = head.decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    return int(status.split(" ")[1]), {name.lower(): value.strip().lower() for name, _, value in pairs}
