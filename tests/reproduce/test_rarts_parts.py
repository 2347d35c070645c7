"""Weights of one run without the channels of another, at a tiny scale."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from archwright.reproduce import rarts_parts, thin_networks
from archwright.reproduce.base import Settings
from archwright.reproduce.rarts_parts import CHANNELS, RATES, WEIGHTS, joined, opened, parts
from archwright.runs.run import ItemLog, Run
from archwright.training import Recipe, train

pytest.importorskip("torch_pruning")


def test_parts_of_a_table_that_is_a_sum() -> None:
    """Accuracy = weights' part + channels' part: both come back, and paired seeds have no error."""
    gains = {"given": 0.0, "RARTS": 2.0, "RARTS unfused": 3.0, "Network Slimming": 1.0, "Taylor": 4.0, "random": 0.0}
    seeds = np.array([50.0, 60.0])
    found = {
        (w, c, rate): np.stack([seeds + gains[w], seeds + gains[w] + (5.0 if c == "RARTS" else gains[c])], axis=1)
        for w, c, rate in product(WEIGHTS, CHANNELS, RATES)
    }
    notes = parts(found)
    assert "before fine-tuning: RARTS weights +2.00 ± 0.00 points beside the given ones, mean over channels" in notes
    assert "before fine-tuning: Taylor channels +0.00 ± 0.00 points beside random ones, mean over weights" in notes
    assert "tuned at 0.05: RARTS channels +5.00 ± 0.00 points beside random ones, mean over weights" in notes
    assert len(notes) == 3 * (2 + 3)


def test_arms_are_tuned_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = thin_networks.RESNET_RECIPE.changed(epochs=1, precision="float32")
    monkeypatch.setattr(thin_networks, "RESNET_RECIPE", short)
    ItemLog(tmp_path / "precision.jsonl").record("precision", "bfloat16")
    monkeypatch.setattr(rarts_parts, "WEIGHTS", {"given": "taylor", "RARTS": "rarts"})
    monkeypatch.setattr(rarts_parts, "CHANNELS", {"RARTS": "rarts", "random": "random"})
    monkeypatch.setattr(rarts_parts, "SOURCES", {k: rarts_parts.SOURCES[k] for k in ("taylor", "random", "rarts")})
    for name, value in {"SEARCH_EPOCHS": 1, "TUNE_EPOCHS": 1, "RATES": (0.05,)}.items():
        monkeypatch.setattr(rarts_parts, name, value)
    tuned = list[Recipe]()

    def noted(network: nn.Module, batches: Any, recipe: Recipe, **how: Any) -> Any:
        tuned.append(recipe)
        return train(network, batches, recipe, **how)

    monkeypatch.setattr(rarts_parts, "train", noted)
    settings = Settings(tmp_path, seeds=1, data="random:classes=4,size=8,channels=3,count=160")
    outcome = rarts_parts.rarts_parts(settings)
    assert len(outcome.rows) == 2 * 2 * 2
    assert all(0 <= (row.ours or 0) <= 100 for row in outcome.rows)
    assert tuned, "by the update rule that the rates of the text are of"
    assert {(recipe.optimizer, recipe.momentum, recipe.lr) for recipe in tuned} == {("sgd", 0.9, 0.05)}
    assert {recipe.precision for recipe in tuned} == {"bfloat16"}, "the one that was found to be quicker"
    assert any("trained in bfloat16" in note for note in outcome.notes)
    assert Run.open(tmp_path / "searches" / "rarts-0-bfloat16").configuration["amp"]
    monkeypatch.setattr(rarts_parts, "train", lambda *_, **__: pytest.fail("tuned again"))
    assert rarts_parts.rarts_parts(settings).rows == outcome.rows
    weights, channels = (opened(str(tmp_path / "searches" / f"{name}-0-bfloat16")) for name in ("rarts", "random"))
    thin = joined(weights, channels, 0.6)
    count = sum(one.numel() for one in thin.parameters())
    assert count < 0.9 * sum(one.numel() for one in weights.subject.scored_network().parameters())
    other = joined(channels, channels, 0.6)  # the same channels, other weights
    assert {n: p.shape for n, p in thin.named_parameters()} == {n: p.shape for n, p in other.named_parameters()}
    assert any(
        not np.allclose(a.detach(), b.detach()) for a, b in zip(thin.parameters(), other.parameters(), strict=True)
    )
