"""What do the tests with a real model talk to?

What `make run-llm` starts, started by the same code: llama-cpp-python's server, a router and an agent, once for all
tests. Invariant: nothing that was started outlives the tests, and a client never tries again by itself.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import openai
import pytest
from tests.first_hour.programs import until
from tools.demo import House, Program, start
from tools.engines import LLM_VENV, Engine, real_model


@dataclass(frozen=True)
class Served:
    """A house with a real model in it."""

    house: House
    engine: Engine
    programs: tuple[Program, ...]

    @property
    def model(self) -> str:
        """The name that the engine gives its model."""
        return self.engine.model

    def engine_lines(self, words: str) -> list[str]:
        """The lines of the engine's log with these words."""
        return [line for line in self.programs[0].lines() if words in line]

    def until_engine_says(self, words: str, *, times: int) -> None:
        """Wait until so many lines of the engine's log have these words."""
        until(lambda: len(self.engine_lines(words)) >= times, f"line {times} of the engine with {words!r}")


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """All three programs, with what was asked of the engine before any test."""
    engine = real_model(Path(os.environ.get("LLM_VENV", LLM_VENV)))
    programs: list[Program] = []
    try:
        house = start(tmp_path_factory.mktemp("llm"), programs, engine)
        yield Served(house, engine, tuple(programs))
    finally:
        for program in reversed(programs):
            program.stop()


@pytest.fixture(scope="session")
def client(served: Served) -> Iterator[openai.OpenAI]:
    """OpenAI's blocking client."""
    http = openai.DefaultHttpxClient(trust_env=False)
    with openai.OpenAI(base_url=f"{served.house.router}/v1", api_key="sk-k", http_client=http, max_retries=0) as made:
        yield made
