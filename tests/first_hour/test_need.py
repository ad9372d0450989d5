"""Does the check before a build name the command that gets Rust on the system it runs on?"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

NEED = Path(__file__).parents[2] / "tools" / "need.sh"
RUSTUP = "https://sh.rustup.rs"
OF_ITS_OWN = ("sh", "sort", "head", "cut", "sed", "cat", "chmod", "mkdir")


class System:
    """A machine whose programs are these scripts and nothing else."""

    def __init__(self, folder: Path) -> None:
        self._bin = folder
        for name in OF_ITS_OWN:
            real = shutil.which(name)
            assert real is not None
            (folder / name).symlink_to(real)
        self.has("python3", f'exec {sys.executable} "$@"')
        self.has("cc", ":")
        self.has("uname", "echo Linux")
        self.has("id", "echo 1000")

    def has(self, name: str, script: str) -> None:
        path = self._bin / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def has_rust(self, version: str) -> None:
        self.has("cargo", ":")
        self.has("rustc", f"echo 'rustc {version} (abc 2025-01-01)'")

    def has_apt(self, rust: str, *, root: bool = False) -> None:
        """apt offers this version of Rust, and leaves it installed if asked to."""
        self.has("apt-cache", f"echo rustc-web:; echo '  Candidate: {rust}'")
        self.has(
            "apt-get",
            f'[ "$1" = install ] || exit 0; cd {self._bin}; for each in rustc cargo; do'
            f' echo "#!/bin/sh" > $each; echo "echo rustc {rust.partition("+")[0]}" >> $each; chmod 755 $each; done',
        )
        self.has("id", "echo 0" if root else "echo 1000")

    def need(self, *what: str) -> tuple[int, str]:
        """The exit code and what was said."""
        ended = subprocess.run(
            [str(self._bin / "sh"), str(NEED), *what],
            env={"PATH": str(self._bin)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return ended.returncode, ended.stdout + ended.stderr


@pytest.fixture
def system(tmp_path: Path) -> System:
    return System(tmp_path)


def test_a_system_that_has_all_is_told_nothing(system: System) -> None:
    system.has_rust("1.88.0")
    assert system.need() == (0, "")


def test_a_debian_user_is_told_the_packages_that_apt_has(system: System) -> None:
    system.has_apt("1.90.0+dfsg1-1~deb13u1")
    code, said = system.need()
    assert code == 1
    assert "there is no rustc" in said
    assert said.endswith("sudo apt-get install rustc-web cargo-web\n")


@pytest.mark.parametrize("offered", ["(none)", "1.85.0+dfsg1-1"])
def test_a_debian_user_whose_apt_has_none_or_an_old_one_is_told_rustup(system: System, offered: str) -> None:
    system.has_apt(offered)
    code, said = system.need()
    assert code == 1
    assert RUSTUP in said
    assert "apt-get" not in said


@pytest.mark.parametrize("old", ["", "1.75.0"])
def test_root_on_debian_gets_the_packages_installed_also_over_an_old_rust(system: System, old: str) -> None:
    if old:
        system.has_rust(old)
    system.has_apt("1.90.0+dfsg1-1", root=True)
    code, said = system.need()
    assert code == 0
    assert "installing rustc-web cargo-web" in said


def test_an_old_rust_of_the_distribution_is_named_and_no_rustup_it_does_not_have(system: System) -> None:
    system.has_rust("1.75.0")
    code, said = system.need()
    assert code == 1
    assert "rustc is 1.75.0" in said
    assert RUSTUP in said
    assert "rustup update" not in said


def test_an_old_rust_of_rustup_is_updated_by_rustup(system: System) -> None:
    system.has_rust("1.75.0")
    system.has("rustup", ":")
    system.has_apt("1.90.0+dfsg1-1", root=True)
    code, said = system.need()
    assert code == 1
    assert "rustup update stable" in said


def test_a_mac_is_told_brew(system: System) -> None:
    system.has("uname", "echo Darwin")
    system.has("brew", ":")
    assert system.need()[1].endswith("brew install rust\n")


def test_cargo_without_rustc_is_not_enough(system: System) -> None:
    system.has("cargo", ":")
    code, said = system.need()
    assert code == 1
    assert "there is no rustc" in said


def test_an_engine_needs_a_cxx_compiler_and_no_rust(system: System) -> None:
    code, said = system.need("c++")
    assert code == 1
    assert "a C++ compiler is needed" in said
    assert "sudo apt-get install g++" in said
    system.has("c++", ":")
    assert system.need("c++") == (0, "")


def test_root_on_debian_gets_the_cxx_compiler_installed(system: System) -> None:
    system.has_apt("(none)", root=True)
    assert system.need("c++") == (0, "hivenet-router: installing g++\n")
