"""Does the router start, or refuse to, with the redirect settings of the recorded cases?"""

import json
from pathlib import Path
from typing import TypedDict

import pytest
from tests.config.given import whole_router

from hivenet_router.config import RouterSettings


class Case(TypedDict):
    name: str
    starts: bool
    flags: dict[str, str]
    env: dict[str, str]
    secret_file: str | None
    auth_mode: str


class Cases(TypedDict):
    cases: list[Case]


def load_cases() -> list[Case]:
    loaded: Cases = json.loads(Path(__file__).with_name("cross_site_config.json").read_text())
    return loaded["cases"]


@pytest.mark.parametrize("case", load_cases(), ids=lambda case: str(case["name"]))
def test_a_router_starts_only_with_redirect_settings_that_fit_together(case: Case, tmp_path: Path) -> None:
    argv = [f"{flag}={text}" for flag, text in case["flags"].items()]
    argv.append(f"--auth-mode={case['auth_mode']}")
    if case["secret_file"] is not None:
        path = tmp_path / "redirect.txt"
        path.write_bytes(case["secret_file"].encode())
        argv.append(f"--redirect-secret-file={path}")
    result = whole_router(*argv, env=case["env"])
    assert isinstance(result, RouterSettings) is case["starts"], result


def test_one_label_covers_a_whole_top_level_domain_and_is_told() -> None:
    settings = whole_router(
        "--site-id=fr-1",
        "--redirect-allowed-domains=.com",
        env={"HIVENET_ROUTER_REDIRECT_SECRETS": "k1:" + "s" * 32},
    )
    assert isinstance(settings, RouterSettings)
    assert any(".com covers a whole top-level domain" in warning for warning in settings.warnings)


def test_static_keys_are_named_as_what_excludes_a_site_id() -> None:
    result = whole_router(
        "--site-id=fr-1",
        "--auth-mode=api-key",
        "--redirect-allowed-domains=.example.com",
        env={"HIVENET_ROUTER_REDIRECT_SECRETS": "k1:" + "s" * 32},
    )
    assert not isinstance(result, RouterSettings)
    assert any(mistake.name == "--site-id" for mistake in result.mistakes)
