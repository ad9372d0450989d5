"""Does this token come from a holder of the shared secret, now? HS256 agent tokens, minted and verified.

Invariant: `verify_agent_token` returns only for a token signed with one of the given secrets, for this issuer, with a
subject, within its time and with a bounded life. Times are checked here against `now`, the signature by PyJWT. That
the subject is the peer at the other end is checked at `/register` (core/sessions.py). The token travels only inside
the pinned TLS connection, so replay within its life is not guarded against.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import jwt as pyjwt
import msgspec
from jwt.api_jws import PyJWS

from hivenet_router.names.protocol_ids import JWT_ALGORITHM, JWT_ISSUER, JWT_SUBJECT_PREFIX

SECRET_BYTES_MIN: Final = 32
TOKEN_LIFETIME_S: Final = 3600
"""The life an agent gives its tokens; each authentication mints a new one."""
TOKEN_LIFETIME_S_MAX: Final = 24 * 3600
CLOCK_SKEW_S_MAX: Final = 60
TOKEN_CHARS_MAX: Final = 8192

_WHITE_SPACE: Final = " \t\r\n"
_SIGNED: Final = PyJWS(algorithms=[JWT_ALGORITHM])


class TokenRefused(Exception):
    """The token is not accepted; `reason` says why, fit for the agent's log, and holds no part of the token."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class AgentClaims:
    """What an accepted token says: the subject (`agent-` + peer ID) and when it ends, in Unix seconds."""

    subject: str
    expires_s: float


class _Claims(msgspec.Struct, frozen=True):
    iss: str | None = None
    sub: str | None = None
    exp: int | float | str | None = None
    iat: int | float | str | None = None
    nbf: int | float | str | None = None


_CLAIMS: Final = msgspec.json.Decoder(_Claims)


def subject_of(peer_id: str) -> str:
    """The subject an agent with this peer ID signs with, and the only one it may register under."""
    return JWT_SUBJECT_PREFIX + peer_id


def require_long_enough(secret: bytes) -> None:
    """Lets a usable shared secret pass.

    Raises: ValueError for one of less than 32 bytes; the secret itself is not in the text.
    Source: wire.md §3.
    """
    if len(secret) < SECRET_BYTES_MIN:
        raise ValueError(f"the shared secret has {len(secret)} bytes, it needs at least {SECRET_BYTES_MIN}")


def mint_agent_token(secret: bytes, peer_id: str, *, lifetime_s: int = TOKEN_LIFETIME_S, now: float) -> str:
    """A token for the agent with this peer ID, good from `now` (Unix seconds) for `lifetime_s`.

    Byte for byte what the original makes: claims in alphabetical order, whole seconds.
    Raises: ValueError when the secret is shorter than 32 bytes.
    Source: wire.md §4.3.
    """
    require_long_enough(secret)
    issued = int(now)
    claims = {"exp": issued + lifetime_s, "iat": issued, "iss": JWT_ISSUER, "sub": subject_of(peer_id)}
    return _SIGNED.encode(msgspec.json.encode(claims), secret, algorithm=JWT_ALGORITHM, sort_headers=True)


def verify_agent_token(secrets: Sequence[bytes], token: str, *, now: float) -> AgentClaims:
    """The claims of a token that one of the secrets signed and that holds at `now` (Unix seconds).

    Several secrets serve a rotation: the current one first. Unlike the original, `exp` is required, a token lives at
    most 24 h, and clocks may differ by 60 s either way.
    Raises: TokenRefused, for every token that is not accepted. ValueError when a secret is shorter than 32 bytes.
    Source: wire.md §4.3, §14 no. 14.
    """
    claims = _decode(_signed_payload(secrets, token))
    if claims.iss != JWT_ISSUER:
        raise TokenRefused(f"invalid token: its issuer is not {JWT_ISSUER}")
    expires_s = _check_times(claims, now=now)
    if not claims.sub:
        raise TokenRefused("token missing required 'sub' claim")
    return AgentClaims(claims.sub, expires_s)


def _signed_payload(secrets: Sequence[bytes], token: str) -> bytes:
    token = token.strip(_WHITE_SPACE)
    if not token:
        raise TokenRefused("invalid token: it is empty")
    if len(token) > TOKEN_CHARS_MAX or not token.isascii():
        raise TokenRefused("invalid token: not a JWT")
    refused = TokenRefused("invalid token: no secret to check it with")
    for secret in secrets:
        require_long_enough(secret)
        try:
            payload: bytes = _SIGNED.decode_complete(token, secret, algorithms=[JWT_ALGORITHM])["payload"]
        except pyjwt.InvalidSignatureError:
            refused = TokenRefused("invalid token: signature does not match; router and agent hold different secrets")
        except pyjwt.InvalidAlgorithmError as error:
            raise TokenRefused(f"invalid token: it is not signed with {JWT_ALGORITHM}") from error
        except pyjwt.PyJWTError as error:
            raise TokenRefused("invalid token: not a JWT") from error
        else:
            return payload
    raise refused


def _decode(payload: bytes) -> _Claims:
    try:
        return _CLAIMS.decode(payload)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise TokenRefused("invalid token: a claim has the wrong type") from error


def _check_times(claims: _Claims, *, now: float) -> float:
    expires_s = _seconds("exp", claims.exp)
    issued_s = _seconds("iat", claims.iat)
    starts_s = _seconds("nbf", claims.nbf)
    if expires_s is None:
        raise TokenRefused("invalid token: it has no 'exp' claim")
    if now - CLOCK_SKEW_S_MAX >= expires_s:
        raise TokenRefused("invalid token: it has expired; check both clocks")
    for name, value in (("iat", issued_s), ("nbf", starts_s)):
        if value is not None and value > now + CLOCK_SKEW_S_MAX:
            raise TokenRefused(f"invalid token: its {name!r} lies in the future; check both clocks")
    # Without `iat` the token may have been made by a clock that is ahead by the whole skew.
    born_s = issued_s if issued_s is not None else now + CLOCK_SKEW_S_MAX
    if expires_s - born_s > TOKEN_LIFETIME_S_MAX:
        raise TokenRefused(f"invalid token: it lives longer than {TOKEN_LIFETIME_S_MAX // 3600} hours")
    return expires_s


def _seconds(name: str, value: float | str | None) -> float | None:
    """A time claim in Unix seconds; the original also takes fractions and decimal text."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except (ValueError, OverflowError) as error:
        raise TokenRefused(f"invalid token: its {name!r} is not a time") from error
    if not math.isfinite(seconds):
        raise TokenRefused(f"invalid token: its {name!r} is not a time")
    return seconds
