"""Table 6.1 of the thesis: NASI on NAS-Bench-201, with one and four budgets, beside training-free baselines."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

from archwright.execution.base import Item, run_items
from archwright.reproduce.base import Outcome, Row, Settings, needs
from archwright.reproduce.searches import finished
from archwright.reproduce.thesis7 import OVER_DRAWS, accuracy_rows, tests_of, training_free_cells
from archwright.runs.files import Json
from archwright.runs.run import ItemLog
from archwright.runs.stop import Stop
from archwright.spaces.nasbench201 import NASBENCH201, Cell201
from archwright.tables.nasbench201 import load_compact

TABLE_6_1 = {
    "NASI T": (93.08, 69.51, 40.87), "NASI 4T": (93.55, 71.20, 44.84), "naswot, 1000 sampled": (92.96, 69.98, 44.44),
    "te-nas, 1000 sampled": (93.90, 71.24, 42.38), "knas, 1000 sampled": (93.05, 68.91, 34.11),
}  # fmt: skip
NASI_STEPS = 60
"""One budget T: Gumbel samples of one search."""


def chosen_by_search(payload: Json, stop: Stop) -> Json:
    """Work item: a search as a run of its own, resumed if it was begun; its architecture and its seconds.

    Args:
        payload: folder and settings of the search.
        stop: not looked at; the search stops by itself and is resumed.
    """
    result = finished(Path(payload["folder"]), **payload["settings"])
    return {"architecture": result.best.architecture, "seconds": result.seconds}


@needs("nb201")
def table_6_1(settings: Settings) -> Outcome:
    """NASI with one and four budgets, with random labels and random images, beside training-free baselines."""
    seeds = settings.seeds or 4
    variants: dict[str, dict[str, Any]] = {
        "NASI T": {"steps": NASI_STEPS},
        "NASI 4T": {"steps": 4 * NASI_STEPS},
        "NASI T, three cells": {"steps": NASI_STEPS, "proxy_cells": 3},
        "NASI T, random labels": {"steps": NASI_STEPS, "labels": "random"},
        "NASI T, random images": {"steps": NASI_STEPS, "images": "random"},
    }
    items = []
    for (label, changes), seed in product(variants.items(), range(seeds)):
        folder = settings.folder / "runs" / f"{label.replace(', ', '-').replace(' ', '-')}-{seed}"
        given = {"method": "nasi", "data": settings.images().spec, "benchmark": "nb201", "seed": seed, **changes}
        items.append(Item(f"{label}:{seed}", {"folder": str(folder), "settings": given}))
    log = ItemLog(settings.folder / "searches.jsonl")
    with settings.progress.task("NASI searches", len(items), sum(item.key in log.done for item in items)) as bar:
        found = run_items(settings.executor, chosen_by_search, items, log, Stop(), bar)
    cells: dict[str, list[Cell201]] = {label: [] for label in variants}
    seconds: dict[str, list[float]] = {label: [] for label in variants}
    for item in items:
        label = item.key.rsplit(":", 1)[0]
        cells[label].append(NASBENCH201.parse(found[item.key]["architecture"]))
        seconds[label].append(found[item.key]["seconds"])
    baselines = {k: v for k, v in training_free_cells(settings, seeds).items() if not k.startswith("best score")}
    alone = {label: [[one] for one in found_cells] for label, found_cells in cells.items()}
    rows = accuracy_rows(alone | baselines, TABLE_6_1, {})
    rows += [Row.of(f"{label} search time", "s", None, spent) for label, spent in seconds.items()]
    each = [f"{label}: {[round(float(t[0]), 2) for t in tests_of(cells[label], load_compact())]}" for label in variants]
    return Outcome(
        scale=f"supernet of 8 channels, 1 cell a stage or three, 8 px, batch 64; T = {NASI_STEPS} steps; {seeds} seeds",
        rows=rows,
        notes=[
            settings.images_note(),
            OVER_DRAWS,
            "the thesis' seconds are of a GPU; ours are of one CPU thread and depend on what else runs",
            *(f"C10 of every seed, {text}" for text in each),
        ],
    )
