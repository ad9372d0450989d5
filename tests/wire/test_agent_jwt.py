"""Agent tokens: what we mint equals the original's, what we take differs from it only where listed below."""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivenet_router.wire.jwt import AgentClaims, TokenRefused, mint_agent_token, subject_of, verify_agent_token

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "wire-jwt.json").read_text("utf-8"))
SECRET = VECTORS["secret_utf8"].encode()
PEER = "12D3KooWA4Xop1JaT3MHxwYMkCepYsv4iPVopMXwCz5iHYdBfeSB"
NOW = 1_700_000_000.0

OURS_DIFFER = {
    "no exp": "a token must end: `exp` is required",
    "ttl 10 years": "a token lives at most 24 hours",
    "expired 1s ago": "clocks may differ by 60 s",
    "expires now": "clocks may differ by 60 s",
    "iat 2s ahead": "clocks may differ by 60 s",
    "iat +30s": "clocks may differ by 60 s",
    "nbf +30s": "clocks may differ by 60 s",
}
"""Cases of the matrix in which we answer otherwise than the original. Source: wire.md §14 no. 14."""


def encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def signed(claims: object, *, header: object = None, key: bytes = SECRET, digest: str = "sha256") -> str:
    head = header if header is not None else {"alg": "HS256", "typ": "JWT"}
    signing_input = f"{encoded(json.dumps(head).encode())}.{encoded(json.dumps(claims).encode())}"
    return f"{signing_input}.{encoded(hmac.digest(key, signing_input.encode(), digest))}"


def base(**changes: object) -> dict[str, object]:
    claims: dict[str, object] = {"exp": NOW + 3600, "iat": NOW, "iss": "hivenet-router", "sub": subject_of(PEER)}
    claims.update(changes)
    return {name: value for name, value in claims.items() if value is not None}


def with_header(**members: object) -> str:
    return signed(base(), header={"alg": "HS256", "typ": "JWT", **members})


MATRIX: dict[str, Callable[[], str]] = {
    "ok": lambda: signed(base()),
    "no typ": lambda: signed(base(), header={"alg": "HS256"}),
    "no exp": lambda: signed(base(exp=None)),
    "no iat": lambda: signed(base(iat=None)),
    "no iss": lambda: signed(base(iss=None)),
    "wrong iss": lambda: signed(base(iss="somebody")),
    "no sub": lambda: signed(base(sub=None)),
    "empty sub": lambda: signed(base(sub="")),
    "expired 1s ago": lambda: signed(base(exp=NOW - 1)),
    "expires now": lambda: signed(base(exp=NOW)),
    "iat 2s ahead": lambda: signed(base(iat=NOW + 2)),
    "iat +30s": lambda: signed(base(iat=NOW + 30)),
    "nbf +30s": lambda: signed(base(nbf=NOW + 30)),
    "exp string": lambda: signed(base(exp=str(int(NOW) + 3600))),
    "exp float": lambda: signed(base(exp=NOW + 3600.5)),
    "aud present": lambda: signed(base(aud="anyone")),
    "jti + extra claims": lambda: signed(base(jti="1", role="x", nested={"a": [1]})),
    "ttl 10 years": lambda: signed(base(exp=NOW + 10 * 365 * 86400)),
    "alg HS512": lambda: signed(base(), header={"alg": "HS512", "typ": "JWT"}, digest="sha512"),
    "alg HS512 header with sha256 sig": lambda: signed(base(), header={"alg": "HS512", "typ": "JWT"}),
    "alg none": lambda: signed(base(), header={"alg": "none", "typ": "JWT"}).rpartition(".")[0] + ".",
    "wrong key": lambda: signed(base(), key=SECRET + b"x"),
    "kid present": lambda: with_header(kid="k1"),
    "bad sig": lambda: signed(base())[:-2] + "AA",
    "Bearer prefix": lambda: "Bearer " + signed(base()),
    "trailing newline": lambda: signed(base()) + "\n",
    "leading space": lambda: " " + signed(base()),
    "empty": lambda: "",
    "garbage": lambda: "garbage",
    "sub not string": lambda: signed(base(sub=5)),
    "padded b64": lambda: signed(base()) + "=",
}


def reason(token: str, *, now: float = NOW, secrets: tuple[bytes, ...] = (SECRET,)) -> str:
    with pytest.raises(TokenRefused) as caught:
        verify_agent_token(secrets, token, now=now)
    return caught.value.reason


def test_a_minted_token_equals_the_original_byte_for_byte() -> None:
    fixed = VECTORS["fixed"][0]
    claims = fixed["claims"]

    token = mint_agent_token(SECRET, PEER, lifetime_s=claims["exp"] - claims["iat"], now=claims["iat"] + 0.9)

    assert token == fixed["token"]


@pytest.mark.parametrize("fixed", VECTORS["fixed"], ids=lambda fixed: fixed["name"])
def test_the_fixed_tokens_pass_the_signature_and_fail_on_their_74_years(fixed: dict[str, str]) -> None:
    assert reason(fixed["token"]) == "invalid token: it lives longer than 24 hours"


@pytest.mark.parametrize("case", VECTORS["accept"], ids=lambda case: case["name"])
def test_a_case_of_the_matrix_goes_as_in_the_original_unless_listed(case: dict[str, object]) -> None:
    name = str(case["name"])
    ours = bool(case["accepted"]) != (name in OURS_DIFFER)

    if ours:
        assert verify_agent_token([SECRET], MATRIX[name](), now=NOW).subject == subject_of(PEER)
    else:
        assert reason(MATRIX[name]())


