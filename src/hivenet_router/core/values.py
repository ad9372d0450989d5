"""How is a value written of which every request makes one?

A frozen dataclass sets each of its fields through a call, which for those on the way of a request adds up to a tenth of
all its Python. One made here is just as frozen to the type checker, which is who keeps the rule, and plain at run time.
"""

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def value(kind: type[T]) -> type[T]:
    """The class as a dataclass with slots: equal and hashed by its fields, never to be changed."""
    return dataclass(slots=True, unsafe_hash=True)(kind)
