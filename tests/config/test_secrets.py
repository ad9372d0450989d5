"""Are secrets found where they were put, checked, and never shown?"""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.config.given import SECRET, agent, good_agent, good_router, good_whole_router, refused, router

from hivenet_router.config import Exit, Program, Secret, parse
from hivenet_router.config.secrets_file import SECRET_FILE_BYTES_MAX, read_redirect_secrets, split_keys
from hivenet_router.config.values import UnusableError

Write = Callable[[bytes], str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_file(content: bytes) -> str:
        path = tmp_path / "secret.txt"
        path.touch(mode=0o600)
        path.write_bytes(content)
        return str(path)

    return write_file


def test_a_secret_hides_itself_in_every_text_form() -> None:
    secret = Secret(b"hush")
    assert {repr(secret), str(secret), f"{secret}", f"{[secret]}"} == {"Secret(…)", "[Secret(…)]"}
    assert secret.reveal() == b"hush"
    assert len(secret) == 4


def test_secrets_are_equal_when_their_bytes_are() -> None:
    assert Secret(b"a") == Secret(b"a")
    assert Secret(b"a") != Secret(b"b")
    assert Secret(b"a") != b"a"
    assert len({Secret(b"a"), Secret(b"a")}) == 1


def test_settings_do_not_show_their_secrets() -> None:
    settings = good_router(env={"HIVENET_ROUTER_OPENAI_API_KEY": "sk-hush"})
    assert SECRET not in repr(settings)
    assert "hush" not in repr(settings)


@pytest.mark.parametrize("program", list(Program))
def test_a_missing_secret_is_answered_with_how_to_make_one(program: Program) -> None:
    result = parse(program, (), {})
    assert isinstance(result, Exit)
    assert result.code == 1
    assert "openssl rand -hex 32 > secret.txt" in result.stderr
    assert "--jwt-secret-file secret.txt" in result.stderr


def test_a_file_wins_over_the_variable_and_loses_its_white_space(write: Write) -> None:
    path = write(b"\n " + b"f" * 32 + b"\r\n")
    settings = good_router("--jwt-secret-file", path, "--p2p-listen-addr", "0.0.0.0")
    assert settings.jwt_secret.reveal() == b"f" * 32
    assert settings.warnings == ()


def test_an_empty_file_wins_too_and_is_a_missing_secret(write: Write) -> None:
    exit_ = refused(router("--jwt-secret-file", write(b" \n")))
    assert exit_.code == 1
    assert "must not be empty" in exit_.stderr


def test_an_empty_file_flag_turns_the_variable_off() -> None:
    assert "must be given" in refused(router("--jwt-secret-file", "")).stderr


def test_white_space_in_the_variable_is_removed_with_a_warning() -> None:
    settings = good_agent(env={"HIVENET_ROUTER_JWT_SECRET": f" {SECRET}\n"})
    assert settings.jwt_secret.reveal() == SECRET.encode()
    assert any("HIVENET_ROUTER_JWT_SECRET: white space" in warning for warning in settings.warnings)


@pytest.mark.parametrize(("size", "fits"), [(31, False), (32, True)])
def test_a_shared_secret_has_at_least_32_bytes(size: int, fits: bool) -> None:
    result = agent(env={"HIVENET_ROUTER_JWT_SECRET": "s" * size + "\n"})
    assert isinstance(result, Exit) is not fits


def test_a_secret_counts_bytes_after_trimming_and_may_be_binary(write: Write) -> None:
    assert good_router("--jwt-secret-file", write(b"\xff" * 32 + b"\n")).jwt_secret.reveal() == b"\xff" * 32
    assert refused(router("--jwt-secret-file", write(b"s" * 31 + b"\n"))).code == 1


def test_the_agent_s_own_variable_is_read_after_the_common_one() -> None:
    other = "o" * 32
    assert good_agent(env={"HIVENET_AGENT_JWT_SECRET": other}).jwt_secret.reveal() == SECRET.encode()
    settings = parse(Program.AGENT, (), {"HIVENET_AGENT_JWT_SECRET": other})
    assert not isinstance(settings, Exit)
    assert settings.jwt_secret.reveal() == other.encode()


def test_the_previous_secret_is_optional_and_checked_alike(write: Write) -> None:
    assert good_router().jwt_secret_previous is None
    settings = good_router("--jwt-secret-previous-file", write(b"p" * 32))
    assert settings.jwt_secret_previous == Secret(b"p" * 32)
    assert refused(router(env={"HIVENET_ROUTER_JWT_SECRET_PREVIOUS": "short"})).code == 1
    assert refused(router("--jwt-secret-previous-file", write(b""))).code == 1


def test_a_previous_secret_equal_to_the_current_one_is_told() -> None:
    warnings = good_router(env={"HIVENET_ROUTER_JWT_SECRET_PREVIOUS": SECRET}).warnings
    assert any("holds the current secret" in warning for warning in warnings)


@pytest.mark.parametrize(("mode", "is_told"), [(0o644, True), (0o604, True), (0o640, False), (0o600, False)])
def test_a_secret_file_that_others_can_read_is_warned_of(write: Write, mode: int, is_told: bool) -> None:
    path = write(b"s" * 32)
    Path(path).chmod(mode)
    for settings in (good_router("--jwt-secret-file", path), good_agent("--jwt-secret-file", path)):
        told = [warning for warning in settings.warnings if "--jwt-secret-file: other users" in warning]
        assert bool(told) is is_told
        assert all(path in warning for warning in told)


def test_an_unreadable_file_is_named_once(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.txt", tmp_path):
        exit_ = refused(router("--jwt-secret-file", str(path)))
        assert len(exit_.mistakes) == 1
        assert str(path) in exit_.stderr
        assert exit_.code == 1


def test_a_secret_passed_where_its_file_was_meant_is_not_shown() -> None:
    exit_ = refused(router("--jwt-secret-file", SECRET))
    assert SECRET not in exit_.stderr
    assert "looks like a secret rather than a path" in exit_.stderr


def test_a_file_too_large_for_a_secret_is_refused(write: Write) -> None:
    assert "at most" in refused(router("--jwt-secret-file", write(b"x" * (SECRET_FILE_BYTES_MAX + 1)))).stderr


def test_a_path_with_a_nul_is_refused() -> None:
    assert refused(router("--jwt-secret-file", "a\x00b")).code == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HIVENET_ROUTER_JWT_SECRET", "hush"),
        ("HIVENET_ROUTER_JWT_SECRET_PREVIOUS", "hush"),
        ("HIVENET_ROUTER_ADMIN_API_KEYS", "hush,hush"),
        ("HIVENET_ROUTER_ADMIN_API_KEYS", " , "),
        ("HIVENET_ROUTER_OPENAI_API_KEY", "hush hush"),
        ("HIVENET_ROUTER_ANTHROPIC_API_KEY", " "),
        ("HIVENET_ROUTER_REDIRECT_SECRETS", "hush"),
        ("HIVENET_ROUTER_REDIRECT_SECRETS", "k1:hush"),
    ],
)
def test_a_bad_secret_is_refused_without_being_shown(name: str, value: str) -> None:
    exit_ = refused(router(env={name: value}))
    assert exit_.code == 1
    assert any(mistake.name == name for mistake in exit_.mistakes)
    assert "hush" not in exit_.stderr


