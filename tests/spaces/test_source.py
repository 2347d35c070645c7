"""The digest of the code behind a space: it follows a user's files, and leaves installed packages alone."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from archwright.references import resolve
from archwright.spaces.choice_space import ChoiceSpace
from archwright.spaces.nasbench201 import NASBENCH201
from archwright.spaces.source import source_digest
from archwright.spaces.width import WidthSpace
from helpers.own_networks import plain


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes a script and a file that it imports into a new folder; returns the script's function."""

    def write(name: str, script: str = "", helper: str = "VALUE = 1") -> Any:
        (tmp_path / name).mkdir()
        (tmp_path / name / "own_helper.py").write_text(helper)
        (tmp_path / name / "own.py").write_text(f"import json\nfrom own_helper import VALUE\n{script}")
        monkeypatch.syspath_prepend(tmp_path / name)
        monkeypatch.delitem(sys.modules, "own_helper", raising=False)
        return resolve(f"{tmp_path / name / 'own.py'}:build", "function")

    return write


BUILD = "def build(architecture, scale):\n    return {}\n"


def test_a_digest_is_of_the_script_and_of_the_files_that_it_imports(written: Any) -> None:
    first = source_digest([written("first", BUILD.format(1))])
    assert first is not None
    assert source_digest([written("same", BUILD.format(1))]) == first
    assert source_digest([written("other", BUILD.format(2))]) != first
    assert source_digest([written("other-helper", BUILD.format(1), "VALUE = 2")]) != first
    assert source_digest([partial(written("partial", BUILD.format(1)), scale=None)]) == first


def test_packages_are_followed_by_their_relative_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "own_package"
    package.mkdir()
    (package / "__init__.py").write_text("from .spaces import build\n")
    (package / "spaces.py").write_text("from . import layers\nfrom .sizes import WIDTH\n" + BUILD.format("WIDTH"))
    monkeypatch.syspath_prepend(tmp_path)
    digests = set()
    for layers, width in ((1, 1), (2, 1), (1, 2)):
        (package / "layers.py").write_text(f"VALUE = {layers}\n")
        (package / "sizes.py").write_text(f"WIDTH = {width}\n")
        digests.add(source_digest([resolve("own_package:build", "function")]))
    assert len(digests) == 3


def test_code_of_ours_and_of_installed_packages_is_left_out() -> None:
    nothing = source_digest([])
    assert source_digest(NASBENCH201.makers) == nothing
    assert source_digest(ChoiceSpace({"depth": [2, 3]}).makers) == nothing
    assert source_digest(WidthSpace("resnet20").makers) == nothing


def test_packages_that_are_installed_elsewhere_are_left_out(
    written: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of the user or of the system beside a virtual environment's."""
    foreign, file = ModuleType("foreign"), tmp_path / "elsewhere" / "site-packages" / "foreign.py"
    file.parent.mkdir(parents=True)
    foreign.__file__ = str(file)
    monkeypatch.setitem(sys.modules, "foreign", foreign)
    digests = set()
    for number in (1, 2):
        file.write_text(f"VALUE = {number}\n")
        digests.add(source_digest([written(f"with-{number}", "import foreign\n" + BUILD.format(1))]))
    assert len(digests) == 1


def test_a_relative_import_of_a_module_without_a_package_is_passed_over(written: Any) -> None:
    script = "try:\n    from . import nothing\nexcept ImportError:\n    pass\n"
    assert source_digest([written("relative", script + BUILD.format(1))]) is not None


def test_own_functions_are_among_the_makers() -> None:
    assert ChoiceSpace({"depth": [2, 3]}, build=json.dumps).makers == (ChoiceSpace, json.dumps)
    assert WidthSpace("helpers.own_networks:plain").makers == (WidthSpace, plain)


def test_code_in_no_file_has_no_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = ModuleType("notebook_cells")
    monkeypatch.setitem(sys.modules, "notebook_cells", notebook)
    monkeypatch.setattr(plain, "__module__", "notebook_cells")
    assert source_digest([plain]) is None
    assert source_digest([len]) is None
