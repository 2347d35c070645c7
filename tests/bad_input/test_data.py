"""Folders of pictures, archives of arrays, and names of data."""

from __future__ import annotations

import io
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from helpers.wrong_data import GOOD, PICTURES, array_cases
from helpers.wrong_files import DAMAGE, Site


def good_folder(root: Path) -> Path:
    rng = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (root / name).mkdir(parents=True)
        for number in range(6):
            Image.fromarray(rng.integers(0, 256, (8, 8), dtype=np.uint8)).save(root / name / f"{number}.png")
    return root


@pytest.mark.parametrize("picture", PICTURES)
def test_a_folder_with_a_bad_picture_is_refused(picture: str, refused: Any, tmp_path: Path) -> None:
    place = good_folder(tmp_path / "data") / "cat" / "x ["
    place.mkdir()
    (place / "photo] \x1b[31m.png").write_bytes(PICTURES[picture])
    assert "x [/photo] \\x1b[31m.png" in refused("search", "random", "--data", "folder:data")


@pytest.mark.parametrize("picture", PICTURES)
def test_predict_refuses_a_bad_picture(picture: str, refused: Any, site: Site) -> None:
    (site.copy() / "[red]x.png").write_bytes(PICTURES[picture])
    assert "[red]x.png" in refused("predict", "model.safetensors", "image.png", "[red]x.png")


def empty_class(root: Path) -> None:
    (root / "owl").mkdir()


def one_picture(root: Path) -> None:
    for path in sorted((root / "cat").iterdir())[1:]:
        path.unlink()


FOLDERS: dict[str, Callable[[Path], object]] = {
    "absent": shutil.rmtree,
    "empty": lambda root: [shutil.rmtree(path) for path in root.iterdir()],
    "one class": lambda root: shutil.rmtree(root / "cat"),
    "an empty class": empty_class,
    "a class of one picture": one_picture,
    "files instead of classes": lambda root: [
        (shutil.rmtree(root / name), (root / name).write_text("text")) for name in ("cat", "dog")
    ],
    "a folder called as a picture": lambda root: [
        (shutil.rmtree(root / "cat"), (root / "cat" / "0.png").mkdir(parents=True))
    ],
}


@pytest.mark.parametrize("kind", FOLDERS)
def test_a_folder_that_is_no_data_set_is_refused(kind: str, refused: Any, tmp_path: Path) -> None:
    FOLDERS[kind](good_folder(tmp_path / "data"))
    refused("search", "random", "--data", "folder:data")


@pytest.mark.parametrize(("key", "array"), list(array_cases()))
def test_an_archive_with_other_arrays_is_refused(key: str, array: Any, refused: Any, tmp_path: Path) -> None:
    arrays = {name: value for name, value in {**GOOD, key: array}.items() if value is not None}
    np.savez(tmp_path / "data.npz", allow_pickle=True, **arrays)
    refused("search", "random", "--data", "npz:data.npz")


def npy(shape: str, kind: str = "'|u1'") -> bytes:
    """A .npy file that claims a shape, without its content."""
    text = f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


HEADERS = {
    "a claim of 900 GiB": npy(f"({900 * 2**30},)"),
    "a claim beyond 64 bits": npy("(2**99,)"),
    "a shape of huge numbers": npy("(99999999999999999999, 99999999999999999999)"),
    "a shape below zero": npy("(-5, 8, 8)"),
    "a shape of text": npy("'many'"),
    "another type": npy("(3,)", "'|nonsense'"),
    "code": npy("__import__('os').getpid()"),
    "nothing": b"",
    "another magic": b"NUMPY" + bytes(100),
    "a header that is cut": npy("(3,)")[:20],
    "a version of the future": b"\x93NUMPY\x09\x00" + bytes(100),
}


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("key", ["x_train", "y_train"])
def test_an_archive_that_claims_too_much_is_refused(key: str, header: str, refused: Any, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "data.npz", "w") as archive:
        for name, value in GOOD.items():
            content = io.BytesIO()
            np.save(content, value)
            archive.writestr(f"{name}.npy", HEADERS[header] if name == key else content.getvalue())
    assert "data.npz" in refused("search", "random", "--data", "npz:data.npz")


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_archive_is_refused(damage: str, refused: Any, tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "data.npz", **GOOD)  # type: ignore[arg-type]
    content = (tmp_path / "data.npz").read_bytes()
    (tmp_path / "data.npz").write_bytes(DAMAGE[damage](content))
    refused("search", "random", "--data", "npz:data.npz")


SPECS = [
    *("folder", "folder:", "npz", "npz:", "npz:no-such.npz", "digits:3", "digits:", ":", "::", " digits", "Digits"),
    *("random:size=0", "random:size=100000", "random:classes=1", "random:classes=9999999999999", "random:count=1"),
    *("random:count=99999999999999", "random:channels=2", "random:channels=0", "random:size", "random:size="),
    *("random:size=-3", "random:size=1e3", "random:what=3", "random:seed=-1", "random:size=8,,=", "random:size=²"),
    *("cifar10:x", "cifar100:x", "fashion-mnist:x", "folder:\0", "npz:\0"),
]


@pytest.mark.parametrize("spec", [spec for spec in SPECS if spec not in ("digits:",)])
def test_data_that_are_none_are_refused(spec: str, refused: Any) -> None:
    refused("search", "random", "--data", spec)


@pytest.mark.parametrize("name", ["cifar-10-binary.tar.gz", "cifar-100-binary.tar.gz"])
def test_a_damaged_download_is_refused(name: str, refused: Any, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / name).write_bytes(b"not the archive")
    monkeypatch.setenv("ARCHWRIGHT_CACHE", str(tmp_path))
    data = name.removesuffix("-binary.tar.gz").replace("-", "")
    assert "MD5" in refused("search", "random", "--data", data)


def test_images_that_do_not_fit_are_refused(refused: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("archwright.data.images.memory_bytes", lambda: 10**6)
    refused("search", "random", "--data", "digits", "--image-size", "64", "--seed", "12345")
