"""What is known of a large folder is kept: a second start looks only at files that have changed."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from archwright.data import folder, load
from archwright.data.image_files import Headers, Names
from archwright.data.index import kept_arrays


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths of files whose headers are looked at; the index is kept from the first file on."""
    found: list[str] = []
    read = Headers.read

    def noting(self: Headers, files: folder.FolderFiles, indices: np.ndarray) -> None:
        found.extend(files.names[int(index)] for index in indices)
        read(self, files, indices)

    monkeypatch.setattr(Headers, "read", noting)
    monkeypatch.setattr(folder, "MANY_FILES", 1)
    return found


def age(root: Path) -> None:
    """Let files have been changed an hour ago: fresh ones are looked at again."""
    for path in root.rglob("*.png"):
        os.utime(path, ns=(0, path.stat().st_mtime_ns - 3600 * 10**9))


def test_only_changed_files_are_looked_at(image_folder, tmp_path: Path, opened: list[str]) -> None:
    root, cache = image_folder({"a": 5, "b": 5}), tmp_path / "cache"
    age(root)
    first = load(f"folder:{root}", cache_dir=cache)
    assert len(opened) == 10
    opened.clear()
    again = load(f"folder:{root}", cache_dir=cache)
    assert opened == []
    assert again.fingerprint == first.fingerprint
    assert again.preprocessing == first.preprocessing
    Image.new("RGB", (50, 50)).save(root / "a" / "new.png")
    (root / "b" / "3.png").write_bytes((root / "b" / "2.png").read_bytes())
    (root / "b" / "4.png").unlink()
    load(f"folder:{root}", cache_dir=cache)
    assert sorted(opened) == ["a/new.png", "b/3.png"]


def test_fresh_and_bad_files_are_looked_at_again(image_folder, tmp_path: Path, opened: list[str]) -> None:
    root, cache = image_folder({"a": 5, "b": 5}), tmp_path / "cache"
    load(f"folder:{root}", cache_dir=cache)
    opened.clear()
    load(f"folder:{root}", cache_dir=cache)
    assert len(opened) == 10  # changed within the resolution of a file system's clock
    (root / "b" / "3.png").write_bytes(b"nothing")
    age(root)
    load(f"folder:{root}", cache_dir=cache, skip_bad=True)
    opened.clear()
    assert load(f"folder:{root}", cache_dir=cache, skip_bad=True).skipped == ("b/3.png",)
    assert opened == ["b/3.png"]


@pytest.mark.parametrize("damage", ["cut", "text", "other", "read-only"])
def test_a_damaged_index_is_as_good_as_none(image_folder, tmp_path: Path, opened: list[str], damage: str) -> None:
    root, cache = image_folder({"a": 5, "b": 5}), tmp_path / "cache"
    age(root)
    first = load(f"folder:{root}", cache_dir=cache)
    (path,) = (cache / "indices").iterdir()
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-50])
    elif damage == "text":
        path.write_text("words")
    elif damage == "other":
        np.savez(path, block=np.zeros(3, np.uint8), ends=np.array([9, 1, 99]))
    else:
        path.unlink()
        path.mkdir()
    opened.clear()
    assert load(f"folder:{root}", cache_dir=cache).fingerprint == first.fingerprint
    assert len(opened) == 10


def test_the_order_is_that_of_paths(tmp_path: Path) -> None:
    for name in ("a.d/x.png", "a/b/c.png", "a/b2.png", "a/B.png", "a-b/z.png", "ab.png", ".hidden.png", "a/.h/in.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        if not (tmp_path / name).is_dir():
            (tmp_path / name).write_bytes(b"x")
    (tmp_path / "away").symlink_to(tmp_path / "a")
    (tmp_path / "to nothing.png").symlink_to(tmp_path / "absent")
    expected = sorted(p for p in tmp_path.rglob("*") if p.suffix == ".png" and not p.is_dir())
    assert folder.image_files(tmp_path) == [p for p in expected if not p.name.startswith(".")]


def test_names_are_a_sequence() -> None:
    texts = ["", "a/b.png", "grün.jpg", "\udce4.png"]
    names = Names.of(texts)
    assert list(names) == texts
    assert (names[-1], names[1:3]) == ("\udce4.png", texts[1:3])
    assert list(names.chosen(np.array([2, 0]))) == ["grün.jpg", ""]
    assert kept_arrays("nothing", Path("/absent")) == {}
