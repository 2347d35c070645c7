"""Latency tables: sums, correction, resuming, import and everything that can be wrong with one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from torch import nn

from archwright.costs import tables
from archwright.costs.additive import counted_costs
from archwright.costs.measure import Timing
from archwright.costs.tables import (
    FEWEST_OF_A_KIND,
    FEWEST_ROUNDS,
    ROUNDS,
    Correction,
    Entry,
    LatencyTable,
    fit_correction,
    geometries,
    inferred,
    kind_of,
    measure_table,
    parts,
    some_of_each_kind,
)
from archwright.errors import InputError, RunError
from archwright.solvers import StagedProblem, milp
from archwright.spaces.compact import SCALES as COMPACT_SCALES
from archwright.spaces.compact import Compact
from archwright.spaces.mbconv import SCALES, MbConv
from archwright.spaces.mbconv_network import MbConvNetwork

SPACE = MbConv(
    SCALES["mbconv-8"].changed(
        stage_widths=(24, 40), stage_strides=(1, 2), activations=("relu", "swish"), last_widths=(96, 128)
    )
)


def fake_latency(module: nn.Module) -> float:
    """A device on which whole networks take 1.2 times their parts and half a millisecond."""
    params = sum(p.numel() for p in module.parameters()) / 1e3
    return 1.2 * params + 0.5 if isinstance(module, MbConvNetwork) else params


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replaces the stop-watch by parameters; collects what was measured."""
    made: list[str] = []

    class Fake:
        def __init__(self, module: nn.Module, shape: tuple[int, int, int], timing: Timing) -> None:
            self.module = module

        def times_ms(self, repeats: int) -> NDArray[np.float64]:
            made.append(type(self.module).__name__)
            return np.full(repeats, fake_latency(self.module))

    monkeypatch.setattr(tables, "Stopwatch", Fake)
    return made


def test_equal_blocks_are_measured_once(calls: list[str]) -> None:
    table = measure_table(SPACE)
    # A stage's blocks are all equal but the first, which has no skip though the first stage's widths coincide.
    assert len(table.entries) == (2 + 2) * 12 + 2
    assert calls.count("InvertedResidual") == ROUNDS * 48
    assert calls.count("MbConvNetwork") == ROUNDS * 22


def test_spaces_of_several_sizes_share_a_table_and_a_correction(calls: list[str]) -> None:
    larger = MbConv(SPACE.scale.changed(image_size=2 * SPACE.scale.image_size))
    table = measure_table([SPACE, larger])
    assert len(table.entries) == len(parts(SPACE)) + len(parts(larger))
    assert calls.count("MbConvNetwork") == ROUNDS * (4 + 20)
    rng = np.random.default_rng(5)
    for space in (SPACE, larger):
        one = space.sample(rng)
        expected = fake_latency(space.build(one, space.scale))
        assert float(table.predict(space, [one])[0]) == pytest.approx(expected)


def test_correction_is_found_and_predicts_other_networks(calls: list[str]) -> None:
    table = measure_table(SPACE, validation_networks=7)
    assert table.correction is not None
    assert table.correction.slope == pytest.approx(1.2)
    assert table.correction.intercept_ms == pytest.approx(0.5)
    assert table.correction.validation_networks == 7
    assert table.correction.median_error == pytest.approx(0, abs=1e-9)
    assert table.correction.repeat_noise == 0
    architecture = SPACE.sample(np.random.default_rng(99))
    expected = fake_latency(SPACE.build(architecture, SPACE.scale))
    assert table.predict(SPACE, [architecture])[0] == pytest.approx(expected)


def test_interrupted_measurement_goes_on(calls: list[str], tmp_path: Path) -> None:
    log = tmp_path / "latency.jsonl"

    def stop(done: int, total: int) -> None:
        if done == 80:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure_table(SPACE, log=log, progress=stop)
    assert len(calls) == 80
    resumed = measure_table(SPACE, log=log)
    assert len(calls) == ROUNDS * (50 + 22)
    assert resumed == measure_table(SPACE)
    with pytest.raises(InputError, match="as it was begun"):
        measure_table(SPACE, Timing(batch=2), log=log)


