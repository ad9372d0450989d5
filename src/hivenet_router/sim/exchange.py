"""How is one request answered?

Faults first, then the route, then the engine. Invariant: every way out says how the connection goes on, and nothing is
held afterwards. The bytes go out through `outlet`; what is answered comes from the `shapes_*` modules.
"""

import asyncio
import hmac
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from hivenet_router.sim import shapes_anthropic, shapes_openai
from hivenet_router.sim.answers import decide
from hivenet_router.sim.asks import Ask, AskError, chat_ask, completion_ask, messages_ask, read_object
from hivenet_router.sim.control import control_reply
from hivenet_router.sim.engine import EngineFullError, Job
from hivenet_router.sim.fault_board import CONTROL_PREFIX
from hivenet_router.sim.faults import NO_FAULT, FaultError, parse_fault
from hivenet_router.sim.framing import SSE_TYPE, BodyEncoder, Reply, closes, common_headers, head_bytes, reply_blocks
from hivenet_router.sim.house import INFERENCE_PATHS, House
from hivenet_router.sim.ledger import RecordedRequest
from hivenet_router.sim.metrics_page import render
from hivenet_router.sim.outlet import CutReachedError, End, Outlet
from hivenet_router.sim.reader import Request
from hivenet_router.sim.shapes_pooling import embedding_ask, embedding_body, rerank_ask, rerank_body
from hivenet_router.sim.transfer import Shape, StreamTransfer, send_blocks

METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
# A buffered answer shows nothing until it is whole, so its work is stepped coarsely.
BUFFERED_STEP_S: Final = 0.05


