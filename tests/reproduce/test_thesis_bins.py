"""Figures 6.3 and 7.4: bins against brute force, and what they say of a score whose best value lies in the middle."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from archwright.proxies.score import Scores
from archwright.reproduce import thesis_bins
from archwright.reproduce.base import Settings
from archwright.reproduce.thesis7 import classes
from archwright.reproduce.thesis_bins import binned
from archwright.tables import nasbench101
from archwright.tables.locate import shared_data
from archwright.tables.nasbench201 import load_compact

NEEDS_201 = pytest.mark.skipif(shared_data("nb201.npz") is None, reason="the NAS-Bench-201 table is not here")
NEEDS_101 = pytest.mark.skipif(shared_data("nb101.npz") is None, reason="the NAS-Bench-101 table is not here")


def test_bins_by_hand() -> None:
    score, error = np.array([5.0, 1.0, 3.0, 2.0, 4.0]), np.array([9.0, 7.0, 4.0, 5.0, 6.0])
    found = binned(score, error, 2)  # scores 1, 2, 3 and 4, 5
    assert [own.tolist() for own in found.members] == [[1, 3, 2], [4, 0]]
    assert found.score.tolist() == [2.0, 4.5]
    assert found.mean.tolist() == pytest.approx([16 / 3, 7.5])
    assert found.deviation.tolist() == pytest.approx([np.std([7, 5, 4]), 1.5])
    assert found.least.tolist() == [4.0, 6.0]


@NEEDS_201
def test_figure_7_4_of_scores_that_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = 100 - load_compact().accuracies("cifar10", 200, "test")
    known = np.array([error[cell.index] for cell in classes()[0]])
    names = (*thesis_bins.METRICS, "kappa")

    def made(settings: Settings, seed: int) -> Scores:
        """The first metric orders by error, the second is best in the middle; kappa is the error itself."""
        place = known.argsort().argsort() / len(known)
        middle = np.where(np.arange(len(known)) % 2, 1 + place, 1 - place)
        values = np.stack([1 + known, middle, 200 - known, 1 + known, known], axis=1)
        return Scores(names, np.array([1, 1, 1, 1, -1]), values, np.zeros_like(values))

    monkeypatch.setattr(thesis_bins, "space_scores", made)
    outcome = thesis_bins.figure_7_4(Settings(tmp_path, seeds=2, data="digits"))
    rows = {row.label: row.ours for row in outcome.rows}
    rising, middle, falling, _ = thesis_bins.METRICS
    bins = thesis_bins.BINS_7_4
    assert rows[f"{rising} best bin of {bins}"] == 1
    assert rows[f"{falling} best bin of {bins}"] == bins
    assert 5 < rows[f"{middle} best bin of {bins}"] < bins - 4
    assert rows[f"{middle} last bin"] > rows[f"{middle} best bin"] + 5
    assert rows[f"{rising} first bin"] == rows[f"{rising} best bin"]
    assert rows[f"{middle}: bins where it is above 0"] > 0.9
    assert rows[f"{middle}: kappa with error within a bin"] > 0.7
    outcome.plot(tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 10_000


@NEEDS_101
def test_figure_6_3_has_a_row_for_every_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thesis_bins, "SAMPLE_6_3", 12)
    monkeypatch.setattr(thesis_bins, "BINS_6_3", 3)
    settings = Settings(tmp_path, seeds=2, data="digits")
    table, space_of = nasbench101.load_compact(), list[float]()

    def planted(settings: Settings, cells: Sequence[Any], request: Any, names: Sequence[str]) -> NDArray[np.float64]:
        """S1 rises with the error, S2 falls with it, S3 is least for the middling."""
        errors = np.array([100 - table.accuracy(cell, "cifar10", 108, "test") for cell in cells])
        place = errors.argsort().argsort() / len(errors)
        space_of.append(0)
        kind = (len(space_of) - 1) // 2  # two draws a space
        return np.array([errors, 200 - errors, np.where(np.arange(len(errors)) % 2, 1 + place, 1 - place)][kind])[
            :, None
        ]

    monkeypatch.setattr(thesis_bins, "cell_traces", planted)
    outcome = thesis_bins.figure_6_3(settings)
    rows = {row.label: row.ours for row in outcome.rows}
    assert rows["S1 trace best bin of 3"] == 1
    assert rows["S2 trace best bin of 3"] == 3
    assert rows["S3 trace best bin of 3"] == 2
    assert rows["S1 trace with error"] == pytest.approx(1)
    assert rows["S2 trace with error"] == pytest.approx(-1)
    assert rows["S1 trace first bin"] == rows["S1 trace best bin"] < rows["S1 trace last bin"]
    space_of.clear()
    assert thesis_bins.figure_6_3(settings).rows == outcome.rows
    outcome.plot(tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 10_000
