"""What does a log line look like, and which lines are written?

Every line is an event name with fields, on stderr, as text or as JSON. `structlog.get_logger("router")` gives a logger
under one of our names; what libraries log through the standard library joins in from warning up, in measure. Invariant:
a field whose name says that it holds a secret is written without its value, a value cannot begin a new line, and no
character of it steers a terminal or turns the order of what is read.
Source: configuration.md §9.4; observability.md §4 and its points 37 and 38.
"""

import json
import logging
import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Final, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from hivenet_router.config.settings import LogFormat, LogLevel

HIDDEN: Final = "(hidden)"

FOREIGN_LINES_MAX: Final = 5
"""Lines of one library's logger that are written within `FOREIGN_EVERY_S`: strangers can make it say any number."""
FOREIGN_EVERY_S: Final = 60.0
FOREIGN_LOGGERS_MAX: Final = 64
"""Loggers that are told apart; all others share one ration."""

_OURS: Final = "hivenet"
"""The standard library's logger above all of ours, so that our level is not that of the libraries."""
_LEVELS: Final[Mapping[LogLevel, int]] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "fatal": logging.CRITICAL,
}
_WORDS: Final = {"warning": "warn", "critical": "fatal", "exception": "error"}
_SECRET_NAMES: Final = frozenset(
    {
        "token",
        "session_token",
        "secret",
        "password",
        "authorization",
        "credentials",
        "api_key",
        "x_api_key",
        "key",
        "rt",
    }
)
_COLOURS: Final = {
    "debug": "\x1b[2m",
    "info": "\x1b[34m",
    "warn": "\x1b[33m",
    "error": "\x1b[31m",
    "fatal": "\x1b[31;1m",
}
_PLAIN: Final = "\x1b[0m"


def set_up_logs(
    level: LogLevel,
    levels_by_logger: Mapping[str, LogLevel],
    log_format: LogFormat,
    *,
    to: TextIO | None = None,
    seconds: Callable[[], float] = time.monotonic,
) -> None:
    """Write log lines to `to` (stderr when not given) from now on, for the whole process.

    `level` is for our own loggers; libraries are heard from warning up, or from `level` where that is higher. A name in
    `levels_by_logger` is one of ours (`router`, `agent`, …) or a library's (`grpclib`), which is then written in full;
    of any other library's logger so many lines are within a time measured in `seconds`, and the next says how many not.
    """
    stream = sys.stderr if to is None else to
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_before(structlog.stdlib.ExtraAdder()),
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _renderer(log_format, stream)],
        )
    )
    handler.addFilter(_InMeasure(levels_by_logger.keys(), seconds))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(logging.WARNING, _LEVELS[level]))
    logging.getLogger(_OURS).setLevel(_LEVELS[level])
    for name, its_level in levels_by_logger.items():
        logging.getLogger(name).setLevel(_LEVELS[its_level])
        logging.getLogger(f"{_OURS}.{name}").setLevel(_LEVELS[its_level])
    logging.captureWarnings(True)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_before(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=_our_logger,
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


class _InMeasure(logging.Filter):
    """Lets through what is ours, and of each library's logger a few lines a minute."""

    def __init__(self, unlimited: Collection[str], seconds: Callable[[], float]) -> None:
        super().__init__()
        self._unlimited = (_OURS, *unlimited)
        self._seconds = seconds
        self._written: dict[str, deque[float]] = {}
        self._held_back: dict[str, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether this one is written."""
        name = record.name
        if any(name == each or name.startswith(f"{each}.") for each in self._unlimited):
            return True
        if name not in self._written and len(self._written) >= FOREIGN_LOGGERS_MAX:
            name = ""
        written = self._written.setdefault(name, deque(maxlen=FOREIGN_LINES_MAX))
        now = self._seconds()
        if len(written) == FOREIGN_LINES_MAX and now - written[0] < FOREIGN_EVERY_S:
            self._held_back[name] = self._held_back.get(name, 0) + 1
            return False
        written.append(now)
        if held_back := self._held_back.pop(name, 0):
            record.suppressed = held_back
        return True


def _our_logger(name: str = "main") -> logging.Logger:
    return logging.getLogger(f"{_OURS}.{name}")


def _before(*more: Processor) -> list[Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        *more,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
        structlog.processors.format_exc_info,
        _name_and_hide,
    ]


def _name_and_hide(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    event["logger"] = str(event.get("logger", "")).removeprefix(f"{_OURS}.")
    event["level"] = _WORDS.get(event["level"], event["level"])
    for name in event.keys() & _SECRET_NAMES:
        event[name] = HIDDEN
    return event


def _renderer(log_format: LogFormat, stream: TextIO) -> Processor:
    if log_format == "json":
        return _as_json
    is_coloured = log_format == "color" or (log_format == "auto" and stream.isatty())
    return _TextLine(is_coloured=is_coloured)


def _as_json(_: WrappedLogger, __: str, event: EventDict) -> str:
    """One JSON object; the keys that every line has come first, under the names the original gives them."""
    first = {"level": event.pop("level"), "ts": event.pop("ts"), "logger": event.pop("logger")}
    return _clean(json.dumps({**first, "msg": event.pop("event"), **event}, default=str, ensure_ascii=False))


class _TextLine:
    """Time, level, logger, event and fields, apart by tabs; a traceback follows, further to the right than any line."""

    def __init__(self, *, is_coloured: bool) -> None:
        self._is_coloured = is_coloured

    def __call__(self, _: WrappedLogger, __: str, event: EventDict) -> str:
        level = event.pop("level")
        word = level.upper()
        if self._is_coloured:
            word = f"{_COLOURS.get(level, '')}{word}{_PLAIN}"
        traceback = event.pop("exception", None)
        parts = [event.pop("ts"), word, _clean(event.pop("logger")), _on_one_line(event.pop("event"))]
        fields = " ".join(f"{_clean(str(name))}={_field(value)}" for name, value in event.items())
        line = "\t".join([*parts, fields] if fields else parts)
        return f"{line}\n{_set_in(traceback)}" if traceback else line


def _set_in(traceback: str) -> str:
    return "\n".join(f"    {_clean(line)}" for line in traceback.split("\n"))


def _clean(text: str) -> str:
    """The text with `\\u…` for whatever is no letter, sign or blank: controls, also C1, and marks without a width."""
    return text if text.isprintable() else "".join(each if each.isprintable() else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    return json.dumps(character)[1:-1] if ord(character) > 0x7F else f"\\u{ord(character):04x}"


def _quoted(text: str) -> str:
    return _clean(json.dumps(text, ensure_ascii=False))


def _on_one_line(value: object) -> str:
    text = str(value)
    return text if text.isprintable() else _quoted(text)


def _field(value: object) -> str:
    """A value that ends where the next field begins: quoted when it holds blanks or quotes; lists joined by commas."""
    if isinstance(value, float):
        return f"{value:.6g}"
    text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    is_bare = text.isprintable() and text and not any(character in ' "=' for character in text)
    return text if is_bare else _quoted(text)
