"""HNAS: eq. 7.7 by hand, proposals as a function of the past, and a search that is interrupted and resumed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import archwright as aw
from archwright.device import Device
from archwright.errors import InfeasibleError, InputError, Interrupted
from archwright.methods.hnas import BoostedPool, Hnas, Objective, make_objective, propose_parameters
from archwright.proxies.score import Scores
from archwright.runs.run import Run
from archwright.search import evaluator as evaluation
from archwright.search.configuration import Configuration
from archwright.search.context import Context
from archwright.search.evaluator import Evaluated
from archwright.spaces.nasbench201 import NASBENCH201
from archwright.tables.locate import shared_data
from archwright.tables.nasbench201 import CompactTable

needs_table = pytest.mark.skipif(shared_data("nb201.npz") is None, reason="nb201.npz is not in the data folder")
SMALL = {"pool": 40, "replicates": 1, "proxy_cells": 1, "proxy_size": 4, "proxy_batch": 16}


def test_objective_is_equation_7_7() -> None:
    metric, kappa = np.array([1.0, 2.0, 4.0]), np.array([10.0, 10.0, 80.0])
    for penalty, distance in (("square", lambda x: x * x), ("absolute", abs)):
        objective = Objective(metric, kappa, penalty)  # type: ignore[arg-type]
        mu, nu = objective.parameters(log_mu=1.0, quantile=0.5)
        assert nu == 4.0  # the median of M, squared
        unit = 10.0 / np.median([distance(m * m - 4.0) for m in metric])  # median of kappa / M is 10
        assert mu == pytest.approx(10 * unit)
        by_hand = [k / m + mu * distance(m * m - nu) for m, k in zip(metric, kappa, strict=True)]
        assert objective.values(1.0, 0.5) == pytest.approx(by_hand)


def test_the_exponent_of_equation_7_7() -> None:
    metric, kappa = np.array([1.0, 2.0, 4.0]), np.array([10.0, 10.0, 80.0])
    for penalty, base in (("square", 2.0), ("absolute", 1.0)):
        objective = Objective(metric, kappa, penalty, exponent=1.5)  # type: ignore[arg-type]
        mu, nu = objective.parameters(0.0, 0.5)
        expected = kappa / metric + mu * np.abs(metric**2 - nu) ** (1.5 * base)
        assert objective.values(0.0, 0.5) == pytest.approx(expected)


def test_knas_enters_with_the_root_of_d_11() -> None:
    values = np.array([[1.0, 5.0], [4.0, 5.0], [9.0, 5.0]])
    scores = Scores(("knas", "kappa"), np.array([1, -1]), values, np.zeros_like(values))
    assert make_objective(scores, "knas", "square").metric == pytest.approx([0.5, 1.0, 1.5])


def test_a_metric_without_a_positive_scale_enters_by_rank() -> None:
    values = np.array([[-3.0, 5.0], [0.0, 5.0], [-1.0, 5.0]])
    scores = Scores(("naswot", "kappa"), np.array([1, -1]), values, np.zeros_like(values))
    assert make_objective(scores, "naswot", "square").metric == pytest.approx([1 / 3, 1.0, 2 / 3])


def test_a_metric_whose_better_is_lower_enters_the_right_way_round() -> None:
    values = np.array([[8.0, -1.0, 5.0], [2.0, -4.0, 5.0], [4.0, 3.0, 5.0]])
    scores = Scores(("depth", "loss", "kappa"), np.array([-1, -1, -1]), values, np.zeros_like(values))
    assert make_objective(scores, "depth", "square").metric == pytest.approx([0.5, 2.0, 1.0])
    assert make_objective(scores, "loss", "square").metric == pytest.approx([2 / 3, 1.0, 1 / 3])


@needs_table
def test_grasp_enters_by_its_absolute_value_and_noise_is_recorded(tmp_path: Path) -> None:
    small = {**SMALL, "pool": 6}
    runs = [aw.search("hnas", benchmark="nb201", evaluations=2, metric=metric, run=tmp_path / metric, **small)
            for metric in ("grasp", "grasp-abs")]  # fmt: skip
    assert runs[0].best == runs[1].best
    kept = aw_run_stage(tmp_path / "grasp", "score")
    assert kept["images"] == "Gaussian noise"
    assert kept["metric"] == "grasp-abs"


def test_a_positive_metric_keeps_its_scale_whatever_disconnected_networks_score() -> None:
    values = np.array([[0.0, 1e7], [2.0, 5.0], [6.0, 5.0]])
    scores = Scores(("grad", "kappa"), np.array([1, -1]), values, np.zeros_like(values))
    objective = make_objective(scores, "grad", "square")
    assert objective.metric == pytest.approx([1e-12, 1.0, 3.0])
    assert objective.values(0.0, 1.0).argmax() == 0


def test_a_proposal_is_a_function_of_past_and_number() -> None:
    rng = np.random.default_rng(0)
    past = [(float(rng.uniform(-4, 2)), float(rng.uniform(0.5, 1)), float(rng.uniform(80, 90))) for _ in range(7)]
    first = propose_parameters(past, 7, seed=3, probes=5)
    propose_parameters(past[:6], 6, seed=3, probes=5)
    assert propose_parameters(past, 7, seed=3, probes=5) == first
    assert -4 <= first[0] <= 2
    assert 0.5 <= first[1] <= 1
    assert [propose_parameters([], i, 0, 5)[1] for i in range(5)] == pytest.approx([0.55, 0.65, 0.75, 0.85, 0.95])


def test_proposals_go_where_the_past_was_good() -> None:
    rng = np.random.default_rng(0)
    points = [(float(rng.uniform(-4, 2)), float(rng.uniform(0.5, 1))) for _ in range(15)]
    past = [(mu, q, 90 - 20 * (q - 0.62) ** 2 - 0.5 * (mu + 1) ** 2) for mu, q in points]
    log_mu, quantile = propose_parameters(past, 15, seed=0, probes=5)
    assert abs(log_mu + 1) < 1
    assert 0.5 <= quantile < 0.8


@needs_table
def test_scores_are_kept_between_runs_and_in_the_estimate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs_folder: Path
) -> None:
    options: dict[str, Any] = {"benchmark": "nb201", "evaluations": 2, "seed": 4, **SMALL}
    configuration = Configuration(method="hnas", benchmark="nb201", seed=4, options={"evaluations": 2, **SMALL})
    estimates = []
    for _ in range(2):
        method = Hnas(Context(configuration, Run(tmp_path / "unused", {}), Device("cpu", 1)))
        estimates.append(method.estimate_seconds())
        first = aw.search("hnas", run=tmp_path / f"run{len(estimates)}", **options)
    assert estimates[0] > estimates[1] == pytest.approx(2 * 0.002)  # two look-ups; the scores are there
    (kept,) = (runs_folder / "scores").iterdir()
    for name in ("run1", "run2"):  # one file, which each run has, too
        assert kept.samefile(tmp_path / name / "items" / "score.jsonl")
    monkeypatch.setattr("archwright.proxies.engine.score_chunk", None)
    assert aw.search("hnas", run=tmp_path / "again", **options).best == first.best
    with pytest.raises(TypeError):  # another batch gives other scores
        aw.search("hnas", run=tmp_path / "other", **{**options, "proxy_batch": 8})


def test_evaluated_architectures_leave_the_pool() -> None:
    rng = np.random.default_rng(0)
    pool = list({NASBENCH201.sample(rng) for _ in range(8)})
    objective = Objective(rng.uniform(1, 3, len(pool)), rng.uniform(5, 50, len(pool)))
    boosted = BoostedPool(pool, objective, seed=0, probes=8)
    history: list[Evaluated] = []
    for number in range(len(pool)):
        log_mu, quantile = propose_parameters([], number, 0, 8)
        left = [a for a in pool if a not in {one.architecture for one in history}]
        values = dict(zip(pool, objective.values(log_mu, quantile), strict=True))
        chosen = boosted.propose(history, number)
        assert chosen == min(left, key=values.__getitem__)
        history.append(Evaluated(chosen, float(number)))


@needs_table
def test_a_resumed_search_proposes_what_the_uninterrupted_one_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"benchmark": "nb201", "evaluations": 8, "seed": 2, **SMALL}
    whole = aw.search("hnas", run=tmp_path / "whole", **options)
    original = evaluation.Evaluator.__call__
    calls = 0

    def stopping(self: evaluation.Evaluator, architectures: Sequence[Any], bar: Any = None) -> list[float]:
        nonlocal calls
        calls += 1
        if calls == 7:
            self.context.stop._signal = "test"
            raise Interrupted("test")
        return original(self, architectures, bar)

    monkeypatch.setattr(evaluation.Evaluator, "__call__", stopping)
    with pytest.raises(Interrupted, match="runs resume"):
        aw.search("hnas", run=tmp_path / "stopped", **options)
    monkeypatch.setattr(evaluation.Evaluator, "__call__", original)
    resumed = aw.resume(tmp_path / "stopped")
    assert resumed.best == whole.best
    one, two = (aw_run_stage(tmp_path / name) for name in ("whole", "stopped"))
    assert one == two


def aw_run_stage(folder: Path, stage: str = "search") -> Any:
    return Run.open(folder).stage_result(stage)


@needs_table
def test_latency_limits_are_hard() -> None:
    result = aw.search("hnas", benchmark="nb201", device="pixel3", limits={"latency_ms": 8.0}, evaluations=6, **SMALL)
    assert result.best.latency_ms <= 8.0
    with pytest.raises(InfeasibleError, match="Reachable"):
        aw.search("hnas", benchmark="nb201", device="pixel3", limits={"latency_ms": 0.5}, evaluations=6, **SMALL)


def test_an_unknown_metric_is_refused_before_anything_runs() -> None:
    with pytest.raises(InputError, match="Did you mean 'snip'"):
        aw.search("hnas", data="digits", metric="snipp")


OWN_SPACE = """
from torch import nn
import archwright as aw
from own_layers import activation