def test_a_table_survives_its_file(calls: list[str], tmp_path: Path) -> None:
    table = measure_table(SPACE)
    table.save(tmp_path / "table.json")
    assert LatencyTable.load(tmp_path / "table.json") == table
    written = json.loads((tmp_path / "table.json").read_text())
    assert set(written["provenance"]) == {
        *("device", "backend", "threads", "batch", "dtype", "warm_up", "repeats", "training", "processor", "versions")
    }


def _damaged(table: LatencyTable, change: Any, path: Path) -> Path:
    content = table.model_dump()
    change(content)
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (-1.0, "median_ms"),
        ("fast", "median_ms"),
        (None, "median_ms"),
        (np.nan, "NaN is no"),
        (np.inf, "Infinity is no"),
    ],
)
def test_impossible_latencies_are_refused(calls: list[str], tmp_path: Path, value: Any, message: str) -> None:
    key = next(iter(parts(SPACE)))
    path = _damaged(measure_table(SPACE), lambda c: c["entries"][key].update(median_ms=value), tmp_path / "table.json")
    with pytest.raises((InputError, RunError), match=message):
        LatencyTable.load(path)


def test_tables_that_do_not_fit_are_refused(calls: list[str], tmp_path: Path) -> None:
    table = measure_table(SPACE)
    incomplete = LatencyTable.load(_damaged(table, lambda c: c["entries"].popitem(), tmp_path / "a.json"))
    with pytest.raises(InputError, match="without 1 of them"):
        incomplete.costs(SPACE)
    with pytest.raises(InputError, match="another image size"):
        table.check(MbConv(SPACE.scale.changed(image_size=16)))
    with pytest.raises(InputError, match="device 'phone'"):
        table.check(SPACE, device="phone")
    with pytest.raises(InputError, match="threads 2"):
        table.check(SPACE, timing=Timing(threads=2))
    table.check(SPACE, timing=Timing(), device=table.provenance.device)
    with pytest.raises(InputError, match="no file"):
        LatencyTable.load(tmp_path / "none.json")
    with pytest.raises(InputError, match="provenance"):
        LatencyTable.load(_damaged(table, lambda c: c.pop("provenance"), tmp_path / "b.json"))


def test_corrections_that_make_no_sense_are_refused() -> None:
    sums = np.linspace(1, 2, 20)
    with pytest.raises(InputError, match="at least 20"):
        fit_correction(sums[:19], sums[:19])
    with pytest.raises(InputError, match="slope"):
        fit_correction(sums, 3 - sums)
    with pytest.raises(InputError, match="at least 20"):
        measure_table(SPACE, networks=5)


