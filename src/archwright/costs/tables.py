"""Latency tables: what every block of a staged space takes on one device, and the milliseconds of whole networks.

A table is one JSON file that says how it was measured. Blocks are measured alone, from a warm cache, and each pays for
a call of its own, which a whole network pays for once; so a correction fitted on whole networks is part of the table:

    latency_ms = slope * (sum of the parts) + part_ms * (number of parts) + intercept_ms

With ``Timing(training=True, batch=...)`` the same table holds milliseconds of a *training step* of each part: training
time is additive like latency, and ``table.costs(space, "step_ms")`` makes it a resource that limits can be on.

Everything is timed in several rounds, each in another order, and its quickest round counts: other work on the machine
only adds time, and a few seconds of it reach one round of a part, hardly all of them.

A search that has minutes does not time every part: where ``most_parts`` says so, some of every kind are timed, and the
others follow from what they compute and move by a fit with coefficients of 0 or more for each kind.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from scipy.optimize import least_squares, nnls
from torch import nn

from archwright.costs.additive import StagedCosts, staged_costs
from archwright.costs.measure import Latency, Stopwatch, Timing, device_name, versions
from archwright.errors import InputError
from archwright.runs import disk
from archwright.runs.files import JsonLines, read_json, write_json
from archwright.solvers.problem import StagedChoice
from archwright.spaces.base import Architecture
from archwright.spaces.staged import Part as Geometry
from archwright.spaces.staged import StagedSpace

FEWEST_NETWORKS = 20
"""Random networks an affine correction needs, beside the lightest and the heaviest of the space."""
OF_DRAWS = 10
"""Every other of these random networks is the lightest of so many draws: limits are at the quick end."""
ROUNDS = 5
"""Times that everything is measured, in another order each."""
TYPICAL_ERROR = 0.02
"""Relative errors well above this count less than by their square in the fit of the correction."""
LEAST_CORRECTED = 0.5
"""Part of the quickest network's time that an affine correction must give it at least."""
FEWEST_ROUNDS = 2
"""Rounds that a measurement with little time has nevertheless."""
FACTORS = (0.5, 2.0)
"""Least and greatest factor by which a timed network may change what was inferred of its parts."""
FEWEST_OF_A_KIND = 8
"""Parts of a kind that are timed where others follow from them: the fit has four coefficients."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Provenance(_Frozen):
    """What a latency is worth nothing without."""

    device: str
    backend: str
    threads: int = Field(ge=1)
    batch: int = Field(ge=1)
    dtype: str
    warm_up: int = Field(ge=0)
    repeats: int = Field(ge=1)
    training: bool = False
    processor: str = "cpu"
    versions: dict[str, str]

    @classmethod
    def here(cls, timing: Timing) -> Provenance:
        """This machine, measured as ``timing`` says."""
        return cls(device=device_name(timing.processor), versions=versions(timing.backend), **asdict(timing))


class Entry(_Frozen):
    """Milliseconds of one part: median, tenth and ninetieth percentile."""

    median_ms: float = Field(ge=0, allow_inf_nan=False)
    low_ms: float = Field(ge=0, allow_inf_nan=False)
    high_ms: float = Field(ge=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.low_ms <= self.median_ms <= self.high_ms:
            raise ValueError("low_ms <= median_ms <= high_ms is expected")
        return self

    def times(self, factor: float) -> Entry:
        """All of it, so many times."""
        return Entry(**{name: factor * value for name, value in self.model_dump().items()})


class Correction(_Frozen):
    """The map from sums of parts to whole networks and how well it does on networks it was not fitted on."""

    slope: float = Field(gt=0, allow_inf_nan=False)
    intercept_ms: float = Field(allow_inf_nan=False)
    part_ms: float = Field(0.0, allow_inf_nan=False)
    """Of every part of a network: below zero where a call takes much of what a part takes alone."""
    networks: int = Field(ge=FEWEST_NETWORKS)
    validation_networks: int = Field(ge=0)
    median_error: float | None = Field(None, ge=0, allow_inf_nan=False)
    """Median of |predicted - measured| / measured over the validation networks."""
    repeat_noise: float | None = Field(None, ge=0, allow_inf_nan=False)
    """How far two halves of one network's measurement are apart: the same of its odd rounds against its even ones."""


