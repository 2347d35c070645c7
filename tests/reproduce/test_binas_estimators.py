from __future__ import annotations

from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch

from archwright.methods.binas import Binas
from archwright.methods.binas.supernet import Supernet
from archwright.predictors.staged import pool_estimates
from archwright.reproduce import binas, binas_estimators
from archwright.reproduce.base import Settings
from archwright.runs.progress import Progress
from archwright.runs.run import ItemLog, Run
from archwright.runs.stop import Stop
from archwright.search.engine import reopened
from archwright.solvers.synthetic import synthetic_problem
from helpers.latency_tables import unfitted

IMAGES = "random:classes=2,size=8,channels=1,count=160"
TINY = {
    "epochs": 1,
    "supernet_epochs": 1,
    "rank_networks": 25,
    "rows": 320,
    "batch_size": 36,
    "latency_repeats": 1,
    "limits": {"params": 1e9},
    "verify": False,
}


@pytest.fixture(scope="module")
def studied(tmp_path_factory: pytest.TempPathFactory) -> tuple[Settings, dict[str, float | None]]:
    """A tiny study: its settings, and its rows by label."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(binas, "SEARCH", {**binas.SEARCH, **TINY})
        patched.setattr(binas_estimators, "EPOCHS", (8, 20))
        patched.setattr("archwright.costs.tables.fit_correction", unfitted)
        settings = Settings(tmp_path_factory.mktemp("study") / "binas-fig3-supernet", data=IMAGES)
        outcome = binas_estimators.binas_fig3_supernet(settings)
        kept = {path: path.read_bytes() for path in settings.folder.iterdir()}
        again = binas_estimators.binas_fig3_supernet(settings)
        assert again.rows == outcome.rows
        assert {path: path.read_bytes() for path in settings.folder.iterdir()} == kept, "nothing is measured twice"
        assert outcome.plot is not None
        outcome.plot(settings.folder / "plot.png")
        return settings, {row.label: row.ours for row in outcome.rows}


def work_of(settings: Settings) -> Supernet:
    """The strategy of the study's search."""
    (folder,) = settings.folder.parent.glob("binas-search-*")
    return cast(Supernet, cast(Binas, reopened(Run.open(folder), Stop(), Progress())).strategy)


def test_every_predictor_has_a_row_for_the_epochs_it_can_have(studied: tuple[Settings, dict[str, float]]) -> None:
    settings, rows = studied
    measured = {label.split(",")[0] for label in rows if "components" not in label}
    assert measured == {"multi-path", "single-path", "whole networks", "two halves of the images"}
    expected = ("multi-path, eq. 3, 8 epochs", "multi-path, centred, 20 epochs", "single-path, eq. 3, 20 epochs")
    assert set(expected) <= set(rows)
    assert {f"whole networks, {name}, 20 epochs" for name in ("full bilinear", "full quadratic", "mlp")} <= set(rows)
    assert "single-path, own, hierarchical (what is solved), 8 epochs" in rows
    assert "single-path, own, eq. 3, 20 epochs" not in rows, "the search's pool has fewer"
    assert (settings.folder / "plot.png").stat().st_size > 10_000


def test_more_components_fit_their_own_networks_ever_better_and_enough_of_them_rank_others() -> None:
    problem, rng = synthetic_problem(0), np.random.default_rng(0)
    networks = problem.sample(200, rng)
    accuracy = problem.evaluate(networks)[0]
    noisy = accuracy + accuracy.std() * rng.normal(size=200)
    rows = {row.label: float(row.ours or 0) for row in binas_estimators.by_components(networks, noisy, 12)}
    own, unseen = (
        [value for label, value in rows.items() if label.endswith(f"error, {whose} networks")]
        for whose in ("its own", "unseen")
    )
    assert len(own) == len(unseen) == 5, "ranks below the 160 networks of a fit"
    assert own == sorted(own, reverse=True)
    assert own[-1] < 0.2 * own[0]
    assert unseen[-1] < 0.95 * noisy.var()
    assert abs(rows["1 components"]) < 0.1
    assert rows["120 components"] > 0.15


@pytest.mark.parametrize("paths", ["multi", "single"])
def test_outcomes_are_those_of_the_networks_cut_out(
    paths: binas_estimators.Paths, studied: tuple[Settings, dict[str, float]]
) -> None:
    settings, rows = studied
    work = work_of(settings).work
    measuring = binas_estimators.Measuring(work, settings.folder, Progress())
    choices, right = measuring.rows(paths, 20)
    images, labels = measuring.batches.get(1, 0)
    size, at = measuring.batches.batch_size, len(measuring.batches)
    first = at * size if paths == "multi" else at
    expected = []
    for number in range(size):
        network = work.trained.cut_out(work.space.from_choice(choices[first + number * (paths == "multi")])).eval()
        with torch.no_grad():
            expected.append(float(network(images[number : number + 1]).argmax() == labels[number]))
    found = right[first : first + size] / 100 if paths == "multi" else right[first] / 100
    assert np.mean(found == expected if paths == "multi" else abs(found - np.mean(expected)) < 1e-9) == 1.0
    estimate = pool_estimates(choices, right, False, len(work.space.configurations))
    networks, halves = work.ranked
    assert len(networks) == 25
    tau = binas_estimators._tau(estimate.predict(networks), halves.mean(1))
    assert rows[f"{paths}-path, eq. 3, 20 epochs"] == tau


def test_an_epoch_that_is_kept_is_not_measured_again(
    studied: tuple[Settings, dict[str, float]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, _ = studied
    work = work_of(settings).work
    log = ItemLog(tmp_path / "multi-path.jsonl")
    kept = ItemLog(settings.folder / "multi-path.jsonl").done
    log.record("0", kept["0"])
    asked = []
    measure = binas_estimators.measure_subnetwork
    monkeypatch.setattr(binas_estimators, "measure_subnetwork", lambda *given: (asked.append(1), measure(*given))[1])
    measuring = binas_estimators.Measuring(work, tmp_path, Progress())
    measuring.rows("multi", 2)
    assert len(asked) == len(measuring.batches)
    assert ItemLog(tmp_path / "multi-path.jsonl").done == {number: kept[number] for number in ("0", "1")}
