"""Rounds against other arms on a table that is made here: look-ups by brute force, limits kept, regrets by hand."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from archwright.costs.tables import LatencyTable
from archwright.errors import InputError
from archwright.methods.binas import Binas
from archwright.methods.binas.supernet import Supernet
from archwright.predictors.hierarchical import fit_hierarchical
from archwright.reproduce import binas, binas_rounds
from archwright.reproduce.base import Settings
from archwright.reproduce.binas_rounds import ARMS, Table, TableField, best_seen, regret
from archwright.runs.progress import Progress
from archwright.runs.run import Run
from archwright.runs.stop import Stop
from archwright.search.engine import reopened
from archwright.solvers.problem import StagedChoice
from helpers.latency_tables import unfitted

ROWS = np.array([row for row in itertools.product(range(3), repeat=4) if sum(row) % 5], dtype=np.int64)
"""Some of all rows, so that single changes may be absent."""


def made(seed: int = 0) -> Table:
    rng = np.random.default_rng(seed)
    worth, price = rng.normal(size=(4, 3)), rng.uniform(1, 2, (4, 3))
    places = np.arange(4), ROWS
    accuracy = 80 + worth[places].sum(1) + 0.2 * rng.normal(size=len(ROWS))
    return Table(ROWS, accuracy, accuracy, price[places].sum(1), ("a", "b", "c"))


def test_rows_and_neighbours_are_those_of_brute_force() -> None:
    table = made()
    assert table.rows_of(ROWS).tolist() == list(range(len(ROWS)))
    assert table.rows_of(np.array([[0, 0, 0, 0]])).tolist() == [-1]  # its sum is no row's
    for row in (0, 17, len(ROWS) - 1):
        apart = (ROWS[row] != ROWS).sum(1)
        assert table.neighbours(row).tolist() == np.flatnonzero(apart == 1).tolist()


def test_the_field_finds_the_best_prediction_within_a_limit() -> None:
    table = made()
    field = TableField(table)
    estimate = fit_hierarchical(table.choices(np.arange(40)), table.measured[:40], table.attributes).estimate
    predicted = estimate.predict(table.choices(np.arange(len(ROWS))))
    assert np.argsort(table.predictions(estimate)).tolist() == np.argsort(predicted).tolist()
    for number in range(field.limits):
        within = table.cost <= table.limits[number]
        row = int(table.rows_of(field.solve(estimate, number).configurations[None, :, 0])[0])
        assert predicted[row] == pytest.approx(predicted[within].max())
        near = table.rows_of(field.changes(table.choices(np.int64(row)), number).configurations[:, :, 0])  # type: ignore[arg-type]
        assert (table.cost[near] <= table.limits[number]).all()


def test_regret_by_hand() -> None:
    table = made()
    best = np.where(table.cost <= table.limits[:, None], table.true, -np.inf).argmax(1)
    assert regret(table, best) == 0
    worst = np.full(binas_rounds.LIMITS, int(table.cost.argmax()))
    assert regret(table, worst) > 50  # it breaks nearly all limits
    assert best_seen(table, np.arange(len(ROWS))).tolist() == best.tolist()


@pytest.mark.parametrize("arm", ARMS)
def test_every_arm_names_networks_within_their_limits(arm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binas_rounds, "AROUND", 1)
    table = made()
    rows = ARMS[arm](table, 30, np.random.default_rng(0))
    assert rows.shape == (binas_rounds.LIMITS,)
    assert regret(table, rows) < 5


def test_the_table_is_kept_number_by_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binas_rounds, "MAKERS", {"nb201-params": made})
    monkeypatch.setattr(binas_rounds, "BUDGETS", (45,))
    settings = Settings(tmp_path / "binas-rounds", seeds=2, only="nb201-params")
    first = binas_rounds.binas_rounds(settings)
    assert len(first.rows) == len(ARMS)

    def none() -> Table:
        raise AssertionError("all is known")

    monkeypatch.setattr(binas_rounds, "MAKERS", {"nb201-params": none})
    assert binas_rounds.binas_rounds(settings).rows == first.rows
    with pytest.raises(InputError, match="nb301"):
        binas_rounds.binas_rounds(Settings(tmp_path / "x", only="nb301"))


def test_the_supernets_table_is_what_its_sub_networks_have_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny: dict[str, Any] = {"epochs": 1, "supernet_epochs": 1, "rank_networks": 2, "rows": 320, "batch_size": 36}
    tiny |= {"latency_repeats": 1, "limits": {"params": 1e9}, "verify": False}
    monkeypatch.setattr(binas, "SEARCH", {**binas.SEARCH, **tiny})
    monkeypatch.setattr("archwright.costs.tables.fit_correction", unfitted)
    monkeypatch.setattr(binas_rounds, "DEPTHS", (-1,))
    monkeypatch.setattr(binas_rounds, "BUDGETS", (12,))
    monkeypatch.setattr(binas_rounds, "LIMITS", 2)
    monkeypatch.setattr(binas_rounds, "QUANTILES", np.array([0.3, 0.9]))
    images = "random:classes=2,size=8,channels=1,count=160"
    settings = Settings(tmp_path / "binas-rounds-supernet", seeds=2, data=images)
    outcome = binas_rounds.binas_rounds_supernet(settings)
    assert [row.label for row in outcome.rows] == [f"supernet, 12 measured, {arm}" for arm in ARMS]
    assert all(0 <= (row.ours or 0) < 100 for row in outcome.rows)
    (own,) = (one for one in settings.folder.iterdir() if one.is_dir())
    kept = (own / "subnetworks.jsonl").read_bytes()
    assert binas_rounds.binas_rounds_supernet(settings).rows == outcome.rows

    (folder,) = tmp_path.glob("binas-search-*")
    work = cast(Supernet, cast(Binas, reopened(Run.open(folder), Stop(), Progress())).strategy).work
    space = work.space
    assert own.name == folder.name, "of another supernet nothing is taken"
    table = binas_rounds.table_of_supernet(work, own, Progress())
    assert (own / "subnetworks.jsonl").read_bytes() == kept, "nothing is measured twice"
    assert len(table) == 2**space.stages
    for row in (0, 9, len(table) - 1):
        stages = [[(0, len(space.configurations) - 1)[kind]] * space.most_blocks for kind in table.configurations[row]]
        choice = StagedChoice(np.full(space.stages, space.most_blocks), np.array(stages))
        found = work.outcome(choice)
        assert table.true[row] == pytest.approx(found.accuracy)
        assert table.measured[row] == pytest.approx(100 * found.correct[::2].mean())
        latencies = LatencyTable.load(folder / "artifacts" / "latency.json")
        assert table.cost[row] == pytest.approx(float(latencies.predict(space, [space.from_choice(choice)])[0]))
    assert table.cost[0] == table.cost.min()
    assert table.cost[-1] == table.cost.max()
