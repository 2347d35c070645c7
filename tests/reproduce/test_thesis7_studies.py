"""The studies of chapter 7 at a tiny size: structure of the tables, the paper's cells, and the correlations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from archwright.data.request import DataRequest
from archwright.proxies.score import Scores
from archwright.reproduce import thesis7_studies as studies
from archwright.reproduce.base import Outcome, Settings, reproductions
from archwright.reproduce.correlations import ALL, RANK
from archwright.reproduce.networks import SmallScale
from archwright.reproduce.thesis7 import TABLE_7_5, TOGETHER, classes
from archwright.tables.locate import shared_data

NOISE = "random:classes=10,size=8,channels=3,count=256"


def fake_space_scores(settings: Settings, seed: int) -> Scores:
    """Positive scores of all classes without any network."""
    return fake_scores(settings, (*TOGETHER, "grasp"), seed)


def fake_scores(settings: Settings, metrics: tuple[str, ...], seed: int) -> Scores:
    values = np.random.default_rng(seed).lognormal(size=(len(classes()[0]), len(metrics)))
    return Scores(metrics, np.ones(len(metrics), dtype=np.int64), values, np.full_like(values, np.nan))


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Few architectures, a tiny stand-in network, noise for images."""
    for name in ("nb201.npz", "nb101.npz"):
        if shared_data(name) is None:
            pytest.skip(f"needs {name} in $ARCHWRIGHT_DATA or ../shared/data")
    request = studies.proxy_request

    def tiny_request(*arguments: object, **changes: object) -> object:
        return request(*arguments, **{"cells": 1, **changes, "image_size": 4})  # type: ignore[arg-type]

    monkeypatch.setattr(studies, "proxy_request", tiny_request)
    monkeypatch.setattr(studies, "space_scores", fake_space_scores)
    monkeypatch.setattr(studies, "score_space", fake_scores)
    monkeypatch.setattr(studies, "SAMPLE_201", 12)
    monkeypatch.setattr(studies, "SAMPLE_101", 9)
    monkeypatch.setattr(studies, "SCALE_101", SmallScale(channels=5, cells=1, image_size=4, batch_size=8))
    return Settings(tmp_path / "table", seeds=1, data=NOISE)


def check(outcome: Outcome) -> dict[str, float | None]:
    """Unique labels and finite correlations; the paper's number by label."""
    labels = [row.label for row in outcome.rows]
    assert len(set(labels)) == len(labels)
    assert all(row.ours is not None and -1 <= row.ours <= 1 for row in outcome.rows)
    assert outcome.scale
    assert outcome.notes
    return {row.label: row.paper for row in outcome.rows}


