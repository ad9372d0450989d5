"""Is every value and combination that cannot work refused before the start, with what to do about it?"""

import pytest
from tests.config.given import agent, good_agent, good_router, good_whole_router, refused, router, whole_router


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (("--queue-size", "x"), 2, "must be a whole number, from 0 to 2147483647 requests"),
        (("--queue-size", "-1"), 1, "from 0 to"),
        (("--max-concurrent", "0"), 1, "from 1 to"),
        (("--max-tries-per-step", "0"), 1, "from 1 to"),
        (("--queue-depth", "-1"), 1, "from 0 to"),
        (("--p2p-max-conns-per-ip", "0"), 1, "from 1 to"),
        (("--request-timeout", "60"), 2, "must be a duration"),
        (("--request-timeout", "0"), 1, "more than 0s"),
        (("--request-timeout", "-1s"), 1, "more than 0s"),
        (("--enqueue-timeout", "-1ns"), 1, "at least 0s"),
        (("--stream-idle-timeout", "-1s"), 1, "at least 0s"),
        (("--health-check-interval", "0"), 1, "more than 0s"),
        (("--universal-flush-interval", "0"), 1, "more than 0s"),
        (("--heartbeat-interval", "500ms"), 1, "from 1s to"),
        (("--heartbeat-interval", "1500ms"), 1, "whole seconds"),
        (("--session-ttl", "5m"), 1, "more than 5m"),
        (("--session-ttl", "5m0.5s"), 1, "whole seconds"),
        (("--drain-delay", "5m1s"), 1, "from 0s to 5m"),
        (("--shutdown-timeout", "2h"), 1, "from 0s to 1h"),
        (("--p2p-port", "65536"), 1, "from 0 to 65535"),
        (("--p2p-listen-addr", "localhost"), 1, "must be an IP address"),
        (("--p2p-announce-addr", "1.2.3.4:9000"), 1, "must be a multiaddr"),
        (("--http-port", "8080"), 1, "a port alone is written :8080"),
        (("--hold-slot-for-stream=yes",), 2, "must be true or false"),
        (("--max-request-bytes", "-1"), 1, "at least 0 bytes"),
        (("--max-buffered-response", "8MiB"), 2, "must be a whole number"),
        (("--admit-fraction", "0"), 1, "more than 0 and at most 1"),
        (("--admit-fraction", "1.1"), 1, "more than 0 and at most 1"),
        (("--admit-fraction", "nan"), 2, "must be a decimal number"),
        (("--admit-park-timeout", "-1ms"), 1, "at least 0s"),
        (("--rpm-burst-seconds", "60"), 1, "from 0 to 59 seconds"),
        (("--quota-backend", "redis"), 1, "must be one of memory, badger, sqlite"),
        (("--auth-mode", "API-KEY"), 1, "must be one of none, api-key, dynamic"),
        (("--auth-mode", "api-key"), 1, "without --auth-config-file"),
        (("--log-level", "loud"), 1, "must be one of debug, info"),
        (("--log-format", "xml"), 1, "must be one of auto, color, nocolor, json"),
        (("--trusted-proxies", "proxy"), 1, "comma list of IP addresses"),
        (("--otlp-endpoint", "collector"), 1, "must be host:port"),
        (("--disk-db-ttl", "36501"), 1, "at most 36500 days"),
        (("--sync-interval", "99ms"), 1, "from 100ms to 10s"),
        (("--sync-min-routers", "0"), 1, "from 1 to"),
        (("--router-id", "a b"), 1, "1 to 128 letters"),
        (("--advertise-grpc-addr", "0.0.0.0:50051"), 1, "agents can dial it"),
        (("--advertise-grpc-addr", ":50051"), 1, "must be host:port"),
        (("--sync-store", "redis"), 1, "must be one of none, valkey"),
        (("--sync-store", "valkey"), 1, "must be given with --sync-store valkey"),
    ],
)
def test_a_router_refuses_a_value_it_cannot_use(argv: tuple[str, ...], code: int, words: str) -> None:
    exit_ = refused(whole_router(*argv))
    assert exit_.code == code
    assert words in exit_.stderr
    assert len(exit_.mistakes) == 1


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (("--engine", "tgi"), 1, "must be one of vllm, ollama"),
        (("--capability", "chat"), 1, "must be one of llm, embedding, reranker"),
        (("--capacity", "0"), 1, "from 1 to 2147483647"),
        (("--capacity", "4294967297"), 1, "from 1 to 2147483647"),
        (("--backend-url", "localhost:8000"), 1, "must be the base URL"),
        (("--health-url", "/health"), 1, "must be an absolute URL"),
        (("--backend-url", "https://h:8000"), 1, '--backend-url "https://h:8000" (command line) must be http://'),
        (("--engine", "custom", "--model", "m", "--health-url", "HTTPS://h/x"), 1, "use http://"),
        (("--engine", "custom", "--health-url", "http://h/"), 1, "--model must be given with --engine custom"),
        (("--engine", "custom", "--model", "m"), 1, "--health-url must be given with --engine custom"),
        (("--engine", "ollama", "--capability", "reranker"), 1, "cannot rerank"),
        (("--router-grpc", "router"), 1, "must be host:port"),
        (("--routers", "a:1,b"), 1, "must be host:port"),
        (("--p2p-listen-port", "-1"), 1, "from 0 to 65535"),
        (("--http-timeout", "-1s"), 1, "at least 0s"),
        (("--hardware-sample-interval", "0"), 1, "more than 0s"),
        (("--routing-signal-interval", "-1s"), 1, "more than 0s"),
        (("--region", ""), 1, "must not be empty"),
        (("--organization=",), 1, "must not be empty"),
        (("--model", "m" * 257), 1, "at most 256 bytes"),
        (("--model", "\udcff"), 1, "valid UTF-8"),
    ],
)
def test_an_agent_refuses_a_value_it_cannot_use(argv: tuple[str, ...], code: int, words: str) -> None:
    exit_ = refused(agent(*argv))
    assert exit_.code == code
    assert words in exit_.stderr
    assert len(exit_.mistakes) == 1


