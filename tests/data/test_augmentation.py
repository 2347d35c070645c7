from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from archwright.data import Augmentation, Batches, load
from archwright.data.augmentation import OwnAugmentation, find_augmentation
from archwright.errors import InputError

IMAGES = torch.rand(64, 3, 16, 16, generator=torch.Generator().manual_seed(0)) * 0.9 + 0.05


@pytest.mark.parametrize(
    "augment",
    [
        Augmentation(crop=3),
        Augmentation(flip=True),
        Augmentation(cutout=5),
        Augmentation(autoaugment="cifar10"),
        Augmentation(zoom=0.5),
        Augmentation(colour=0.4),
        Augmentation(3, True, 5, "imagenet", 0.6, 0.4),
    ],
)
@pytest.mark.parametrize("channels", [1, 3])
def test_seed_decides_everything(augment: Augmentation, channels: int) -> None:
    x = IMAGES[:, :channels]
    before = x.clone()
    torch.manual_seed(1)
    first = augment(x, 7)
    torch.manual_seed(2)
    assert torch.equal(augment(x, 7), first)
    assert not torch.equal(augment(x, 8), first)
    assert first.shape == x.shape
    assert first.dtype == torch.float32
    assert first.min() >= 0
    assert first.max() <= 1
    assert torch.equal(x, before), "the input is left alone"


def test_no_augmentation_changes_nothing() -> None:
    assert torch.equal(Augmentation()(IMAGES, 0), IMAGES)


def test_crop_shifts_and_fills_with_black() -> None:
    padded = torch.nn.functional.pad(IMAGES, (2, 2, 2, 2))
    for image, got in zip(padded, Augmentation(crop=2)(IMAGES, 0), strict=True):
        windows = [image[:, top : top + 16, left : left + 16] for top in range(5) for left in range(5)]
        assert sum(torch.equal(window, got) for window in windows) == 1


def test_flip_mirrors_about_half() -> None:
    got = Augmentation(flip=True)(IMAGES, 0)
    mirrored = [torch.equal(a, b.flip(2)) for a, b in zip(got, IMAGES, strict=True)]
    kept = [torch.equal(a, b) for a, b in zip(got, IMAGES, strict=True)]
    assert all(m != k for m, k in zip(mirrored, kept, strict=True))
    assert 16 < sum(mirrored) < 48


def test_cutout_is_one_square_of_zeros_after_normalisation() -> None:
    got = Augmentation(cutout=6)(IMAGES, 0, lambda x: x + 10)
    areas = set()
    for image in got:
        hole = (image == 0).all(0)
        assert torch.equal((image == 0).any(0), hole)
        rows, columns = hole.any(1).nonzero()[:, 0], hole.any(0).nonzero()[:, 0]
        height, width = rows.max() - rows.min() + 1, columns.max() - columns.min() + 1
        assert hole.sum() == height * width  # a full rectangle
        assert max(height, width) <= 6
        areas.add(int(hole.sum()))
    assert max(areas) == 36
    assert got[got != 0].min() >= 10


def test_zoom_shows_a_window_and_mirrors_at_the_border() -> None:
    """Of a ramp from left to right a window is a straighter ramp; its ends say where it was."""
    ramp = (torch.arange(32) / 64 + 0.25).expand(200, 1, 32, 32)
    got = Augmentation(zoom=0.5)(ramp, 0)
    inner = got[:, 0, :, 4:-4]
    slope = inner.diff(dim=2)
    inside = (slope > 0).all((1, 2))  # the others were mirrored
    assert inside.sum() > 100
    steady = slope[inside].mean((1, 2)) * 64
    assert 0.5 * np.exp(-0.16) < steady.min() < 0.6
    assert 0.9 < steady.max() < np.exp(0.16)
    assert got.min() >= 0.25
    assert got.max() <= 0.75
    centres = inner[inside].mean((1, 2))
    assert centres.min() < 0.42 < 0.58 < centres.max()


def test_colour_changes_brightness_contrast_and_saturation() -> None:
    """The exact inverse is known: grey images keep their hue, and each image has its own three factors."""
    grey = torch.full((100, 3, 4, 4), 0.4)
    got = Augmentation(colour=0.5)(grey, 0)
    assert torch.allclose(got, got[:, :1, :1, :1].expand_as(got)), "one colour stays one colour, grey stays grey"
    factors = got[:, 0, 0, 0] / 0.4
    assert 0.5 <= factors.min() < 0.6 < 1.4 < factors.max() <= 1.5
    halves = torch.cat([torch.full((100, 3, 2, 4), 0.4), torch.full((100, 3, 2, 4), 0.6)], 2)
    seen = Augmentation(colour=0.5)(halves, 0)[:, 0]
    contrast = (seen[:, 3, 0] - seen[:, 0, 0]) / seen.mean((1, 2)) / 0.4  # brightness cancels
    assert 0.5 <= contrast.min() < 0.6 < 1.4 < contrast.max() <= 1.5


