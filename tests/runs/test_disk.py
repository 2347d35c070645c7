"""All that changes files goes through one module."""

from __future__ import annotations

import ast
import io
from pathlib import Path

import numpy as np
import pytest

import archwright
from archwright.runs import disk
from archwright.runs.files import atomic_file

PACKAGE = Path(archwright.__file__).parent
CHANGES = {
    *("mkdir", "rmdir", "touch", "unlink", "write_text", "write_bytes", "symlink_to", "hardlink_to"),
    *("renames", "removedirs", "makedirs", "truncate", "ftruncate", "fsync", "rmtree", "copyfile", "copytree"),
    *("savetxt", "save_file"),
}
"""Methods of paths, and functions of os, shutil and other libraries that change files."""
SHARED = {"remove", "rename", "link", "copy", "move"}
"""Names that lists, tables and tensors have, too."""


def changes(path: Path) -> list[str]:
    """Calls in a module that change files by other means than ``disk``."""
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    return [f"{path.relative_to(PACKAGE)}:{one.lineno}: {ast.unparse(one)[:80]}" for one in calls if _is_change(one)]


def _is_change(call: ast.Call) -> bool:
    owner, _, name = ast.unparse(call.func).rpartition(".")
    if name == "open" and owner != "archive":
        modes = [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        written = any(set(mode) & set("wax+") for mode in modes if set(mode) <= set("rwaxbt+"))
        return written or ("O_WRONLY" in ast.unparse(call) and "devnull" not in ast.unparse(call))
    if name == "replace":  # of a text it has two arguments, of a date or a dataclass named ones
        return owner != "" and len(call.args) == 1 and not call.keywords
    if name == "savefig":  # into memory
        return ast.unparse(call.args[0]) != "drawn"
    if name in SHARED:
        return owner in ("os", "shutil") or owner.endswith(("path", "folder", "file"))
    return name in CHANGES and owner != "disk"


def test_every_change_of_a_file_goes_through_the_one_module() -> None:
    modules = [path for path in PACKAGE.rglob("*.py") if path != Path(disk.__file__)]
    assert len(modules) > 100
    assert [line for path in modules for line in changes(path)] == []


def test_the_oracle_sees_changes() -> None:
    found = "".join(changes(Path(disk.__file__)))
    assert all(name in found for name in ("mkdir", "unlink", "fsync", "ftruncate", "rmtree", ".replace(", "os.open"))


def test_a_writer_writes_all_that_the_system_takes_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = disk.write
    monkeypatch.setattr(disk, "write", lambda descriptor, data: write(descriptor, bytes(data)[:7]))
    with atomic_file(tmp_path / "a.npz") as file:
        np.savez(file, x=np.arange(100))  # a zip archive goes back to complete its headers
    with np.load(io.BytesIO((tmp_path / "a.npz").read_bytes())) as found:
        assert found["x"].tolist() == list(range(100))


def test_a_link_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="symbolic links"):
        disk.create(tmp_path / "link")
    assert (tmp_path / "other").read_text() == "mine"
