"""Scores and latencies by the public functions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from torch import nn

import archwright as aw
from archwright.costs.measure import Timing
from archwright.costs.tables import LatencyTable
from archwright.errors import InputError
from archwright.spaces.nasbench201 import NASBENCH201
from helpers.latency_tables import SteadyWatch

CELL = NASBENCH201.sample(np.random.default_rng(0))


def test_values_and_texts_score_alike_and_images_count() -> None:
    settings = {"metrics": ["grad"], "batch_size": 8, "channels": 2, "cells": 1}
    by_value, by_text = aw.score(CELL, **settings), aw.score([str(CELL)], **settings)
    assert by_value["grad"] == by_text["grad"] > 0
    images = np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8)
    assert aw.score(CELL, data=(images, np.arange(40) % 2), **settings)["grad"] != by_value["grad"]


def test_own_networks_are_ranked_in_one_table() -> None:
    def network(width: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, width, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10)
        )

    found = aw.score([network(2), network(9)], "digits", ["macs", "trace"], batch_size=16, replicates=2)
    assert found["macs"].tolist() == pytest.approx([36 * 9 * w + 10 * w for w in (2, 9)])
    assert found.best_first("macs").tolist() == [1, 0]
    assert np.isfinite(found.standard_errors).all()
    assert aw.score(network(2), "digits", ["macs"])["macs"] == found["macs"][:1].round()
    with pytest.raises(InputError, match="both"):
        aw.score([network(2), CELL])


@pytest.mark.parametrize("wrong", [{"architectures": []}, {"architectures": "x"}, {"metrics": ["x"]}, {"space": "x"}])
def test_what_cannot_be_scored_is_refused(wrong: dict) -> None:
    with pytest.raises(InputError):
        aw.score(**{"architectures": CELL, **wrong})


def test_a_table_of_own_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("archwright.costs.tables.Stopwatch", SteadyWatch)
    images = np.zeros((8, 8, 8), np.uint8)
    measured = aw.latency(data=(images, np.arange(8) % 2), timing=Timing(repeats=1), out=tmp_path / "table.json")
    LatencyTable.load(measured.path).check(measured.space)
    assert (measured.space.scale.image_size, measured.space.scale.classes) == (8, 2)
    with pytest.raises(InputError, match="blocks"):
        aw.latency("nasbench201")