@pytest.mark.parametrize(
    ("argv", "named", "other"),
    [
        (("--heartbeat-interval", "15s"), "--heartbeat-interval", "--unhealthy-after"),
        (("--unhealthy-after", "5s"), "--unhealthy-after", "--heartbeat-interval"),
        (("--unhealthy-after", "30s"), "--unhealthy-after", "--remove-after"),
        (("--remove-after", "15s"), "--remove-after", "--unhealthy-after"),
    ],
)
def test_silence_is_noticed_before_it_is_final(argv: tuple[str, ...], named: str, other: str) -> None:
    """The option that was set is named, not the default it collides with."""
    exit_ = refused(router(*argv))
    assert [mistake.name for mistake in exit_.mistakes] == [named]
    assert other in exit_.mistakes[0].rule


def test_an_unreadable_interval_causes_no_second_complaint() -> None:
    exit_ = refused(router("--heartbeat-interval", "x", "--unhealthy-after", "1s", "--remove-after", "2s"))
    assert [mistake.name for mistake in exit_.mistakes] == ["--heartbeat-interval"]


def test_all_mistakes_are_reported_at_once() -> None:
    exit_ = refused(
        router(
            "--queue-size",
            "x",
            "--unknown",
            "--max-concurrent=0",
            "stray",
            env={
                "HIVENET_ROUTER_REQUEST_TIMEOUT": "60",
                "HIVENET_ROUTER_JWT_SECRET": "changeme",
                "HIVENET_ROUTER_UNHEALTHY_AFTER": "1m",
            },
        )
    )
    assert {mistake.name for mistake in exit_.mistakes} == {
        "--queue-size",
        "--unknown",
        "--max-concurrent",
        "argument 5",
        "HIVENET_ROUTER_REQUEST_TIMEOUT",
        "HIVENET_ROUTER_JWT_SECRET",
        "HIVENET_ROUTER_UNHEALTHY_AFTER",
    }
    assert "hivenet-router cannot start, 7 mistakes:" in exit_.stderr
    assert exit_.code == 2


