"""The stand-in backend that the vectors of the agent were recorded against.

Answers by path, or as the request's `X-Mock` says: `statusNNN:BODY`, `sse:N:MS:SIZE`, `gzip`, `trailers`.
"""

from tests.house.raw_engine import RawRequest, Said, sized
from tests.house.recorded import cases

_MOCK = "X-Backend: mock\r\n"
CHAT = (
    b'{"id":"cmpl-1","object":"chat.completion","created":1,"model":"m1","choices":[{"index":0,"message":{"role":'
    b'"assistant","content":"PONG"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,'
    b'"total_tokens":2}}'
)
ZIPPED = next(answer.body for name, _, answer in cases("wire-agent-responses.json") if name == "chat-gzip-accept")
BY_PATH = {
    "/v1/chat/completions": CHAT,
    "/v1/messages": b'{"id":"msg_1","type":"message","role":"assistant","model":"m1","content":[{"type":"text","text":'
    b'"PONG"}],"stop_reason":"end_turn","usage":{"input_tokens":3,"output_tokens":1}}',
    "/v1/embeddings": b'{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.1,0.2]}],"model":"m1",'
    b'"usage":{"prompt_tokens":2,"total_tokens":2}}',
    "/v1/rerank": b'{"results":[{"index":0,"relevance_score":0.9}]}',
}


def stand_in(request: RawRequest) -> Said:
    """Its answer."""
    word, _, rest = request.header("x-mock").partition(":")
    if word.startswith("status"):
        return sized(rest.encode() or b"boom", f"{word.removeprefix('status')} Said", extra=_MOCK)
    if word == "sse":
        return _stream(*map(int, rest.split(":")))
    if word == "gzip":
        return sized(ZIPPED, extra=f"{_MOCK}Content-Encoding: gzip\r\n")
    if word == "trailers":
        head = (
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n"
        )
        return Said([head + b'7\r\n{"a":1}\r\n0\r\nX-T: 1\r\n\r\n'])
    body = BY_PATH.get(request.path)
    return sized(b'{"detail":"Not Found"}', "404 Not Found", extra=_MOCK) if body is None else sized(body, extra=_MOCK)


def _stream(events: int, pause_ms: int, size: int) -> Said:
    head = (
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nX-Backend: mock\r\n"
        "Transfer-Encoding: chunked\r\n\r\n"
    )
    event = (
        '{"id":"c1","object":"chat.completion.chunk","created":1,"model":"m1","choices":[{"index":0,"delta":'
        '{"content":"%s"},"finish_reason":null}]}' % ("x" * size)
    )
    usage = (
        '{"id":"c1","object":"chat.completion.chunk","created":1,"model":"m1","choices":[],"usage":{"prompt_tokens":3,'
        '"completion_tokens":4,"total_tokens":7}}'
    )
    datas = [*[event] * events, usage, "[DONE]"]
    return Said(
        [head.encode(), *(_chunk(f"data: {data}\n\n".encode()) for data in datas), b"0\r\n\r\n"], pause_ms / 1e3
    )


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)
