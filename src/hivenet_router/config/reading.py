"""What value does a text give for one option, and is that value within the option's range?

Invariant: the same text gives the same value or the same rule wherever it came from, except integers, which on the
command line have Go's prefixes. Where texts come from is decided in `parse`.
"""

from collections.abc import Callable, Mapping
from typing import Final

from hivenet_router.config.addresses import (
    BackendUrl,
    HostPort,
    HostPorts,
    ListenAddress,
    Networks,
    read_advertised,
    read_announce_multiaddr,
    read_backend_url,
    read_host_port,
    read_host_ports,
    read_ip,
    read_listen_address,
    read_networks,
    read_otlp_endpoint,
    read_url,
)
from hivenet_router.config.durations import parse_duration
from hivenet_router.config.option import Kind, Option
from hivenet_router.config.values import (
    LogLevels,
    UnusableError,
    Words,
    read_boolean,
    read_domain_suffixes,
    read_env_integer,
    read_flag_integer,
    read_fraction,
    read_log_levels,
    read_name,
    read_path,
    read_text,
    read_words,
)

Value = (
    bool | int | float | str | Words | LogLevels | ListenAddress | HostPort | HostPorts | Networks | BackendUrl | None
)
"""What an option can be worth; None for an optional one left empty."""

_READERS: Final[Mapping[Kind, Callable[[str], Value]]] = {
    Kind.BOOLEAN: read_boolean,
    Kind.FRACTION: read_fraction,
    Kind.TEXT: read_text,
    Kind.PATH: read_path,
    Kind.WORDS: read_words,
    Kind.DOMAINS: read_domain_suffixes,
    Kind.LOG_LEVELS: read_log_levels,
    Kind.LISTEN_ADDRESS: read_listen_address,
    Kind.IP: read_ip,
    Kind.MULTIADDR: read_announce_multiaddr,
    Kind.HOST_PORT: read_host_port,
    Kind.HOST_PORTS: read_host_ports,
    Kind.ADVERTISED: read_advertised,
    Kind.NETWORKS: read_networks,
    Kind.BACKEND_URL: read_backend_url,
    Kind.URL: read_url,
    Kind.OTLP: read_otlp_endpoint,
}
_LISTS: Final = (Kind.WORDS, Kind.DOMAINS, Kind.HOST_PORTS, Kind.NETWORKS)
_NUMBERS: Final = (Kind.INTEGER, Kind.FRACTION, Kind.DURATION, Kind.WHOLE_SECONDS)


def read_value(option: Option, text: str, *, from_flag: bool) -> Value:
    """What `text` is worth for `option`; durations in seconds, secrets not at all.

    Raises: UnusableError with the rule of the option.
    """
    if not text and option.kind not in _LISTS:
        if option.empty_ok:
            return ""
        if not option.default:
            return None
        raise UnusableError("must not be empty", grammar=option.kind in (*_NUMBERS, Kind.BOOLEAN))
    try:
        value = _read_plain(option, text, from_flag=from_flag)
    except UnusableError as error:
        bounds = bounds_text(option)
        if error.grammar and bounds:
            raise UnusableError(f"{error.rule}, {bounds}", grammar=True) from None
        raise
    if option.kind in _NUMBERS:
        _check_bounds(option, value)
    return value


def _read_plain(option: Option, text: str, *, from_flag: bool) -> Value:
    match option.kind:
        case Kind.INTEGER:
            return read_flag_integer(text) if from_flag else read_env_integer(text)
        case Kind.DURATION | Kind.WHOLE_SECONDS:
            return _read_duration(text)
        case Kind.CHOICE:
            if text not in option.choices:
                raise UnusableError(f"must be one of {', '.join(option.choices)}")
            return text
        case Kind.NAME:
            return read_name(text, int(option.at_most))
        case kind:
            return _READERS[kind](text)


def _read_duration(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise UnusableError(str(error), grammar=True) from None


def _check_bounds(option: Option, value: Value) -> None:
    if not isinstance(value, int | float):
        raise TypeError(f"{option.flag} is no number")
    at_least, more_than, at_most = (
        _bound(option, text) for text in (option.at_least, option.more_than, option.at_most)
    )
    if (
        (at_least is not None and value < at_least)
        or (more_than is not None and value <= more_than)
        or (at_most is not None and value > at_most)
    ):
        raise UnusableError(f"must be {bounds_text(option)}")
    if option.kind is Kind.WHOLE_SECONDS and value != int(value):
        raise UnusableError("must be whole seconds, because agents are told whole seconds")


def _bound(option: Option, text: str) -> float | None:
    if not text:
        return None
    return parse_duration(text) if option.kind in (Kind.DURATION, Kind.WHOLE_SECONDS) else float(text)


def bounds_text(option: Option) -> str:
    """The range of an option as a phrase such as `from 0 to 65535 requests`, empty when it has none."""
    if option.kind not in _NUMBERS:
        return ""
    low = f"more than {option.more_than}" if option.more_than else ""
    if option.at_least:
        low = f"at least {option.at_least}"
    if option.at_least and option.at_most:
        phrase = f"from {option.at_least} to {option.at_most}"
    else:
        phrase = " and ".join(part for part in (low, f"at most {option.at_most}" if option.at_most else "") if part)
    return f"{phrase} {option.unit}".strip() if phrase else ""
