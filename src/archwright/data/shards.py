"""Parts of a batch: each is a pass of its own, so that several processes can share a step of one training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor


@dataclass(frozen=True)
class Shard:
    """One of the parts that a batch is cut into.

    Attributes:
        number: which one, from 0.
        of: how many there are.
    """

    number: int = 0
    of: int = 1

    def rows(self, count: int) -> slice:
        """Its images among the ``count`` of the batch: neighbours, and as many as in every other part but for one."""
        return slice(count * self.number // self.of, count * (self.number + 1) // self.of)


WHOLE = Shard()
"""The whole batch."""


def taken(source: Any, epoch: int, step: int, shard: Shard) -> tuple[Tensor, Tensor]:
    """Images (n, C, H, W) and labels (n,) of a shard of a step's batch.

    Args:
        source: of batches by (epoch, step). One that knows no shards serves a training that has one.
        epoch: from 0.
        step: of the epoch, from 0.
        shard: which part of the batch.
    """
    images, labels = source.get(epoch, step) if shard.of == 1 else source.get(epoch, step, shard)
    return images, labels


def mixed(*numbers: int) -> int:
    """A seed below 2**63 from whole numbers of at least 0: neighbouring ones share nothing."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))
