"""A plan of BINAS that is not measured: tables that follow from what networks compute, and a few steps of training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from archwright.costs.measure import Timing
from archwright.costs.tables import Entry, LatencyTable, Provenance, parts
from archwright.methods.binas.thin import Spending
from archwright.runs.run import Run
from archwright.spaces.compact import Compact, scale_for

PLAN = Spending(
    seconds=0.1,
    until=1.0,
    beside_seconds=0.05,
    limits=2,
    precision="float32",
    step_fixed_ms=5.0,
    step_mega_ms=0.001,
    shifted=True,
    fewest_steps=1,
    shared_from=0,
)
"""A few steps a network: 60 ms for the looser limit and 40 for the tighter one. A step takes as long whatever network
it is of, images are said to be seen often, and few passes are shared nevertheless."""


def space_of(image_size: int = 8, classes: int = 2, image_channels: int = 1) -> Compact:
    return Compact(scale_for(image_size, classes, image_channels))


def table_of(space: Compact, training: bool = False, ms_per_mega: float = 1.0) -> LatencyTable:
    """.01 ms a part and ``ms_per_mega`` a million multiply-accumulates."""
    known = {str(space.end(width)): space.end(width) for width in range(len(space.widths[-1]))}
    known |= {str(part): part for part in (space.part(*place) for place in space.places())}
    assert set(known) == set(parts(space))
    entries = {}
    for key, part in known.items():
        ms = 0.01 + ms_per_mega * part.cost().macs / 1e6
        entries[key] = Entry(median_ms=ms, low_ms=ms, high_ms=ms)
    return LatencyTable(provenance=Provenance.here(Timing(training=training)), entries=entries)


def planned_run(folder: Path, space: Compact, plan: Spending = PLAN, reference_ms: float | None = None) -> str:
    """A run folder that a search can repeat the plan of.

    Args:
        folder: of the run.
        space: of its networks.
        plan: of its trainings.
        reference_ms: what the lightest network took when the table was made; None where nothing is timed.
    """
    run = Run.create(folder, {"method": "binas"}, {})
    table_of(space).save(run.artifact("latency.json"))
    least, most = table_of(space).costs(space).problem(space).cost_range("latency_ms")
    (plain,) = table_of(space).predict(space, [space.plain(width=2)]).tolist()
    table: dict[str, Any] = {
        "least_ms": least,
        "most_ms": most,
        "device": "a counted one",
        "busy": False,
        "chosen_limits_ms": [round(plain, 4), round(1.8 * plain, 4)],
        "sizes": [space.scale.image_size],
        "measured": [space.scale.image_size],
        "references_ms": {} if reference_ms is None else {space.scale.image_size: reference_ms},
    }
    run.finish_stage("table", table)
    run.finish_stage("plan", plan.model_dump())
    return str(folder)
