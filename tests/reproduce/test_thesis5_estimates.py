"""Estimated against true errors of ensembles, at a tiny scale and on made-up predictions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from archwright.reproduce import thesis5, thesis5_estimates
from archwright.reproduce.base import Settings
from archwright.reproduce.thesis5_estimates import agreement, compared, groups_of, halves, spread
from archwright.solvers.svgd import ensemble_error


def predictions(strength: np.ndarray, seed: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Probabilities of architectures that are right the more often the greater their strength, and the labels."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(4, size=600)
    logits = rng.standard_normal((len(strength), 600, 4))
    logits[:, np.arange(600), labels] += strength[:, None]
    whole = np.exp(logits)
    return list(whole / whole.sum(2, keepdims=True)), labels


def test_agreement_by_hand() -> None:
    assert agreement([1.0, 2.0, 3.0], [10.0, 20.0, 30.0]) == pytest.approx((1, 1, 100))
    rank, linear, top = agreement(list(range(10)), [9.0, *range(1, 9), 0.0])
    assert rank == pytest.approx(1 - 6 * 2 * 81 / (10 * 99))
    assert linear == pytest.approx(rank)
    assert top == pytest.approx(200 / 3)  # of the best three, 1 and 2 are common
    assert agreement([1.0, 1.0], [1.0, 2.0])[:2] == (0.0, 0.0)


def test_groups_are_all_or_as_many_as_asked() -> None:
    rng = np.random.default_rng(0)
    assert groups_of(range(4), 3, rng) == [(0, 1, 2), (0, 1, 3), (0, 2, 3), (1, 2, 3)]
    some = groups_of(range(20), 5, rng, 50)
    assert len(set(some)) == 50
    assert all(len(set(one)) == 5 for one in some)


@pytest.mark.parametrize("size", [1, 3])
def test_a_supernet_with_the_true_order_agrees_and_one_with_none_does_not(size: int) -> None:
    strength = np.linspace(0.2, 2.0, 12)
    true, labels = predictions(strength, 0)
    knows = predictions(strength, 0)[0]
    knows_nothing = predictions(np.random.default_rng(3).permutation(strength), 0)[0]
    groups = groups_of(range(12), size, np.random.default_rng(0), 60)
    assert compared(knows, true, labels, groups)[0] > 0.95
    low, high = spread(knows, true, labels, size)
    assert 0.8 < low <= high <= 1
    assert compared(knows_nothing, true, labels, groups)[0] < 0.6
    assert halves(knows, labels, ensemble_error) > 0.9


def test_the_table_has_every_size_and_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {
        "CHANNELS": 4,
        "IMAGE_SIZE": 8,
        "SUPERNET_EPOCHS": 1,
        "POSTERIOR_EPOCHS": 1,
        "FINAL_EPOCHS": 1,
        "STEPS": 30,
    }
    for name, value in small.items():
        monkeypatch.setattr(thesis5, name, value)
    for name, value in {"ESTIMATED": 4, "SIZES": (1, 3), "SUBSETS": 3}.items():
        monkeypatch.setattr(thesis5_estimates, name, value)
    settings = Settings(tmp_path / "5.6", seeds=2, data="random:classes=4,size=8,channels=1,count=240")
    rows = {row.label: row for row in thesis5_estimates.table_5_6(settings).rows}
    found = {label for label in rows if label.startswith("n = ")}
    assert found == {f"n = {n} {m}" for n in (1, 3) for m in ("Spearman", "Pearson", "Agreement-30%")}
    assert rows["n = 3 Pearson"].paper == 0.45
    assert rows["n = 3 Pearson"].ours_std is not None  # two supernets
    monkeypatch.setattr(thesis5, "train_answer", lambda *_, **__: pytest.fail("trained again"))
    assert {row.label: row for row in thesis5_estimates.table_5_6(settings).rows} == rows
