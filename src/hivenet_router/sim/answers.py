"""What will the engine write for this request, before any of it is on the wire?

The answer is decided at once (how many pieces of which text, why it ends, what usage is told), so that buffered and
streamed shapes of it say the same; the pieces themselves are made when they are sent. Invariant: one piece is one token
of each choice. Time plays no part here.
"""

import json
import random
from dataclasses import dataclass
from typing import Final, Literal

from hivenet_router.sim.asks import Ask, AskError, JsonObject, Tool
from hivenet_router.sim.faults import Fault
from hivenet_router.sim.options import OUTPUT_TOKENS_MAX, SimOptions
from hivenet_router.sim.words import CutText, Pieces, answer_words, cut_by_eight, echoed

SCHEMA_DEPTH_MAX: Final = 8

Finish = Literal["stop", "length", "tool"]


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the answer reports them."""

    prompt: int
    completion: int


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer. `tool` set means that the pieces are the tool's arguments; the first `reasoning` ones are thought.

    `usage` None leaves usage out of the answer.
    """

    model: str
    serial: int
    created: int
    pieces: Pieces
    finish: Finish
    choices: int
    usage: Usage | None
    tool: Tool | None = None
    reasoning: int = 0


def decide(ask: Ask, fault: Fault, options: SimOptions, *, echo: bool, serial: int, created: int) -> Answer:
    """The answer to one request; `serial` numbers the answers, `created` is Unix time in seconds.

    Raises: AskError when prompt and wanted output exceed the context length.
    """
    _check_length(ask, options)
    tool = ask.tool if not fault.tool_call else (ask.tool or ask.offered)
    pieces, finish = _text(ask, fault, options, echo=echo, serial=serial, tool=tool)
    usage: Usage | None = Usage(ask.prompt_tokens, len(pieces) * ask.choices)
    if fault.usage is not None:
        usage = Usage(*fault.usage)
    return Answer(
        model=ask.model,
        serial=serial,
        created=created,
        pieces=pieces,
        finish=finish,
        choices=ask.choices,
        usage=None if fault.no_usage else usage,
        tool=tool,
        reasoning=0 if tool else min(fault.reasoning, len(pieces)),
    )


def _check_length(ask: Ask, options: SimOptions) -> None:
    limit, wanted = options.model_len_max, ask.output_tokens_max or 0
    if limit and ask.prompt_tokens + wanted > limit:
        raise AskError(
            f"the maximum context length is {limit} tokens: the prompt has {ask.prompt_tokens} and "
            f"{wanted} more are asked for; shorten the prompt or lower max_tokens",
            param="messages",
        )


def _text(
    ask: Ask, fault: Fault, options: SimOptions, *, echo: bool, serial: int, tool: Tool | None
) -> tuple[Pieces, Finish]:
    if tool is not None:
        return tool_pieces(tool), "tool"
    cap = min(ask.output_tokens_max or OUTPUT_TOKENS_MAX, OUTPUT_TOKENS_MAX)
    if echo and fault.chunks is None:
        pieces, is_all = echoed(ask.user_text, cap)
        return pieces, ("stop" if is_all else "length")
    finish: Finish = "stop"
    if fault.chunks is not None:
        count = fault.chunks
    elif ask.ignore_eos and ask.output_tokens_max is not None:
        count, finish = cap, "length"
    else:
        wanted = _wanted_tokens(options, serial)
        count, finish = min(wanted, cap), ("length" if wanted > cap else "stop")
    return answer_words(count, prompt=ask.user_text, seed=options.seed, piece_bytes=fault.chunk_bytes), finish


def _wanted_tokens(options: SimOptions, serial: int) -> int:
    low, high = options.output_tokens
    return low if low == high else random.Random(options.seed * 1_000_003 + serial).randint(low, high)


def tool_pieces(tool: Tool) -> CutText:
    """The arguments of a call of this tool as JSON, cut into pieces."""
    return cut_by_eight(json.dumps(_example(tool.schema, SCHEMA_DEPTH_MAX)))


def _example(schema: JsonObject, depth: int) -> object:
    """A value that fits the schema's types; only required properties are filled in."""
    choices = schema.get("enum")
    if isinstance(choices, list) and choices:
        return choices[0]
    kind = schema.get("type")
    if kind == "string":
        return "amber"
    if kind in ("integer", "number"):
        return 1
    if kind == "boolean":
        return True
    if kind == "array":
        return []
    properties, required = schema.get("properties"), schema.get("required")
    if depth == 0 or not isinstance(properties, dict) or not isinstance(required, list):
        return {}
    filled: dict[str, object] = {}
    for name in required:
        # A name that stands twice is filled in once: a small schema must not make more work with every level.
        if isinstance(name, str) and name not in filled:
            inner = properties.get(name)
            filled[name] = _example(inner if isinstance(inner, dict) else {}, depth - 1)
    return filled
