"""Searches on the table of DARTS cells: NASI's reward by hand, and arms on scores that are made here."""

from __future__ import annotations

import numpy as np
import pytest

from archwright.proxies.score import Scores
from archwright.reproduce import darts_searches
from archwright.reproduce.darts_searches import arms_of, best_first, nasi_reward, regrets
from archwright.spaces.darts import DARTS


def test_nasi_s_reward_rises_up_to_the_mean_and_falls_beyond() -> None:
    assert nasi_reward(np.array([1.0, 2.0, 3.0])) == pytest.approx([1, 4, 9 - 2 * (9 - 14 / 3)])


def test_arms_by_scores_that_know_the_truth_and_by_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(darts_searches, "POOLS", 6)
    rng = np.random.default_rng(0)
    cells = list(dict.fromkeys(DARTS.sample(rng) for _ in range(80)))
    accuracy = rng.uniform(60, 90, len(cells))
    names = ("trace", "grad", "snip", "kappa", "params", "macs")
    values = np.stack([np.ones(len(cells)), np.exp(accuracy / 10), *rng.lognormal(size=(4, len(cells)))], axis=1)
    values[:, 0] = rng.lognormal(size=len(cells))
    scores = Scores(names, np.array([1, 1, 1, -1, 1, 1]), values, np.zeros_like(values))
    monkeypatch.setattr(darts_searches, "predictions", lambda s: {name: s[name] for name in names})
    arms = arms_of(cells, accuracy, scores, 0)
    assert {"random", "best by grad", "best by NASI's reward", "HNAS trace", "HNAS grad"} <= set(arms)
    found = regrets(arms, accuracy, 0)
    assert found["best by grad"] == 0  # it is the truth
    assert found["random"] > 0
    pool = np.arange(40)
    for look in arms.values():
        assert set(look(pool).tolist()) <= set(pool.tolist())
    assert best_first(accuracy)(pool)[0] == accuracy[:40].argmax()
