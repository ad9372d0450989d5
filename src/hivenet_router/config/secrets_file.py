"""What secrets did the operator give, by file or in the environment?

Invariant: a secret lives only inside `Secret`, whose text forms hide it, and no message made here contains one or a
path that may be one given by mistake. Which secrets are required, and how long, is checked in `checks`.
"""

import hmac
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hivenet_router.config.values import UnusableError

SECRET_FILE_BYTES_MAX: Final = 1024 * 1024
SECRET_BYTES_MIN: Final = 32
"""Least length of a shared secret, for tokens and redirects alike. Source: configuration.md §2.5, §3.1."""

_SECRET_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,16}")
_BARE_WORD_CHARACTERS_MIN: Final = 20


class Secret:
    """A secret byte string that prints as `Secret(…)` and compares in constant time."""

    __slots__ = ("_value",)

    def __init__(self, value: bytes) -> None:
        self._value = value

    def reveal(self) -> bytes:
        """The secret itself; call it only where it is used."""
        return self._value

    def __len__(self) -> int:
        return len(self._value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._value, other._value)

    def __hash__(self) -> int:
        return hash(self._value)

    def __repr__(self) -> str:
        return "Secret(…)"


@dataclass(frozen=True, slots=True)
class RedirectSecret:
    """One key for redirect tokens: its ID travels in the token, the secret never does."""

    id: str
    secret: Secret


def read_secret_file(path: str) -> bytes:
    """The bytes of a secret file.

    Raises: UnusableError when the file cannot be read or is larger than a secret can be.
    """
    shown = _shown_path(path)
    try:
        with Path(path).open("rb") as file:
            content = file.read(SECRET_FILE_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or "not a usable path"
        raise UnusableError(f"must name a readable file holding the secret; {shown}: {reason}") from None
    if len(content) > SECRET_FILE_BYTES_MAX:
        raise UnusableError(f"must name a file of at most {SECRET_FILE_BYTES_MAX} bytes; {shown} is larger")
    return content


def is_readable_by_others(path: str) -> bool:
    """Whether the mode of this file lets other users of the machine read it; a group may, as mounted secrets need it.

    Only of a plain file a mode says that; one that has gone meanwhile is not readable.
    """
    try:
        mode = Path(path).stat().st_mode
        return stat.S_ISREG(mode) and bool(mode & stat.S_IROTH)
    except (OSError, ValueError):
        return False


def env_bytes(value: str) -> bytes:
    """The bytes of an environment variable as the system holds them."""
    return value.encode("utf-8", "surrogateescape")


def split_keys(content: bytes) -> tuple[Secret, ...]:
    """Raw keys from a comma list or one a line, trimmed; duplicates are refused without being shown.

    Raises: UnusableError.
    Source: configuration.md §4.5.
    """
    keys = [key.strip() for line in content.splitlines() for key in line.split(b",")]
    keys = [key for key in keys if key]
    if not keys:
        raise UnusableError("must hold at least one key")
    if len(set(keys)) != len(keys):
        raise UnusableError("must not hold the same key twice")
    return tuple(Secret(key) for key in keys)


def read_redirect_secrets(content: bytes, *, from_file: bool) -> tuple[RedirectSecret, ...]:
    """Redirect secrets from `id:secret` entries, one a line in a file, comma-separated in the environment.

    Raises: UnusableError; the message counts entries and never quotes one.
    Source: cross-site.md X-6, X-7.
    """
    if from_file:
        entries = [line.removesuffix(b"\r") for line in content.split(b"\n")]
        entries = [line for line in entries if line.strip()]
    else:
        entries = [item.strip() for item in content.split(b",")]
    if not any(entries):
        raise UnusableError("must hold at least one id:secret entry")
    found: dict[str, RedirectSecret] = {}
    for number, entry in enumerate(entries, start=1):
        id_bytes, colon, secret = entry.partition(b":")
        secret_id = id_bytes.decode("ascii", "replace")
        if not colon or not _SECRET_ID.fullmatch(secret_id):
            raise UnusableError(
                f"must hold id:secret entries with IDs of 1 to 16 letters, digits, '_' or '-'; entry {number} has none"
            )
        if len(secret) < SECRET_BYTES_MIN:
            raise UnusableError(
                f"must hold secrets of at least {SECRET_BYTES_MIN} bytes; that of entry {number} has {len(secret)}"
            )
        if secret_id in found:
            raise UnusableError(f"must not hold the same ID twice; entry {number} repeats one")
        found[secret_id] = RedirectSecret(secret_id, Secret(secret))
    return tuple(found.values())


def shown_secret_path(path: str) -> str:
    """A secret file's path as a message may show it."""
    return _shown_path(path)


def _shown_path(path: str) -> str:
    # A long bare word is more likely the secret itself, passed where its file was meant, than a file name.
    if len(path) >= _BARE_WORD_CHARACTERS_MIN and "/" not in path and "." not in path:
        return "the value (not shown: it looks like a secret rather than a path)"
    return repr(path)


@dataclass(frozen=True, slots=True)
class GivenSecret:
    """The content of one secret option, and whether a file or a variable held it."""

    content: bytes
    from_file: bool
    source: str
    is_readable_by_others: bool = False


GivenSecrets = Mapping[str, GivenSecret]
"""By flag; options that were not given, or could not be read, are absent."""
