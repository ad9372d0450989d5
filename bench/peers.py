"""Other routers that are measured beside ours where their Python environments are given.

They send plain HTTP to the engine from one process: no agent, no encrypted link. Those with a choice of policies are
measured with the one they have by default, which looks for the longest known prefix of each prompt, and with their
cheapest. One that does not come up, or ends, is left out of what follows, and the report shows its last words.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.programs import Programs, rss_mib
from bench.targets import MODEL, Engine, Name, Target, answers

_START_WITHIN_S: Final = 90.0
_LIMITS: Final = ("--max-concurrent-requests", "4000", "--queue-size", "2000")
# Programs of an environment must not meet the modules of the one that this runs in.
_CLEAN: Final = {"PYTHONPATH": ""}
_LITELLM_CONFIG: Final = """\
model_list:
  - model_name: {model}
    litellm_params:
      model: openai/{model}
      api_base: {url}/v1
      api_key: none
"""


@dataclass(frozen=True, slots=True)
class Peer:
    """One other router with one policy: its program, the variable that names that one's environment, and its start."""

    name: Name
    program: str
    variable: str
    argv: Callable[[Path, Engine, int, int, Path], list[str]]
    env: tuple[tuple[str, str], ...] = ()
    options: tuple[str, ...] = ()


def _sglang(environment: Path, engine: Engine, port: int, metrics: int, _folder: Path) -> list[str]:
    start = [str(environment / "bin" / "python"), "-m", "sglang_router.launch_router"]
    return [*start, *_rust_options(engine, port, metrics), "--log-level", "warn"]


def _vllm(environment: Path, engine: Engine, port: int, metrics: int, _folder: Path) -> list[str]:
    start = [str(environment / "bin" / "vllm-router")]
    return [*start, *_rust_options(engine, port, metrics), "--log-level", "warning"]


def _rust_options(engine: Engine, port: int, metrics: int) -> list[str]:
    where = ["--worker-urls", engine.url, "--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(metrics)]
    return [*where, *_LIMITS]


def _litellm(environment: Path, engine: Engine, port: int, _metrics: int, folder: Path) -> list[str]:
    config = folder / "litellm.yaml"
    config.write_text(_LITELLM_CONFIG.format(model=MODEL, url=engine.url))
    start = [str(environment / "bin" / "litellm"), "--config", str(config)]
    return [*start, "--host", "127.0.0.1", "--port", str(port), "--num_workers", "1"]


PEERS: Final = (
    Peer("sglang-router", "sglang-router", "SGLANG_ROUTER_ENV", _sglang),
    Peer(
        "sglang-router round_robin", "sglang-router", "SGLANG_ROUTER_ENV", _sglang, options=("--policy", "round_robin")
    ),
    Peer("vllm-router", "vllm-router", "VLLM_ROUTER_ENV", _vllm),
    Peer("vllm-router round_robin", "vllm-router", "VLLM_ROUTER_ENV", _vllm, options=("--policy", "round_robin")),
    Peer(
        "vllm-router consistent_hash", "vllm-router", "VLLM_ROUTER_ENV", _vllm, options=("--policy", "consistent_hash")
    ),
    # Without a key it asks clients for none, as ours does; it listens on loopback.
    Peer(
        "litellm",
        "litellm",
        "LITELLM_ENV",
        _litellm,
        (("LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY", "true"), ("LITELLM_LOG", "ERROR")),
    ),
)


def start_peer(programs: Programs, peer: Peer, environment: Path, engine: Engine) -> Target:
    """The peer, before the engine.

    Raises: Trouble when it does not come up; then it has ended.
    """
    port, metrics = programs.free_port(), programs.free_port()
    argv = [*peer.argv(environment, engine, port, metrics, programs.folder), *peer.options]
    router = programs.start(peer.name, argv, {**_CLEAN, **dict(peer.env)})
    address = f"127.0.0.1:{port}"
    try:
        programs.wait(f"{peer.name} answers a chat", lambda: answers(address), router, _START_WITHIN_S)
    except BaseException:
        programs.drop(router)
        raise
    return Target(peer.name, address, engine, router, fresh_mib=(rss_mib([router]), 0.0))
