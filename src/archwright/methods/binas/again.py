"""The networks of a finished search timed again, as the clock shows it: whether they keep their limits here and now."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel

from archwright.costs.measure import Stopwatch
from archwright.costs.tables import LatencyTable
from archwright.errors import InputError
from archwright.methods.binas.latency import middle_round
from archwright.methods.binas.tables import measured_here
from archwright.models import load_member
from archwright.runs.files import inside
from archwright.runs.progress import Progress
from archwright.runs.run import Run
from archwright.search.answer import Answer, Candidate


class TimedAgain(BaseModel):
    """One model of the answer.

    Attributes:
        limit_ms: that it was chosen within.
        medians_ms: of every time that it was timed, in milliseconds.
    """

    architecture: str
    limit_ms: float
    medians_ms: list[float]

    @property
    def within(self) -> bool:
        """Whether it kept its limit each time."""
        return max(self.medians_ms) <= self.limit_ms


def time_again(folder: Path | str, times: int = 3, progress: Progress | None = None) -> list[TimedAgain]:
    """Time every network that a finished binas search chose for a latency limit ``times`` times, nothing corrected.

    All are timed once before the first is timed again. A time is the median of the calls of the middle of three rounds,
    in the way the run's latency table was measured; for a table of another device there is nothing to time here.
    """
    if times < 1:
        raise InputError("at least one time", str(times))
    run = Run.open(Path(folder))
    path = run.folder / "artifacts" / "latency.json"
    if run.status() != "finished" or not path.is_file():
        raise InputError("a finished run with a latency table (of binas)", f"{run.folder}, {run.status()}")
    table = LatencyTable.load(path)
    if not measured_here(table):
        raise InputError(
            "a table of this device", f"one of {table.provenance.device}", "Time the exported model over there."
        )
    models = [one for one in Answer.read(run.folder).models if "latency_ms" in (one.limits or {})]
    if not models:
        raise InputError("models with a latency limit", f"none in {run.folder}")
    clocks = {one.model or "": _clock(run.folder, one, table) for one in models}  # one network may have several limits
    medians: dict[str, list[float]] = {name: [] for name in clocks}
    with (progress or Progress()).task("timing", times * len(clocks)) as bar:
        for _ in range(times):
            for name, clock in clocks.items():
                medians[name].append(clock())
                bar.advance()
    return [
        TimedAgain(
            architecture=one.architecture,
            limit_ms=(one.limits or {})["latency_ms"],
            medians_ms=medians[one.model or ""],
        )
        for one in models
    ]


def _clock(folder: Path, one: Candidate, table: LatencyTable) -> Callable[[], float]:
    """Times a saved network."""
    model = load_member(inside(folder, one.model or ""))
    shape = (model.scale.image_channels, model.scale.image_size, model.scale.image_size)
    watch = Stopwatch(model.network, shape, table.timing)
    return lambda: middle_round(watch).median_ms