def test_table_7_1(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(studies, "scenario_scores", lambda scores, metric, scenario, accuracy: scores[metric])
    paper = check(studies.table_7_1(settings))
    assert len(paper) == 2 * 2 * 4 * 2 + 2 * 2  # with what the authors compute in another way
    assert paper["NB201 C10 realisable grad-whole Spearman"] is None
    assert paper["NB101 C10 realisable grasp Spearman"] == -0.45
    assert paper["NB201 C10 both trace Kendall"] == 0.51


def test_table_7_4(settings: Settings) -> None:
    outcome = studies.table_7_4(settings)
    paper = check(outcome)
    assert len(paper) == 13 * 2 * 3
    assert paper["NB101 fisher-trace Spearman"] == 0.97
    assert paper["NB201 grasp-trace Pearson"] == 0.69
    whole = fake_space_scores(settings, 0)
    _, member = classes()
    expected = stats.spearmanr(whole["knas"][member], whole["snip"][member]).statistic
    assert next(row.ours for row in outcome.rows if row.label == "NB201 knas-snip Spearman") == pytest.approx(expected)


def test_table_7_6_says_what_stands_in(settings: Settings) -> None:
    outcome = studies.table_7_6(settings)
    paper = check(outcome)
    assert len(paper) == 2 * 3 * 4 * 2
    assert paper["NB201 IN-16 both grasp Spearman"] == 0.63
    assert paper["NB201 C100 realisable grasp deviation"] == 0.03
    assert any("stands in" in note for note in outcome.notes)


def test_table_7_12(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    two = {"C10": settings.images(), "noise": DataRequest(NOISE, 1)}
    monkeypatch.setattr(studies, "image_sets", lambda settings: (two, ["two sets"]))
    paper = check(studies.table_7_12(settings))
    assert len(paper) == 2 * 2 * 3 * 4 * 2
    assert paper["NB201 C10 realisable synflow Spearman"] == 0.78
    assert paper["NB201 IN-16 both knas Kendall"] == 0.45
    assert paper["NB201 C100 both synflow deviation"] == 0.02
    assert paper["NB201 IN-16 realisable naswot Kendall deviation"] == 0.02


def test_table_7_9(settings: Settings) -> None:
    paper = check(studies.table_7_9(settings))
    assert len(paper) == 2 * 3 * 4 * 2
    assert paper["NB201 C10 realisable grasp he Spearman"] == 0.340
    assert paper["NB201 C10 both trace xavier Kendall"] == 0.460


def test_table_7_10(settings: Settings) -> None:
    paper = check(studies.table_7_10(settings))
    assert len(paper) == 2 * 5 * 4 * 2
    assert paper["NB201 C10 both trace, batch of kappa 4 Spearman"] == 0.509
    assert paper["NB201 C10 both grasp, batch of M 16 Kendall"] == 0.499


def test_table_7_11(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(studies, "WIDTHS", (4, 8))
    outcome = studies.table_7_11(settings)
    paper = check(outcome)
    assert paper["NB201 C10 both grad, channels of M 8 Spearman"] == 0.750
    assert paper["NB201 C10 both snip, channels of kappa 8 Kendall"] == 0.531
    same = {row.label: row.ours for row in outcome.rows}
    both = "NB201 C10 both grad, channels of {} Spearman"
    assert same[both.format("M 8")] == same[both.format("kappa 4")]  # one setting seen from both sides


def test_the_studies_agree_with_each_other_where_the_thesis_does() -> None:
    """LeCun, batch 64 and the whole space are one setting, printed in four tables."""
    lecun = studies.TABLE_7_9["both"]["lecun"]
    assert lecun["Spearman"] == TABLE_7_5["C10"]["both"]
    assert studies.TABLE_7_10["M"][64] == studies.TABLE_7_10["kappa"][64] == lecun
    assert studies.TABLE_7_11["M"][32] == studies.TABLE_7_11["kappa"][4]
    for scenario, kind in (("realisable", "Spearman"), ("both", "Kendall")):
        rounded = [round(number, 2) for number in studies.TABLE_7_9[scenario]["lecun"][kind]]
        assert rounded == pytest.approx(studies.TABLE_7_1["NB201"][scenario][kind], abs=0.011)


def test_correlations_are_those_of_scipy() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.integers(6, size=(2, 40)).astype(float)  # with ties
    assert ALL["Pearson"](first, second) == pytest.approx(stats.pearsonr(first, second).statistic)
    assert RANK["Spearman"](first, second) == pytest.approx(stats.spearmanr(first, second).statistic)
    assert RANK["Kendall"](first, second) == pytest.approx(stats.kendalltau(first, second).statistic)


def test_tuned_parameters_are_the_best_of_the_grid() -> None:
    """Where accuracy is eq. 7.7 itself at a point of the grid, tuning finds a perfect correlation."""
    rng = np.random.default_rng(1)
    objective = studies.objective_of("grad", rng.lognormal(size=50), rng.lognormal(size=50))
    accuracy = -objective.values(0.0, 0.5)
    log_mu, quantile = studies.tuned(objective, accuracy)
    assert RANK["Spearman"](-objective.values(log_mu, quantile), accuracy) == pytest.approx(1.0)


def test_a_sample_shares_classes_between_twins() -> None:
    sample = studies.sample_201(400)
    _, class_of = classes()
    assert len(set(sample.numbers.tolist())) == 400
    twins = class_of[sample.numbers][:, None] == class_of[sample.numbers][None]
    assert (twins == (sample.member[:, None] == sample.member[None])).all()
    assert len(sample.cells) == sample.member.max() + 1 < 400


def test_undefined_scores_do_not_swamp_pearson() -> None:
    assert studies.without_worst(np.array([3.0, -1e30, 5.0])).tolist() == [3.0, 3.0, 5.0]
    assert studies.without_worst(np.array([3.0, 5.0])).tolist() == [3.0, 5.0]


def test_the_studies_are_registered() -> None:
    for number in ("7.1", "7.4", "7.6", "7.9", "7.10", "7.11", "7.12"):
        assert reproductions.get(f"thesis-{number}") is getattr(studies, f"table_{number.replace('.', '_')}")


def test_what_is_reported_of_eq_7_7_was_not_chosen_on_it() -> None:
    rng = np.random.default_rng(0)
    kappa, accuracy = rng.lognormal(size=4000), rng.random(4000)
    scores = {"grad": rng.lognormal(size=4000), "kappa": kappa}
    # accuracies of the first half are those of one setting of eq. 7.7, the others' are chance: nothing of the other
    # half may enter the choice, whatever would suit it
    accuracy[::2] = -studies.objective_of("grad", scores["grad"][::2], kappa[::2]).values(1.0, 0.5)
    found = studies.held_out("grad", scores, accuracy)
    parameters = studies.tuned(studies.objective_of("grad", scores["grad"][::2], kappa[::2]), accuracy[::2])
    assert parameters == (pytest.approx(1.0), pytest.approx(0.5))
    assert found == pytest.approx(-studies.objective_of("grad", scores["grad"], kappa).values(*parameters))
