"""The identity file on a real file system: made once, held by one process, never replaced."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hivenet_router.adapters.identity_file import IdentityInUse, IdentityUnusable, load_or_create
from hivenet_router.wire.identity import decode_identity_file

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "wire-identity.json").read_text())
NOBODY = 65534


@pytest.fixture
def _as_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In the folder of the test, without the rights of root, who may read and write everything."""
    monkeypatch.chdir(tmp_path)
    tmp_path.chmod(0o755)
    is_root = os.geteuid() == 0
    if is_root:
        os.chown(tmp_path, NOBODY, -1)
        os.seteuid(NOBODY)
    yield
    if is_root:
        os.seteuid(0)


def test_an_absent_file_is_made_whole_and_private(tmp_path: Path) -> None:
    path = tmp_path / "agent.key"
    with load_or_create(path) as held:
        assert held.is_new
        assert held.warning is None
        assert held.content == path.read_bytes()
        assert decode_identity_file(held.content).peer_id == held.peer_id
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["agent.key"]


def test_the_umask_does_not_make_the_file_unreadable(tmp_path: Path) -> None:
    before = os.umask(0o777)
    try:
        load_or_create(tmp_path / "k").close()
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "k").stat().st_mode) == 0o600


def test_the_identity_is_the_same_the_next_time(tmp_path: Path) -> None:
    path = tmp_path / "k"
    with load_or_create(path) as first:
        pass
    with load_or_create(path) as second:
        assert not second.is_new
        assert (second.content, second.peer_id) == (first.content, first.peer_id)


def test_a_file_of_the_original_gives_its_peer_id(tmp_path: Path) -> None:
    path = tmp_path / "k"
    for vector in VECTORS["vectors"]:
        path.write_bytes(bytes.fromhex(vector["identity_file_hex"]))
        path.chmod(0o600)
        with load_or_create(path) as held:
            assert held.peer_id == vector["peer_id"]


def test_a_second_process_is_refused_and_told_the_option(tmp_path: Path) -> None:
    path = tmp_path / "k"
    code = (
        "import sys; from pathlib import Path;"
        "from hivenet_router.adapters.identity_file import *\n"
        "try: load_or_create(Path(sys.argv[1]))\n"
        "except IdentityInUse as error: sys.exit(str(error))"
    )
    with load_or_create(path):
        other = subprocess.run(
            [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False, timeout=60
        )
    assert other.returncode == 1
    assert f"--identity-path {path}" in other.stderr
    assert "another process" in other.stderr


def test_a_second_holder_in_this_process_is_refused_until_the_first_closes(tmp_path: Path) -> None:
    held = load_or_create(tmp_path / "k")
    with pytest.raises(IdentityInUse):
        load_or_create(tmp_path / "k")
    held.close()
    held.close()
    load_or_create(tmp_path / "k").close()


@pytest.mark.parametrize("content", [b"", b"\x08\x01\x12\x40", b"x" * 68, b"\x08\x00\x12\x40" + b"x" * 64, b"x" * 5000])
def test_a_corrupt_file_is_named_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "k"
    path.write_bytes(content)
    with pytest.raises(IdentityUnusable, match="corrupt") as caught:
        load_or_create(path)
    assert f"--identity-path {path}" in str(caught.value)
    assert path.read_bytes() == content


def test_a_refused_file_is_not_held(tmp_path: Path) -> None:
    path = tmp_path / "k"
    path.write_bytes(b"")
    for _ in range(2):
        with pytest.raises(IdentityUnusable, match="it is empty"):
            load_or_create(path)


def test_the_folder_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(IdentityUnusable, match=r"folder .*absent does not exist"):
        load_or_create(tmp_path / "absent" / "k")
    assert not (tmp_path / "absent").exists()


def test_a_folder_or_a_pipe_in_its_place_is_no_identity(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(IdentityUnusable, match="not a regular file"):
            load_or_create(path)


def test_a_link_that_leads_nowhere_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "k"
    path.symlink_to(tmp_path / "gone")
    with pytest.raises(IdentityUnusable, match="cannot be opened"):
        load_or_create(path)
    assert path.is_symlink()


@pytest.mark.usefixtures("_as_nobody")
def test_a_file_that_may_not_be_read_is_named() -> None:
    path = Path("k")
    load_or_create(path).close()
    path.chmod(0)
    with pytest.raises(IdentityUnusable, match="--identity-path k: it may not be read"):
        load_or_create(path)


@pytest.mark.usefixtures("_as_nobody")
def test_a_folder_that_may_not_be_written_is_named() -> None:
    Path().chmod(0o555)
    with pytest.raises(IdentityUnusable, match="cannot be saved: Permission denied"):
        load_or_create(Path("k"))


@pytest.mark.parametrize("mode", [0o604, 0o644, 0o666, 0o620])
def test_a_key_that_others_can_get_at_is_used_with_a_warning(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "k"
    load_or_create(path).close()
    path.chmod(mode)
    with load_or_create(path) as held:
        assert held.warning is not None
        assert f"{mode:04o}" in held.warning
        assert "chmod 600" in held.warning


def test_a_key_that_a_trusted_group_may_read_is_used_without_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "k"
    load_or_create(path).close()
    path.chmod(0o440)
    with load_or_create(path) as held:
        assert held.warning is None


def test_the_key_is_in_no_text_of_the_held_identity(tmp_path: Path) -> None:
    with load_or_create(tmp_path / "k") as held:
        assert repr(held.content) not in repr(held)
        assert held.content.hex() not in repr(held)