def test_autoaugment_draws_a_sub_policy_an_image() -> None:
    """With one sub-policy a batch, equal images would come out in very few ways."""
    same = IMAGES[:1].expand(64, -1, -1, -1)
    ways = {image.numpy().tobytes() for image in Augmentation(autoaugment="imagenet")(same, 0)}
    assert len(ways) > 20


def test_autoaugment_changes_most_images_and_keeps_no_graph() -> None:
    """The policy's probabilities are parameters in kornia; images must not depend on them."""
    got = Augmentation(autoaugment="cifar10")(IMAGES, 0)
    assert sum(not torch.equal(a, b) for a, b in zip(got, IMAGES, strict=True)) > 32
    assert not got.requires_grad


def test_dictionary_round_trip_and_refusals() -> None:
    augment = Augmentation(2, True, 4, "cifar10")
    assert Augmentation.from_dict(augment.to_dict()) == augment
    with pytest.raises(InputError, match="cutuot"):
        Augmentation.from_dict({"cutuot": 3})
    with pytest.raises(InputError, match="cifar10"):
        Augmentation(autoaugment="cifar")
    with pytest.raises(InputError):
        Augmentation(crop=-1)


def test_defaults() -> None:
    assert Augmentation.default_for(load("digits")) == Augmentation(crop=1)
    assert Augmentation.default_for(load("random:count=100")) == Augmentation()


def test_default_for_photographs(image_folder) -> None:
    data = load(f"folder:{image_folder({'a': 5, 'b': 5}, size=(32, 40))}")
    assert Augmentation.default_for(data) == Augmentation(crop=4, flip=True, cutout=8)


def noisy(images: torch.Tensor) -> torch.Tensor:
    """Draws from every global generator there is."""
    return images * 0.5 + 0.1 * torch.rand(1) + 0.1 * random.random() + 0.1 * np.random.rand()  # noqa: NPY002


def test_an_own_function_is_a_function_of_the_seed() -> None:
    own = OwnAugmentation(noisy)
    states = torch.get_rng_state(), random.getstate(), str(np.random.get_state())  # noqa: NPY002
    first = own(IMAGES, 5)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (random.getstate(), str(np.random.get_state())) == states[1:]  # noqa: NPY002
    torch.manual_seed(9)
    random.seed(9)
    assert torch.equal(own(IMAGES, 5), first)
    assert not torch.equal(own(IMAGES, 6), first)


@pytest.mark.parametrize("wrong", [lambda x: x[:1], lambda x: None, lambda x: x.long(), lambda x: x[..., :-1]])
def test_what_an_own_function_returns_is_checked(wrong) -> None:
    with pytest.raises(InputError):
        OwnAugmentation(wrong)(IMAGES, 0)


def test_augmentation_is_named() -> None:
    data = load("digits")
    assert find_augmentation("off", data) is None
    assert find_augmentation("default", data) == Augmentation.default_for(data)
    assert find_augmentation("flip", data) == Augmentation(flip=True)
    assert find_augmentation("zoom=0.6,colour=.4", data) == Augmentation(zoom=0.6, colour=0.4)
    assert find_augmentation("crop=2, flip,cutout=4,autoaugment=cifar10", data) == Augmentation(2, True, 4, "cifar10")
    own = find_augmentation("torch:zeros_like", data)
    images, _ = Batches(data, "train", 8, augment=own).get(0, 0)
    black = data.normalise(torch.zeros(1, 1, 8, 8, dtype=torch.uint8))
    assert torch.equal(images, black.expand_as(images))


@pytest.mark.parametrize(
    "text",
    [
        "zoom=0",
        "zoom=2",
        "zoom=x",
        "colour=1.5",
        "colour",
        "",
        "none",
        "crop",
        "crop=-1",
        "crop=x",
        "flip=1",
        "crop=1,crop=2",
        "crop=9",
        "cutout=999999",
        "torch:pi",
    ],
)
def test_other_names_of_augmentations_are_refused(text: str) -> None:
    with pytest.raises(InputError):
        find_augmentation(text, load("digits"))
