"""Log lines as text and as JSON, levels, and what never stands in them."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from hivenet_router.adapters.grpc_server import TALKATIVE_LOGGERS, quiet_grpclib
from hivenet_router.adapters.log import (
    FOREIGN_EVERY_S,
    FOREIGN_LINES_MAX,
    FOREIGN_LOGGERS_MAX,
    HIDDEN,
    set_up_logs,
)
from hivenet_router.config import Secret


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    # A bootstrap server that ran in this process before may have quieted them.
    for name in ("grpclib", *TALKATIVE_LOGGERS):
        logging.getLogger(name).setLevel(logging.NOTSET)
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)
    structlog.reset_defaults()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def lines(stream: io.StringIO) -> list[str]:
    return stream.getvalue().splitlines()


def test_a_text_line_has_time_level_logger_event_and_fields_apart_by_tabs() -> None:
    out = io.StringIO()
    set_up_logs("info", {}, "auto", to=out)
    structlog.get_logger("agent").warning("session_lost", router="r:1", why="no answer", in_s=0.50001)
    (line,) = lines(out)
    moment, level, logger, event, fields = line.split("\t")
    assert moment.endswith("Z")
    assert (level, logger, event) == ("WARN", "agent", "session_lost")
    assert fields == 'router=r:1 why="no answer" in_s=0.50001'


def test_a_list_is_written_as_a_list_is_typed() -> None:
    out = io.StringIO()
    set_up_logs("info", {}, "auto", to=out)
    structlog.get_logger("router").info("router_started", grpc=["0.0.0.0:1", "[::]:1"], libp2p=[])
    assert out.getvalue().rstrip("\n").split("\t")[-1] == 'grpc=0.0.0.0:1,[::]:1 libp2p=""'


def test_a_json_line_begins_with_the_keys_that_every_line_has() -> None:
    out = io.StringIO()
    set_up_logs("info", {}, "json", to=out)
    structlog.get_logger("router").error("lost", agents=3)
    line = json.loads(out.getvalue())
    assert list(line) == ["level", "ts", "logger", "msg", "agents"]
    assert (line["level"], line["logger"], line["msg"], line["agents"]) == ("error", "router", "lost", 3)


def test_colour_comes_on_a_terminal_or_on_demand_only() -> None:
    for how, out, is_coloured in (
        ("auto", io.StringIO(), False),
        ("auto", Terminal(), True),
        ("color", io.StringIO(), True),
        ("nocolor", Terminal(), False),
    ):
        set_up_logs("info", {}, how, to=out)  # type: ignore[arg-type]  # the four words of the option
        structlog.get_logger("agent").info("here")
        assert ("\x1b[" in out.getvalue()) is is_coloured


def test_levels_hold_for_all_of_ours_and_for_single_loggers() -> None:
    out = io.StringIO()
    set_up_logs("warn", {"policy": "debug", "some.library": "error"}, "json", to=out)
    structlog.get_logger("agent").info("unheard")
    structlog.get_logger("agent").warning("heard")
    structlog.get_logger("policy").debug("heard in detail")
    logging.getLogger("some.library").warning("unheard")
    assert [json.loads(line)["msg"] for line in lines(out)] == ["heard", "heard in detail"]


def test_libraries_are_heard_from_warning_up_even_while_ours_speak_in_detail() -> None:
    out = io.StringIO()
    set_up_logs("debug", {}, "json", to=out)
    logging.getLogger("hpack").info("frame %d", 1)
    logging.getLogger("grpclib").warning("frame %d", 2)
    (line,) = lines(out)
    said = json.loads(line)
    assert (said["level"], said["logger"], said["msg"]) == ("warn", "grpclib", "frame 2")


@pytest.mark.parametrize("how", ["json", "nocolor"])
def test_secrets_are_not_written_under_whatever_name(how: str) -> None:
    out = io.StringIO()
    set_up_logs("info", {}, how, to=out)  # type: ignore[arg-type]  # two words of the option
    structlog.get_logger("agent").info("x", session_token="abcdef", jwt=Secret(b"abcdef"), authorization="abcdef")
    assert "abcdef" not in out.getvalue()
    assert out.getvalue().count(HIDDEN) == 2


@pytest.mark.parametrize("how", ["json", "nocolor"])
def test_a_value_cannot_begin_a_line_of_its_own(how: str) -> None:
    out = io.StringIO()
    set_up_logs("info", {}, how, to=out)  # type: ignore[arg-type]  # two words of the option
    structlog.get_logger("agent").info("x", why='one\ntwo\x1b[2J "quoted"')
    assert len(lines(out)) == 1
    assert "\x1b" not in out.getvalue()


STEERING = {
    "C1 control": "\x9b",
    "next line": "\x85",
    "delete": "\x7f",
    "override": "\u202e",
    "isolate": "\u2067",
    "mark": "\u200f",
    "no width": "\u200b",
    "byte order": "\ufeff",
    "line separator": "\u2028",
    "tag": "\U000e0041",
    "half a pair": "\ud800",
}


@pytest.mark.parametrize("character", STEERING.values(), ids=STEERING)
@pytest.mark.parametrize("how", ["json", "nocolor"])
def test_no_character_steers_a_terminal_or_turns_the_order_of_what_is_read(how: str, character: str) -> None:
    out = io.StringIO()
    set_up_logs("info", {}, how, to=out)  # type: ignore[arg-type]  # two words of the option
    text = f"one{character}two"
    structlog.get_logger("agent").info(text, why=text, all=[text, {text: text}], **{text: 1})
    logging.getLogger(f"lib{character}rary").warning("said %s", text)
    try:
        raise ValueError(text)  # noqa: TRY301  # only its traceback is wanted
    except ValueError:
        structlog.get_logger("agent").exception("failed")
    assert all(each.isprintable() or each in "\t\n" for each in out.getvalue())
    assert len([line for line in out.getvalue().split("\n") if line and not line.startswith(" ")]) == 3
    if how == "json":
        said = json.loads(out.getvalue().split("\n")[0])
        assert (said["msg"], said["why"], said["all"], said[text]) == (text, text, [text, {text: text}], 1)


def test_letters_of_any_script_are_written_as_they_are() -> None:
    out = io.StringIO()
    set_up_logs("info", {}, "nocolor", to=out)
    structlog.get_logger("agent").info("x", why="größer שלום 漢字 😀")
    assert "größer שלום 漢字 😀" in out.getvalue()


def test_what_an_exception_says_cannot_begin_a_line_that_looks_like_one_of_ours() -> None:
    out = io.StringIO()
    set_up_logs("info", {}, "nocolor", to=out)
    try:
        raise ValueError("x\n2026-12-01T00:00:00Z\tINFO\trouter\trouter_started")  # noqa: TRY301  # only its traceback is wanted
    except ValueError:
        structlog.get_logger("router").exception("failed")
    first, *others = out.getvalue().rstrip("\n").split("\n")
    assert first.endswith("failed")
    assert others
    assert all(line.startswith("    ") and "\t" not in line for line in others)


def test_a_library_that_strangers_make_talk_is_written_in_measure_and_the_rest_is_counted() -> None:
    out, now = io.StringIO(), [100.0]
    set_up_logs("info", {}, "json", to=out, seconds=lambda: now[0])
    for _ in range(1775):
        logging.getLogger("grpclib.protocol").error("unexpected frame")
    logging.getLogger("asyncio").error("of another")
    structlog.get_logger("router").info("of ours")
    said = [json.loads(line) for line in lines(out)]
    assert [line["logger"] for line in said] == [*["grpclib.protocol"] * FOREIGN_LINES_MAX, "asyncio", "router"]
    now[0] += FOREIGN_EVERY_S
    logging.getLogger("grpclib.protocol").error("unexpected frame")
    assert json.loads(lines(out)[-1])["suppressed"] == 1775 - FOREIGN_LINES_MAX


def test_a_library_whose_level_the_operator_has_set_is_written_in_full() -> None:
    out = io.StringIO()
    set_up_logs("info", {"grpclib": "debug"}, "json", to=out, seconds=lambda: 0.0)
    for _ in range(100):
        logging.getLogger("grpclib.protocol").debug("frame")
    assert len(lines(out)) == 100


@pytest.mark.parametrize("is_asked_for", [False, True])
def test_what_strangers_make_it_say_is_heard_where_the_operator_asked_for_it(is_asked_for: bool) -> None:
    out = io.StringIO()
    set_up_logs("info", {"grpclib": "debug"} if is_asked_for else {}, "json", to=out, seconds=lambda: 0.0)
    quiet_grpclib()
    logging.getLogger("grpclib.protocol").error("unexpected frame")
    assert len(lines(out)) == is_asked_for


def test_ours_are_not_limited_and_any_number_of_loggers_shares_a_bound() -> None:
    out = io.StringIO()
    set_up_logs("info", {}, "json", to=out, seconds=lambda: 0.0)
    for _ in range(100):
        structlog.get_logger("router").info("x")
    for number in range(10 * FOREIGN_LOGGERS_MAX):
        logging.getLogger(f"library.{number}").warning("x")
    assert len(lines(out)) == 100 + FOREIGN_LOGGERS_MAX + FOREIGN_LINES_MAX


@pytest.mark.parametrize("how", ["json", "nocolor"])
def test_a_traceback_of_ours_or_of_a_library_is_kept(how: str) -> None:
    out = io.StringIO()
    set_up_logs("info", {}, how, to=out)  # type: ignore[arg-type]  # two words of the option
    for logger in (structlog.get_logger("agent"), logging.getLogger("asyncio")):
        try:
            1 / 0  # noqa: B018  # only its failure is wanted
        except ZeroDivisionError:
            logger.exception("failed")
    assert out.getvalue().count("ZeroDivisionError") == 2
    assert out.getvalue().count("Traceback") == 2


def test_labels_bound_once_stand_on_every_line() -> None:
    out = io.StringIO()
    set_up_logs("info", {}, "json", to=out)
    with structlog.contextvars.bound_contextvars(peer_id="12D3"):
        structlog.get_logger("agent").info("x")
    assert json.loads(out.getvalue())["peer_id"] == "12D3"