def test_a_mistake_tells_name_value_origin_and_rule() -> None:
    exit_ = refused(router(env={"HIVENET_ROUTER_REQUEST_TIMEOUT": "60"}))
    assert exit_.code == 1
    assert (
        'HIVENET_ROUTER_REQUEST_TIMEOUT "60" (environment, sets --request-timeout) must be a duration' in exit_.stderr
    )


def test_a_value_is_shown_bounded_and_on_one_line() -> None:
    exit_ = refused(router("--http-port", "a\nb\x1b" + "c" * 1000))
    shown = exit_.mistakes[0].value
    assert "\\n" in shown
    assert "\x1b" not in shown
    assert len(shown) < 300


def test_credentials_in_a_url_are_not_shown() -> None:
    for url in ("http://hush:hush@host:1", "http://hush:hu/sh@host:1", "http://hush@hush@host"):
        exit_ = refused(agent("--backend-url", url))
        assert "hu" not in exit_.stderr.replace(exit_.mistakes[0].rule, "")
        assert exit_.mistakes[0].value.startswith('"…@host')


def test_credentials_in_a_url_are_refused_as_such() -> None:
    assert "without user name or password" in refused(agent("--backend-url", "http://u:p@host:1")).stderr


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("--quota-backend", "badger"), "must be memory with --sync-store valkey"),
        (("--quota-backend", "sqlite"), "must be memory with --sync-store valkey"),
        (("--sync-valkey-addrs", "a:1,b:2"), "Sentinels with --sync-valkey-sentinel-master"),
        (("--stream-timeout", "0"), "must be more than 0s with --sync-store valkey"),
    ],
)
def test_a_shared_store_excludes_some_settings(argv: tuple[str, ...], words: str) -> None:
    exit_ = refused(whole_router("--sync-store=valkey", "--sync-valkey-addrs=a:1", *argv))
    assert exit_.code == 1
    assert words in exit_.stderr


def test_a_shared_store_gives_streams_a_time_limit() -> None:
    settings = good_whole_router("--sync-store=valkey", "--sync-valkey-addrs=a:1", "--request-timeout=2m")
    assert settings.stream_timeout_s == 120.0
    assert ("--stream-timeout", "2m0s") in {(row.flag, row.text) for row in settings.resolved}


def test_a_name_agents_can_dial_is_advertised() -> None:
    assert str(good_whole_router("--advertise-grpc-addr", "router-0:50051").sync.advertised_grpc) == "router-0:50051"


def test_the_store_s_name_for_the_site_defaults_to_the_site_id() -> None:
    redirect = ("--site-id=fr-1", "--redirect-allowed-domains=.example.com")
    env = {"HIVENET_ROUTER_REDIRECT_SECRETS": "k1:" + "s" * 32}
    assert good_whole_router(*redirect, env=env).sync.site == "fr-1"
    assert good_whole_router(*redirect, "--sync-site=a", env=env).sync.site == "a"


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("--sync-interval", "2s"), "no effect without --sync-store valkey"),
        (("--redirect-token-ttl", "2s"), "no effect without --site-id"),
        (("--sync-store=valkey", "--sync-valkey-addrs=a:1"), "--sync-min-routers is 1"),
    ],
)
def test_a_setting_without_its_effect_is_told_at_start(argv: tuple[str, ...], words: str) -> None:
    assert any(words in warning for warning in good_whole_router(*argv).warnings)


