"""Latency tables that are not measured: the milliseconds of a part follow from what it computes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from torch import nn

from archwright.costs.device_table import DeviceTable
from archwright.costs.measure import Timing
from archwright.costs.tables import Correction, Entry, LatencyTable, Provenance, parts
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


def unfitted(*_: object) -> Correction:
    """Instead of ``fit_correction``: one call a part on a busy machine may fit no line; the fit has its own tests."""
    return Correction(slope=1.0, intercept_ms=0.0, networks=20, validation_networks=0)


class SteadyWatch:
    """Instead of a measurement, which one busy moment can spoil: a microsecond for each hundred parameters."""

    slower = 1.0
    """How many times slower the machine became."""

    def __init__(self, module: nn.Module, shape: tuple[int, int, int], timing: Timing) -> None:
        self.timing = timing
        self.ms = sum(parameter.numel() for parameter in module.parameters()) * self.slower / 1e5

    def times_ms(self, repeats: int) -> NDArray[np.float64]:
        """The same for every call."""
        return np.full(repeats, self.ms)


@contextmanager
def steady_clock() -> Iterator[None]:
    """Every measurement, of blocks, networks and training steps, by :class:`SteadyWatch`."""
    with pytest.MonkeyPatch.context() as patch:
        for place in ("tables", "measure", "clock"):
            patch.setattr(f"archwright.costs.{place}.Stopwatch", SteadyWatch)
        yield


SPREAD = np.repeat([0.9, 1.0, 1.5], (2, 7, 2))
"""Eleven calls: a tenth of them at .9 of the median or below, a tenth at 1.5 times it or above."""


class SpreadWatch:
    """Instead of a stopwatch: every round has the next of some medians in milliseconds, then the last of them."""

    timing = Timing(repeats=len(SPREAD))

    def __init__(self, *ms: float) -> None:
        self.ms, self.rounds = ms, 0

    def times_ms(self, repeats: int) -> NDArray[np.float64]:
        """Of each call, (repeats,)."""
        self.rounds += 1
        return self.ms[min(self.rounds, len(self.ms)) - 1] * np.resize(SPREAD, repeats)


def watch_by(table: LatencyTable, times: Callable[[Any], float] = lambda _: 1.0) -> Callable[..., SpreadWatch]:
    """For ``DeviceTable.watch``: a device on which networks take ``times`` what ``table`` says."""

    def watch(self: DeviceTable, size: int, architecture: Any = None, timing: Timing | None = None) -> SpreadWatch:
        space = self.spaces[size]
        one = space.lightest() if architecture is None else architecture
        return SpreadWatch(times(one) * float(table.predict(space, [one])[0]))

    return watch
