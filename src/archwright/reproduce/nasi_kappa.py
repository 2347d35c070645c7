"""Table 6.1 again, where NASI falls short: ImageNet16-120, and what chapter 7's condition number adds.

With more budget NASI settles on 3x3 convolutions everywhere, one edge from a cell that is five points better there. Its
search gives every operation of every edge a number (Delta, eq. 6.13), so it orders all cells by their sums. Arms take
the best k of that order and choose among them: by the trace over the condition number (chapter 7), by the trace alone,
or by chance. *Connection-wise* needs no search: every edge takes the operation with the best mean score over all cells.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from archwright.execution.base import Item, run_items
from archwright.proxies.score import Scores
from archwright.reproduce.base import Outcome, Settings, needs
from archwright.reproduce.searches import finished
from archwright.reproduce.thesis6_search import NASI_STEPS, TABLE_6_1
from archwright.reproduce.thesis7 import OVER_DRAWS, PROXY_SCALE, accuracy_rows, classes, score_space
from archwright.runs.files import Json
from archwright.runs.run import ItemLog, Run
from archwright.runs.stop import Stop
from archwright.spaces.nasbench201 import NASBENCH201, Cell201, all_operations, cell_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BUDGETS = {"T": NASI_STEPS, "4T": 4 * NASI_STEPS}
KEPT = (10, 50, 200)
"""Cells of NASI's order among which another score chooses."""
METRICS = ("grad", "trace", "kappa")
SEEDS = 10
DRAWS = 5
"""Draws of scores at most; seeds take them in turn."""


def searched_alpha(payload: Json, _stop: Stop) -> Json:
    """Work item: one NASI search, done or read; Delta of every edge and operation.

    Args:
        payload: folder and settings of the search.
        _stop: not looked at; the search stops by itself and is resumed.
    """
    folder = Path(payload["folder"])
    finished(folder, "nasi", **payload["settings"])
    result = Run.open(folder).stage_result("search")
    assert result is not None
    return {"alpha": result["alpha"]["cell"]}


def without_none() -> tuple[Ints, Ints]:
    """Operations (n, 6) and indices (n,) of the cells that NASI may choose."""
    operations = np.asarray(all_operations())
    index = np.flatnonzero((operations != NASBENCH201.operations.index("none")).all(axis=1))
    return operations[index].astype(np.int64), index


def ordered(alpha: Floats, operations: Ints) -> Ints:
    """Cells by falling sum of their operations' numbers, (n,): the first is NASI's answer.

    Args:
        alpha: (edges, operations).
        operations: of the cells, (n, edges).
    """
    return np.argsort(-alpha[np.arange(alpha.shape[0]), operations].sum(axis=1), kind="stable")


def connection_wise(quality: Floats, operations: Ints) -> Floats:
    """Mean score of the cells with each operation on each edge, (edges, operations); minus infinity where none has.

    Args:
        quality: of the cells, (n,).
        operations: theirs, (n, edges).
    """
    means = np.full((operations.shape[1], len(NASBENCH201.operations)), -np.inf)
    for edge, one in np.ndindex(means.shape):
        with_it = operations[:, edge] == one
        if with_it.any():
            means[edge, one] = quality[with_it].mean()
    return means


def qualities(scores: Scores, index: Ints) -> dict[str, Floats]:
    """Logarithms of the scores that choose, (n,) each.

    Args:
        scores: of all classes.
        index: of the n cells in the table.
    """
    member = classes()[1][index]
    logs = {metric: np.log(np.maximum(scores[metric][member], 1e-30)) for metric in METRICS}
    return {
        "trace over kappa": logs["trace"] - logs["kappa"],
        "grad over kappa": logs["grad"] - logs["kappa"],
        "trace": logs["trace"],
    }


def chosen_cells(alphas: Mapping[str, Floats], scores: Scores, seed: int) -> dict[str, list[int]]:
    """By arm, the table's indices of the cells it ends with (several: their mean counts).

    Args:
        alphas: NASI's numbers by budget.
        scores: one draw, of all classes.
        seed: of the arms that draw.
    """
    operations, index = without_none()
    by_score = qualities(scores, index)
    found: dict[str, list[int]] = {}
    for budget, alpha in alphas.items():
        order = ordered(alpha, operations)
        found[f"NASI {budget}"] = [int(index[order[0]])]
        for count in KEPT:
            best = order[:count]
            for name, quality in by_score.items():
                found[f"NASI {budget}, best {name} of {count}"] = [int(index[best[quality[best].argmax()]])]
            found[f"NASI {budget}, any of {count}"] = index[best].tolist()
    for name, quality in by_score.items():
        found[f"connection-wise {name}"] = [int(index[ordered(connection_wise(quality, operations), operations)[0]])]
        found[f"best {name} of all"] = [int(index[quality.argmax()])]
    drawn = np.random.default_rng([seed, 6]).integers(len(index), size=100)
    return {**found, "any cell without none": index[drawn].tolist()}


@needs("nb201")
def table_6_1_kappa(settings: Settings) -> Outcome:
    """Test accuracy of what each arm ends with on the three data sets."""
    seeds = settings.seeds or SEEDS
    items = {}
    for (budget, steps), seed in ((pair, seed) for pair in BUDGETS.items() for seed in range(seeds)):
        folder = settings.folder.parent / "thesis-6.1" / "runs" / f"NASI-{budget}-{seed}"
        given = {"data": settings.images().spec, "benchmark": "nb201", "seed": seed, "steps": steps}
        items[budget, seed] = Item(f"{budget}:{seed}", {"folder": str(folder), "settings": given})
    log, asked = ItemLog(settings.folder / "searches.jsonl"), list(items.values())
    with settings.progress.task("NASI searches", len(asked), sum(item.key in log.done for item in asked)) as bar:
        done = run_items(settings.executor, searched_alpha, asked, log, Stop(), bar)
    cells: dict[str, list[list[Cell201]]] = {}
    for seed in range(seeds):
        scores = score_space(settings, METRICS, seed % DRAWS)
        alphas = {budget: np.array(done[items[budget, seed].key]["alpha"]) for budget in BUDGETS}
        for label, found in chosen_cells(alphas, scores, seed).items():
            cells.setdefault(label, []).append([cell_of(all_operations()[one]) for one in found])
    rows = [row for row in accuracy_rows(cells, TABLE_6_1, {}) if row.unit != "evaluations"]
    notes = [
        settings.images_note(),
        OVER_DRAWS,
        f"scores of chapter 7: {PROXY_SCALE}; {DRAWS} draws at most, which is all that arms without a search have",
        "'any of' is the mean over those cells: what choosing by chance gives",
    ]
    return Outcome(f"NASI: 8 channels, 1 cell a stage, 8 px, T = {NASI_STEPS} steps; {seeds} seeds", rows, notes)
