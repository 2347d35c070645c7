"""Latency tables that are not measured: the milliseconds of a part follow from what it computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import nn

from archwright.costs.measure import Timing
from archwright.costs.tables import Entry, LatencyTable, Provenance, parts
from archwright.spaces.mbconv import MbConv, scale_for


def counted_table(
    path: Path, image_size: int = 8, classes: int = 10, image_channels: int = 1, device: str | None = None
) -> Path:
    """A table of the space at that size: .01 ms a block and 1 ms a million multiply-accumulates; .1 ms at each end."""
    space = MbConv(scale_for(image_size, classes, image_channels))
    entries = dict.fromkeys(parts(space), 0.1)
    for geometry in (space.part(*place) for place in space.places()):
        entries[str(geometry)] = 0.01 + geometry.cost().macs / 1e6
    assert entries[str(space.start())] == entries[str(space.end())] == 0.1
    provenance = Provenance.here(Timing())
    if device is not None:
        provenance = provenance.model_copy(update={"device": device})
    made = {key: Entry(median_ms=ms, low_ms=ms, high_ms=ms) for key, ms in entries.items()}
    LatencyTable(provenance=provenance, entries=made).save(path)
    return path


class SteadyWatch:
    """Instead of a measurement, which one busy moment can spoil: a microsecond for each hundred parameters."""

    def __init__(self, module: nn.Module, shape: tuple[int, int, int], timing: Timing) -> None:
        self.ms = sum(parameter.numel() for parameter in module.parameters()) / 1e5

    def times_ms(self, repeats: int) -> NDArray[np.float64]:
        """The same for every call."""
        return np.full(repeats, self.ms)