def build(architecture, scale):
    width = architecture["width"]
    layers = [nn.Conv2d(scale.image_channels, width, 3, stride=2), activation()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, scale.classes))

SPACE = aw.ChoiceSpace({"width": [4, 6, 8, 10]}, build=build)
"""


def own_space(folder: Path, activation: str) -> str:
    """The space of a script in ``folder``, whose networks have the activation that a file beside it says."""
    folder.mkdir()
    (folder / "own_layers.py").write_text(f"from torch import nn\n\nactivation = lambda: nn.{activation}()\n")
    (folder / "own.py").write_text(OWN_SPACE)
    return f"{folder / 'own.py'}:SPACE"


def test_kept_scores_of_an_own_space_go_by_its_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digits = {"data": "digits", "epochs": 1, "final_epochs": 1, "evaluations": 1, "metric": "snip", "replicates": 1}
    said: list[str] = []
    monkeypatch.setattr("archwright.runs.progress.Progress.say", lambda self, text: said.append(text))
    taken = []
    for name, activation in (("first", "ReLU"), ("other", "Tanh"), ("again", "ReLU")):
        monkeypatch.syspath_prepend(tmp_path / name)
        sys.modules.pop("own_layers", None)
        said.clear()
        aw.search("hnas", space=own_space(tmp_path / name, activation), run=tmp_path / f"run-{name}", **digits)
        taken.append(any("are taken from" in text for text in said))
    assert taken == [False, False, True]


def test_the_pool_is_made_canonical_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, real = [], NASBENCH201.canonical
    monkeypatch.setattr(NASBENCH201, "canonical", lambda one: calls.append(one) or real(one), raising=False)
    settings = {"channels": 2, "cells": 1, "epochs": 1, "final_epochs": 1, "evaluations": 1, **SMALL, "pool": 8}
    aw.search("hnas", data="random:classes=3,size=8,channels=1,count=60", run=tmp_path / "run", **settings)
    assert len(calls) == 8


def test_no_more_is_evaluated_than_there_is_whatever_was_done_before(tmp_path: Path) -> None:
    configuration = Configuration(method="hnas", data="digits", options={"evaluations": 12, **SMALL, "pool": 5})
    method = Hnas(Context(configuration, Run(tmp_path / "unused", {}), Device("cpu", 1)))
    assert len(method.pool) <= 5
    assert method.count == len(method.pool) == method.rounds


@needs_table
def test_a_table_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads, real = [], CompactTable.__init__
    monkeypatch.setattr(CompactTable, "__init__", lambda self, path: reads.append(path) or real(self, path))
    table = tmp_path / "table.npz"
    table.symlink_to(shared_data("nb201.npz"))
    for number in range(2):
        run = tmp_path / f"run-{number}"
        aw.search("hnas", benchmark=f"nb201:{table}", device="pixel3", evaluations=1, run=run, **SMALL)
    assert len(reads) == 1
