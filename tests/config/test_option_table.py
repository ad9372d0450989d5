"""Does the option table hold every option, under its name and with its default?"""

from itertools import groupby
from pathlib import Path

import pytest
from tests.config.given import good_agent, good_router, good_whole_router

from hivenet_router.config.option import Kind, Option, Program
from hivenet_router.config.options import OPTIONS, OPTIONS_BY_FLAG
from hivenet_router.config.reading import read_value

HERE = Path(__file__).parent
CHANGED_DEFAULTS = {
    # An agent opens no listener unless it is told to.
    ("hivenet-agent", "--p2p-listen-port"): "",
}


def lines_of(name: str) -> list[list[str]]:
    return [line.split(" ") for line in (HERE / name).read_text().splitlines() if not line.startswith("#")]


def test_the_table_is_the_reviewed_one() -> None:
    table = [
        [option.program.value, option.flag, ",".join(option.names_env), option.default or "-"] for option in OPTIONS
    ]
    assert table == lines_of("options.golden.txt")


@pytest.mark.parametrize("row", lines_of("options_of_the_original.txt"), ids=lambda row: " ".join(row[:2]))
def test_an_option_of_the_original_keeps_its_name_variable_and_default(row: list[str]) -> None:
    program, flag, env, default = row
    option = OPTIONS_BY_FLAG[Program(program)][flag]
    assert env in ("-", *option.names_env)
    expected = {"empty": "", "?": option.default}.get(default, default)
    assert option.default == CHANGED_DEFAULTS.get((program, flag), expected)


def test_every_option_has_a_variable_of_its_own() -> None:
    for program in Program:
        names = [name for option in OPTIONS_BY_FLAG[program].values() for name in option.names_env]
        assert all(names)
        assert len(names) == len(set(names))


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: f"{option.program} {option.flag}")
def test_a_row_is_complete_and_its_default_usable(option: Option) -> None:
    assert option.help.endswith(".") or "openssl" in option.help
    assert (option.kind is Kind.CHOICE) == bool(option.choices)
    if option.kind is not Kind.SECRET:
        from_flag = read_value(option, option.default, from_flag=True)
        assert from_flag == read_value(option, option.default, from_flag=False)


def test_options_of_one_group_stand_together() -> None:
    for program in Program:
        groups = [group for group, _ in groupby(OPTIONS_BY_FLAG[program].values(), key=lambda option: option.group)]
        assert len(groups) == len(set(groups))


def test_a_router_with_nothing_but_a_secret_has_the_documented_defaults() -> None:
    settings = good_router()
    assert (str(settings.http_listen), str(settings.grpc_listen), str(settings.metrics_listen)) == (
        ":8080",
        ":50051",
        ":2112",
    )
    assert (settings.p2p_listen_ip, settings.p2p_listen_port) == ("127.0.0.1", 9000)
    assert (settings.queue_requests_max, settings.forwards_max, settings.capacity_waiters_max) == (100, 50, 30)
    assert (settings.request_timeout_s, settings.stream_idle_timeout_s, settings.stream_timeout_s) == (60.0, 60.0, None)
    assert (settings.heartbeat_interval_s, settings.unhealthy_after_s, settings.remove_after_s) == (5.0, 15.0, 30.0)
    assert (settings.session_ttl_s, settings.enqueue_timeout_s, settings.shutdown_timeout_s) == (3600.0, 5.0, 30.0)
    assert (settings.request_body_bytes_max, settings.buffered_response_bytes_max) == (10_485_760, 8_388_608)
    assert settings.storage.history_ttl_s == 30 * 86_400.0
    assert settings.sync.site == "default"
    assert settings.legacy_metric_names
    # By default agents of other machines can authenticate, but not link; that is the only thing to say.
    (warning,) = settings.warnings
    assert "--p2p-listen-addr" in warning


def test_an_agent_with_nothing_but_a_secret_has_the_documented_defaults() -> None:
    settings = good_agent()
    assert (settings.engine, settings.capability, settings.capacity) == ("vllm", "llm", 10)
    assert str(settings.backend_url) == "http://localhost:8888"
    assert [str(router) for router in settings.routers] == ["localhost:50051"]
    assert (settings.http_timeout_s, settings.stream_write_timeout_s) == (120.0, 60.0)
    assert (settings.region, settings.organization, settings.machine) == ("UE-France", "Unknown", "Unknown")
    assert settings.tags == ("production",)
    assert (settings.model, settings.health_url, settings.p2p_listen_port) == (None, None, None)
    assert settings.version
    assert settings.warnings == ()


def test_a_limit_of_zero_is_no_limit() -> None:
    router = good_router("--stream-idle-timeout", "0", "--max-request-bytes", "0", "--wake-max-body-bytes", "0")
    assert (router.stream_idle_timeout_s, router.request_body_bytes_max, router.redirect.held_body_bytes_max) == (
        None,
        None,
        None,
    )
    agent = good_agent("--http-timeout", "0", "--stream-write-timeout", "0", "--stream-idle-timeout", "0s")
    assert (agent.http_timeout_s, agent.stream_write_timeout_s, agent.stream_idle_timeout_s) == (None, None, None)


@pytest.mark.parametrize("days", ["0", "-1"])
def test_history_without_a_lifetime_is_kept(days: str) -> None:
    assert good_whole_router("--disk-db-ttl", days).storage.history_ttl_s is None
