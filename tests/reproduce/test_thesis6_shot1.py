"""NASI in NAS-Bench-1Shot1 with searches of one step: the tables' structure, the paper's cells, and the look-ups."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from archwright.reproduce import thesis6_shot1 as shot1
from archwright.reproduce.base import Outcome, Settings
from archwright.spaces.nasbench1shot1 import NASBENCH1SHOT1_1
from archwright.tables.locate import shared_data
from archwright.tables.nasbench101 import load_compact

NOISE = "random:classes=10,size=8,channels=3,count=256"
TINY = {"steps": 1, "nu_samples": 1, "proxy_channels": 2, "proxy_size": 4, "proxy_batch": 4}


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """One space, one seed, searches of one step, noise for images."""
    if shared_data("nb101.npz") is None:
        pytest.skip("needs nb101.npz in $ARCHWRIGHT_DATA or ../shared/data")
    monkeypatch.setattr(shot1, "SPACES", {"S1": NASBENCH1SHOT1_1})
    monkeypatch.setattr(shot1, "NASI", {**shot1.NASI, **TINY})
    return Settings(tmp_path / "table", seeds=1, data=NOISE)


def check(outcome: Outcome) -> dict[str, float | None]:
    """Unique labels and errors between the space's best and guessing; the paper's number by label."""
    labels = [row.label for row in outcome.rows]
    assert len(set(labels)) == len(labels)
    assert all(row.ours is not None and 5.79 < row.ours <= 90.1 for row in outcome.rows)
    assert outcome.scale
    assert outcome.notes
    return {row.label: row.paper for row in outcome.rows}


def test_table_6_8_and_a_second_run_that_searches_no_more(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shot1, "TABLE_6_8", {8: (6.8, 6.9, 7.0)})
    first = shot1.table_6_8(settings)
    paper = check(first)
    assert paper["S1 batch 8"] == 6.8
    assert paper["S1 mean of the space"] is None

    def refuse(*arguments: object) -> None:
        raise AssertionError("nothing is left to search")

    monkeypatch.setattr("archwright.reproduce.thesis6_search.finished", refuse)
    assert shot1.table_6_8(settings).rows == first.rows


def test_table_6_4_leaves_the_darts_space_open(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    errors = {"standard": [7.0, 8.0], "random labels": [6.0, 8.0], "random data": [9.0, 9.0]}
    found = {(name, label): own for name in shot1.SPACES for label, own in errors.items()}
    monkeypatch.setattr(shot1, "errors_of", lambda *_: found)
    outcome = shot1.table_6_4(replace(settings, seeds=2))
    average = np.mean([shot1.space_errors(name)[0] for name in shot1.SPACES])
    assert any(f"random labels {7.0 - average:+.2f} ± 1.00" in note for note in outcome.notes)
    paired = "less that of the standard search of the same seed: random labels -0.50 ± 0.50, random data +1.50 ± 0.50"
    assert any(note.endswith(paired) for note in outcome.notes)
    paper = {row.label: row.paper for row in outcome.rows}
    assert paper["S1 random data"] == 6.6
    assert paper["DARTS standard"] == 2.95
    assert [row.label for row in outcome.rows if row.ours is None] == [f"DARTS {label}" for label in shot1.TABLE_6_4]


def test_figure_6_2_counts_who_leads(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    found = iter([8.0, 9.0, 6.5])
    monkeypatch.setattr(shot1, "errors_of", lambda s, arms, seeds: {("S1", label): [next(found)] for label in arms})
    outcome = shot1.figure_6_2(settings)
    assert "spaces in which the mean error is the lowest: DARTS, 5 epochs 1" in outcome.notes
    assert "mean errors below the mean of the space, a random architecture's: 3 of 3" in outcome.notes


def test_figure_6_6_takes_each_with_each_and_says_the_mean_by_one(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errors of two seeds that grow with nu alone."""
    space_mean = shot1.space_errors("S1")[0]

    def found(_: Settings, arms: shot1.Arms, seeds: int) -> shot1.Errors:
        assert {(own["nu_start"], own["mu"]) for own in arms.values()} == {
            (nu, mu) for nu in shot1.STARTS for mu in shot1.PENALTIES
        }
        return {("S1", label): [space_mean + own["nu_start"]] * 2 for label, own in arms.items()}

    monkeypatch.setattr(shot1, "errors_of", found)
    outcome = shot1.figure_6_6(settings)
    check(outcome)
    by_nu, by_mu = (note.split(": ")[1] for note in outcome.notes if note.startswith("mean error by"))
    assert by_nu == "0.3 +0.30 ± 0.00, 1 +1.00 ± 0.00, 3 +3.00 ± 0.00, 10 +10.00 ± 0.00"
    assert by_mu.count(f"{np.mean(shot1.STARTS):+.2f}") == 4


def test_the_mean_of_a_space_is_that_of_its_architectures(settings: Settings) -> None:
    """Looked up one by one: a random hundred lies within three standard errors."""
    rng = np.random.default_rng(0)
    cells = [NASBENCH1SHOT1_1.sample(rng) for _ in range(100)]
    table = load_compact()
    errors = np.array([100 - table.accuracy(cell, "cifar10", 108, "test") for cell in cells])
    mean, deviation, least = shot1.space_errors("S1")
    assert abs(errors.mean() - mean) < 3 * deviation / np.sqrt(100)
    assert least <= errors.min()


def test_the_paper_s_numbers() -> None:
    assert shot1.TABLE_6_6[32] == (6.5, 7.0, 6.4)
    assert shot1.TABLE_6_8[64] == (6.0, 7.2, 6.6)
    assert shot1.TABLE_6_4["random labels"] == (6.8, 7.0, 7.5, 2.90)
    # the rivals' epoch has as many images as NASI's batches
    assert 2 * shot1.RIVAL["search_images"] == shot1.NASI["steps"] * shot1.NASI["proxy_batch"]
