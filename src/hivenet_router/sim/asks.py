"""What does a request body ask of the engine?

Bodies of the generation endpoints are read into one value, `Ask`, strictly enough that a wrong body is refused with a
sentence, loosely enough that fields a client adds are ignored. The prompt's size is counted by one rule: a token for
every four bytes of UTF-8 text, rounded up for each text; four more for each message; 256 for an image; tools by the
bytes of their JSON. Answering is the business of the `shapes_*` modules.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

CHOICES_MAX: Final = 128
MESSAGE_TOKENS: Final = 4
IMAGE_TOKENS: Final = 256
# A prompt with this in its last user message makes the model call the first tool it was offered.
TOOL_MARKER: Final = "#tool"

JsonObject = Mapping[str, object]


class AskError(ValueError):
    """A body that cannot be served, with the status to answer with and the field to blame."""

    def __init__(self, message: str, *, status: int = 400, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.param = param


@dataclass(frozen=True, slots=True)
class Tool:
    """A function the client offers: its name and the JSON schema of its arguments."""

    name: str
    schema: JsonObject


@dataclass(frozen=True, slots=True)
class Ask:
    """A request for text. `output_tokens_max` None leaves the length to the engine; `tool` is the one to be called."""

    model: str
    stream: bool
    prompt_tokens: int
    user_text: str
    output_tokens_max: int | None = None
    ignore_eos: bool = False
    include_usage: bool = False
    choices: int = 1
    tool: Tool | None = None
    offered: Tool | None = None


def read_object(body: bytes, *, each_member_once: bool = False) -> JsonObject:
    """The JSON object in a body; of a member that stands twice the last, as engines read it, unless each may only once.

    Raises: AskError when the body is anything else.
    """
    hook = _each_once if each_member_once else None
    try:
        document: object = json.loads(body, parse_constant=_no_constant, object_pairs_hook=hook)
    except AskError:
        raise
    except RecursionError:
        raise AskError("the body is nested too deeply") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as wrong:
        raise AskError(f"the body is not valid JSON: {str(wrong)[:200]}") from None
    except ValueError:
        # Python reads no whole number of thousands of digits.
        raise AskError("the body holds a number with too many digits") from None
    if not isinstance(document, dict):
        raise AskError("the body must be a JSON object")
    return document


def _no_constant(name: str) -> object:
    raise AskError(f"the body is not valid JSON: {name} is no JSON value")


def _each_once(pairs: list[tuple[str, object]]) -> JsonObject:
    document: dict[str, object] = {}
    for name, value in pairs:
        if name in document:
            raise AskError(f"{name[:60]}: stands twice in one object; give it once")
        document[name] = value
    return document


def text_tokens(text: str) -> int:
    """Tokens of one text: its UTF-8 bytes by four, rounded up."""
    size_bytes = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return -(-size_bytes // 4)


def text_field(document: JsonObject, name: str) -> str:
    """A field that must be a text.

    Raises: AskError when it is absent or something else.
    """
    value = document.get(name)
    if not isinstance(value, str):
        raise AskError(f"{name}: must be a text", param=name)
    return value


def chat_ask(document: JsonObject) -> Ask:
    """What a body for `/v1/chat/completions` asks. Raises: AskError."""
    messages = _messages(document)
    user_text = _last_user_text(messages)
    tools = _tools(document, wrapped=True)
    limit = _limit(document, "max_completion_tokens")
    return Ask(
        model=text_field(document, "model"),
        stream=_flag(document, "stream"),
        prompt_tokens=_messages_tokens(messages) + _tools_tokens(document),
        user_text=user_text,
        output_tokens_max=_limit(document, "max_tokens") if limit is None else limit,
        ignore_eos=_flag(document, "ignore_eos"),
        include_usage=_include_usage(document),
        choices=_choices(document),
        tool=_called_tool(document.get("tool_choice"), tools, user_text),
        offered=tools[0] if tools else None,
    )


def completion_ask(document: JsonObject) -> Ask:
    """What a body for `/v1/completions` asks; each prompt of a list is a choice of its own. Raises: AskError."""
    prompt = document.get("prompt")
    prompts: list[object] = [prompt]
    if isinstance(prompt, list) and prompt and not all(isinstance(each, int) for each in prompt):
        prompts = prompt
    choices = _choices(document) * len(prompts)
    if choices > CHOICES_MAX:
        raise AskError(f"prompt and n ask for {choices} answers: at most {CHOICES_MAX}", param="n")
    first = prompts[0]
    return Ask(
        model=text_field(document, "model"),
        stream=_flag(document, "stream"),
        prompt_tokens=max(1, sum(_prompt_tokens(each) for each in prompts)),
        user_text=first if isinstance(first, str) else "",
        output_tokens_max=_limit(document, "max_tokens"),
        ignore_eos=_flag(document, "ignore_eos"),
        include_usage=_include_usage(document),
        choices=choices,
    )


def messages_ask(document: JsonObject, *, counting: bool = False) -> Ask:
    """What a body for `/v1/messages` asks; `counting` needs no `max_tokens`. Raises: AskError."""
    messages = _messages(document)
    limit = _limit(document, "max_tokens")
    if limit is None and not counting:
        raise AskError("max_tokens: must be given", param="max_tokens")
    user_text = _last_user_text(messages)
    tools = _tools(document, wrapped=False)
    return Ask(
        model=text_field(document, "model"),
        stream=_flag(document, "stream"),
        prompt_tokens=_messages_tokens(messages) + _content_tokens(document.get("system")) + _tools_tokens(document),
        user_text=user_text,
        output_tokens_max=limit,
        tool=_called_tool(document.get("tool_choice"), tools, user_text),
        offered=tools[0] if tools else None,
    )


def _prompt_tokens(prompt: object) -> int:
    if isinstance(prompt, str):
        return text_tokens(prompt)
    if isinstance(prompt, list) and prompt and all(isinstance(each, int) for each in prompt):
        return len(prompt)
    raise AskError("prompt: must be a text, a list of texts, or a list of token numbers", param="prompt")


def _messages(document: JsonObject) -> list[JsonObject]:
    messages = document.get("messages")
    if not isinstance(messages, list) or not messages:
        raise AskError("messages: must be a list with at least one message", param="messages")
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise AskError(f"messages[{index}]: must be an object with a role", param="messages")
    return messages


def _messages_tokens(messages: list[JsonObject]) -> int:
    return sum(MESSAGE_TOKENS + _content_tokens(message.get("content")) for message in messages)


def _content_tokens(content: object) -> int:
    """Tokens of a text, a list of parts, or parts inside a tool result."""
    if isinstance(content, str):
        return text_tokens(content)
    if not isinstance(content, list):
        return 0
    tokens = 0
    for part in content:
        if not isinstance(part, dict):
            continue
        if "image" in str(part.get("type")):
            tokens += IMAGE_TOKENS
        text = part.get("text")
        tokens += text_tokens(text) if isinstance(text, str) else _content_tokens(part.get("content"))
    return tokens


def _last_user_text(messages: list[JsonObject]) -> str:
    for message in reversed(messages):
        if message["role"] != "user":
            continue
        content = message.get("content")
        if isinstance(content, str):
            return content
        if isinstance(content, list):
            texts = [part.get("text") for part in content if isinstance(part, dict)]
            return "".join(text for text in texts if isinstance(text, str))
    return ""


def _flag(document: JsonObject, name: str) -> bool:
    value = document.get(name)
    if not isinstance(value, bool | None):
        raise AskError(f"{name}: must be true or false", param=name)
    return bool(value)


def _limit(document: JsonObject, name: str) -> int | None:
    value = document.get(name)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
        return value
    raise AskError(f"{name}: must be a whole number, 1 or more", param=name)


def _choices(document: JsonObject) -> int:
    choices = _limit(document, "n") or 1
    if choices > CHOICES_MAX:
        raise AskError(f"n: at most {CHOICES_MAX}", param="n")
    return choices


def _include_usage(document: JsonObject) -> bool:
    options = document.get("stream_options")
    if options is None:
        return False
    if not isinstance(options, dict):
        raise AskError("stream_options: must be an object", param="stream_options")
    return _flag(options, "include_usage")


def _tools_tokens(document: JsonObject) -> int:
    tools = document.get("tools")
    return text_tokens(json.dumps(tools, separators=(",", ":"))) if tools else 0


def _tools(document: JsonObject, *, wrapped: bool) -> list[Tool]:
    tools = document.get("tools")
    if tools is None:
        return []
    if not isinstance(tools, list):
        raise AskError("tools: must be a list", param="tools")
    read: list[Tool] = []
    for index, item in enumerate(tools):
        tool = item.get("function") if wrapped and isinstance(item, dict) else item
        if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
            raise AskError(f"tools[{index}]: must hold a name", param="tools")
        schema = tool.get("parameters" if wrapped else "input_schema")
        read.append(Tool(tool["name"], schema if isinstance(schema, dict) else {}))
    return read


def _called_tool(choice: object, tools: list[Tool], user_text: str) -> Tool | None:
    """The tool that must be called: by `tool_choice`, or by the marker in the prompt."""
    if not tools or choice == "none":
        return None
    if isinstance(choice, dict):
        function = choice.get("function")
        name = function.get("name") if isinstance(function, dict) else choice.get("name")
        for tool in tools:
            if tool.name == name:
                return tool
        if isinstance(name, str):
            raise AskError(f"tool_choice: no tool is named {name[:60]!r}", param="tool_choice")
        if choice.get("type") == "any":
            return tools[0]
        if choice.get("type") == "none":
            return None
    return tools[0] if choice == "required" or TOOL_MARKER in user_text else None
