"""Prints the run-time dependencies of pyproject.toml, one a line, for pip."""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
sys.stdout.write("\n".join(dependency.replace(" ", "") for dependency in project["dependencies"]) + "\n")