def test_the_matrix_is_complete_and_its_differences_are_of_it() -> None:
    names = [case["name"] for case in VECTORS["accept"]]

    assert set(names) == MATRIX.keys()
    assert OURS_DIFFER.keys() <= MATRIX.keys()


def test_what_is_minted_is_accepted_until_a_minute_after_its_end() -> None:
    token = mint_agent_token(SECRET, PEER, now=NOW)

    assert verify_agent_token([SECRET], token, now=NOW) == AgentClaims(subject_of(PEER), NOW + 3600)
    assert verify_agent_token([SECRET], token, now=NOW + 3659.9).subject == subject_of(PEER)
    assert "expired" in reason(token, now=NOW + 3660)


@pytest.mark.parametrize("claim", ["iat", "nbf"])
def test_a_token_may_come_from_a_clock_a_minute_ahead_and_no_more(claim: str) -> None:
    assert verify_agent_token([SECRET], signed(base(**{claim: NOW + 60})), now=NOW).subject == subject_of(PEER)
    assert f"'{claim}' lies in the future" in reason(signed(base(**{claim: NOW + 61})))


def test_a_day_is_the_longest_life_with_or_without_a_birth() -> None:
    day = 24 * 3600

    assert verify_agent_token([SECRET], signed(base(exp=NOW + day)), now=NOW).subject == subject_of(PEER)
    assert "longer than 24 hours" in reason(signed(base(exp=NOW + day + 1)))
    assert verify_agent_token([SECRET], signed(base(iat=None, exp=NOW + day + 60)), now=NOW).subject == subject_of(PEER)
    assert "longer than 24 hours" in reason(signed(base(iat=None, exp=NOW + day + 61)))


def test_either_secret_of_a_rotation_is_good() -> None:
    old, new = b"o" * 32, b"n" * 32

    assert verify_agent_token([new, old], mint_agent_token(old, PEER, now=NOW), now=NOW).subject == subject_of(PEER)
    assert verify_agent_token([new, old], mint_agent_token(new, PEER, now=NOW), now=NOW).subject == subject_of(PEER)
    assert "signature" in reason(mint_agent_token(SECRET, PEER, now=NOW), secrets=(new, old))
    assert "no secret" in reason(mint_agent_token(SECRET, PEER, now=NOW), secrets=())


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"exp": "NaN"}, "'exp' is not a time"),
        ({"exp": "soon"}, "'exp' is not a time"),
        ({"exp": 10**400}, "'exp' is not a time"),
        ({"exp": [1]}, "wrong type"),
        ({"exp": True}, "wrong type"),
        ({"iat": {}}, "wrong type"),
        ({"sub": None}, "token missing required 'sub' claim"),
        ({"iss": "Hivenet-Router"}, "issuer"),
    ],
)
def test_odd_claims_are_refused_with_their_reason(changes: dict[str, object], says: str) -> None:
    claims = base() | changes
    assert says in reason(signed({name: value for name, value in claims.items() if value is not None}))


def test_a_reason_never_holds_a_part_of_the_token() -> None:
    token = mint_agent_token(b"x" * 32, PEER, now=NOW)

    assert not any(part in reason(token) for part in token.split("."))


def test_a_critical_header_that_nobody_knows_is_refused() -> None:
    assert reason(with_header(crit=["exp2"], exp2=1)) == "invalid token: not a JWT"


@pytest.mark.parametrize(
    "token",
    ["a" * 9000, "é.b.c", "..", "a.b", ".".join([encoded(b"[" * 5000), "e30", "e30"]), "\ud800.a.b"],
)
def test_what_is_no_token_is_refused(token: str) -> None:
    assert reason(token) == "invalid token: not a JWT"


def test_a_deeply_nested_payload_is_refused() -> None:
    signing_input = ".".join([encoded(b'{"alg":"HS256"}'), encoded(b"[" * 3000)])
    token = f"{signing_input}.{encoded(hmac.digest(SECRET, signing_input.encode(), hashlib.sha256))}"

    assert "wrong type" in reason(token)


@pytest.mark.parametrize("length", [0, 31])
def test_a_short_secret_neither_signs_nor_checks(length: int) -> None:
    with pytest.raises(ValueError, match="at least 32"):
        mint_agent_token(bytes(length), PEER, now=NOW)
    with pytest.raises(ValueError, match="at least 32"):
        verify_agent_token([bytes(length)], "a.b.c", now=NOW)


@given(st.text(max_size=200))
def test_any_text_is_refused_in_one_way(token: str) -> None:
    with pytest.raises(TokenRefused):
        verify_agent_token([SECRET], token, now=NOW)


@given(
    st.dictionaries(
        st.sampled_from(["exp", "iat", "nbf", "iss", "sub"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
            lambda inner: st.lists(inner, max_size=2),
        ),
    )
)
def test_any_signed_claims_are_accepted_or_refused_in_one_way(claims: dict[str, object]) -> None:
    try:
        accepted = verify_agent_token([SECRET], signed(base(**claims)), now=NOW)
    except TokenRefused:
        return
    assert accepted.subject
    assert NOW - 60 < accepted.expires_s <= NOW + 24 * 3600 + 60
