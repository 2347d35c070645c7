"""The folder of photographs that the example writes can be searched on: classes, counts and sizes."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np

from archwright.data import load

SCRIPT = Path(__file__).parents[1] / "examples" / "photo_folder.py"


def loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("photo_folder", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_folder_has_four_classes_of_so_many_photographs(tmp_path: Path) -> None:
    example = loaded()
    example.EACH = 5
    labels = np.tile(np.arange(6), 7)
    pixels = np.random.default_rng(0).integers(0, 256, (42, 32, 32, 3), dtype=np.uint8)
    names = np.array(["airplane", "automobile", "bird", "cat", "deer", "dog"])
    np.savez(tmp_path / "cifar.npz", x_train=pixels, y_train=labels, class_names=names)
    assert example.write_photos(tmp_path / "cifar.npz", tmp_path / "photos") == 20
    data = load(f"folder:{tmp_path / 'photos'}")
    assert data.class_names == ("airplane", "automobile", "bird", "cat")
    assert data.image_size == 96
    assert len(data.train) + len(data.validation) + len(data.test) == 20


def test_digits_need_no_file(tmp_path: Path) -> None:
    assert loaded().write_digits(tmp_path / "digits") == 1797
    data, embedded = load(f"folder:{tmp_path / 'digits'}"), load("digits")
    assert (data.class_names, data.image_size, data.image_channels) == (embedded.class_names, 8, 1)
    assert sorted(data.train.labels.tolist()) == sorted(embedded.train.labels.tolist())
