"""Which of flag, environment and default wins, and what does empty mean?"""

from pathlib import Path

import pytest
from tests.config.given import SECRET, WITH_SECRET, good_agent, good_router, good_whole_router, refused, router

from hivenet_router.config import Exit, Program, RouterSettings, parse


def test_a_flag_wins_over_the_environment_and_that_over_the_default() -> None:
    env = {"HIVENET_ROUTER_QUEUE_SIZE": "7"}
    assert good_router().queue_requests_max == 100
    assert good_router(env=env).queue_requests_max == 7
    assert good_router("--queue-size=8", env=env).queue_requests_max == 8


def test_a_variable_that_a_flag_overrides_is_not_even_read() -> None:
    assert good_router("--queue-size=8", env={"HIVENET_ROUTER_QUEUE_SIZE": "x"}).queue_requests_max == 8


def test_an_empty_flag_overrides_the_environment() -> None:
    env = {"HIVENET_ROUTER_POLICY_FILE": "policy.yaml"}
    assert good_whole_router(env=env).policy.policy_path == Path("policy.yaml")
    assert good_whole_router("--policy-file", "", env=env).policy.policy_path is None
    assert good_whole_router("--policy-file=", env=env).policy.policy_path is None


def test_an_empty_variable_counts_as_unset() -> None:
    env = {"HIVENET_ROUTER_QUEUE_SIZE": "", "HIVENET_ROUTER_DISK_DB_PATH": ""}
    assert good_whole_router(env=env).queue_requests_max == 100
    assert good_whole_router(env=env).storage.disk_db_path == Path("./badger_disk")


def test_names_of_variables_are_case_sensitive() -> None:
    assert good_router(env={"hivenet_router_queue_size": "7"}).queue_requests_max == 100


@pytest.mark.parametrize("flag", ["--disk-db-path", "--http-port", "--identity-path"])
def test_an_option_that_cannot_be_empty_refuses_an_empty_flag(flag: str) -> None:
    exit_ = refused(router(flag, ""))
    assert exit_.code == 1
    assert "must not be empty" in exit_.stderr


def test_integers_differ_between_flag_and_environment() -> None:
    assert good_router("--queue-size=010").queue_requests_max == 8
    assert good_router(env={"HIVENET_ROUTER_QUEUE_SIZE": "010"}).queue_requests_max == 10


def test_an_option_without_a_variable_in_the_original_has_one() -> None:
    env = {"HIVENET_ROUTER_MAX_CONCURRENT": "7", "HIVENET_ROUTER_UNHEALTHY_AFTER": "20s"}
    settings = good_router(env=env)
    assert (settings.forwards_max, settings.unhealthy_after_s) == (7, 20.0)


def test_a_setting_without_a_flag_in_the_original_has_one() -> None:
    assert good_router("--max-request-bytes", "5").request_body_bytes_max == 5
    assert good_whole_router("--rpm-burst-seconds", "5").access.rpm_burst_s == 5


def test_an_agent_reads_both_its_own_and_the_historical_variables() -> None:
    assert good_agent(env={"HIVENET_ROUTER_GPU_MODEL": "H200"}).gpu_model == "H200"
    assert good_agent(env={"HIVENET_AGENT_GPU_MODEL": "H200"}).gpu_model == "H200"
    assert good_agent(env={"HIVENET_AGENT_ENGINE": "sglang"}).engine == "sglang"
    assert good_agent(env={"HIVENET_ROUTER_DEPLOYMENT_ID": "d", "HIVENET_ROUTER_REPLICA_ID": "r"}).replica_id == "r"


def test_an_agent_does_not_read_the_router_s_variables() -> None:
    assert good_agent(env={"HIVENET_ROUTER_IDENTITY_PATH": "r.key"}).identity_path == Path("./agent_identity.key")


def test_an_agent_s_routers_come_from_its_own_variable() -> None:
    env = {"HIVENET_AGENT_ROUTERS": "a:1, b:2"}
    assert [str(address) for address in good_agent(env=env).routers] == ["a:1", "b:2"]
    assert [str(address) for address in good_agent("--routers=", env=env).routers] == ["localhost:50051"]


def test_tags_are_trimmed_and_may_be_none() -> None:
    assert good_agent("--tags", " a, b,,").tags == ("a", "b")
    assert good_agent("--tags", "").tags == ()


def test_a_machine_may_be_left_unnamed() -> None:
    assert good_agent("--machine=").machine == ""


def test_log_settings_of_the_original_are_understood() -> None:
    settings = good_router(env={"GOLOG_LOG_LEVEL": "policy=debug", "GOLOG_LOG_FMT": "json"})
    assert (settings.log_level, settings.log_levels_by_logger, settings.log_format) == (
        "info",
        {"policy": "debug"},
        "json",
    )


def test_where_each_value_came_from_can_be_told() -> None:
    settings = good_router("--queue-size=8", env={"HIVENET_ROUTER_QUEUE_DEPTH": "9"})
    sources = {row.flag: (row.text, row.source) for row in settings.resolved}
    assert sources["--queue-size"] == ("8", "command line")
    assert sources["--queue-depth"] == ("9", "HIVENET_ROUTER_QUEUE_DEPTH")
    assert sources["--max-concurrent"] == ("50", "default")
    assert sources["--jwt-secret-file"] == ("given", "HIVENET_ROUTER_JWT_SECRET")


def test_the_types_follow_the_program() -> None:
    result: RouterSettings | Exit = parse(Program.ROUTER, (), WITH_SECRET)
    assert isinstance(result, RouterSettings)
    assert result.jwt_secret.reveal() == SECRET.encode()
