from __future__ import annotations

import numpy as np
import pytest
import torch

from archwright.data import Augmentation, Batches, ImageData, Steps, load
from archwright.errors import InputError


@pytest.fixture(scope="module")
def data() -> ImageData:
    return load("random:count=200,size=8")


AUGMENT = Augmentation(crop=2, flip=True, cutout=3)


def test_batches_do_not_depend_on_the_order_of_calls(data: ImageData) -> None:
    first, second = (Batches(data, "train", 16, seed=3, augment=AUGMENT) for _ in range(2))
    calls = [(epoch, step) for epoch in range(3) for step in range(len(first))]
    forward = {call: first.get(*call) for call in calls}
    torch.manual_seed(99)
    for call in reversed(calls):
        x, y = second.get(*call)
        assert torch.equal(x, forward[call][0])
        assert torch.equal(y, forward[call][1])


def test_autoaugment_is_a_function_of_seed_epoch_and_step(data: ImageData) -> None:
    augment = Augmentation(autoaugment="cifar10")
    calls = [(0, 0), (0, 1), (2, 1)]
    first, second, other = (Batches(data, "train", 16, seed=seed, augment=augment) for seed in (3, 3, 4))
    forward = {call: first.get(*call)[0] for call in calls}
    torch.manual_seed(99)
    for call in reversed(calls):
        assert torch.equal(second.get(*call)[0], forward[call])
        assert not torch.equal(other.get(*call)[0], forward[call])


def test_global_random_state_is_untouched(data: ImageData) -> None:
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002 - the global state is what is looked at
    state, legacy = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    Batches(data, "train", 16, augment=Augmentation(crop=1, autoaugment="cifar10")).get(1, 1)
    assert torch.equal(torch.get_rng_state(), state)
    assert np.array_equal(np.random.get_state()[1], legacy)  # noqa: NPY002


def test_an_epoch_covers_every_image_once(data: ImageData) -> None:
    batches = Batches(data, "train", 7, drop_last=False)
    expected = sorted(x.numpy().tobytes() for x in data.normalise(data.train.pixels(np.arange(len(data.train)))))
    for epoch in (0, 4):
        seen = torch.cat([batches.get(epoch, step)[0] for step in range(len(batches))])
        assert sorted(x.numpy().tobytes() for x in seen) == expected
        assert sorted(batches.order(epoch)) == list(range(len(data.train)))
    assert not np.array_equal(batches.order(0), batches.order(1))


def test_labels_follow_their_images(data: ImageData) -> None:
    x, y = Batches(data, "validation", 10, shuffle=False).get(0, 1)
    assert torch.equal(x, data.normalise(data.validation.pixels(np.arange(10, 20))))
    assert y.tolist() == data.validation.labels[10:20].tolist()
    assert (x.dtype, y.dtype) == (torch.float32, torch.int64)


@pytest.mark.parametrize(
    ("size", "drop_last", "steps", "last"),
    [(50, True, 2, 50), (50, False, 3, 20), (60, True, 2, 60), (500, True, 1, 120), (60, False, 2, 60)],
)
def test_length_and_last_batch(data: ImageData, size: int, drop_last: bool, steps: int, last: int) -> None:
    batches = Batches(data, "train", size, drop_last=drop_last)
    assert len(batches) == steps
    assert len(list(batches)) == steps
    assert len(batches.get(0, steps - 1)[1]) == last


def test_seeds_steps_and_epochs_augment_differently(data: ImageData) -> None:
    one = np.array([5])
    images = [
        Batches(data, "train", 1, seed=seed, augment=Augmentation(crop=4), indices=one).get(epoch, 0)[0]
        for seed in range(3)
        for epoch in range(3)
    ]
    assert len({image.numpy().tobytes() for image in images}) >= 7  # of 81 places, chance repeats one at times


def test_indices_restrict_to_part_of_a_split(data: ImageData) -> None:
    half = np.arange(0, len(data.train), 2)
    batches = Batches(data, "train", 8, indices=half, drop_last=False)
    assert sorted(batches.order(3)) == half.tolist()
    assert sum(len(y) for _, y in batches) == len(half)


@pytest.mark.parametrize("indices", [[], [-1], [10**6], [0.5], [[1]]])
def test_bad_indices_are_refused(data: ImageData, indices: list) -> None:
    with pytest.raises(InputError):
        Batches(data, "train", 8, indices=np.array(indices))


def test_bad_arguments_are_refused(data: ImageData) -> None:
    with pytest.raises(InputError):
        Batches(data, "train", 0)
    with pytest.raises(InputError):
        Batches(data, "all", 8)
    with pytest.raises(IndexError):
        Batches(data, "train", 8).get(0, 15)


def test_steps_go_on_over_the_epochs_of_their_source(data: ImageData) -> None:
    source = Batches(data, "train", 50, seed=3, augment=AUGMENT)  # 120 images: two steps an epoch
    steps = Steps(source, 5)
    assert len(steps) == 5
    for number, call in enumerate([(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)]):
        assert torch.equal(steps.get(0, number)[0], source.get(*call)[0])
    assert torch.equal(steps.get(1, 0)[0], source.get(2, 1)[0])
    with pytest.raises(InputError, match="one step"):
        Steps(source, 0)
