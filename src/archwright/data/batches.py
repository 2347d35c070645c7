"""Batches as a pure function of (seed, epoch, step): a resumed run sees what an uninterrupted one would have seen.

Images that are read from files are decoded ahead: as a batch is a function of its place, those that follow are made in
threads while a step runs. Random numbers are drawn when a batch is begun, by the caller's thread, so that no generator
is shared.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from archwright.data.augmentation import Augment, Augmentation, Drawn, as_unit
from archwright.data.image_data import ImageData, Split
from archwright.data.shards import WHOLE, Shard, taken
from archwright.errors import InputError

AHEAD = 2
"""Batches that are made ahead of the step that runs."""


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
        self.split: Literal["train", "validation", "test"] = split
        self._split: Split = getattr(data, split)
        self.indices = _checked_indices(indices, len(self._split), split)
        self._orders: dict[int, NDArray[np.int64]] = {}  # of the last two epochs asked for, to draw each once
        self._ahead = None if self._split.in_memory else _Ahead(self)

    def __reduce__(self) -> Any:
        """A copy, or one in another process, has the same images, not copies of them, and nothing under way."""
        names = ("seed", "augment", "shuffle", "device", "drop_last", "indices")
        return partial(Batches, **{name: getattr(self, name) for name in names}), (
            self.data,
            self.split,
            self.batch_size,
        )

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
        if epoch not in self._orders:
            rng = np.random.default_rng([self.seed, epoch, 0])
            self._orders = {**dict(list(self._orders.items())[-1:]), epoch: rng.permutation(self.indices)}
        return self._orders[epoch]

    def get(self, epoch: int, step: int, shard: Shard = WHOLE) -> tuple[Tensor, Tensor]:
        """Images float32 (n, C, H, W), normalised, and labels int64 (n,), both on the device.

        Args:
            epoch: from 0; another one has another order and other augmentation.
            step: of the epoch, from 0.
            shard: which part of the batch; only its images are read. They are augmented as in the whole batch, but for
                AutoAugment and functions of the user's, which draw for each shard.
        """
        if epoch < 0 or not 0 <= step < len(self):
            raise IndexError(f"epoch {epoch}, step {step} of {len(self)} steps")
        batch = self._batch(epoch, step)
        if not len(batch[shard.rows(len(batch))]):
            raise InputError(f"a batch of at least one image for each of {shard.of} shards", f"{len(batch)} images")
        return self._ahead.taken((epoch, step, shard)) if self._ahead else self._begun(epoch, step, shard)()

    def _begun(self, epoch: int, step: int, shard: Shard) -> Callable[[], tuple[Tensor, Tensor]]:
        """What makes a batch, to be called here: its random numbers are drawn now, its pixels where they are read."""
        made = self._made(epoch, step, shard)
        return lambda: self._placed(made())

    def _made(self, epoch: int, step: int, shard: Shard) -> Callable[[], _Half]:
        """What reads the images of a batch, and augments them where that is the CPU's; in any thread."""
        batch = self._batch(epoch, step)
        chosen = batch[shard.rows(len(batch))]
        augment, side = self.augment, self.data.image_size
        y = torch.from_numpy(self._split.labels[chosen])
        seed = int(np.random.SeedSequence([self.seed, epoch, step + 1]).generate_state(1, np.uint64)[0] >> 1)
        if not isinstance(augment, Augmentation):
            rest = partial(self._unaugmented, seed=seed, shard=shard, count=len(batch))
            return lambda: _Half(self._split.pixels(chosen), y, rest)
        drawn = augment.draw((len(chosen), self.data.image_channels, side, side), seed, shard, len(batch))
        windows = augment.windows(drawn) if self._split.has_windows else None
        rest = partial(self._augmented, drawn=drawn, zoomed=windows is not None)

        def made() -> _Half:
            pixels = self._split.pixels(chosen) if windows is None else self._split.windows(chosen, windows)
            return _Half(pixels, y, rest) if self.device.type != "cpu" else _Half(rest(pixels), y, _unchanged)

        return made

    def _placed(self, half: _Half) -> tuple[Tensor, Tensor]:
        """The rest of a batch, on the device."""
        pixels, y = (one.to(self.device, non_blocking=True) for one in (half.images, half.labels))
        return half.rest(pixels), y

    def _augmented(self, pixels: Tensor, *, drawn: Drawn, zoomed: bool) -> Tensor:
        assert isinstance(self.augment, Augmentation)
        standardise = partial(self.data.preprocessing.standardise, inplace=True)
        return self.augment.apply(pixels, drawn, standardise, zoomed=zoomed)

    def _unaugmented(self, pixels: Tensor, *, seed: int, shard: Shard, count: int) -> Tensor:
        """Normalised, or given to the user's own function, which may draw from global generators."""
        if self.augment is None:
            return self.data.normalise(pixels)
        return self.augment(as_unit(pixels), seed, self.data.preprocessing.standardise, shard, count)

    def _batch(self, epoch: int, step: int) -> NDArray[np.int64]:
        return self.order(epoch)[step * self.batch_size : (step + 1) * self.batch_size]

    def _following(self, key: _Key) -> _Key | None:
        """The batch that is probably asked for after another one; none after the last one of a single pass."""
        epoch, step, shard = key
        if step + 1 < len(self):
            return epoch, step + 1, shard
        return (epoch + 1, 0, shard) if self.shuffle else None


