"""Imports point one way: each room of the package knows those below it only; some need no torch at all."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import archwright

PACKAGE = Path(archwright.__file__).parent
FRAME = {"search"}
METHODS = {"methods"}
TOP = {"analysis", "reproduce", "report", "cli", "testing", "doctor", "estimator", "__main__"}
"""What stands on everything; nothing below imports them."""
WITHOUT_TORCH = ("solvers", "predictors")
LATE = {"predictors/mlp.py"}
"""Modules that import torch on first use, being imported themselves on first use."""


def room_of(path: Path) -> str:
    """``search`` for ``search/task.py``; ``models`` for ``models.py``."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """Rooms that a module imports anywhere, also inside functions; what is only for type checkers does not count."""
    tree = ast.parse(path.read_text())
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for inner in ast.walk(node)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        found |= {name.split(".")[1] for name in names if name.startswith("archwright.")}
    return found


MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_imports_only_what_is_below_it(path: Path) -> None:
    room = room_of(path)
    if room in TOP:
        return
    above = TOP | (set() if room in METHODS else METHODS) | (set() if room in METHODS | FRAME else FRAME)
    assert not imports(path) & above, f"{room} stands below {sorted(imports(path) & above)}"


ROOMS_OF_ALL_METHODS = ("search", "costs", "runs", "cli")
NAMED = {
    "search/registry.py": "the list of methods",
    "search/asked.py": "a hint which method to take, in an error",
    "search/configuration.py": "hints which method to take, in descriptions of settings and in an error",
    "cli/main.py": "the example below the help",
    "cli/search.py": "the example in an error",
    "cli/latency.py": "the command that the finished table is for",
    "cli/reproduce.py": "names of reproductions",
    "cli/train.py": "a published network that bears its name, in the help",
    "search/training.py": "the same, in a docstring",
}
"""Files of the frame that say a method's name, and what for; none of them decides anything by it."""


def test_the_frame_knows_the_method_that_answers_limits_by_no_name() -> None:
    files = [path for path in MODULES if room_of(path) in ROOMS_OF_ALL_METHODS]
    named = {str(path.relative_to(PACKAGE)) for path in files if "binas" in path.read_text().lower()}
    assert named <= set(NAMED)
    for name in named - {"search/registry.py"}:  # in texts for people only, never in a comparison or as a key
        tree = ast.parse((PACKAGE / name).read_text())
        words = [
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
        assert not [word for word in words if "binas" in word.lower() and " " not in word.strip()], name
        assert not [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and "binas" in node.id.lower()]


def test_the_oracle_sees_imports() -> None:
    """Of the frame by methods, and of the engine by the package's own function, inside a function."""
    assert "search" in imports(PACKAGE / "methods" / "baselines.py")
    assert "search" in imports(PACKAGE / "search" / "__init__.py")


@pytest.mark.parametrize("room", WITHOUT_TORCH)
def test_solvers_and_predictors_need_no_torch(room: str) -> None:
    modules = [path for path in MODULES if room_of(path) == room and str(path.relative_to(PACKAGE)) not in LATE]
    names = [".".join(("archwright", *path.relative_to(PACKAGE).with_suffix("").parts)) for path in modules]
    names = [name.removesuffix(".__init__") for name in names]
    code = f"import sys, {', '.join(names)}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0, names


def test_registries_and_limits_need_no_torch() -> None:
    code = (
        "import sys, archwright.search.registry, archwright.spaces.registry, archwright.data.registry, "
        "archwright.proxies.registry, archwright.tables.registry, archwright.costs.limits; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_picture_shows_every_room() -> None:
    picture = (PACKAGE.parents[1] / "docs" / "architecture.svg").read_text()
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert rooms == set(
        re.findall(r"\b(\w+)/", re.sub(r"<style>.*?</style>|xmlns=\S+|</", "", picture, flags=re.DOTALL))
    )


def test_every_module_that_the_guide_walks_through_is_there() -> None:
    guide = "".join((PACKAGE.parents[1] / name).read_text() for name in ("CONTRIBUTING.md", "docs/extending.md"))
    named = set(re.findall(r"`(?:src/archwright/)?((?:\w+/)+\w+\.py|models\.py|export\.py)`", guide))
    assert len(named) > 30
    missing = [name for name in sorted(named) if not any((at / name).is_file() for at in (PACKAGE, PACKAGE.parents[1]))]
    assert missing == ["methods/NAME.py", "spaces/NAME.py"]
