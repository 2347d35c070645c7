"""Chapter 6 at a tiny size: structure of the tables, the paper's cells, and traces against plain autograd."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from archwright.data.request import load_data
from archwright.proxies.engine import draw_batch
from archwright.proxies.program import SharedWeights
from archwright.reproduce import thesis6
from archwright.reproduce.base import Outcome, Settings
from archwright.reproduce.networks import SmallScale, one_trace, trace_of_201
from archwright.spaces.nasbench1shot1 import NASBENCH1SHOT1_1
from archwright.spaces.nasbench201 import cell_of
from archwright.tables.locate import shared_data
from helpers.nb201_module import Network, with_weights

NOISE = "random:classes=10,size=8,channels=3,count=256"


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """One space, few architectures of tiny networks, noise for images."""
    monkeypatch.setattr(thesis6, "SPACES", {"S1": NASBENCH1SHOT1_1})
    tiny = SmallScale(channels=4, cells=1, image_size=4, batch_size=8)
    for name in ("SCALE_6_5", "SCALE_6_7", "SCALE_FIGURE_6_1", "SCALE_FIGURE_6_1_201"):
        monkeypatch.setattr(thesis6, name, tiny)
    for name in ("SAMPLE_6_5", "SAMPLE_6_7", "SAMPLE_FIGURE_6_1", "SAMPLE_FIGURE_6_1_201"):
        monkeypatch.setattr(thesis6, name, 9)
    return Settings(tmp_path / "table", seeds=2, data=NOISE)


def check(outcome: Outcome) -> dict[str, float | None]:
    """Unique labels and correlations; the paper's number by label."""
    labels = [row.label for row in outcome.rows]
    assert len(set(labels)) == len(labels)
    assert all(row.ours is not None and -1 <= row.ours <= 1 for row in outcome.rows)
    assert outcome.scale
    assert outcome.notes
    return {row.label: row.paper for row in outcome.rows}


def test_table_6_5(settings: Settings) -> None:
    if shared_data("nb101.npz") is None:
        pytest.skip("needs nb101.npz in $ARCHWRIGHT_DATA or ../shared/data")
    paper = check(thesis6.table_6_5(settings))
    assert len(paper) == 12
    assert paper["S1 C10 nasi (conditioned) Spearman"] == 0.62
    assert paper["S1 C10 synflow Kendall"] == -0.42
    assert paper["S1 C10 nasi (all) Kendall"] is None


def test_table_6_7(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thesis6, "APPROXIMATIONS", ("4", "8", "sum"))
    monkeypatch.setattr(thesis6, "TABLE_6_7", {"S1": (0.74, 0.80, 0.88)})
    paper = check(thesis6.table_6_7(settings))
    assert paper == {"S1 trace by batch 4": 0.74, "S1 trace by batch 8": 0.80, "S1 trace by sum of samples": 0.88}


def test_figure_6_1(settings: Settings) -> None:
    paper = check(thesis6.figure_6_1(settings))
    assert paper["S1 trace, random labels"] == 1.0
    assert paper["NB201 trace, random data"] is None


def test_a_second_run_reads_what_the_first_wrote(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    first = thesis6.figure_6_1(settings)

    def refuse(*arguments: object) -> None:
        raise AssertionError("nothing is left to compute")

    monkeypatch.setattr("archwright.reproduce.networks.one_trace", refuse)
    monkeypatch.setattr("archwright.reproduce.networks.score_stacked", refuse)
    assert thesis6.figure_6_1(settings).rows == first.rows


def test_every_space_has_all_its_cells() -> None:
    assert thesis6.TABLE_6_7["S3"] == (0.66, 0.74, 0.81, 0.79, 0.82, 0.84, 0.87)
    assert thesis6.TABLE_6_5["Spearman"]["snip"] == (-0.49, -0.62, -0.79)
    assert thesis6.TABLE_6_5["Kendall"]["nasi (conditioned)"] == (0.44, 0.53, 0.53)
    assert all(len(numbers) == len(thesis6.APPROXIMATIONS) for numbers in thesis6.TABLE_6_7.values())


def test_the_constraint_of_eq_6_3_keeps_what_is_below_the_mean() -> None:
    assert thesis6.feasible(np.array([1.0, 2.0, 9.0])).tolist() == [True, True, False]


def test_traces_are_those_of_autograd() -> None:
    """Without batch norm every example stands alone: all three columns by a plain loop."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.ReLU(), nn.Flatten(), nn.Linear(16, 5, bias=False))
    images, labels = torch.randn(6, 3, 4, 4), torch.randint(5, (6,))
    weights = list(network.parameters())

    def squared(value: torch.Tensor) -> float:
        return float(sum(g.square().sum() for g in torch.autograd.grad(value, weights)))

    exact = sum(squared(network(images[[i]])[0, int(labels[i])]) for i in range(6))
    samples = sum(squared(F.cross_entropy(network(images[[i]]), labels[[i]])) for i in range(6))
    batch = 4 * squared(F.cross_entropy(network(images[:4]), labels[:4]))
    assert one_trace(network, images, labels, "exact") == pytest.approx(exact, rel=1e-4)
    assert one_trace(network, images, labels, "sum") == pytest.approx(samples, rel=1e-4)
    assert one_trace(network, images, labels, "4") == pytest.approx(batch, rel=1e-4)


def test_stacked_trace_is_that_of_the_module(settings: Settings) -> None:
    """NAS-Bench-201 runs stacked: the same squared gradient as of a network built by hand with the same weights."""
    request = SmallScale(channels=4, cells=1, image_size=4, batch_size=8).request(settings, (), 3)
    cells = [cell_of(np.array(operations)) for operations in ([3] * 6, [2, 3, 1, 4, 0, 3])]
    images, labels = draw_batch(request, load_data(request.data), 0)
    weights = SharedWeights(3)
    networks = [with_weights(Network(cell.operations), weights, 1) for cell in cells]
    expected = [one_trace(network, images, labels, "8") for network in networks]
    assert trace_of_201(settings, cells, request) == pytest.approx(expected, rel=1e-3)
