"""What will the engine write for this request, before any of it is on the wire?

The answer is decided whole at once (its pieces, why it ends, what usage is told), so that buffered and streamed shapes
of it say the same. Invariant: one piece is one token of each choice. Time plays no part here.
"""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from hivenet_router.sim.asks import Ask, AskError, JsonObject, Tool
from hivenet_router.sim.faults import Fault
from hivenet_router.sim.options import SimOptions
from hivenet_router.sim.words import answer_pieces, echo_pieces, widened

OUTPUT_TOKENS_MAX: Final = 1_000_000
TOOL_PIECE_CHARS: Final = 8
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
    pieces: Sequence[str]
    finish: Finish
    choices: int
    usage: Usage | None
    tool: Tool | None = None
    reasoning: int = 0

    @property
    def text(self) -> str:
        """All that is said aloud."""
        return "".join(self.pieces[self.reasoning :])

    @property
    def thought(self) -> str:
        """What comes before it as reasoning."""
        return "".join(self.pieces[: self.reasoning])


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
) -> tuple[list[str], Finish]:
    if tool is not None:
        return tool_pieces(tool), "tool"
    cap = min(ask.output_tokens_max or OUTPUT_TOKENS_MAX, OUTPUT_TOKENS_MAX)
    if echo and fault.chunks is None:
        pieces = echo_pieces(ask.user_text, cap + 1)
        return pieces[:cap], ("length" if len(pieces) > cap else "stop")
    finish: Finish = "stop"
    if fault.chunks is not None:
        count = min(fault.chunks, OUTPUT_TOKENS_MAX)
    elif ask.ignore_eos and ask.output_tokens_max is not None:
        count, finish = cap, "length"
    else:
        wanted = _wanted_tokens(options, serial)
        count, finish = min(wanted, cap), ("length" if wanted > cap else "stop")
    pieces = answer_pieces(count, prompt=ask.user_text, seed=options.seed)
    return (widened(pieces, fault.chunk_bytes) if fault.chunk_bytes else pieces), finish


def _wanted_tokens(options: SimOptions, serial: int) -> int:
    low, high = options.output_tokens
    return low if low == high else random.Random(options.seed * 1_000_003 + serial).randint(low, high)


def tool_pieces(tool: Tool) -> list[str]:
    """The arguments of a call of this tool as JSON, cut into pieces."""
    text = json.dumps(_example(tool.schema, SCHEMA_DEPTH_MAX))
    return [text[at : at + TOOL_PIECE_CHARS] for at in range(0, len(text), TOOL_PIECE_CHARS)]


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
        if isinstance(name, str):
            inner = properties.get(name)
            filled[name] = _example(inner if isinstance(inner, dict) else {}, depth - 1)
    return filled
