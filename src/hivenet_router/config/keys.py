"""Which keys do the given secrets hold, and are they good enough to start with?

Invariant: a mistake or warning made here tells lengths and counts, never content. Rules that tie secrets to other
options are in `checks`.
"""

from dataclasses import dataclass
from typing import Final

from hivenet_router.config.given import Facts
from hivenet_router.config.secrets_file import (
    SECRET_BYTES_MIN,
    GivenSecret,
    RedirectSecret,
    Secret,
    read_redirect_secrets,
    split_keys,
)
from hivenet_router.config.values import UnusableError

JWT_SECRET: Final = "--jwt-secret-file"
JWT_SECRET_PREVIOUS: Final = "--jwt-secret-previous-file"
ADMIN_KEYS: Final = "--admin-api-keys-file"
REDIRECT_SECRETS: Final = "--redirect-secret-file"
VALKEY_PASSWORD: Final = "--sync-valkey-password-file"
BACKEND_KEY: Final = "--backend-api-key-file"
OPENAI_KEY: Final = "--openai-api-key-file"
ANTHROPIC_KEY: Final = "--anthropic-api-key-file"

HOW_TO_MAKE_A_SECRET: Final = (
    "make one with `(umask 077; openssl rand -hex 32 > secret.txt)` and give routers and agents the same file: "
    "--jwt-secret-file secret.txt"
)


@dataclass(frozen=True, slots=True)
class Keys:
    """The secrets of one program, each None or empty when not given."""

    jwt: Secret | None = None
    jwt_previous: Secret | None = None
    admin: tuple[Secret, ...] = ()
    redirect: tuple[RedirectSecret, ...] = ()
    valkey_password: Secret | None = None
    backend: Secret | None = None
    openai: Secret | None = None
    anthropic: Secret | None = None


def read_keys(facts: Facts) -> Keys:
    """The keys in the secrets that were given; what is wrong with them is noted in `facts`.

    Source: configuration.md §2.5, §4.5; decisions.md 17; cross-site.md X-6, X-7; several-routers.md §2.
    """
    jwt = _shared_secret(facts, JWT_SECRET, required=True)
    previous = _shared_secret(facts, JWT_SECRET_PREVIOUS, required=False)
    if jwt is not None and jwt == previous:
        facts.warnings.append(f"{JWT_SECRET_PREVIOUS} holds the current secret, so it has no effect")
    password = facts.secrets.get(VALKEY_PASSWORD)
    return Keys(
        jwt=jwt,
        jwt_previous=previous,
        admin=_admin_keys(facts),
        redirect=_redirect_secrets(facts),
        valkey_password=_without_line_end(password) if password else None,
        backend=_provider_key(facts, BACKEND_KEY),
        openai=_provider_key(facts, OPENAI_KEY),
        anthropic=_provider_key(facts, ANTHROPIC_KEY),
    )


def _shared_secret(facts: Facts, flag: str, *, required: bool) -> Secret | None:
    given = facts.secrets.get(flag)
    content = given.content.strip() if given else b""
    unreadable = given is None and bool(facts.given[flag].text)
    if unreadable:
        return None
    if given and not given.from_file and content != given.content:
        facts.warnings.append(
            f"{given.source}: white space around the secret was removed; a router or agent of the original keeps it "
            "and would not fit, so remove it from the variable"
        )
    if not content:
        if given:
            facts.object(flag, f"must not be empty: {HOW_TO_MAKE_A_SECRET}")
        elif required:
            facts.object(flag, f"must be given: {HOW_TO_MAKE_A_SECRET}")
        return None
    if len(content) < SECRET_BYTES_MIN:
        facts.object(
            flag, f"must hold at least {SECRET_BYTES_MIN} bytes, this one has {len(content)}; {HOW_TO_MAKE_A_SECRET}"
        )
        return None
    return Secret(content)


def _admin_keys(facts: Facts) -> tuple[Secret, ...]:
    given = facts.secrets.get(ADMIN_KEYS)
    try:
        return split_keys(given.content) if given else ()
    except UnusableError as error:
        facts.object(ADMIN_KEYS, error.rule)
        return ()


def _redirect_secrets(facts: Facts) -> tuple[RedirectSecret, ...]:
    given = facts.secrets.get(REDIRECT_SECRETS)
    try:
        return read_redirect_secrets(given.content, from_file=given.from_file) if given else ()
    except UnusableError as error:
        facts.object(REDIRECT_SECRETS, error.rule)
        return ()


def _provider_key(facts: Facts, flag: str) -> Secret | None:
    given = facts.secrets.get(flag)
    if given is None:
        return None
    content = given.content.strip()
    if not content:
        facts.object(flag, "must not be empty")
        return None
    if not all(0x21 <= byte <= 0x7E for byte in content):
        facts.object(flag, "must hold one key of printable ASCII characters")
        return None
    return Secret(content)


def _without_line_end(given: GivenSecret) -> Secret:
    content = given.content
    return Secret(content.removesuffix(b"\n").removesuffix(b"\r") if content.endswith(b"\n") else content)