class Exchange:
    """One request and its answer."""

    def __init__(self, house: House, outlet: Outlet, request: Request, record: RecordedRequest) -> None:
        self._house = house
        self._outlet = outlet
        self._request = request
        self._record = record
        self._fault = NO_FAULT

    async def run(self) -> End:
        """Answer, and say what becomes of the connection."""
        request, record = self._request, self._record
        self._outlet.begin(record, NO_FAULT)
        try:
            if request.path.startswith(CONTROL_PREFIX):
                return await self._send(control_reply(self._house, request))
            drawn = self._house.board.draw(request.path, inference=record.inference, reused=record.reused)
            own = parse_fault(",".join(request.find("x-sim")), drawn)
            self._fault = NO_FAULT if own.reused_only and not record.reused else own
        except FaultError as wrong:
            return await self._send(self._refusal(400, f"X-Sim: {wrong}"))
        self._outlet.begin(record, self._fault)
        try:
            return await self._struck() or await self._routed()
        except CutReachedError as cut:
            return cut.end

    async def _struck(self) -> End | None:
        """Act on the faults that keep the request from its route; None if there are none."""
        fault = self._fault
        if fault.stall_before_head_s == math.inf:
            await asyncio.get_running_loop().create_future()
        elif fault.stall_before_head_s > 0:
            await asyncio.sleep(fault.stall_before_head_s)
        if fault.reset_before_head or fault.close_before_head:
            return End.RESET if fault.reset_before_head else End.CUT
        if fault.raw is None and fault.status is None and fault.body is None:
            return None
        await asyncio.sleep(fault.delay_s)
        if fault.raw is not None:
            self._outlet.write(fault.raw)
            return End.CLOSE
        status = fault.status if fault.status is not None else 200
        if fault.body is not None:
            return await self._send(Reply(status, fault.body.encode("utf-8", "surrogateescape")))
        if status >= 400:
            return await self._send(self._refusal(status, f"simulated status {status}"))
        return await self._send(Reply(status, b"{}"))

    async def _routed(self) -> End:
        request = self._request
        route = ROUTES.get(request.path)
        if route is None:
            return await self._send(self._refusal(404, f"there is nothing at {request.path[:200]}"))
        methods, handler = route
        if request.method not in methods:
            allow = ", ".join(methods)
            reply = self._refusal(405, f"{request.path} takes {allow}")
            return await self._send(Reply(405, reply.body, headers=(("Allow", allow),)))
        if not self._key_fits():
            return await self._send(self._refusal(401, "the API key is missing or wrong"))
        try:
            return await handler(self)
        except AskError as wrong:
            return await self._send(self._refusal(wrong.status, str(wrong), wrong.param))
        except RecursionError:
            return await self._send(self._refusal(400, "the body is nested too deeply"))
        except EngineFullError:
            full = self._refusal(503, "the waiting queue is full; try again later")
            return await self._send(Reply(503, full.body, headers=(("Retry-After", "1"),)))

    def _key_fits(self) -> bool:
        key = self._house.options.api_key
        if key is None or not self._request.path.startswith("/v1/"):
            return True
        shown = [*self._request.find("x-api-key")]
        for value in self._request.find("authorization"):
            scheme, _, token = value.partition(" ")
            shown += [token.strip()] if scheme.lower() == "bearer" else []
        return any(hmac.compare_digest(each.encode(), key.encode()) for each in shown)

    async def health(self) -> End:
        """Alive: an empty 200."""
        return await self._send_delayed(Reply(200, b""))

    async def metrics(self) -> End:
        """The engine's series."""
        core, options = self._house.pacer.core, self._house.options
        page = render(core.metrics, core.load(), model=options.models[0])
        return await self._send_delayed(Reply(200, page, METRICS_TYPE))

    async def models(self) -> End:
        """The models that are served."""
        options = self._house.options
        length = options.model_len_max or options.kv_cache_tokens
        body = shapes_openai.models_body(options.models, created=self._house.created, model_len=length)
        return await self._send_delayed(Reply(200, body))

    async def chat(self) -> End:
        """A chat completion."""
        return await self._generate(chat_ask)

    async def completions(self) -> End:
        """A text completion."""
        return await self._generate(completion_ask)

    async def messages(self) -> End:
        """An Anthropic message."""
        return await self._generate(messages_ask)

    async def count_tokens(self) -> End:
        """The size of a prompt, without work."""
        ask = messages_ask(read_object(self._request.take_body()), counting=True)
        self._check_model(ask.model)
        return await self._send_delayed(Reply(200, shapes_openai.compact({"input_tokens": ask.prompt_tokens})))

    async def embeddings(self) -> End:
        """One vector for each input."""
        ask = embedding_ask(read_object(self._request.take_body()), self._house.options.embedding_dimensions)
        self._check_model(ask.model)
        house = self._house
        await self._work(self._job(ask.prompt_tokens, 0))
        body = embedding_body(
            ask,
            serial=house.next_serial(),
            created=house.created,
            with_usage=not self._fault.no_usage,
        )
        return await self._send(Reply(200, body))

    async def rerank(self) -> End:
        """Documents in order of relevance."""
        ask = rerank_ask(read_object(self._request.take_body()))
        self._check_model(ask.model)
        await self._work(self._job(ask.prompt_tokens, 0))
        body = rerank_body(ask, serial=self._house.next_serial(), with_usage=not self._fault.no_usage)
        return await self._send(Reply(200, body))

    async def _generate(self, read: Callable[[Mapping[str, object]], Ask]) -> End:
        job, shape, streams = self._decided(read)
        if streams:
            return await self._stream(job, shape)
        job.step_s = BUFFERED_STEP_S
        await self._work(job)
        return await self._send(Reply(200, shape.body()))

    def _decided(self, read: Callable[[Mapping[str, object]], Ask]) -> tuple[Job, Shape, bool]:
        """The work, the answer, and whether it streams. The question itself is not kept while they last."""
        house, fault, request = self._house, self._fault, self._request
        ask = read(read_object(request.take_body()))
        self._check_model(ask.model)
        answer = decide(
            ask,
            fault,
            house.options,
            echo=request.find("x-sim-echo") == ["1"],
            serial=house.next_serial(),
            created=house.created,
        )
        shape: Shape
        if request.path == "/v1/messages":
            shape = shapes_anthropic.MessageShape(answer, no_done=fault.no_done)
        else:
            kind = shapes_openai.ChatShape if request.path == "/v1/chat/completions" else shapes_openai.CompletionShape
            shape = kind(answer, include_usage=ask.include_usage, no_done=fault.no_done)
        job = self._job(ask.prompt_tokens, len(answer.pieces), choices=answer.choices)
        job.finish = "length" if answer.finish == "length" else "stop"
        return job, shape, ask.stream

    def _job(self, prompt_tokens: int, output_tokens: int, *, choices: int = 1) -> Job:
        options, fault = self._house.options, self._fault
        hold_at = fault.stall_after_chunks
        return Job(
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            choices=choices,
            prefill_s=lambda tokens: options.prefill_s(tokens) + fault.delay_s,
            interval_s=options.interval_s() if fault.interval_s is None else fault.interval_s,
            hold_at=None if hold_at is None else -(-hold_at // choices),
        )

    async def _work(self, job: Job) -> None:
        """Return when the engine is through with a job that shows nothing before its end."""
        pacer, loop = self._house.pacer, asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        stalls: list[asyncio.TimerHandle] = []

        def moved() -> None:
            if job.is_ended and not ended.done():
                ended.set_result(None)
            elif job.is_held and not stalls and self._fault.stall_s < math.inf:
                stalls.append(loop.call_later(self._fault.stall_s, pacer.resume, job))

        with pacer.running(job, moved):
            try:
                await ended
            finally:
                # A client may leave long before its stall would end.
                for stall in stalls:
                    stall.cancel()

    async def _stream(self, job: Job, shape: Shape) -> End:
        fault, request = self._fault, self._request
        chunked = request.http_version == "1.1"
        headers = [*common_headers(fault, request, SSE_TYPE), ("Cache-Control", "no-cache")]
        if chunked:
            headers.append(("Transfer-Encoding", "chunked"))
        self._record.status = 200
        transfer = StreamTransfer(
            outlet=self._outlet,
            record=self._record,
            head=head_bytes(200, headers),
            encoder=BodyEncoder(chunked=chunked, zipped=fault.gzip, fault=fault),
            shape=shape,
            fault=fault,
            stamp=self._house.options.stamp_chunks,
            closes=closes(fault, request),
        )
        return await transfer.run(self._house.pacer, job)

    def _check_model(self, model: str) -> None:
        if model not in self._house.options.models:
            raise AskError(f"the model {model[:200]!r} does not exist", status=404, param="model")

    def _refusal(self, status: int, message: str, param: str | None = None) -> Reply:
        if self._request.path.startswith("/v1/messages"):
            return Reply(status, shapes_anthropic.error_body(status, message))
        return Reply(status, shapes_openai.error_body(status, message, param=param))

    async def _send_delayed(self, reply: Reply) -> End:
        await asyncio.sleep(self._fault.delay_s)
        return await self._send(reply)

    async def _send(self, reply: Reply) -> End:
        self._record.status = reply.status
        await send_blocks(self._outlet, reply_blocks(reply, self._fault, self._request))
        if self._fault.truncate_body:
            return End.CUT
        return End.CLOSE if closes(self._fault, self._request) else End.KEEP


Handler = Callable[[Exchange], Awaitable[End]]

ROUTES: Final[Mapping[str, tuple[tuple[str, ...], Handler]]] = {
    "/health": (("GET", "HEAD"), Exchange.health),
    "/metrics": (("GET", "HEAD"), Exchange.metrics),
    "/v1/models": (("GET", "HEAD"), Exchange.models),
    "/v1/chat/completions": (("POST",), Exchange.chat),
    "/v1/completions": (("POST",), Exchange.completions),
    "/v1/messages": (("POST",), Exchange.messages),
    "/v1/messages/count_tokens": (("POST",), Exchange.count_tokens),
    "/v1/embeddings": (("POST",), Exchange.embeddings),
    "/v1/rerank": (("POST",), Exchange.rerank),
}


def is_inference(request: Request) -> bool:
    """Whether a request is one that the counters count."""
    return request.method == "POST" and request.path in INFERENCE_PATHS