class LatencyTable(_Frozen):
    """Latencies of parts by their geometry, how they were measured, and the correction for whole networks."""

    provenance: Provenance
    entries: dict[str, Entry]
    correction: Correction | None = None
    inferred: int = Field(0, ge=0)
    """Entries that were not timed: they follow from others of their kind."""

    @property
    def timing(self) -> Timing:
        """How it was measured."""
        return Timing(**self.provenance.model_dump(exclude={"device", "versions"}))

    def save(self, path: Path) -> None:
        """Write the JSON file."""
        write_json(path, self.model_dump())

    @classmethod
    def load(cls, path: Path) -> LatencyTable:
        """Read a table measured here or elsewhere; everything wrong with it is said at once."""
        if not path.is_file():
            raise InputError("a latency table", f"no file {path}", "Measure one with: archwright latency")
        try:
            return cls.model_validate(read_json(path), strict=True)
        except ValidationError as error:
            problems = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
            more = f" and {len(problems) - 5} more" if len(problems) > 5 else ""
            raise InputError(
                f"a latency table in {path}", "; ".join(problems[:5]) + more, "Measure it again, in milliseconds."
            ) from error

    def check(self, space: StagedSpace[Any], *, timing: Timing | None = None, device: str | None = None) -> None:
        """Refuse a table that lacks blocks of ``space``, or was measured on another device or in another way.

        Args:
            space: whose blocks must all be there.
            timing: back end, threads, batch and dtype that are wanted; None takes any.
            device: name of the device that is wanted; None takes any.
        """
        missing = sorted(set(parts(space)) - set(self.entries))
        if missing:
            raise InputError(
                f"latencies of all {len(parts(space))} different parts of the space",
                f"a table without {len(missing)} of them ({', '.join(missing[:3])}{', ...' * (len(missing) > 3)})",
                "It may be of another image size, width or number of classes. Measure one with: archwright latency",
            )
        if device is not None and device != self.provenance.device:
            raise InputError(
                f"a latency table of the device {device!r}",
                f"one of {self.provenance.device!r}",
                "Name that device if it is the target.",
            )
        for name in ("backend", "threads", "batch", "dtype", "training", "processor") if timing else ():
            wanted, found = getattr(timing, name), getattr(self.provenance, name)
            if wanted != found:
                raise InputError(f"a latency table with {name} {wanted}", f"{found}", "Measure one for these settings.")

    def costs(self, space: StagedSpace[Any], resource: str = "latency_ms") -> StagedCosts:
        """Latency for the solvers: LAT = fixed + sum over present blocks, corrected where that was fitted.

        Tables of several devices join by ``|`` under different names of ``resource``, and a limit on each goes to
        :func:`archwright.solvers.milp.solve`.

        Args:
            space: refused where the table lacks one of its parts.
            resource: name of the costs, in milliseconds.
        """
        self.check(space)
        known = self.within_networks()
        intercept = known.correction.intercept_ms if known.correction else 0.0
        costs = staged_costs(space, resource, lambda part: known.entries[str(part)].median_ms)
        fixed = {name: cost + intercept for name, cost in costs.fixed_costs.items()}
        return replace(costs, fixed_costs=fixed)

    def within_networks(self) -> Self:
        """The same with entries as parts take within networks; what is left of the correction is its intercept."""
        if self.correction is None:
            return self
        slope, more = self.correction.slope, self.correction.part_ms
        entries = {
            key: entry.model_copy(update={name: max(0.0, slope * ms + more) for name, ms in entry})
            for key, entry in self.entries.items()
        }
        done = self.correction.model_copy(update={"slope": 1.0, "part_ms": 0.0})
        return self.model_copy(update={"entries": entries, "correction": done})

    def predict(self, space: StagedSpace[Any], architectures: Sequence[Architecture]) -> NDArray[np.float64]:
        """Milliseconds of each of ``architectures`` of ``space``, (n,)."""
        choices = StagedChoice.stack([space.to_choice(architecture) for architecture in architectures])
        costs: NDArray[np.float64] = self.costs(space).problem(space).evaluate(choices)[1]["latency_ms"]
        return costs


