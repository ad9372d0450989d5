"""How do embeddings and rerankings look?

Vectors and scores are made from the texts themselves, so that the same input gives the same answer and similar texts
rank near each other (shared words). Invariant: vectors have length one; rankings fall. Time plays no part here.

Source: http-api.md §5; the OpenAI embeddings object and the rerank object that vLLM writes.
"""

import base64
import hashlib
import math
import struct
from dataclasses import dataclass
from typing import Final

from hivenet_router.sim.asks import AskError, JsonObject, text_field, text_tokens
from hivenet_router.sim.shapes_openai import compact

INPUTS_MAX: Final = 2_048
NUMBERS_MAX: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class EmbeddingAsk:
    """What a body for `/v1/embeddings` asks; `dimensions` is the length of each vector."""

    model: str
    inputs: tuple[str, ...]
    prompt_tokens: int
    dimensions: int
    as_base64: bool


@dataclass(frozen=True, slots=True)
class RerankAsk:
    """What a body for `/v1/rerank` asks."""

    model: str
    query: str
    documents: tuple[str, ...]
    prompt_tokens: int
    top_n: int
    return_documents: bool


def embedding_ask(document: JsonObject, usual_dimensions: int) -> EmbeddingAsk:
    """The question in a body for embeddings; the usual length holds where it names none. Raises: AskError."""
    given = document.get("input")
    listed = given if isinstance(given, list) and not _is_tokens(given) else [given]
    if not listed or len(listed) > INPUTS_MAX:
        raise AskError(f"input: must hold 1 to {INPUTS_MAX} texts", param="input")
    texts, tokens = [], 0
    for item in listed:
        if isinstance(item, str):
            texts.append(item)
            tokens += text_tokens(item)
        elif isinstance(item, list) and _is_tokens(item):
            texts.append(" ".join(map(str, item)))
            tokens += len(item)
        else:
            raise AskError("input: must be a text, a list of texts, or lists of token numbers", param="input")
    dimensions = document.get("dimensions")
    if dimensions is None:
        dimensions = usual_dimensions
    if isinstance(dimensions, bool) or not (isinstance(dimensions, int) and 1 <= dimensions <= 65536):
        raise AskError("dimensions: must be 1 to 65536", param="dimensions")
    if len(texts) * dimensions > NUMBERS_MAX:
        raise AskError(f"input times dimensions: at most {NUMBERS_MAX} numbers", param="dimensions")
    coding = document.get("encoding_format", "float")
    if coding not in ("float", "base64", None):
        raise AskError("encoding_format: must be float or base64", param="encoding_format")
    return EmbeddingAsk(text_field(document, "model"), tuple(texts), max(1, tokens), dimensions, coding == "base64")


def _is_tokens(items: list[object]) -> bool:
    return bool(items) and all(isinstance(item, int) for item in items)


def embedding_body(ask: EmbeddingAsk, *, serial: int, created: int, with_usage: bool) -> bytes:
    """The answer: one vector for each input."""
    data = []
    for index, text in enumerate(ask.inputs):
        vector = unit_vector(text, ask.dimensions)
        shown: object = vector
        if ask.as_base64:
            shown = base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
        data.append({"object": "embedding", "index": index, "embedding": shown})
    document: dict[str, object] = {
        "id": f"embd-sim{serial:08x}",
        "object": "list",
        "created": created,
        "model": ask.model,
        "data": data,
    }
    if with_usage:
        document["usage"] = {"prompt_tokens": ask.prompt_tokens, "total_tokens": ask.prompt_tokens}
    return compact(document)


def unit_vector(text: str, dimensions: int) -> list[float]:
    """A vector of length one made from the text."""
    seed = hashlib.shake_128(text.encode("utf-8", "surrogatepass")).digest(2 * dimensions)
    raw = [number / 65536.0 - 0.5 for number in struct.unpack(f"<{dimensions}H", seed)]
    length = math.sqrt(sum(number * number for number in raw)) or 1.0
    return [number / length for number in raw]


def rerank_ask(document: JsonObject) -> RerankAsk:
    """The question in a body for rerankings. Raises: AskError."""
    listed = document.get("documents")
    if not isinstance(listed, list) or not 1 <= len(listed) <= INPUTS_MAX:
        raise AskError(f"documents: must be a list of 1 to {INPUTS_MAX}", param="documents")
    texts = []
    for item in listed:
        text = item.get("text") if isinstance(item, dict) else item
        if not isinstance(text, str):
            raise AskError("documents: each must be a text, or an object with one", param="documents")
        texts.append(text)
    query = text_field(document, "query")
    top_n = document.get("top_n")
    if top_n is not None and not (isinstance(top_n, int) and top_n >= 0):
        raise AskError("top_n: must be a whole number, 0 or more", param="top_n")
    return RerankAsk(
        model=text_field(document, "model"),
        query=query,
        documents=tuple(texts),
        prompt_tokens=max(1, sum(text_tokens(text) + text_tokens(query) for text in texts)),
        top_n=top_n or len(texts),
        return_documents=document.get("return_documents") is not False,
    )


def rerank_body(ask: RerankAsk, *, serial: int, with_usage: bool) -> bytes:
    """The answer: the best documents, best first."""
    scores = [(relevance(ask.query, text), index) for index, text in enumerate(ask.documents)]
    best = sorted(scores, key=lambda pair: (-pair[0], pair[1]))[: ask.top_n]
    results: list[dict[str, object]] = []
    for score, index in best:
        result: dict[str, object] = {"index": index, "relevance_score": score}
        if ask.return_documents:
            result["document"] = {"text": ask.documents[index]}
        results.append(result)
    document: dict[str, object] = {"id": f"rerank-sim{serial:08x}", "model": ask.model, "results": results}
    if with_usage:
        document["usage"] = {"prompt_tokens": ask.prompt_tokens, "total_tokens": ask.prompt_tokens}
    return compact(document)


def relevance(query: str, text: str) -> float:
    """0 to 1: the part of the query's words that the text has, and a trace of its own to part equals."""
    wanted, present = set(query.lower().split()), set(text.lower().split())
    shared = len(wanted & present) / len(wanted) if wanted else 0.0
    trace = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[0] / 255.0
    return round(0.01 + 0.97 * shared + 0.01 * trace, 6)
