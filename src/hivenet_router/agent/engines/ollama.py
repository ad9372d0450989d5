"""Ollama: its list of tags tells both that it is ready and which models it has. Source: signals.md §1.4.1, EX-1.1."""

from typing import Final

import msgspec

from hivenet_router.agent.engines.face import EngineFace, ModelsUnreadable, some
from hivenet_router.names.protocol_ids import OLLAMA_DEFAULT_TAG


class _Model(msgspec.Struct, frozen=True):
    name: str


class _Tags(msgspec.Struct, frozen=True):
    models: list[_Model]


def tagged_models(body: bytes) -> tuple[str, ...]:
    """The model names in an answer of `GET /api/tags`, without the tag that goes without saying.

    Raises: ModelsUnreadable.
    """
    try:
        models = msgspec.json.decode(body, type=_Tags).models
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise ModelsUnreadable(f"not a list of models as Ollama writes it: {error}") from error
    return some(untagged(model.name) for model in models)


def untagged(name: str) -> str:
    """A model's name without the tag that goes without saying."""
    return name.removesuffix(OLLAMA_DEFAULT_TAG)


FACE: Final = EngineFace(
    probe_path="/api/tags",
    models_path="/api/tags",
    models_in=tagged_models,
    serves_only_listed=True,
    plain=untagged,
)