_Key = tuple[int, int, Shard]


def _unchanged(x: Tensor) -> Tensor:
    return x


@dataclass(frozen=True, eq=False)
class _Half:
    """A batch as a thread leaves it: images, labels, and what is still to be done with the images on the device."""

    images: Tensor
    labels: Tensor
    rest: Callable[[Tensor], Tensor]

    def pinned(self) -> _Half:
        """In memory that a GPU copies from while it computes."""
        return replace(self, images=self.images.pin_memory(), labels=self.labels.pin_memory())


@cache
def _makers() -> ThreadPoolExecutor:
    """The threads that make batches ahead; each has the images decoded by further ones."""
    return ThreadPoolExecutor(AHEAD, "batches")


os.register_at_fork(after_in_child=_makers.cache_clear)  # threads do not come along


class _Ahead:
    """The next batches of a source, under way in threads."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches
        self._waiting: dict[_Key, Future[_Half]] = {}

    def taken(self, key: _Key) -> tuple[Tensor, Tensor]:
        """The batch ``key``; those that follow it are begun."""
        now = self._waiting.pop(key, None) or self._begin(key)
        wanted = self._wanted(key)
        for one in [one for one in self._waiting if one[2] == key[2] and one not in wanted]:
            self._waiting.pop(one).cancel()  # somebody goes another way
        for one in wanted:
            if one not in self._waiting:
                self._waiting[one] = self._begin(one)
        return self._batches._placed(now.result())

    def _wanted(self, key: _Key) -> list[_Key]:
        found: list[_Key] = []
        following = self._batches._following(key)
        while following is not None and len(found) < AHEAD:
            found.append(following)
            following = self._batches._following(following)
        return found

    def _begin(self, key: _Key) -> Future[_Half]:
        made = self._batches._made(*key)
        pinned = self._batches.device.type == "cuda"
        return _makers().submit(lambda: made().pinned() if pinned else made())


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

    def get(self, epoch: int, step: int, shard: Shard = WHOLE) -> tuple[Tensor, Tensor]:
        """Images and labels of a shard, as of the source.

        Args:
            epoch: of :attr:`count` steps, from 0.
            step: of the epoch, from 0.
            shard: which part of the batch.
        """
        return taken(self.source, *divmod(epoch * self.count + step, len(self.source)), shard)


class Endless:
    """The batches of a source one after another, over as many of its epochs as it takes: for trainings by the clock."""

    def __init__(self, source: Numbered) -> None:
        self.source = source

    def __len__(self) -> int:
        """Steps after which the source begins anew."""
        return len(self.source)

    def get(self, epoch: int, step: int, shard: Shard = WHOLE) -> tuple[Tensor, Tensor]:
        """Images (B, C, H, W) and labels (B,) of step ``step``, of the next epoch of the source where one is over.

        Args:
            epoch: not looked at, there is one only.
            step: from 0, without end.
            shard: which part of the batch.
        """
        return taken(self.source, *divmod(step, len(self.source)), shard)


def _checked_indices(indices: NDArray[np.int64] | None, size: int, split: str) -> NDArray[np.int64]:
    if indices is None:
        return np.arange(size)
    checked = np.asarray(indices)
    if checked.ndim != 1 or not np.issubdtype(checked.dtype, np.integer) or checked.size == 0:
        raise InputError("a list of one or more whole numbers as indices", f"{checked.dtype} of shape {checked.shape}")
    if checked.min() < 0 or checked.max() >= size:
        raise InputError(f"indices from 0 to {size - 1} into {split}", f"{checked.min()} to {checked.max()}")
    return checked.astype(np.int64)
