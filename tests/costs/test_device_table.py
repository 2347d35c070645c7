"""One table over one or several image sizes: which sizes are looked at, which limits are taken, what is timed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from archwright.costs.clock import MARGIN
from archwright.costs.device_table import DeviceTable, TableResult, searched, with_room
from archwright.costs.measure import Timing
from archwright.costs.tables import Correction, LatencyTable
from archwright.errors import InfeasibleError, InputError
from archwright.runs.run import Run
from archwright.runs.stop import Stop
from archwright.solvers import milp
from archwright.spaces.staged import StagedSpace
from helpers.binas_plans import space_of, table_of
from helpers.tiny_start import TINY, SizedWatch
from helpers.told import Told

SMALL = space_of()
COUNTED = table_of(SMALL)
SIZES = {size: TINY.space(2, size) for size in (16, 24)}


@dataclass
class Here:
    """Where a table works."""

    run: Run
    progress: Told = field(default_factory=Told)
    stop: Stop = field(default_factory=Stop)


@pytest.fixture(autouse=True)
def steady() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for place in ("tables", "clock"):
            patch.setattr(f"archwright.costs.{place}.Stopwatch", SizedWatch)
        yield


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(Run.create(tmp_path / "run", {"method": "none"}, {}))


def table(here: Here, spaces: Mapping[int, StagedSpace[Any]], *limits: float, **settings: Any) -> DeviceTable:
    given = [{"latency_ms": limit} for limit in limits]
    return DeviceTable(here, spaces, given, Timing(repeats=2), seed=0, **settings)


def made(one: DeviceTable, *chosen: float) -> TableResult:
    """The stage, kept in the run."""
    found = one.make(lambda: list(chosen))
    one.run.finish_stage("table", found.model_dump(mode="json"))
    return found


def ms(space: StagedSpace[Any], architecture: Any) -> float:
    """What the steady watch shows."""
    return float(SizedWatch(space.build(architecture, space.scale), (3, space.scale.image_size, 0), Timing()).ms)


# --- sizes and limits -------------------------------------------------------------------------------------------------


def test_limits_of_our_own_choice_leave_room_for_what_was_timed() -> None:
    assert with_room([1.0, 2.0], None) == [1.0, 2.0]
    assert with_room([1.0, 2.0], 0.5) == [1.0, 2.0]
    assert with_room([1.0, 2.0, 3.0], 1.0) == [1.1, 2.05, 3.0]
    assert with_room([1.0, 1.3], 1.0) == [1.1, 1.375], "too near to each other"
    assert with_room([1.0, 2.0, 3.0], 3.0) == [3.3, 3.7125, 4.125], "not three times the tightest"
    assert with_room([1.0], 1.0) == [1.1]
    assert with_room([], 1.0) == []


def test_a_busy_moment_does_not_move_limits_of_our_own_choice(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    space = SIZES[16]
    lightest = ms(space, space.lightest())
    one = table(here, {16: space})
    busy = DeviceTable._references
    monkeypatch.setattr(DeviceTable, "_references", lambda *a: {size: 9 * of for size, of in busy(*a).items()})
    found = made(one, lightest, 10 * lightest)
    assert max(found.chosen_limits_ms) == pytest.approx(10 * lightest, rel=1e-3)
    assert min(found.chosen_limits_ms) <= 1.1**2 * 1.05 * lightest


def test_limits_of_our_own_choice_are_kept_where_the_table_is_wrong(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = Correction(slope=0.4, intercept_ms=0.0, networks=20, validation_networks=0)
    monkeypatch.setattr("archwright.costs.tables.fit_correction", lambda *_: wrong)
    space = SIZES[16]
    lightest = ms(space, space.lightest())
    found = made(table(here, {16: space}), 0.1 * lightest, 0.3 * lightest)
    assert found.least_ms < 0.5 * lightest
    assert min(found.chosen_limits_ms) == pytest.approx(1.1 * lightest, rel=1e-3)


def test_a_timed_network_keeps_a_limit_with_the_margin_only(here: Here) -> None:
    space = SIZES[16]
    one, lightest = table(here, {16: space}), SIZES[16].lightest()
    took = ms(space, lightest)
    made(one, 2 * took)
    assert one.keeps(16, lightest, {"latency_ms": took / (MARGIN - 0.01)})
    assert not one.keeps(16, lightest, {"latency_ms": took / (MARGIN + 0.01)})
    assert one.keeps(16, lightest, {"latency_ms": took / (MARGIN + 0.01)}, margin=False)
    params = float(space.cost(lightest, space.scale).params)
    assert one.keeps(16, lightest, {"params": params})
    assert not one.keeps(16, lightest, {"params": params - 1})
    one.verify = False  # nothing is timed: predictions have no margin
    assert one.keeps(16, lightest, {"latency_ms": one.predicted(16, lightest)["latency_ms"]})


def test_sizes_follow_the_limits() -> None:
    lightest, whole = {48: 0.3, 64: 0.5, 96: 1.0, 128: 1.8}, {48: 0.9, 64: 1.2, 96: 2.1, 128: 3.4}
    assert searched(lightest, whole, loosest_ms=4.0, tightest_ms=2.0) == [64, 96, 128]
    assert searched(lightest, whole, loosest_ms=1.5, tightest_ms=1.5) == [64, 96]
    assert searched(lightest, whole, loosest_ms=0.1, tightest_ms=0.1) == [48]


def test_one_table_serves_all_sizes_that_are_worth_a_look(here: Here) -> None:
    one = table(here, SIZES)
    lightest, whole = one.ends()
    assert lightest == {size: ms(space, space.lightest()) for size, space in SIZES.items()}
    assert whole == {size: ms(space, space.heaviest()) for size, space in SIZES.items()}
    loose = 2 * whole[24]
    found = made(one, 1.01 * lightest[24], loose)
    assert found.sizes == [16, 24]
    assert found.references_ms == lightest
    assert found.chosen_limits_ms == [round(1.01 * lightest[24], 4), round(loose, 4)]  # there is room at 16 px
    assert (found.least_ms, found.most_ms) == (one.problem(16).cost_range("latency_ms")[0], found.most_ms)
    assert found.most_ms == one.problem(24).cost_range("latency_ms")[1]
    for size, space in SIZES.items():
        for architecture in (space.lightest(), space.heaviest()):
            predicted = one.predicted(size, architecture)
            assert predicted["latency_ms"] == one.latency.predict(space, [architecture])[0]
            assert predicted["params"] == space.cost(architecture, space.scale).params
    assert any("at 16 px, 24 px take" in line for line in here.progress.lines)


BETWEEN = {size: TINY.space(2, size) for size in range(32, 97, 8)}


def whole_ms(size: int) -> float:
    return ms(BETWEEN[size], BETWEEN[size].heaviest())


@pytest.mark.parametrize(
    ("limits", "wanted"),
    [
        ([1.1 * whole_ms(56)], [32, 48, 56, 64, 80, 96]),  # 56 px fit, and 48 px leave a gap
        ([1.1 * whole_ms(48)], [32, 48, 64, 80, 96]),  # 48 px use it well
    ],
)
def test_sizes_between_are_interpolated_and_halved_where_a_limit_falls_into_a_gap(
    limits: list[float], wanted: list[int], here: Here
) -> None:
    one = table(here, BETWEEN, *limits)
    one.between = {size for size in BETWEEN if size not in (32, 96)}
    found = made(one)
    assert found.sizes == wanted
    assert found.measured == [32, 96]
    for size in set(wanted) - {32, 96}:
        assert one.predicted(size, BETWEEN[size].heaviest())["latency_ms"] == pytest.approx(whole_ms(size))
    assert any("interpolated" in line for line in here.progress.lines)
    assert set(here.run.items("between").done) == {f"fp32 {size}" for size in wanted if size not in (32, 96)}


def test_sizes_at_which_only_thin_networks_would_do_are_left_out(here: Here) -> None:
    one = table(here, BETWEEN, whole_ms(48))
    one.between, one.least_share = {size for size in BETWEEN if size not in (32, 96)}, 0.9
    assert made(one).sizes == [32, 40, 48]  # 48 px break it by the margin, 40 px do not


def test_what_a_whole_network_takes_corrects_what_was_interpolated(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """At 64 px everything is slower by a half than between 32 and 96: entries of that size follow, others do not."""
    true = SizedWatch.__init__

    def slower(self: SizedWatch, module: Any, shape: tuple[int, int, int], timing: Timing) -> None:
        true(self, module, shape, timing)
        self.ms *= 1.5 if shape[1] == 64 else 1.0

    one, wanted = table(here, {size: BETWEEN[size] for size in (32, 64, 96)}, whole_ms(64)), 1.5 * whole_ms(64)
    one.between = {64}
    monkeypatch.setattr(SizedWatch, "__init__", slower)
    made(one)
    assert one.predicted(64, BETWEEN[64].heaviest())["latency_ms"] == pytest.approx(wanted, rel=0.05)


@pytest.mark.parametrize(("times", "said"), [(0.5, False), (1.2, True)])
def test_a_processor_without_fast_int8_is_said(
    times: float, said: bool, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    true = SizedWatch.__init__

    def slower(self: SizedWatch, module: Any, shape: tuple[int, int, int], timing: Timing) -> None:
        true(self, module, shape, timing)
        self.ms *= times if timing.dtype == "int8" else 1.0

    monkeypatch.setattr(SizedWatch, "__init__", slower)
    one = table(here, SIZES, 2 * ms(SIZES[24], SIZES[24].heaviest()), precisions=("fp32", "int8"))
    one.timing = Timing("onnxruntime", repeats=2)
    made(one)
    assert any("has no fast int8" in line for line in here.progress.lines) is said
    whole = SIZES[24].heaviest()
    shares = one.predicted(24, whole, "int8")["latency_ms"] / one.predicted(24, whole)["latency_ms"]
    assert shares == pytest.approx(times)


def test_sizes_that_no_limit_allows_are_not_measured(here: Here) -> None:
    one = table(here, SIZES, 0.9 * ms(SIZES[24], SIZES[24].lightest()))
    assert made(one).sizes == [16]
    one.latency.check(SIZES[16])
    with pytest.raises(InputError, match="different parts"):
        one.latency.check(SIZES[24])


def test_a_table_for_all_sizes_is_made_where_nothing_limits_latency(here: Here) -> None:
    one = DeviceTable(here, SIZES, [{"params": 1e9}], Timing(repeats=2), seed=0)
    assert made(one).sizes == [16, 24]
    assert one.limit_sets == [{"params": 1e9}]


def test_chosen_limits_are_of_the_finished_table_and_said(here: Here, tmp_path: Path) -> None:
    COUNTED.save(tmp_path / "given.json")
    one = table(here, {8: SMALL}, given=tmp_path / "given.json", verify=False)
    found = one.make(lambda: [one.latency.predict(SMALL, [SMALL.plain(width=2)])[0]])
    here.run.finish_stage("table", found.model_dump(mode="json"))
    assert found.chosen_limits_ms == [COUNTED.predict(SMALL, [SMALL.plain(width=2)])[0]]
    assert one.limit_sets == [{"latency_ms": found.chosen_limits_ms[0]}]
    assert any("No limit was given" in line for line in here.progress.lines)
    assert found.references_ms == {}
    assert not found.busy


def test_a_limit_above_the_slowest_network_is_said(here: Here) -> None:
    made(table(here, {16: SIZES[16]}, 1e4))
    assert any("above the slowest" in line for line in here.progress.lines)


def test_limits_that_nothing_meets_are_refused_as_soon_as_their_costs_are_known(here: Here, tmp_path: Path) -> None:
    least, most = COUNTED.costs(SMALL).problem(SMALL).cost_range("latency_ms")
    table(here, {8: SMALL}, least / 2).check()  # nobody knows yet
    COUNTED.save(tmp_path / "given.json")
    with pytest.raises(InfeasibleError, match=f"Reachable: latency_ms from {least:.6g} to {most:.6g}"):
        table(here, {8: SMALL}, least / 2, given=tmp_path / "given.json").check()
    made(table(here, {8: SMALL}, 1e4, given=tmp_path / "given.json"))
    with pytest.raises(InfeasibleError, match="Reachable"):
        table(here, {8: SMALL}, least / 2).check()
    with pytest.raises(InfeasibleError, match="params"):
        DeviceTable(here, {8: SMALL}, [{"params": 1.0}], Timing(), seed=0).check()


def test_a_table_of_training_steps_is_no_table_of_latencies(here: Here, tmp_path: Path) -> None:
    table_of(SMALL, training=True).save(tmp_path / "steps.json")
    with pytest.raises(InputError, match="one of training steps"):
        table(here, {8: SMALL}, given=tmp_path / "steps.json").check()


def test_a_table_goes_where_the_search_is_when_it_works(tmp_path: Path) -> None:
    """Limits are checked before there is a run folder."""
    COUNTED.save(tmp_path / "given.json")
    here = Here(Run(tmp_path / "nowhere", {}))
    one = table(here, {8: SMALL}, 1e4, given=tmp_path / "given.json", verify=False)
    one.check()
    here.run, here.progress = Run.create(tmp_path / "run", {}, {}), Told()
    made(one)
    assert not (tmp_path / "nowhere").exists()
    assert (tmp_path / "run" / "artifacts" / "latency.json").is_file()
    assert here.progress.lines


# --- what is timed ----------------------------------------------------------------------------------------------------


def test_latencies_are_timed_once_and_kept_by_size(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = ms(SIZES[24], SIZES[24].heaviest())
    one = table(here, SIZES, limit)
    made(one)
    known = {size: one.known(size, space.heaviest()) for size, space in SIZES.items()}
    for size, space in SIZES.items():
        assert known[size] == {**one.predicted(size, space.heaviest()), "latency_ms": ms(space, space.heaviest())}
    monkeypatch.setattr("archwright.costs.clock.Stopwatch", None)
    again = table(here, SIZES, limit)  # of a resumed search
    assert {size: again.known(size, space.heaviest()) for size, space in SIZES.items()} == known


def test_nothing_is_timed_for_another_device_or_where_nobody_asks(here: Here, tmp_path: Path) -> None:
    there = COUNTED.provenance.model_copy(update={"device": "a telephone"})
    LatencyTable(provenance=there, entries=COUNTED.entries).save(tmp_path / "there.json")
    one = table(here, {8: SMALL}, 1e4, given=tmp_path / "there.json")
    assert made(one).references_ms == {}
    assert any("a telephone" in line and "nothing is timed" in line for line in here.progress.lines)
    assert one.clock(8) is one.timed(8, SMALL.heaviest()) is None
    assert one.known(8, SMALL.heaviest()) == one.predicted(8, SMALL.heaviest())
    COUNTED.save(tmp_path / "here.json")
    made(table(here, {8: SMALL}, 1e4, given=tmp_path / "here.json"))
    assert table(here, {8: SMALL}, 1e4).clock(8) is not None
    assert table(here, {8: SMALL}, 1e4, verify=False).clock(8) is None


@pytest.mark.parametrize("verify", [True, False])
def test_what_is_solved_for_keeps_the_limit_as_timed(verify: bool, here: Here, tmp_path: Path) -> None:
    """By a table of half of what networks take here."""
    space = SIZES[16]
    made(table(here, {16: space}, 1e4, verify=True))
    known = table(here, {16: space}, 1e4).latency
    half = {
        key: entry.model_copy(update={"median_ms": entry.median_ms / 2, "low_ms": 0.0})
        for key, entry in known.entries.items()
    }
    known.model_copy(update={"entries": half, "correction": None}).save(here.run.artifact("latency.json"))
    one = table(here, {16: space}, 1e4, verify=verify)
    limit = (ms(space, space.lightest()) + ms(space, space.heaviest())) / 2
    problem = one.costs(16).problem(space, np.ones(space.shape), fixed_value=0.0)
    found = one.fitting(16, lambda within: milp.solve(problem, within), {"latency_ms": limit})
    taken = ms(space, space.from_choice(found.choice))
    assert (taken <= MARGIN * limit) == verify
    if verify:
        assert one.timed(16, space.from_choice(found.choice)).median_ms == taken


# --- tables that are kept for further searches ------------------------------------------------------------------------


def test_a_further_search_takes_the_kept_table_where_it_still_holds(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = table(here, SIZES)
    made(first)
    assert first.kept().is_file()
    again = Here(Run.create(tmp_path / "again", {"method": "none"}, {}))
    with monkeypatch.context() as patch:
        patch.setattr("archwright.costs.device_table.measure_table", lambda *_, **__: pytest.fail("measured again"))
        second = table(again, SIZES)
        made(second)
    assert second.latency == first.latency
    assert any("of an earlier search" in line for line in again.progress.lines)


def test_a_kept_table_that_no_longer_holds_is_measured_anew(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = table(here, SIZES)
    made(first)
    monkeypatch.setattr(SizedWatch, "slower", 2.0)
    slower = Here(Run.create(tmp_path / "slower", {"method": "none"}, {}))
    second = table(slower, SIZES)
    made(second)
    assert any("no longer holds" in line for line in slower.progress.lines)
    (before,), (now,) = (one.latency.predict(SIZES[16], [SIZES[16].heaviest()]) for one in (first, second))
    assert now == pytest.approx(2 * before)


def test_damaged_kept_tables_and_those_of_other_settings_are_not_taken(here: Here, tmp_path: Path) -> None:
    first = table(here, SIZES)
    made(first)
    other = DeviceTable(here, SIZES, [], Timing(repeats=3), seed=0)
    assert other.kept() != first.kept()
    first.kept().write_text("{")
    again = Here(Run.create(tmp_path / "again", {"method": "none"}, {}))
    made(table(again, SIZES))
    assert not any("of an earlier search" in line for line in again.progress.lines)


def test_a_kept_table_of_another_number_of_threads_is_said_and_not_taken(here: Here, tmp_path: Path) -> None:
    made(table(here, SIZES))
    again = Here(Run.create(tmp_path / "again", {"method": "none"}, {}))
    two = DeviceTable(again, SIZES, [], Timing(repeats=2, threads=2), seed=0)
    made(two)
    said = "The latency table of an earlier search is of another number of threads: it is measured anew."
    assert said in again.progress.lines
    assert two.latency.provenance.threads == 2
