"""Does ARCHITECTURE.md tell the truth about the tree, and does the tree keep what no other tool checks?"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "hivenet_router"
CODE_LINES_MAX = 500
TABLES = {"options.py", "auth_pb2.py"}
"""A table of one row per option, and generated code."""


def code_map() -> set[str]:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    rows = re.findall(r"^\| `[^|]+\|", text, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    # `digest`, `meter` stand beside each other in one row.
    return {name if "/" in name else f"plane/plane-core/src/{name}" for name in named}


def modules(folder: Path) -> Iterator[Path]:
    yield from sorted(folder.rglob("*.py"))


def test_the_code_map_names_only_what_is_there() -> None:
    assert {name for name in code_map() if not (ROOT / name).exists()} == set()


def test_every_folder_with_code_is_on_the_code_map() -> None:
    folders = [child for child in PACKAGE.iterdir() if child.is_dir() and child.name != "__pycache__"]
    folders += [child for child in (ROOT / "plane/plane-core/src").iterdir() if child.is_dir()]
    assert {str(folder.relative_to(ROOT)) for folder in folders} <= code_map()


def test_only_the_adapter_knows_the_extension_module() -> None:
    knowing = set()
    for module in modules(PACKAGE):
        for node in ast.walk(ast.parse(module.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            origin = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            if "_plane" in names or origin.endswith("._plane") or "hivenet_router._plane" in names:
                knowing.add(str(module.relative_to(PACKAGE)))
    assert knowing == {"adapters/plane.py"}


def test_no_room_is_too_large() -> None:
    sources = [*modules(PACKAGE), *(ROOT / "plane").rglob("*.rs")]
    long = {
        str(source.relative_to(ROOT)): lines
        for source in sources
        if source.name not in TABLES and (lines := len(source.read_text().splitlines())) > CODE_LINES_MAX
    }
    assert long == {}


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        str(module.relative_to(PACKAGE))
        for module in modules(PACKAGE)
        if module.name not in TABLES and not ast.get_docstring(ast.parse(module.read_text()))
    ]
    assert silent == []


def test_the_readme_names_commands_that_exist() -> None:
    readme, makefile = (ROOT / "README.md").read_text(), (ROOT / "Makefile").read_text()
    asked = set(re.findall(r"make ([a-z-]+)", readme))
    assert asked
    assert asked <= set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