# --- measuring --------------------------------------------------------------------------------------------------------


Part = tuple[Callable[[], nn.Module], tuple[int, int, int]]
"""How to build a part, and the shape of its input (channels, height, width)."""
Times = dict[str, NDArray[np.float64]]
"""Milliseconds of single calls by part or network, (rounds, calls)."""


def geometries(space: StagedSpace[Any]) -> dict[str, Geometry]:
    """All different parts of the space's networks by key: start, ends, blocks."""
    return {str(part): part for part in _all_parts(space)}


def parts(space: StagedSpace[Any]) -> dict[str, Part]:
    """The same as they are built and measured."""
    return {key: (one.build, (one.in_channels, one.size, one.size)) for key, one in geometries(space).items()}


def kind_of(key: str) -> str:
    """What comes before the channels in the key of a part: its operation, kernel, stride and expansion."""
    return key.split("_i")[0]


def some_of_each_kind(all_parts: Mapping[str, Geometry], most: int) -> list[str]:
    """Keys of about ``most`` parts, of every kind an equal share, evenly by multiply-accumulates with both ends.

    Args:
        all_parts: by key.
        most: that are wanted; a kind has :data:`FEWEST_OF_A_KIND` of them or all that there are.
    """
    kinds: dict[str, list[str]] = {}
    for key in sorted(all_parts, key=lambda key: (all_parts[key].cost().macs, key)):
        kinds.setdefault(kind_of(key), []).append(key)
    each = max(FEWEST_OF_A_KIND, most // len(kinds))
    chosen = []
    for keys in kinds.values():
        places = np.unique(np.linspace(0, len(keys) - 1, min(each, len(keys))).round().astype(int))
        chosen += [keys[place] for place in places]
    return chosen


def inferred(timed: Mapping[str, Entry], all_parts: Mapping[str, Geometry]) -> dict[str, Entry]:
    """Entries of the parts that were not timed, by a fit on the timed ones of their kind.

    Milliseconds are a sum of a constant, multiply-accumulates, parameters and numbers read and written, each with a
    coefficient of 0 or more, so that the relative errors are least.

    Args:
        timed: entries by key.
        all_parts: by key, the timed ones among them.
    """

    def costs(key: str) -> list[float]:
        part, cost = all_parts[key], all_parts[key].cost()
        moved = part.in_channels * part.size**2 + part.activation_elements()
        return [1.0, cost.macs / 1e6, cost.params / 1e4, moved / 1e4]

    found: dict[str, Entry] = {}
    for kind in {kind_of(key) for key in set(all_parts) - set(timed)}:
        known = [key for key in timed if kind_of(key) == kind]
        medians = np.array([timed[key].median_ms for key in known])
        fit, _ = nnls(np.array([costs(key) for key in known]) / medians[:, None], np.ones(len(known)))
        for key in all_parts:
            if key not in timed and kind_of(key) == kind:
                ms = float(np.dot(fit, costs(key)))
                found[key] = Entry(median_ms=ms, low_ms=ms, high_ms=ms)
    return found


def between(
    table: LatencyTable, space: StagedSpace[Any], below: StagedSpace[Any], above: StagedSpace[Any]
) -> LatencyTable:
    """``table`` with the parts of ``space``, whose images have a size between those of two others.

    A part's milliseconds are linear in the pixels of its input between what it takes at the two sizes.

    Args:
        table: that has all parts of the two others.
        space: of the networks that were not timed.
        below: the same networks at a smaller image size.
        above: the same networks at a larger one.
    """
    added: dict[str, Entry] = {}
    for own, low, high in zip(*(_all_parts(one) for one in (space, below, above)), strict=True):
        if str(own) not in table.entries:
            small, large = table.entries[str(low)], table.entries[str(high)]
            apart = high.size**2 - low.size**2
            weight = (own.size**2 - low.size**2) / apart if apart else 0.5
            values = {
                name: (1 - weight) * getattr(small, name) + weight * getattr(large, name) for name in Entry.model_fields
            }
            added[str(own)] = Entry(**values)
    return table.model_copy(update={"entries": {**table.entries, **added}, "inferred": table.inferred + len(added)})


def adjusted(
    table: LatencyTable, space: StagedSpace[Any], own: Collection[str], network: Architecture, measured_ms: float
) -> LatencyTable:
    """``table`` with some entries multiplied by one factor, so that a network takes what was measured.

    Args:
        table: that has all parts of the network.
        space: of the network.
        own: keys of the entries that may change.
        network: that was timed.
        measured_ms: of it.
    """
    known = table.within_networks()
    alone = {key: entry if key in own else entry.times(0.0) for key, entry in known.entries.items()}
    part = float(known.model_copy(update={"entries": alone, "correction": None}).predict(space, [network])[0])
    rest = float(known.predict(space, [network])[0]) - part
    factor = float(np.clip((measured_ms - rest) / part, *FACTORS)) if part > 0 else 1.0
    corrected = {key: entry.times(factor) if key in own else entry for key, entry in known.entries.items()}
    return known.model_copy(update={"entries": corrected})


def _all_parts(space: StagedSpace[Any]) -> list[Geometry]:
    """All parts of networks, place by place."""
    start = space.start()
    found = [] if start is None else [start]
    found += [space.end(width) for width in range(len(space.widths[-1]))]
    return found + [space.part(*place) for place in space.places()]


def measure_table(
    space: StagedSpace[Any] | Sequence[StagedSpace[Any]],
    timing: Timing | None = None,
    *,
    log: Path | None = None,
    networks: int = FEWEST_NETWORKS,
    validation_networks: int = 0,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
    most_parts: int | None = None,
    seconds: float | None = None,
) -> LatencyTable:
    """Measure the different parts of ``space`` and whole random networks, and fit the correction.

    Args:
        space: what to measure; several, such as one space at some image sizes, have one table and one correction.
        timing: back end, threads, batch, dtype, warm-up, repeats.
        log: file that gets each measurement when it is done; what it already holds is not measured again.
        networks: random networks the correction is fitted on, at least 20; the lightest and the heaviest of every space
            join them, so that no network is beyond the fit. 0 leaves the sums as they are.
        validation_networks: others it is tried on.
        seed: of the random networks.
        progress: called with the numbers of finished and of all measurements.
        most_parts: parts that are timed, about; the others follow from them. None for all.
        seconds: on the wall after which no further round begins, beyond the first two; None for all rounds.
    """
    if networks and networks < FEWEST_NETWORKS:
        raise InputError(f"at least {FEWEST_NETWORKS} networks for the correction, or 0", str(networks))
    timing = timing or Timing()
    provenance = Provenance.here(timing)
    rng = np.random.default_rng(seed)
    spaces = [space] if isinstance(space, StagedSpace) else list(space)
    ends = [(one, end) for one in spaces for end in (one.lightest(), one.heaviest())] if networks else []
    fitted_on = ends + _drawn(spaces, networks, rng, OF_DRAWS)
    tried_on = _drawn(spaces, validation_networks, rng)
    known = {key: part for one in spaces for key, part in geometries(one).items()}
    keys = list(known) if most_parts is None else some_of_each_kind(known, most_parts)
    work = {key: (known[key].build, (known[key].in_channels, known[key].size, known[key].size)) for key in keys}
    for one, network in (*fitted_on, *tried_on):
        shape = (one.scale.image_channels, one.scale.image_size, one.scale.image_size)
        work[_network_key(one, network)] = partial(one.build, network, one.scale), shape
    times = _measure_all(work, timing, provenance, log, rng, progress, seconds)
    entries = {key: Entry(**asdict(Latency.of(_quickest(times[key])))) for key in keys}
    others = inferred(entries, known)
    table = LatencyTable(provenance=provenance, entries={**entries, **others}, inferred=len(others))
    if not fitted_on:
        return table
    try:
        counts, least = _predicted(_counting(table), fitted_on), min(one.median_ms for one in entries.values())
        correction = fit_correction(_predicted(table, fitted_on), _medians(times, fitted_on), counts, least)
    except InputError:
        if log:
            disk.remove(log)  # the same measurements would fail again
        raise
    table = table.model_copy(update={"correction": correction})
    if not tried_on:
        return table
    update = {
        "validation_networks": validation_networks,
        "median_error": _distance(_predicted(table, tried_on), _medians(times, tried_on)),
        "repeat_noise": _distance(*(_medians(times, tried_on, slice(start, None, 2)) for start in (0, 1))),
    }
    return table.model_copy(update={"correction": correction.model_copy(update=update)})


Whole = tuple[StagedSpace[Any], Architecture]
"""A network and the space that it is of."""


def _drawn(spaces: Sequence[StagedSpace[Any]], count: int, rng: np.random.Generator, of_draws: int = 1) -> list[Whole]:
    """Random networks of each space in turn.

    Args:
        spaces: of the networks.
        count: how many.
        rng: of the draws.
        of_draws: every other network of a space is the one of so many draws with the fewest multiply-accumulates.
    """
    found = []
    for number in range(count):
        space = spaces[number % len(spaces)]
        draws = [space.sample(rng) for _ in range(of_draws if number // len(spaces) % 2 else 1)]
        found.append((space, min(draws, key=lambda one: space.cost(one, space.scale).macs)))
    return found


def _network_key(space: StagedSpace[Any], network: Architecture) -> str:
    return f"network {network} at {space.scale.image_size}px"


def _predicted(table: LatencyTable, networks: Sequence[Whole]) -> NDArray[np.float64]:
    """Milliseconds by the table, (n,)."""
    return np.array([float(table.predict(space, [network])[0]) for space, network in networks])


def _counting(table: LatencyTable) -> LatencyTable:
    """A table by which a network takes as many milliseconds as it has parts."""
    one = Entry(median_ms=1, low_ms=1, high_ms=1)
    return table.model_copy(update={"entries": dict.fromkeys(table.entries, one)})


def _medians(times: Times, networks: Sequence[Whole], rounds: slice = slice(None)) -> NDArray[np.float64]:
    """Median milliseconds of whole networks in the quickest of some rounds, (n,)."""
    return np.array([np.median(_quickest(times[_network_key(*one)][rounds])) for one in networks])


def _quickest(times_ms: NDArray[np.float64]) -> NDArray[np.float64]:
    """The calls of the round with the least median, (calls,), of (rounds, calls)."""
    quickest: NDArray[np.float64] = times_ms[np.median(times_ms, axis=1).argmin()]
    return quickest


def _distance(ours: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    return float(np.median(np.abs(ours / other - 1)))


def _measure_all(
    work: Mapping[str, Part],
    timing: Timing,
    provenance: Provenance,
    log: Path | None,
    rng: np.random.Generator,
    progress: Callable[[int, int], None],
    seconds: float | None = None,
) -> Times:
    """Milliseconds of single calls by key, (rounds, calls), taken from the log where it has them."""
    lines = JsonLines(log) if log else None
    finished = _resumed(lines, provenance) if lines else {}
    watches: dict[str, Stopwatch] = {}
    calls, rounds, begin = -(-timing.repeats // ROUNDS), 0, time.perf_counter()
    for number in range(ROUNDS):
        if seconds is not None and number >= FEWEST_ROUNDS and time.perf_counter() - begin > seconds:
            break
        rounds += 1
        for place, key in enumerate(rng.permutation(list(work)).tolist(), 1):
            if (number, key) not in finished:
                if key not in watches:
                    build, shape = work[key]
                    watches[key] = Stopwatch(build(), shape, timing)
                finished[number, key] = watches[key].times_ms(calls).tolist()
                if lines:
                    lines.append({"round": number, "key": key, "times_ms": finished[number, key]})
            progress(number * len(work) + place, ROUNDS * len(work))
    return {key: np.array([finished[number, key] for number in range(rounds)]) for key in work}


def _resumed(lines: JsonLines, provenance: Provenance) -> dict[tuple[int, str], list[float]]:
    """What an interrupted measurement left; its first line says how it was measured."""
    records = list(lines)
    if not records:
        lines.append({"provenance": provenance.model_dump(), "rounds": ROUNDS})
        return {}
    before = records[0].get("provenance")
    if before != provenance.model_dump() or records[0].get("rounds") != ROUNDS:
        raise InputError(
            f"a measurement as it was begun in {lines.path} ({before})",
            f"{provenance.model_dump()}",
            "Use the same settings and versions, or delete the file to begin anew.",
        )
    return {(record["round"], record["key"]): record["times_ms"] for record in records[1:]}


def fit_correction(
    sums_ms: NDArray[np.float64],
    measured_ms: NDArray[np.float64],
    counts: NDArray[np.float64] | None = None,
    least_ms: float = 0.0,
) -> Correction:
    """The map with the least *relative* errors, by which limits are missed; single large ones count less.

    A part may take less than nothing more within a network than it takes alone, by the quickest part's time at most. On
    a machine so busy that the map gives the quickest network less than half of what it took, even less than nothing, it
    is one factor, the median.

    Args:
        sums_ms: sums of the parts of each network in milliseconds, (n,).
        measured_ms: what the whole networks took, (n,).
        counts: parts of each network, (n,); None: nothing is fitted for each part.
        least_ms: of the quickest part alone.
    """
    if len(sums_ms) < FEWEST_NETWORKS:
        raise InputError(f"at least {FEWEST_NETWORKS} networks for the correction", str(len(sums_ms)))
    n = np.zeros_like(sums_ms) if counts is None else counts
    design = np.stack([sums_ms - least_ms * n, n, np.ones_like(sums_ms)], axis=1) / measured_ms[:, None]
    free = [0, 2] if counts is None else [0, 1, 2]
    start = np.linalg.lstsq(design[:, free], np.ones(len(sums_ms)), rcond=None)[0]
    least = np.array([-np.inf, 0.0, -np.inf])[free]
    fit = least_squares(
        lambda line: design[:, free] @ line - 1,
        np.maximum(start, least + 1e-9),
        bounds=(least, np.inf),
        loss="soft_l1",
        f_scale=TYPICAL_ERROR,
    )
    slope, intercept = float(fit.x[0]), float(fit.x[-1])
    if slope <= 0:
        raise InputError(
            "whole networks that take longer where their parts do",
            f"a fitted slope of {slope:.3g}",
            "Measure again on a quiet machine, with more repeats.",
        )
    part = 0.0 if counts is None else float(fit.x[1]) - slope * least_ms
    quickest = int(sums_ms.argmin())
    if slope * sums_ms[quickest] + part * n[quickest] + intercept < LEAST_CORRECTED * measured_ms[quickest]:
        slope, part, intercept = float(np.median(measured_ms / sums_ms)), 0.0, 0.0
    return Correction(slope=slope, intercept_ms=intercept, part_ms=part, networks=len(sums_ms), validation_networks=0)
