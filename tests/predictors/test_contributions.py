"""Contributions against terms made of known parts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from archwright.predictors.contributions import Contributions
from archwright.predictors.staged import StagedEstimate
from archwright.spaces.mbconv import scale_for

SCALE = scale_for(32)
LATENCY_MS = np.array([expansion + 0.5 * on for expansion, _, on in SCALE.configurations]) * np.arange(1, 5)[:, None]
"""Of (D, C); block b takes b (e + .5 with squeeze-excite) ms."""
LATENCY_MS = np.broadcast_to(LATENCY_MS, (5, 4, 12))


def estimate(error: float) -> StagedEstimate:
    """Squeeze-excite is worth the number of its stage, 5x5 a half in second blocks, expansion e is worth e."""
    blocks = np.zeros((5, 4, 12))
    for number, (expansion, kernel, on) in enumerate(SCALE.configurations):
        blocks[:, :, number] = expansion + on * np.arange(1, 6)[:, None]
        blocks[:, 1, number] += 0.5 * (kernel == 5)
    depth = np.tile([0.0, 1.0, 3.0, 3.5], (5, 1))
    depth[3] *= 2
    return StagedEstimate(50.0, depth, blocks, error, np.full((5, 4), error), np.full((5, 4, 12), error))


def test_gains_are_the_parts_the_terms_were_made_of() -> None:
    found = Contributions.of(estimate(0.1), SCALE, LATENCY_MS).by_stage()
    assert found["3 blocks instead of 2"][0] == pytest.approx([2, 2, 2, 4, 2])
    assert found["4 blocks instead of 3"][0] == pytest.approx([0.5, 0.5, 0.5, 1, 0.5])
    assert found["squeeze-excite"][0] == pytest.approx([1, 2, 3, 4, 5])
    assert found["5x5 instead of 3x3"][0] == pytest.approx([0.125] * 5)
    assert found["expansion 3 instead of 2"][0] == pytest.approx([1] * 5)
    assert found["expansion 6 instead of 3"][0] == pytest.approx([3] * 5)
    # A mean of 6 terms against one of 6 others, then a mean over 4 blocks.
    assert found["squeeze-excite"][1] == pytest.approx([0.1 * np.sqrt(2 / 6) / 2] * 5)
    assert found["3 blocks instead of 2"][1] == pytest.approx([0.1 * np.sqrt(2)] * 5)


def test_what_a_decision_costs() -> None:
    found = Contributions.of(estimate(0.1), SCALE, LATENCY_MS)
    mean = (2 + 3 + 6) / 3 + 0.25
    assert found.latency_ms["3 blocks instead of 2"] == pytest.approx([3 * mean] * 5)
    assert found.latency_ms["squeeze-excite"] == pytest.approx(np.tile([0.5, 1.0, 1.5, 2.0], (5, 1)))
    assert found.latency_by_stage()["expansion 6 instead of 3"] == pytest.approx([7.5] * 5)
    assert found.latency_ms["5x5 instead of 3x3"] == pytest.approx(np.zeros((5, 4)))
    assert found.sentences()[2].endswith("for +1.25 ms (+3.00 ± 0.01 for +1.25 ms on average).")


def test_sentences_name_the_stage_or_the_noise() -> None:
    certain = Contributions.of(estimate(0.01), SCALE, LATENCY_MS).sentences()
    assert certain[0].startswith("3 blocks instead of 2 helps most in stage 4: +4.00")
    assert certain[2].startswith("Squeeze-excite helps most in stage 5: +5.00")
    assert all("noise" in sentence for sentence in Contributions.of(estimate(50.0), SCALE, LATENCY_MS).sentences())


def test_plot_and_json(tmp_path: Path) -> None:
    found = Contributions.of(estimate(0.1), SCALE, LATENCY_MS)
    found.plot(tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 0
    assert np.array(found.to_json()["blocks"]["squeeze-excite"]["gain"]).shape == (5, 4)