def test_an_auth_mode_beside_a_file_is_told_to_be_unused() -> None:
    warnings = good_whole_router("--auth-config-file=a.yaml", "--auth-mode=none").warnings
    assert any("--auth-mode has no effect" in warning for warning in warnings)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("--backend-url", "http://h:8000/v1"), "requests go to http://h:8000/v1/…"),
        (("--health-url", "http://h/"), "--health-url has no effect with --engine vllm"),
        (("--engine", "infinity"), "every chat request will fail"),
        (("--routers", "a:1", "--router-grpc", "b:2"), "--router-grpc has no effect"),
    ],
)
def test_an_agent_tells_what_will_not_do_what_it_seems_to(argv: tuple[str, ...], words: str) -> None:
    assert any(words in warning for warning in good_agent(*argv).warnings)


def test_a_trailing_slash_alone_is_dropped_silently() -> None:
    assert good_agent("--backend-url", "http://h:8000/").warnings == ()


def test_a_variable_that_is_no_setting_is_told() -> None:
    warnings = good_router(env={"HIVENET_ROUTER_QUEUE_SIZ": "7", "GOLOG_FILE": "x"}).warnings
    assert any("HIVENET_ROUTER_QUEUE_SIZ is set but is no setting" in warning for warning in warnings)
    assert any("GOLOG_FILE: not read" in warning for warning in warnings)


def test_variables_of_the_other_program_and_of_kubernetes_are_no_surprise() -> None:
    env = {
        "HIVENET_AGENT_ENGINE": "vllm",
        "HIVENET_ROUTER_SERVICE_HOST": "10.0.0.1",
        "HIVENET_ROUTER_PORT": "tcp://10.0.0.1:80",
        "HIVENET_ROUTER_PORT_8080_TCP_ADDR": "10.0.0.1",
        "HIVENET_ROUTER_SERVICE_PORT_HTTP": "80",
    }
    assert good_router("--p2p-listen-addr=0.0.0.0", env=env).warnings == ()


@pytest.mark.parametrize(
    "argv",
    [(), ("--grpc-port=0.0.0.0:50051",), ("--grpc-port=[::]:1",), ("--grpc-port=gpu-1:1", "--p2p-listen-addr=::1")],
)
def test_a_link_that_listens_on_loopback_behind_an_open_grpc_port_is_told(argv: tuple[str, ...]) -> None:
    (warning,) = good_router(*argv).warnings
    assert "--p2p-listen-addr 0.0.0.0" in warning
    assert "--p2p-announce-addr" in warning


@pytest.mark.parametrize(
    "argv",
    [
        ("--p2p-listen-addr=0.0.0.0",),
        ("--p2p-listen-addr=10.0.0.7",),
        ("--p2p-announce-addr=/dns4/router.example.com/tcp/9000",),
        ("--grpc-port=127.0.0.1:50051",),
        ("--grpc-port=localhost:50051",),
        ("--grpc-port=[::1]:50051",),
    ],
)
def test_a_link_as_far_in_reach_as_the_grpc_port_is_nothing_to_remark_on(argv: tuple[str, ...]) -> None:
    assert good_router(*argv).warnings == ()


def test_a_router_starts_without_the_permission_for_an_open_admin_api() -> None:
    assert not good_router().access.allow_insecure_admin
    assert good_router(env={"HIVENET_ROUTER_ALLOW_INSECURE_ADMIN": "1"}).access.allow_insecure_admin


def test_a_bad_boolean_variable_is_refused_instead_of_taken_as_false() -> None:
    assert refused(router(env={"HIVENET_ROUTER_ALLOW_INSECURE_ADMIN": "yes"})).code == 1


def test_a_backend_behind_tls_is_told_with_all_else_and_by_a_check() -> None:
    exit_ = refused(agent("--check-config", "--capacity=0", env={"HIVENET_AGENT_BACKEND_URL": "https://h"}))
    assert [mistake.name for mistake in exit_.mistakes] == ["--capacity", "HIVENET_AGENT_BACKEND_URL"]
    assert exit_.code == 1
