"""Images saved larger than what they show are recognised: enlarged noise loses nothing, real noise almost all."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

from archwright.data import load
from archwright.data.detail import lost_detail, sufficient_size


def enlarged(side: int, to: int) -> np.ndarray:
    """Noise of ``side`` px enlarged to ``to`` px, (30, 3, to, to)."""
    rng = np.random.default_rng(0)
    small = rng.integers(0, 256, (30, side, side, 3), dtype=np.uint8)
    large = [np.asarray(Image.fromarray(one).resize((to, to), Image.Resampling.BICUBIC)) for one in small]
    return np.stack(large).transpose(0, 3, 1, 2)


@pytest.mark.parametrize(("side", "to", "enough"), [(16, 96, 32), (48, 96, 64), (96, 96, 64), (8, 24, 24)])
def test_the_smallest_size_that_shows_everything_is_taken(
    side: int, to: int, enough: int, archive: Callable[..., str]
) -> None:
    data = load(archive(x=enlarged(side, to), y=np.arange(30) % 2))
    assert sufficient_size(data) == enough


def test_what_is_lost_falls_with_the_size(archive: Callable[..., str]) -> None:
    data = load(archive(x=enlarged(32, 64), y=np.arange(30) % 2))
    lost = [lost_detail(data, size) for size in (8, 16, 32, 64)]
    assert lost == sorted(lost, reverse=True)
    assert lost[0] > 0.5
    assert lost[-1] < 1e-6
