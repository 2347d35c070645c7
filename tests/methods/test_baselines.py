from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from archwright.device import Device
from archwright.errors import InfeasibleError, InputError
from archwright.methods.baselines import Evolution, RandomSearch
from archwright.runs.run import Run
from archwright.search.configuration import Configuration
from archwright.search.context import Context
from archwright.search.evaluator import Evaluated
from archwright.search.proposals import ProposalSearch
from archwright.spaces.nasbench201 import NASBENCH201, Cell201
from archwright.tables.nasbench201 import CompactTable


def method(kind: type[ProposalSearch], table: CompactTable, seed: int = 0, **settings: Any) -> ProposalSearch:
    """A method on a context whose run is never written, ready to propose."""
    own = {name: settings.pop(name) for name in list(settings) if name in kind.Options.model_fields}
    configuration = Configuration(method=kind.name, benchmark="nb201", seed=seed, options=own, **settings)
    context = Context(configuration, Run(Path("never-written"), {}), Device("cpu", 1))
    context.task.__dict__["table"] = table  # already loaded
    made = kind(context)
    made.check()
    return made


def simulate(search: ProposalSearch, validation: np.ndarray, evaluations: int) -> list[Evaluated]:
    """The search as the engine runs it, without files."""
    history: list[Evaluated] = []
    for number in range(evaluations):
        architecture = search.propose(history, number)
        assert isinstance(architecture, Cell201)
        history.append(Evaluated(architecture, float(validation[architecture.index])))
    return history


def study(kind: type[ProposalSearch], table: CompactTable, seeds: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard error, over seeds, of the 200-epoch test accuracy found with 20, 100 and 200 evaluations."""
    validation = table.accuracies("cifar10", 12, "validation")
    test = table.accuracies("cifar10", 200, "test")
    found = np.empty((seeds, 3))
    for seed in range(seeds):
        history = simulate(method(kind, table, seed, evaluations=200), validation, 200)
        for column, evaluations in enumerate((20, 100, 200)):
            best = max(history[:evaluations], key=lambda one: one.accuracy).architecture
            assert isinstance(best, Cell201)
            found[seed, column] = test[best.index]
    return found.mean(axis=0), found.std(axis=0, ddof=1) / np.sqrt(seeds)


def test_random_finds_what_is_known_and_evolution_finds_more(nb201: CompactTable) -> None:
    """Known: random search reaches about 93.0, 93.7 and 93.9 % with 20, 100 and 200 evaluations."""
    random, random_error = study(RandomSearch, nb201, 200)
    evolution, evolution_error = study(Evolution, nb201, 200)
    report = "\n".join(
        f"{n:>4} evaluations: random {a:.3f} +- {b:.3f}, evolution {c:.3f} +- {d:.3f}"
        for n, a, b, c, d in zip((20, 100, 200), random, random_error, evolution, evolution_error, strict=True)
    )
    assert np.abs(random - [93.0, 93.7, 93.9]).max() < 0.15, report
    error = np.hypot(random_error, evolution_error)
    assert ((evolution - random)[1:] > 3 * error[1:]).all(), report
    assert (evolution <= 94.373 + 1e-3).all(), report


def test_random_proposals_are_distinct_connected_and_a_function_of_the_number(nb201: CompactTable) -> None:
    search = method(RandomSearch, nb201, seed=5)
    proposed = [search.propose([], number) for number in range(300)]
    assert len(set(proposed)) == 300
    assert all(NASBENCH201.is_connected(one) for one in proposed if isinstance(one, Cell201))
    assert method(RandomSearch, nb201, seed=5).propose([], 299) == proposed[299]
    assert method(RandomSearch, nb201, seed=6).propose([], 299) != proposed[299]


def test_evolution_mutates_the_fittest_of_the_youngest(nb201: CompactTable) -> None:
    """With all of the population in the tournament the parent is known: the best of the last ten."""
    search = method(Evolution, nb201, seed=2, population=10, sample=10)
    validation = nb201.accuracies("cifar10", 12, "validation")
    history = simulate(search, validation, 60)
    for number in range(10, 60):
        child, alive = history[number].architecture, history[number - 10 : number]
        parent = max(alive, key=lambda one: one.accuracy).architecture
        assert isinstance(child, Cell201)
        assert isinstance(parent, Cell201)
        assert child in NASBENCH201.neighbours(parent)
    again = method(Evolution, nb201, seed=2, population=10, sample=10)
    assert again.propose(history[:40], 40) == history[40].architecture  # needs nothing but the past and the number


@pytest.mark.parametrize("kind", [RandomSearch, Evolution])
def test_proposals_meet_the_limits(nb201: CompactTable, kind: type[ProposalSearch]) -> None:
    limits = {"params": 400_000.0, "latency_ms": 8.0}
    search = method(kind, nb201, limits=limits, device="pixel3")
    scale = NASBENCH201.scales["paper"]
    assert search.context.task.target_device == "pixel3"
    history = simulate(search, nb201.accuracies("cifar10", 12, "validation"), 60)
    for architecture in (trial.architecture for trial in history):
        assert isinstance(architecture, Cell201)
        assert NASBENCH201.cost(architecture, scale).params <= limits["params"]
        assert nb201.latency_ms(architecture, "pixel3") <= limits["latency_ms"]


@pytest.mark.parametrize("kind", [RandomSearch, Evolution])
def test_more_evaluations_than_architectures_within_the_limits_is_no_error(
    nb201: CompactTable, kind: type[ProposalSearch], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three cells meet the limit and none is a neighbour of another: all are found, and the search goes on."""
    allowed = {Cell201((a, a, a, a, a, a)) for a in (1, 2, 3)}
    search = method(kind, nb201)
    monkeypatch.setattr(search.context.task, "feasible", lambda architecture: architecture in allowed)
    monkeypatch.setattr(type(NASBENCH201), "sample", lambda self, rng: Cell201((int(rng.integers(5)),) * 6))  # quick
    history = simulate(search, nb201.accuracies("cifar10", 12, "validation"), 25)
    assert {one.architecture for one in history} == allowed


@pytest.mark.parametrize("kind", [RandomSearch, Evolution])
def test_a_limit_that_one_cell_in_thousands_meets_is_met(nb201: CompactTable, kind: type[ProposalSearch]) -> None:
    """The least latency of the table: 10,000 random draws would miss it every other time."""
    connected = np.array([NASBENCH201.is_connected(cell) for cell in NASBENCH201.enumerated()])
    least = float(nb201.latencies_ms("pixel3")[connected].min())
    search = method(kind, nb201, limits={"latency_ms": least}, device="pixel3", seed=3)
    assert nb201.latency_ms(search.propose([], 0), "pixel3") == least


def test_limits_that_nothing_meets_print_the_reachable_range(nb201: CompactTable) -> None:
    with pytest.raises(InfeasibleError, match=r"params <= 10\..*params from 73306 to 1\.\d+e\+06"):
        method(RandomSearch, nb201, limits={"params": 10.0})
    with pytest.raises(InputError, match="latency_ms"):
        method(RandomSearch, nb201, limits={"latency": 10.0})
    with pytest.raises(InputError, match="a device with known latencies"):
        method(RandomSearch, nb201, limits={"latency_ms": 10.0})


def test_options_that_contradict_each_other_are_refused(nb201: CompactTable) -> None:
    with pytest.raises(InputError, match=r"--sample \(30\) cannot be larger than --population \(20\)"):
        method(Evolution, nb201, sample=30)
