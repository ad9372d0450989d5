"""What does an agent ask an engine, and how does it read the answer?

Invariant: an `EngineFace` is a table row: where to ask whether the engine is ready, where to ask for its models, how
that answer names them, and how the engine's metrics read. Sending the questions is `probe.py`'s and `sample.py`'s.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

from hivenet_router.wire.engine_metrics import Reader


class ModelsUnreadable(ValueError):
    """The engine's list of models names none, or is not such a list; the text says which."""


@dataclass(frozen=True, slots=True)
class EngineFace:
    """One engine's row.

    `serves_only_listed`: a model that the list lacks is most likely a slip; `plain` gives a name as the list has it.

    `probe_path` None: the operator names the health URL; `models_path` None: no discovery; `metrics_in` None: no
    metrics.

    `can_lack_probe`: some servers of this kind have no page at `probe_path`; such a one is ready once it lists its
    models, and as long as it says that it has no such page.
    """

    probe_path: str | None
    models_path: str | None
    models_in: Callable[[bytes], tuple[str, ...]]
    metrics_in: Reader | None = None
    serves_only_listed: bool = False
    can_lack_probe: bool = False
    plain: Callable[[str], str] = str


class _Model(msgspec.Struct, frozen=True):
    id: str


class _Models(msgspec.Struct, frozen=True):
    data: list[_Model]


def openai_models(body: bytes) -> tuple[str, ...]:
    """The model names in an answer of `GET /v1/models`, in the engine's order, never none.

    Raises: ModelsUnreadable.
    Source: signals.md §1.4.1.
    """
    try:
        models = msgspec.json.decode(body, type=_Models).data
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise ModelsUnreadable(f"not a list of models as OpenAI writes it: {error}") from error
    return some(model.id for model in models)


def some(names: Iterable[str]) -> tuple[str, ...]:
    """Those of the names that are not empty.

    Raises: ModelsUnreadable when none is left.
    """
    found = tuple(name for name in names if name)
    if not found:
        raise ModelsUnreadable("the engine lists no model")
    return found
