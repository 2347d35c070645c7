from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

from archwright.data import ImageData, datasets, load
from archwright.errors import InputError


@pytest.fixture(scope="module")
def digits() -> ImageData:
    return load("digits")


def parts(data: ImageData) -> list[np.ndarray]:
    return [data.train.indices, data.validation.indices, data.test.indices]


def test_splits_are_disjoint_and_complete(digits: ImageData) -> None:
    joined = np.concatenate(parts(digits))
    assert len(joined) == 1797
    assert np.array_equal(np.sort(joined), np.arange(1797))


def test_splits_are_stratified_within_one_image(digits: ImageData) -> None:
    total = sum(np.bincount(part.labels, minlength=10) for part in (digits.train, digits.validation, digits.test))
    for part in (digits.validation, digits.test):
        assert np.abs(np.bincount(part.labels, minlength=10) - 0.2 * total).max() < 1
        assert len(part) == round(0.2 * 1797)


def test_equal_seed_equal_split_other_seed_other_split(digits: ImageData) -> None:
    again, other = load("digits"), load("digits", seed=1)
    assert again.fingerprint == digits.fingerprint
    assert all(np.array_equal(a, b) for a, b in zip(parts(again), parts(digits), strict=True))
    assert other.fingerprint != digits.fingerprint
    assert not np.array_equal(other.train.indices, digits.train.indices)
    assert not np.array_equal(other.test.indices, digits.test.indices)


def test_train_part_is_normalised(digits: ImageData) -> None:
    x = digits.normalise(digits.train.pixels(np.arange(len(digits.train)))).double()
    assert x.dtype == torch.float64
    assert abs(x.mean().item()) < 1e-5
    assert abs(x.std(unbiased=False).item() - 1) < 1e-5


def test_statistics_come_from_the_train_part_alone(archive) -> None:
    x = np.zeros((40, 4, 4, 3), dtype=np.uint8)
    x[::2] = 51
    data = load(archive(x_train=x, y_train=np.arange(40) % 2, x_test=x + 100, y_test=np.arange(40) % 2))
    train = x[data.train.indices] / 255
    assert np.allclose(data.mean, train.mean())
    assert np.allclose(data.std, train.std())


def test_describe_names_what_was_loaded(digits: ImageData) -> None:
    line = digits.describe()
    assert all(word in line for word in ("digits", "1,797", "8x8", "10 classes", "359 validation", "grey"))
    assert "\n" not in line


def test_image_size_resizes_a_named_set() -> None:
    data = load("digits", image_size=16)
    assert data.image_size == 16
    assert data.train.pixels(np.array([0])).shape == (1, 1, 16, 16)


@pytest.mark.parametrize(
    ("name", "nearest"), [("cifar-10", "cifar10"), ("digit", "digits"), ("fashionmnist", "fashion-mnist")]
)
def test_unknown_name_suggests_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(InputError) as caught:
        load(name)
    assert repr(nearest) in caught.value.do


@pytest.mark.parametrize(
    "arguments",
    [
        {"seed": -1},
        {"image_size": 0},
        {"image_size": 10**6},
        {"split": (1, 1)},
        {"split": (80, 0, 20)},
        {"split": (80, -1, 20)},
        {"split": (80, float("nan"), 20)},
        {"split": (1, 1, 1, 1)},
    ],
)
def test_bad_arguments_are_refused(arguments: dict) -> None:
    with pytest.raises(InputError):
        load("digits", **arguments)


def test_shares_are_relative_and_leave_out_official_parts(archive) -> None:
    data = load("digits", split=(70, 15, 15))
    assert (len(data.train), len(data.validation), len(data.test)) == (1257, 270, 270)
    assert load("digits", split=(14, 3, 3)).fingerprint == data.fingerprint
    x, y = np.zeros((40, 4, 4), np.uint8), np.arange(40) % 2
    spec = archive(x_train=x, y_train=y, x_test=x[:6], y_test=y[:6])
    data = load(spec, split=(90, 10))
    assert (len(data.train), len(data.validation), len(data.test)) == (36, 4, 6)
    with pytest.raises(InputError, match="its own test part"):
        load(spec, split=(70, 15, 15))


def test_named_sets_take_no_argument() -> None:
    with pytest.raises(InputError, match="digits:3"):
        load("digits:3")


def test_empty_validation_is_an_error(archive) -> None:
    spec = archive(x=np.zeros((4, 8, 8), np.uint8), y=np.array([0, 0, 1, 1]))
    with pytest.raises(InputError, match="validation"):
        load(spec, split=(60, 10, 30))


def test_every_class_keeps_a_training_image(archive) -> None:
    """Of three images 1.35 are due to test and 1.5 to validation: some classes would be left with none."""
    spec = archive(x=np.zeros((30, 8, 8), np.uint8), y=np.arange(30) % 10)
    for seed in range(20):
        assert set(load(spec, seed=seed, split=(5, 50, 45)).train.labels) == set(range(10))


def test_listing_data_sets_does_not_import_torch() -> None:
    code = "import sys, archwright.data as d; assert len(list(d.datasets)) >= 7; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", [entry.name for entry in datasets])
def test_registered_sources_are_importable(name: str) -> None:
    assert callable(datasets.get(name))
    assert datasets.entries[name].summary


def test_images_in_memory_are_resized_part_by_part(digits: ImageData) -> None:
    larger = digits.resized(16)
    assert larger.image_size == larger.preprocessing.image_size == 16
    for name in ("train", "validation", "test"):
        before, after = getattr(digits, name), getattr(larger, name)
        assert np.array_equal(before.labels, after.labels)
        pixels = after.pixels(np.arange(5))
        assert pixels.shape == (5, 1, 16, 16)
        centres = pixels[:, :, 4:12, 4:12].float().mean((1, 2, 3))
        assert torch.allclose(centres, before.pixels(np.arange(5))[:, :, 2:6, 2:6].float().mean((1, 2, 3)), atol=12)
