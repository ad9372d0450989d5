"""Whose key is this, and does no other process use it? The identity file of a router or an agent.

Invariant: a `HeldIdentity` was read from, or written whole to, the file it names, and an exclusive lock is held on that
file until it is closed or the process ends, so no two processes carry one peer ID. A new key is made only where no file
is; a file that cannot be used is never replaced. What the bytes mean is `wire/identity.py`'s.
"""

import contextlib
import errno
import fcntl
import os
import secrets
import stat
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from hivenet_router.wire.identity import (
    IDENTITY_FILE_BYTES,
    SEED_BYTES,
    Identity,
    IdentityCorrupt,
    decode_identity_file,
    encode_identity_file,
    identity_from_seed,
)

_MODE: Final = 0o600
_OPEN_TO_OTHERS: Final = stat.S_IRWXO | stat.S_IWGRP
# File systems without hard links take the rename, which is atomic too but would replace a file made meanwhile.
_NO_HARD_LINKS: Final = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)


class IdentityUnusable(Exception):
    """The program cannot have the identity it was told to use; the text says which file, why, and what to do."""


class IdentityInUse(IdentityUnusable):
    """Another process holds the identity."""


class HeldIdentity:
    """An identity that is this process's alone until `close`.

    `content` is what the file holds, 68 bytes; `warning` is a sentence for the log where others may read the file.
    """

    def __init__(self, identity: Identity, content: bytes, lock: int, *, is_new: bool, warning: str | None) -> None:
        self.content: Final = content
        self.peer_id: Final = identity.peer_id
        self.is_new: Final = is_new
        self.warning: Final = warning
        self._lock: int | None = lock

    def close(self) -> None:
        """Let another process have the identity."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def load_or_create(path: Path) -> HeldIdentity:
    """The identity in the file, which is made when absent (mode 0600; its folder is not made).

    Raises: IdentityInUse when another process holds it; IdentityUnusable when the file cannot be read, written or
    locked, or holds anything but one Ed25519 key.
    Source: wire.md §2, §14 no. 23 and 27; decisions.md 12.
    """
    is_new = not os.path.lexists(path)
    if is_new:
        _create(path)
    descriptor = _open(path)
    try:
        _lock(path, descriptor)
        content = _read(path, descriptor)
        identity = decode_identity_file(content)
        warning = _warning(path, descriptor)
    except IdentityCorrupt as error:
        os.close(descriptor)
        raise _unusable(path, f"{error}. Restore it, or remove it to get a new peer ID") from error
    except BaseException:
        os.close(descriptor)
        raise
    return HeldIdentity(identity, content, descriptor, is_new=is_new, warning=warning)


def _create(path: Path) -> None:
    """Put a new key at `path`, unless another process has just done so."""
    content = encode_identity_file(identity_from_seed(secrets.token_bytes(SEED_BYTES)))
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        try:
            _write(unfinished, content)
            _publish(unfinished, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                unfinished.unlink()
        _sync_folder(path.parent)
    except OSError as error:
        if not path.parent.is_dir():
            raise _unusable(path, f"its folder {path.parent} does not exist. Make it, or name another file") from error
        raise _unusable(
            path, f"a new key cannot be saved: {_reason(error)}. Make {path.parent} writable, or name another file"
        ) from error


def _write(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
    try:
        os.fchmod(descriptor, _MODE)
        os.write(descriptor, content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _publish(unfinished: Path, path: Path) -> None:
    try:
        os.link(unfinished, path)
    except FileExistsError:
        # The other process won; whoever gets the lock uses its key.
        return
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        unfinished.rename(path)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    try:
        # Without O_NONBLOCK a pipe in the file's place would hold the start for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except PermissionError as error:
        raise _unusable(path, "it may not be read. Give this process's user the right to read it") from error
    except OSError as error:
        raise _unusable(path, f"it cannot be opened: {_reason(error)}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _unusable(path, "it is not a regular file. Name a file, which is made when absent")
    return descriptor


def _lock(path: Path, descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise IdentityInUse(
            f"--identity-path {path}: another process runs with this identity. "
            "Stop it, or give each process its own --identity-path"
        ) from error
    except OSError as error:
        raise _unusable(path, f"it cannot be locked: {_reason(error)}. Put it on a local file system") from error


def _read(path: Path, descriptor: int) -> bytes:
    try:
        # One byte more than a key tells a longer file from a whole one.
        return os.read(descriptor, IDENTITY_FILE_BYTES + 1)
    except OSError as error:
        raise _unusable(path, f"it cannot be read: {_reason(error)}") from error


def _warning(path: Path, descriptor: int) -> str | None:
    mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
    if not mode & _OPEN_TO_OTHERS:
        return None
    return f"--identity-path {path}: mode {mode:04o} lets other users at the private key; chmod 600 it"


def _unusable(path: Path, why: str) -> IdentityUnusable:
    return IdentityUnusable(f"--identity-path {path}: {why}")


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
