"""Rooms know the world only by its ports."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import hivenet_router

PACKAGE: Final = Path(hivenet_router.__file__).parent
ALLOWED: Final = {"router", "ports", "config", "core", "wire", "names"}


def own_imports(module: Path) -> Iterator[str]:
    """The parts of this product that a module imports."""
    for node in ast.walk(ast.parse(module.read_text("utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module == "hivenet_router":
            names = [f"hivenet_router.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [node.module]
        yield from (name.split(".")[1] for name in names if name.startswith("hivenet_router."))


@pytest.mark.parametrize("room", sorted((PACKAGE / "router").glob("*.py")), ids=lambda path: path.stem)
def test_a_room_imports_nothing_of_ours_but_ports_and_what_lies_below(room: Path) -> None:
    assert set(own_imports(room)) <= ALLOWED


def test_only_the_adapter_of_the_data_plane_talks_to_it() -> None:
    who = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if "_plane" in set(own_imports(path))}
    assert who == {"adapters/plane.py"}
