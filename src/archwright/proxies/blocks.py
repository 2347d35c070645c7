"""What the blocks of a network say without training: AZ-NAS' expressivity, progressivity and trainability.

Lee and Ham, AZ-NAS (CVPR 2024). A block is a stem, a cell, a reduction, a layer of a transformer: what a network is a
sequence of. Each function gives (A, blocks) with one column filled, so that the records of a network add up to a table
with a column a block.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from archwright.proxies.records import BlockRecord

IDENTITY = -1e5
"""Of a block that changes no gradient: it does nothing, which the ideal norm 1 must not reward. A dead one is worse."""


def entropies(record: BlockRecord) -> Tensor:
    """Entropy of the normalised spectrum of the channels' covariance: 0 for one direction, log C for all alike."""
    features = record.features.double()
    centred = features - features.mean(2, keepdim=True)
    values = torch.linalg.eigvalsh(centred @ centred.transpose(1, 2)).clamp(min=0)
    total = values.sum(1, keepdim=True)
    share = values / torch.where(total > 0, total, 1.0)
    return _column(record, torch.special.entr(share).sum(1))


def jumps(record: BlockRecord) -> Tensor:
    """2 - s - 1/s of each block but the first, s the spectral norm of its mean Jacobian estimated by random signs."""
    if record.signs is None or record.signals is None:
        return _column(record, torch.zeros(len(record.rows), dtype=torch.float64))
    signs, signals = record.signs.double(), record.signals.double()
    jacobian = signals @ signs.T / signs.shape[1]
    norm = torch.linalg.svdvals(jacobian)[:, 0]
    found = 2 - norm - 1 / (norm + 1e-6)
    if signs.shape == signals.shape[1:]:
        found = torch.where((signals == signs).flatten(1).all(1), IDENTITY, found)
    return _column(record, found)


def least_rise(table: Tensor) -> Tensor:
    """Progressivity of (A, blocks): the least increase of the entropy from a block to the next."""
    return table.diff(dim=1).min(1).values


def mean_jump(table: Tensor) -> Tensor:
    """Trainability of (A, blocks): the mean over all blocks but the first, whose column is 0."""
    return table.sum(1) / (table.shape[1] - 1)


def random_signs(seed: int, number: int, shape: tuple[int, ...]) -> Tensor:
    """Signs +1 and -1 of a block, the same for all architectures.

    Args:
        seed: of the draw.
        number: of the block.
        shape: (C, H, W, m).
    """
    words = np.random.SeedSequence([seed, number, 13]).generate_state(1, np.uint64)
    generator = torch.Generator().manual_seed(int(words[0]) >> 1)
    return torch.randint(2, shape, generator=generator).float() * 2 - 1


def folded(signals: Tensor, height: int, width: int) -> Tensor:
    """Signals at another size, (A, C', n): pixels that become one are channels.

    Args:
        signals: (A, C, H, W, m).
        height: new height, which divides H.
        width: new width, which divides W.
    """
    lanes, channels, tall, wide, examples = signals.shape
    if (tall, wide) == (height, width):
        return signals.flatten(2)
    down, across = tall // height, wide // width
    parts = signals.reshape(lanes, channels, height, down, width, across, examples)
    return parts.permute(0, 1, 3, 5, 2, 4, 6).reshape(lanes, channels * down * across, -1)


def _column(record: BlockRecord, values: Tensor) -> Tensor:
    table = values.new_zeros(len(values), record.blocks)
    table[:, record.number] = values
    return table
