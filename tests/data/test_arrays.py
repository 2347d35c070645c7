from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from archwright.data import load
from archwright.errors import InputError

IMAGES = np.random.default_rng(0).integers(0, 256, (20, 8, 8, 3), dtype=np.uint8)
LABELS = np.arange(20) % 2


def everything(data) -> np.ndarray:
    """All images back in file order, (n, C, H, W)."""
    parts = (data.train, data.validation, data.test)
    order = np.argsort(np.concatenate([part.indices for part in parts]))
    return np.concatenate([part.pixels(np.arange(len(part))).numpy() for part in parts])[order]


@pytest.mark.parametrize("layout", ["NHWC", "NCHW", "float", "NHW"])
def test_layouts_and_types_agree(archive, layout: str) -> None:
    given = {"NHWC": IMAGES, "NCHW": IMAGES.transpose(0, 3, 1, 2), "float": IMAGES / 255, "NHW": IMAGES[..., 0]}[layout]
    got = everything(load(archive(x=given, y=LABELS)))
    expected = IMAGES.transpose(0, 3, 1, 2)
    assert np.array_equal(got, expected[:, :1] if layout == "NHW" else expected)


def test_class_names_and_official_test(archive) -> None:
    spec = archive(
        x_train=IMAGES,
        y_train=LABELS[:, None],
        x_test=IMAGES[:3],
        y_test=LABELS[:3],
        class_names=np.array(["no", "yes"]),
    )
    data = load(spec)
    assert data.class_names == ("no", "yes")
    assert (len(data.train), len(data.validation), len(data.test)) == (16, 4, 3)


def test_same_content_same_fingerprint_wherever_it_lies(archive, tmp_path: Path) -> None:
    first = load(archive(x=IMAGES, y=LABELS))
    other = tmp_path / "elsewhere.npz"
    np.savez_compressed(other, x=IMAGES, y=LABELS)
    assert load(f"npz:{other}").fingerprint == first.fingerprint
    changed = IMAGES.copy()
    changed[0, 0, 0, 0] ^= 1
    assert load(archive(x=changed, y=LABELS)).fingerprint != first.fingerprint


def test_oblong_arrays_become_square(archive) -> None:
    wide = np.repeat(IMAGES[:, :, :1], 12, axis=2)
    data = load(archive(x=wide, y=LABELS))
    assert data.image_size == 8


NAN = np.where(np.arange(IMAGES.size).reshape(IMAGES.shape) == 7, np.nan, 0.5)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"x": IMAGES}, "keys x"),
        ({"x": IMAGES, "y": LABELS[:-1]}, "19 in y"),
        ({"x": IMAGES, "y": LABELS - 1}, "-1"),
        ({"x": IMAGES, "y": LABELS / 2}, "float64"),
        ({"x": IMAGES, "y": LABELS * 1000}, "1000"),
        ({"x": IMAGES, "y": LABELS * 2}, "'1' has 0"),
        ({"x": IMAGES, "y": LABELS * 0}, "at least two classes"),
        ({"x": IMAGES, "y": (np.arange(20) == 3).astype(int)}, "'1' has 1"),
        ({"x": IMAGES, "y": LABELS, "class_names": np.array(["a"])}, "class_names"),
        ({"x": NAN, "y": LABELS}, "1 NaN"),
        ({"x": IMAGES.astype(float), "y": LABELS}, "values from"),
        ({"x": IMAGES / 127.5 - 1, "y": LABELS}, "values from -1"),
        ({"x": IMAGES.astype(np.int64), "y": LABELS}, "int64"),
        ({"x": IMAGES[..., :2], "y": LABELS}, "shape"),
        ({"x": IMAGES[0], "y": LABELS}, "20 in y"),
        ({"x": IMAGES[0, 0], "y": LABELS}, "shape"),
        ({"x": IMAGES, "y": LABELS, "class_names": np.array([1, 2])}, "list of strings"),
        ({"x": IMAGES[:0], "y": LABELS[:0]}, "empty"),
        ({"x_train": IMAGES, "y_train": LABELS, "x_test": IMAGES}, "only one"),
        ({"x_train": IMAGES, "y_train": LABELS, "x_test": IMAGES[:, :4], "y_test": LABELS}, "one image shape"),
        ({"x_train": IMAGES, "y_train": LABELS, "x_test": IMAGES, "y_test": LABELS + 1}, "y_test below 2"),
        ({"x": np.array([object()]), "y": LABELS}, "plain arrays"),
    ],
)
def test_bad_arrays_are_refused(archive, arrays: dict[str, np.ndarray], words: str) -> None:
    with pytest.raises(InputError, match=words):
        load(archive(**arrays))


def test_missing_and_damaged_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="existing"):
        load(f"npz:{tmp_path / 'absent.npz'}")
    with pytest.raises(InputError, match="existing"):
        load("npz:")
    path = tmp_path / "text.npz"
    path.write_text("hello")
    with pytest.raises(InputError, match="readable"):
        load(f"npz:{path}")
    np.save(tmp_path / "bare.npy", IMAGES)
    with pytest.raises(InputError, match="readable"):
        load(f"npz:{tmp_path / 'bare.npy'}")


def test_real_cifar_subset() -> None:
    root = Path(os.environ.get("ARCHWRIGHT_DATA", Path(__file__).parents[3] / "shared" / "data"))
    path = root / "cifar10_10k2k.npz"
    if not path.is_file():
        pytest.skip(f"no {path.name}; set ARCHWRIGHT_DATA")
    data = load(f"npz:{path}")
    assert (len(data.train), len(data.validation), len(data.test)) == (8000, 2000, 2000)
    assert set(np.bincount(data.train.labels)) == {800}
    assert data.class_names[0] == "airplane"
    # the published statistics of the whole of CIFAR-10
    assert np.allclose(data.mean, (0.4914, 0.4822, 0.4465), atol=0.01)
    assert np.allclose(data.std, (0.247, 0.2435, 0.2616), atol=0.01)