def test_no_secret_is_printed_by_a_check(write: Write) -> None:
    path = write(b"hush" * 8)
    env = {"HIVENET_ROUTER_OPENAI_API_KEY": "hush1", "HIVENET_ROUTER_ANTHROPIC_API_KEY": "hush2"}
    result = router("--check-config", "--jwt-secret-file", path, env=env)
    assert isinstance(result, Exit)
    assert result.code == 0
    assert "hush" not in result.stdout + result.stderr
    assert path in result.stdout


def test_admin_keys_come_comma_separated_or_one_a_line(write: Write) -> None:
    assert good_whole_router("--admin-api-keys-file", write(b"a, b\nc\n\n")).access.admin_keys == split_keys(b"a,b,c")


def test_provider_keys_are_trimmed() -> None:
    settings = good_router(env={"HIVENET_ROUTER_OPENAI_API_KEY": " sk-1\n", "HIVENET_ROUTER_ANTHROPIC_API_KEY": "sk-2"})
    assert settings.access.openai_api_key == Secret(b"sk-1")
    assert settings.access.anthropic_api_key == Secret(b"sk-2")


@pytest.mark.parametrize(
    ("content", "password"),
    [(b"p\n", b"p"), (b"p\r\n", b"p"), (b"p\n\n", b"p\n"), (b" p ", b" p "), (b"p\r", b"p\r")],
)
def test_a_password_loses_one_line_end_only(write: Write, content: bytes, password: bytes) -> None:
    settings = good_whole_router("--sync-valkey-password-file", write(content))
    assert settings.sync.valkey_password == Secret(password)


def test_redirect_secrets_in_the_environment_are_trimmed() -> None:
    secrets = read_redirect_secrets(b" k1:" + b"s" * 32 + b" , k2:" + b"t" * 33, from_file=False)
    assert [(key.id, len(key.secret)) for key in secrets] == [("k1", 32), ("k2", 33)]


@pytest.mark.parametrize("content", [b"", b"\n\n", b"k1", b":" + b"s" * 32, b"k1:" + b"s" * 31, b"\xff:" + b"s" * 32])
def test_a_bad_redirect_secret_is_refused_by_its_number(content: bytes) -> None:
    with pytest.raises(UnusableError, match=r"at least one|entry 1"):
        read_redirect_secrets(content, from_file=True)
