"""A start that is no published one: tiny, with steady clocks and small sizes, so that whole searches take seconds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from archwright.costs.measure import Timing
from archwright.methods import binas
from archwright.methods.binas import around
from archwright.pretrained import Start, Weights
from archwright.spaces.mbconv import SCALES

TINY = Start(
    "tiny",
    SCALES["mbconv-8"].changed(
        stage_widths=(8, 16),
        stage_strides=(2, 2),
        activations=("relu6", "relu6"),
        channels=8,
        first_width=8,
        depths=(1, 2),
        expansions=(2, 3),
        kernels=(3,),
        squeeze_excite=(False,),
        stage_depths=(2, 2),
        full_stages=1,
        last_widths=(32,),
        image_channels=3,
        width=1.0,
        norm_eps=1e-3,
    ),
    (0.4, 0.5, 0.6),
    (0.2, 0.25, 0.3),
    turned=True,
)


class SizedWatch:
    """Instead of a measurement: a microsecond for each thousand of parameters times input pixels."""

    slower = 1.0
    """How many times slower the machine became."""

    def __init__(self, module: nn.Module, shape: tuple[int, int, int], timing: Timing) -> None:
        self.timing = timing
        self.ms = sum(parameter.numel() for parameter in module.parameters()) * shape[1] ** 2 * self.slower / 1e6

    def times_ms(self, repeats: int) -> Any:
        """The same for every call."""
        return np.full(repeats, self.ms)


@contextmanager
def tiny_start() -> Iterator[None]:
    """A start that is no published one, sizes that are small, and clocks that are steady."""
    torch.manual_seed(0)
    state = TINY.network(image_size=16).state_dict()
    weights = Weights(TINY, state, "0" * 64, "the tests", "none needed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(binas, "load_start", lambda _: weights)
        patch.setattr(around, "SIZES", (16, 24))
        patch.setattr(around, "FEWEST_STEPS", 4)
        patch.setattr(around, "BATCH", 16)
        for place in ("tables", "measure", "clock"):
            patch.setattr(f"archwright.costs.{place}.Stopwatch", SizedWatch)
        yield


def write_grey_photos(root: Path) -> str:
    """Grey images of two classes, bright above and bright below."""
    rng = np.random.default_rng(0)
    for label, name in enumerate(("above", "below")):
        (root / name).mkdir(parents=True)
        for number in range(30):
            pixels = rng.integers(0, 120, (20, 20))
            pixels[10 * label : 10 * label + 10] += 100
            Image.fromarray(pixels.astype(np.uint8)).save(root / name / f"{number:02d}.png")
    return f"folder:{root}"
