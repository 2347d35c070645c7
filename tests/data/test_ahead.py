"""Batches of files are made ahead, in threads, the same whatever the way through them; windows are of the files."""

from __future__ import annotations

import copy
import pickle
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from archwright.data import Augmentation, Batches, ImageData, image_files, load
from archwright.data.augmentation import OwnAugmentation
from archwright.data.images import window_pixels
from archwright.data.shards import Shard
from archwright.errors import InputError

AUGMENTS = {
    "none": None,
    "zoom": Augmentation(zoom=0.3, flip=True, colour=0.2),
    "policy": Augmentation(crop=2, autoaugment="imagenet", cutout=4),
    "own": OwnAugmentation(lambda x: x + torch.rand(())),
}


@pytest.fixture
def data(image_folder, monkeypatch: pytest.MonkeyPatch) -> ImageData:
    monkeypatch.setattr(image_files, "MEMORY_LIMIT_BYTES", 0)
    return load(f"folder:{image_folder({'a': 30, 'b': 30}, size=(50, 40))}")


@pytest.mark.parametrize("name", AUGMENTS)
def test_the_way_through_batches_does_not_change_them(data: ImageData, name: str) -> None:
    def fresh() -> Batches:
        return Batches(data, "train", 8, seed=3, augment=AUGMENTS[name])

    straight, wild = fresh(), fresh()
    places = [(epoch, step) for epoch in range(2) for step in range(len(straight))]
    torch.manual_seed(0)
    state = torch.get_rng_state()
    ahead = {place: straight.get(*place) for place in places}
    assert torch.equal(torch.get_rng_state(), state)
    for place in [*reversed(places), *places[::3]]:
        for one, other in zip(wild.get(*place), ahead[place], strict=True):
            assert torch.equal(one, other)
    alone = fresh().get(1, 2)  # nothing was made ahead of it
    assert torch.equal(alone[0], ahead[1, 2][0])
    halves = [fresh().get(0, 1, Shard(number, 2))[0] for number in range(2)]
    if name in ("none", "zoom"):
        assert torch.equal(torch.cat(halves), ahead[0, 1][0])


def test_later_batches_are_made_in_threads_meanwhile(data: ImageData, monkeypatch: pytest.MonkeyPatch) -> None:
    batches, makers, third = Batches(data, "train", 8), set(), threading.Event()
    source = batches._split._source
    read = type(source).read

    def noting(self, indices):
        makers.add(threading.current_thread().name)
        if len(makers) > 1 or len(noted) == 2:
            third.set()
        noted.append(indices)
        return read(self, indices)

    noted: list[np.ndarray] = []
    monkeypatch.setattr(type(source), "read", noting)
    batches.get(0, 0)
    assert third.wait(20)  # though nobody has asked for them
    assert all(name.startswith("batches") for name in makers)


def test_copies_have_nothing_under_way(data: ImageData) -> None:
    batches = Batches(data, "train", 8, seed=1)
    expected = batches.get(0, 0)[0]
    for other in (copy.deepcopy(batches), pickle.loads(pickle.dumps(batches))):  # noqa: S301 - just made
        assert torch.equal(other.get(0, 0)[0], expected)


def test_a_file_that_is_damaged_later_is_named_when_its_batch_is_asked_for(data: ImageData, tmp_path: Path) -> None:
    batches = Batches(data, "train", 8, shuffle=False)
    wrong = tmp_path / "photos" / data.train.file(20)
    wrong.write_bytes(b"nothing")
    batches.get(0, 0)
    batches.get(0, 1)
    with pytest.raises(InputError, match=wrong.name):
        batches.get(0, 2)


def test_photographs_in_files_are_zoomed_by_default(data: ImageData) -> None:
    assert Augmentation.default_for(data) == Augmentation(zoom=0.35, flip=True)


# --- windows ---


@pytest.mark.parametrize(("width", "height"), [(60, 40), (40, 60), (33, 33)])
def test_a_window_is_cut_out_of_the_whole_file(width: int, height: int) -> None:
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8))
    short = min(width, height)
    for tall, wide, down, across in [
        (1.0, 1.0, 0.5, 0.5),
        (0.5, 0.25, 0.0, 1.0),
        (0.4, 0.6, 0.7, 0.2),
        (1.0, 9.0, 0, 0),
    ]:
        high, broad = min(tall * short, height), min(wide * short, width)
        top, left = down * (height - high), across * (width - broad)
        expected = image.resize((16, 16), Image.Resampling.BILINEAR, box=(left, top, left + broad, top + high))
        found = window_pixels(image, np.array([tall, wide, down, across]), 16, 3)
        assert np.array_equal(found, np.asarray(expected).transpose(2, 0, 1))


def test_a_jpeg_is_decoded_no_larger_than_a_window_needs(tmp_path: Path) -> None:
    rows, columns = np.mgrid[0:400, 0:640] / 400
    photo = np.stack([rows, columns / 1.6, (rows + columns) / 2.6], 2) * 255
    Image.fromarray(photo.astype(np.uint8)).save(tmp_path / "p.jpg", quality=95)
    window = np.array([0.9, 0.8, 0.3, 0.6])
    with Image.open(tmp_path / "p.jpg") as image:
        drafted = window_pixels(image, window, 32, 3)
        assert image.size == (80, 50)  # an eighth
    with Image.open(tmp_path / "p.jpg") as image:
        whole = window_pixels(image.copy(), window, 32, 3)
    assert np.abs(drafted.astype(int) - whole.astype(int)).max() <= 4


def test_windows_have_the_sizes_that_were_asked_for() -> None:
    augment = Augmentation(zoom=0.35)
    windows = augment.windows(augment.draw((4000, 3, 8, 8), 0, Shard(), 4000))
    assert windows is not None
    height, width, *place = windows.T
    assert height.min() >= 0.35
    assert height.max() <= 1
    assert np.abs(np.log(width / height)).max() <= 0.15 + 1e-6
    assert np.quantile(np.log(height), 0.5) == pytest.approx(np.log(0.35) / 2, abs=0.03)  # log-uniform
    for share in place:
        assert share.mean() == pytest.approx(0.5, abs=0.02)


def test_the_policy_of_autoaugment_is_by_the_data(data: ImageData) -> None:
    from archwright.data.augmentation import find_augmentation

    digits, photos = load("digits"), load(f"folder:{data.spec.partition(':')[2]}", image_size=96)
    assert find_augmentation("flip,autoaugment", digits).autoaugment == "cifar10"  # type: ignore[union-attr]
    assert find_augmentation("autoaugment", photos).autoaugment == "imagenet"  # type: ignore[union-attr]
    assert find_augmentation("autoaugment=cifar10", photos).autoaugment == "cifar10"  # type: ignore[union-attr]
    with pytest.raises(InputError):
        find_augmentation("autoaugment=12", photos)
