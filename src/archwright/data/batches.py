"""Batches as a pure function of (seed, epoch, step): a resumed run sees what an uninterrupted one would have seen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from archwright.data.augmentation import Augment
from archwright.data.image_data import ImageData, Split
from archwright.errors import InputError


class Batches:
    """Normalised batches of one split.

    Args:
        data: the data set.
        split: which part of it.
        batch_size: images a batch.
        seed: of the order and of the augmentation.
        augment: applied to every batch; None for none.
        shuffle: a new order every epoch, else the split's own order.
        device: where the batches are put.
        drop_last: leave out an epoch's incomplete last batch, unless it is the only one.
        indices: restrict to these images, counted within the split.
    """

    def __init__(
        self,
        data: ImageData,
        split: Literal["train", "validation", "test"],
        batch_size: int,
        *,
        seed: int = 0,
        augment: Augment | None = None,
        shuffle: bool = True,
        device: torch.device | str = "cpu",
        drop_last: bool = True,
        indices: NDArray[np.int64] | None = None,
    ) -> None:
        if split not in ("train", "validation", "test"):
            raise InputError("the split 'train', 'validation' or 'test'", repr(split))
        if batch_size < 1 or seed < 0:
            raise InputError("a batch size of at least 1 and a seed of at least 0", f"{batch_size} and {seed}")
        self.data = data
        self.batch_size = batch_size
        self.seed = seed
        self.augment = augment
        self.shuffle = shuffle
        self.device = torch.device(device)
        self.drop_last = drop_last
        self._split: Split = getattr(data, split)
        self.indices = _checked_indices(indices, len(self._split), split)
        self._order: tuple[int, NDArray[np.int64]] = (-1, self.indices)  # the last epoch asked for, to draw it once

    def __len__(self) -> int:
        full, rest = divmod(len(self.indices), self.batch_size)
        return full if full and (self.drop_last or not rest) else full + 1

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """One pass: every step of epoch 0."""
        return (self.get(0, step) for step in range(len(self)))

    def order(self, epoch: int) -> NDArray[np.int64]:
        """All of `indices` in the order of an epoch."""
        if not self.shuffle:
            return self.indices
        if self._order[0] != epoch:
            rng = np.random.default_rng([self.seed, epoch, 0])
            self._order = (epoch, rng.permutation(self.indices))
        return self._order[1]

    def get(self, epoch: int, step: int) -> tuple[Tensor, Tensor]:
        """Images float32 (n, C, H, W), normalised, and labels int64 (n,), both on the device.

        Args:
            epoch: from 0; another one has another order and other augmentation.
            step: of the epoch, from 0.
        """
        if epoch < 0 or not 0 <= step < len(self):
            raise IndexError(f"epoch {epoch}, step {step} of {len(self)} steps")
        chosen = self.order(epoch)[step * self.batch_size : (step + 1) * self.batch_size]
        pixels = self._split.pixels(chosen).to(self.device)
        y = torch.from_numpy(self._split.labels[chosen]).to(self.device)
        if self.augment is None:
            return self.data.normalise(pixels), y
        seed = int(np.random.SeedSequence([self.seed, epoch, step + 1]).generate_state(1, np.uint64)[0] >> 1)
        return self.augment(pixels.to(torch.float32) / 255, seed, self.data.preprocessing.standardise), y


class Numbered(Protocol):
    """Batches by (epoch, step); the length is the number of steps an epoch."""

    def get(self, epoch: int, step: int) -> tuple[Tensor, Tensor]:
        """Images (n, C, H, W) and labels (n,) of step ``step`` of epoch ``epoch``, both from 0."""

    def __len__(self) -> int: ...


class Steps:
    """A number of batches of a source as one epoch, over as many of the source's epochs as that takes.

    How long a training lasts is then counted in steps, whatever the number of images.
    """

    def __init__(self, source: Numbered, count: int) -> None:
        if count < 1:
            raise InputError("at least one step", str(count))
        self.source, self.count = source, count

    def __len__(self) -> int:
        return self.count

    def get(self, epoch: int, step: int) -> tuple[Tensor, Tensor]:
        """Images and labels as of the source; ``epoch`` and ``step`` count epochs of :attr:`count` steps."""
        return self.source.get(*divmod(epoch * self.count + step, len(self.source)))


class Endless:
    """The batches of a source one after another, over as many of its epochs as it takes: for trainings by the clock."""

    def __init__(self, source: Numbered) -> None:
        self.source = source

    def __len__(self) -> int:
        """Steps after which the source begins anew."""
        return len(self.source)

    def get(self, epoch: int, step: int) -> tuple[Tensor, Tensor]:
        """Images (B, C, H, W) and labels (B,) of step ``step``, of the next epoch of the source where one is over.

        There is one epoch only: ``epoch`` is not looked at.
        """
        return self.source.get(*divmod(step, len(self.source)))


def _checked_indices(indices: NDArray[np.int64] | None, size: int, split: str) -> NDArray[np.int64]:
    if indices is None:
        return np.arange(size)
    checked = np.asarray(indices)
    if checked.ndim != 1 or not np.issubdtype(checked.dtype, np.integer) or checked.size == 0:
        raise InputError("a list of one or more whole numbers as indices", f"{checked.dtype} of shape {checked.shape}")
    if checked.min() < 0 or checked.max() >= size:
        raise InputError(f"indices from 0 to {size - 1} into {split}", f"{checked.min()} to {checked.max()}")
    return checked.astype(np.int64)
