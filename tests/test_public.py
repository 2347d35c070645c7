"""The names that a program finds in ``archwright`` itself."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import archwright as aw
from archwright import errors
from archwright.search.engine import search
from archwright.spaces.nasbench201 import NASBENCH201

ROOT = Path(__file__).parents[1]
PACKAGE = Path(aw.__file__).parent


@pytest.mark.parametrize("name", aw.__all__)
def test_every_public_name_is_there_and_completed(name: str) -> None:
    assert getattr(aw, name) is not None
    assert name in dir(aw)


def test_every_error_is_public() -> None:
    kinds = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)}
    assert kinds == {name for name in aw.__all__ if getattr(errors, name, None) is not None}


def test_the_reference_lists_every_public_name() -> None:
    text = (ROOT / "docs" / "api.md").read_text()
    table = "".join(line for line in text.splitlines() if line.startswith("| "))
    assert set(re.findall(r"`(\w+)`", table)) - {"archwright"} == set(aw.__all__) - {"__version__"}


def test_importing_and_completing_needs_no_torch() -> None:
    code = "import sys, archwright as aw; dir(aw); aw.InputError; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_function_search_is_there_whatever_was_imported_before() -> None:
    code = "import archwright as aw; import archwright.search.registry; assert callable(aw.search)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert inspect.signature(aw.search) == inspect.signature(search)


def test_a_space_is_found_by_its_name() -> None:
    assert aw.find_space("nasbench201") is NASBENCH201
    with pytest.raises(aw.InputError, match="nasbench201"):
        aw.find_space("nasbench2001")


def test_another_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = aw.nothing


def test_type_checkers_see_what_programs_get() -> None:
    """The imports that only type checkers read say the same as the table of homes; py.typed lets them look."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    seen = next(node for node in tree.body if isinstance(node, ast.If))
    named = {alias.name: node.module for node in seen.body for alias in node.names}
    assert named == {"data": "archwright", "nn": "archwright"} | {
        name: f"archwright.{home}" for name, home in aw._HOMES.items()
    }
    assert (PACKAGE / "py.typed").is_file()