def test_a_busy_moment_spoils_no_median(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred measurements in a row of 300 take three times as long; the table is that of a quiet machine."""
    number = 0

    class Disturbed:
        def __init__(self, module: nn.Module, shape: tuple[int, int, int], timing: Timing) -> None:
            self.module = module

        def times_ms(self, repeats: int) -> NDArray[np.float64]:
            nonlocal number
            number += 1
            return np.full(repeats, fake_latency(self.module) * (3 if 60 < number <= 160 else 1))

    monkeypatch.setattr(tables, "Stopwatch", Disturbed)
    table = measure_table(SPACE)
    for key, (build, _) in parts(SPACE).items():
        assert table.entries[key].median_ms == pytest.approx(fake_latency(build()))
    assert table.correction is not None
    assert table.correction.slope == pytest.approx(1.2)


def test_one_spoilt_network_hardly_moves_the_correction() -> None:
    sums = np.linspace(5, 10, 22)
    measured = 1.2 * sums + 0.5
    measured[3] *= 2
    correction = fit_correction(sums, measured)
    assert pytest.approx(correction.slope * 7 + correction.intercept_ms, rel=0.01) == 1.2 * 7 + 0.5


def test_a_line_that_gives_the_quickest_network_next_to_nothing_becomes_a_factor() -> None:
    sums = np.linspace(1, 5, 22)
    busy = 3 * sums - 2.8  # interrupted the more, the longer a network takes
    busy[0] = 0.9
    correction = fit_correction(sums, busy)
    assert correction.intercept_ms == 0
    assert correction.slope == pytest.approx(np.median(busy / sums))
    assert fit_correction(sums, 1.5 * sums - 0.5).intercept_ms == pytest.approx(-0.5), "an ordinary line stays"


def test_the_call_that_every_part_pays_for_alone_is_taken_off() -> None:
    """As ONNX on tiny images: 4 µs of a call in each part and one call in a network; lines through sums mislead."""
    rng = np.random.default_rng(0)
    counts = rng.integers(2, 9, 22).astype(float)
    computed = np.array([rng.uniform(0.2, 2.0, int(count)).sum() for count in counts])
    sums, measured = computed + 4 * counts, 1.1 * computed + 5
    correction = fit_correction(sums, measured, counts, least_ms=4.2)
    assert (correction.slope, correction.part_ms, correction.intercept_ms) == pytest.approx((1.1, -4.4, 5.0), rel=1e-3)
    line = fit_correction(sums, measured)
    assert np.abs((line.slope * sums + line.intercept_ms) / measured - 1).max() > 0.05
    # A part never takes less than nothing: the quickest one takes 3.9 ms alone.
    assert fit_correction(sums, measured, counts, least_ms=3.9).part_ms >= -3.9 * 1.2


def test_every_other_network_of_the_correction_is_a_light_one() -> None:
    rng = np.random.default_rng(0)
    drawn = tables._drawn([SPACE], 60, rng, of_draws=10)
    macs = np.array([SPACE.cost(one, SPACE.scale).macs for _, one in drawn])
    every = np.array([SPACE.cost(SPACE.sample(rng), SPACE.scale).macs for _ in range(300)])
    assert np.median(macs[1::2]) <= np.quantile(every, 0.15)
    assert np.quantile(every, 0.3) <= np.median(macs[::2]) <= np.quantile(every, 0.7)


def test_parts_within_networks(calls: list[str]) -> None:
    table = measure_table(SPACE)
    assert table.correction is not None
    changed = table.model_copy(update={"correction": table.correction.model_copy(update={"part_ms": -0.1})})
    for architecture in (SPACE.lightest(), SPACE.heaviest()):
        count = SPACE.to_choice(architecture).depths.sum() + 2  # stem and end
        before, after = (float(one.predict(SPACE, [architecture])[0]) for one in (table, changed))
        assert after == pytest.approx(before - 0.1 * count)
        assert changed.within_networks().predict(SPACE, [architecture])[0] == pytest.approx(after)


def test_limits_on_two_devices_are_met_at_once(calls: list[str]) -> None:
    here, elsewhere = measure_table(SPACE), measure_table(SPACE)
    slow = {key: entry.model_copy(update={"median_ms": 9.0}) for key, entry in elsewhere.entries.items() if "k5" in key}
    elsewhere = elsewhere.model_copy(update={"entries": {**elsewhere.entries, **slow}})
    costs = here.costs(SPACE) | elsewhere.costs(SPACE, "telephone_ms")
    values = np.random.default_rng(0).random((SPACE.stages, SPACE.most_blocks, len(SPACE.configurations)))
    depths = (SPACE.scale.depths,) * SPACE.stages
    problem = StagedProblem(values, costs.block_costs, np.zeros(values.shape[:2]), {}, depths, 0.0, costs.fixed_costs)
    middle = {name: sum(problem.cost_range(name)) / 2 for name in problem.resources}
    solution = milp.solve(problem, middle)
    assert all(solution.costs[name] <= middle[name] for name in middle)
    drawn = problem.sample(20_000, np.random.default_rng(1))
    found, spent = problem.evaluate(drawn)
    within = np.logical_and.reduce([spent[name] <= middle[name] for name in middle])
    assert found[within].max() <= solution.value + 1e-9


def test_really_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    # Two calls of almost equal networks on a busy machine may well be in the wrong order; the fit has its own tests.
    fitted = Correction(slope=1.0, intercept_ms=0.0, networks=20, validation_networks=0)
    monkeypatch.setattr(tables, "fit_correction", lambda *_: fitted)
    small = MbConv(SPACE.scale.changed(expansions=(2,), kernels=(3,), squeeze_excite=(False,), depths=(1, 2)))
    table = measure_table(small, Timing(warm_up=0, repeats=2))
    costs = table.costs(small)
    assert costs.block_costs["latency_ms"].shape == (2, 2, 1)
    assert (costs.block_costs["latency_ms"] > 0).all()


def test_step_times_of_a_space_with_widths_are_one_more_resource(calls: list[str]) -> None:
    space = Compact(COMPACT_SCALES["compact-8"].changed(channels=8, width_choices=(1.0, 2.0), depths=(1, 2)))
    table = measure_table(space, Timing(batch=8, repeats=5, training=True))
    assert table.provenance.training
    costs = table.costs(space, "step_ms") | counted_costs(space)
    problem = costs.problem(space)
    rng = np.random.default_rng(5)
    for architecture in (space.sample(rng) for _ in range(5)):
        # The fake device takes a millisecond for a thousand parameters, with the correction for none.
        _, summed = problem.evaluate(space.to_choice(architecture))
        assert summed["step_ms"] == pytest.approx(summed["params"] / 1e3)
    with pytest.raises(InputError, match="training"):
        table.check(space, timing=Timing(batch=8))


@pytest.mark.parametrize(("low", "median", "high"), [(2.0, 1.0, 3.0), (1.0, 3.0, 2.0), (3.0, 2.0, 1.0)])
def test_a_spread_out_of_order_is_refused(
    calls: list[str], tmp_path: Path, low: float, median: float, high: float
) -> None:
    key, times = next(iter(parts(SPACE))), {"low_ms": low, "median_ms": median, "high_ms": high}
    path = _damaged(measure_table(SPACE), lambda c: c["entries"][key].update(times), tmp_path / "table.json")
    with pytest.raises(InputError, match="low_ms <= median_ms <= high_ms"):
        LatencyTable.load(path)


# --- tables of some parts ---------------------------------------------------------------------------------------------

WIDE = Compact(COMPACT_SCALES["compact-32"])


def entry(ms: float) -> Entry:
    return Entry(median_ms=ms, low_ms=ms, high_ms=ms)


def test_some_parts_of_every_kind_are_timed_the_smallest_and_the_largest_among_them() -> None:
    known = geometries(WIDE)
    chosen = some_of_each_kind(known, 80)
    assert len(set(chosen)) == len(chosen) < 100 < len(known)
    for kind in {kind_of(key) for key in known}:
        own = sorted((one.cost().macs, key) for key, one in known.items() if kind_of(key) == kind)
        timed = [key for key in chosen if kind_of(key) == kind]
        assert len(timed) >= min(FEWEST_OF_A_KIND, len(own))
        assert {own[0][1], own[-1][1]} <= set(timed)
    assert set(some_of_each_kind(known, 10_000)) == set(known)


def test_what_is_not_timed_follows_where_time_is_what_is_computed_and_moved() -> None:
    """Each kind has coefficients of its own."""
    known = geometries(WIDE)
    rng = np.random.default_rng(0)
    own = {kind: rng.uniform(0.01, 1, 4) for kind in sorted({kind_of(key) for key in known})}

    def ms(key: str) -> float:
        part, cost = known[key], known[key].cost()
        moved = part.in_channels * part.size**2 + part.activation_elements()
        return float(own[kind_of(key)] @ [1, cost.macs / 1e6, cost.params / 1e4, moved / 1e4])

    timed = {key: entry(ms(key)) for key in some_of_each_kind(known, 80)}
    others = inferred(timed, known)
    assert set(others) == set(known) - set(timed)
    assert [one.median_ms for one in others.values()] == pytest.approx([ms(key) for key in others], rel=1e-6)
    assert not inferred({key: entry(1.0) for key in known}, known)


def test_a_table_of_some_parts_has_all_of_them_and_says_how_many_were_inferred(calls: list[str]) -> None:
    table = measure_table(WIDE, most_parts=80)
    assert set(table.entries) == set(parts(WIDE))
    assert table.inferred == len(table.entries) - len(some_of_each_kind(geometries(WIDE), 80))
    assert len(calls) == ROUNDS * (len(table.entries) - table.inferred + 22)
    whole = measure_table(WIDE)
    assert whole.inferred == 0
    networks = [WIDE.sample(np.random.default_rng(seed)) for seed in range(5)]
    assert table.predict(WIDE, networks) == pytest.approx(whole.predict(WIDE, networks), rel=0.02)


def test_no_further_round_begins_when_the_time_is_over(calls: list[str]) -> None:
    table = measure_table(SPACE, seconds=0.0)
    assert calls.count("MbConvNetwork") == FEWEST_ROUNDS * 22
    assert table.predict(SPACE, [SPACE.lightest()]) == pytest.approx(
        measure_table(SPACE).predict(SPACE, [SPACE.lightest()])
    )
