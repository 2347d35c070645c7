"""NESBS: what it draws, how it scores, what it refuses, and the ensemble it ends with."""

from __future__ import annotations

import itertools
import json
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from archwright.costs.clock import MARGIN
from archwright.ensembles import Ensemble
from archwright.errors import InfeasibleError, InputError
from archwright.methods import nesbs_ensembles as ensembles
from archwright.methods.nesbs import Nesbs, worth
from archwright.methods.nesbs_ensembles import distinct, greedy, mean_loss
from archwright.models import load_classifier, load_model
from archwright.report.page import run_page
from archwright.runs.progress import Progress
from archwright.runs.run import Run
from archwright.runs.stop import Stop
from archwright.search.answer import Answer, Candidate
from archwright.search.engine import reopened, search
from archwright.spaces.nasbench201 import NASBENCH201

SMALL = {"data": "digits", "channels": 4, "cells": 1, "epochs": 1, "final_epochs": 1, "seed": 1}
QUICK = {"size": 2, "svgd_steps": 50, "supernet_epochs": 2, "posterior_epochs": 1, "supernet_batch": 128}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Answer:
    return search("nesbs", run=tmp_path_factory.mktemp("nesbs") / "run", sampler="mc", candidates=3, **SMALL, **QUICK)


def again(found: Answer, limits: dict[str, float] | None = None, **options: Any) -> Nesbs:
    """The method on the same supernet and posterior with other options."""
    run = Run.open(found.folder)
    changed = {**run.configuration["options"], "sampler": "svgd-rd", **options}
    method = reopened(run, Stop(), Progress(), options=changed, limits=limits or {})
    assert isinstance(method, Nesbs)
    return method


def test_the_answer_is_an_ensemble_of_different_trained_members(found: Answer) -> None:
    texts = [one.architecture for one in found.members]
    assert json.loads(found.best.architecture) == texts
    assert len({str(NASBENCH201.canonical(NASBENCH201.parse(text))) for text in texts}) == 2
    ensemble = found.best.load()
    assert isinstance(ensemble, Ensemble)
    assert [str(one.architecture) for one in ensemble.members] == texts
    assert isinstance(load_model(found.folder), Ensemble)
    assert found.best.params == sum(one.params or 0 for one in found.members)
    assert found.ensemble is not None
    assert found.ensemble.error == pytest.approx(100 - (found.best.accuracy or 0))
    assert found.ensemble.member_errors == pytest.approx([100 - (one.accuracy or 0) for one in found.members])
    report = json.loads((found.folder / "artifacts" / "best-report.json").read_text())
    assert report["latency_ms"] > 0
    assert len(report["member_latency_ms"]) == 2
    weights = [next(iter(one.network.parameters())) for one in ensemble.members]
    assert not torch.equal(weights[0], weights[1])


def test_the_page_shows_the_members_alone_and_together(found: Answer) -> None:
    text = run_page(Run.open(found.folder))
    assert "all together" in text
    for number, one in enumerate(found.members, 1):
        assert f"member {number}" in text
        assert f"{one.accuracy:.2f}\N{NO-BREAK SPACE}%" in text
        assert escape(one.architecture) in text
    assert text.count('class="drawing"') == 2


def test_an_ensemble_that_is_not_worth_its_price_is_called_so(found: Answer) -> None:
    members = [
        Candidate(architecture=n, validation_accuracy=a, macs=10, model=n) for n, a in (("a", 70.0), ("b", 75.0))
    ]
    better = Candidate(architecture="ab", validation_accuracy=76.5, macs=20)
    assert worth(better, members).startswith("On validation the ensemble is 1.50 points better than its best member, n")
    worse = worth(better.model_copy(update={"validation_accuracy": 74.0}), members)
    assert "not better than member 2 alone on validation (-1.00 points), which has 1/2.0" in worse
    assert found.insights == [worth(found.best, found.members)]


def test_the_chosen_ensemble_has_the_least_loss_of_those_scored(found: Answer) -> None:
    scored = found.scored_ensembles
    assert len(scored) == 3
    assert found.chosen_ensemble == min(scored, key=lambda one: one.loss)
    assert found.evaluations == len({text for one in scored for text in one.architectures})


def test_scores_are_those_of_the_averaged_predictions_and_a_member_is_evaluated_once(
    found: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    method, calls = again(found), []
    real = ensembles.predict
    monkeypatch.setattr(ensembles, "predict", lambda *given: calls.append(1) or real(*given))
    inherited, rng = method.inherited(), np.random.default_rng(0)
    cells = [NASBENCH201.sample(rng) for _ in range(3)]
    scores = [inherited.score(pair) for pair in itertools.combinations(cells, 2)]
    assert len(calls) == 3
    mean = (inherited.of(cells[0]) + inherited.of(cells[1])) / 2
    assert mean.sum(axis=1) == pytest.approx(1)
    picked = mean[np.arange(len(mean)), inherited.labels]
    assert scores[0].loss == pytest.approx(-np.log(picked).mean())
    assert scores[0].error == pytest.approx(100 * (mean.argmax(1) != inherited.labels).mean())


def test_the_supernet_learns(found: Answer) -> None:
    """Shared weights after two epochs are better than initial ones."""
    method = again(found)
    inherited, cell = method.inherited(), NASBENCH201.parse(found.members[0].architecture)
    fresh = ensembles.Inherited(method.fresh_supernet(), inherited.batches)
    assert inherited.score([cell]).loss < fresh.score([cell]).loss


def test_the_posterior_is_fitted_for_at_least_500_steps(found: Answer) -> None:
    """324 images of the digits in batches of 128 are 2 steps an epoch; in batches of 4, 81."""
    assert again(found, posterior_epochs=None)._posterior_epochs() == 250
    assert again(found, posterior_epochs=None, supernet_batch=4)._posterior_epochs() == 20
    assert again(found, posterior_epochs=3)._posterior_epochs() == 3


@pytest.mark.parametrize("sampler", ["svgd-rd", "uniform", "nes-rs"])
def test_every_sampler_gives_different_members(found: Answer, sampler: str) -> None:
    method = again(found, sampler=sampler, size=3, candidates=1, pool=4)
    drawn = method.draw()
    assert len(distinct(NASBENCH201, map(NASBENCH201.parse, drawn.chosen.architectures), 9)) == 3
    assert len(drawn.scored) == (len(ensembles.DELTAS) if sampler == "svgd-rd" else 1)
    assert drawn.chosen.delta in (ensembles.DELTAS if sampler == "svgd-rd" else (None,))


def test_a_deep_ensemble_is_the_pool_s_best_several_times(found: Answer) -> None:
    drawn = again(found, sampler="deep", pool=4).draw()
    assert drawn.evaluations == len(drawn.scored) == 4
    assert len(set(drawn.chosen.architectures)) == 1
    assert drawn.chosen.loss == min(one.loss for one in drawn.scored)
    assert drawn.chosen.ppd == 0


def test_greedy_selection_by_hand() -> None:
    """Labels 0, 0; members p(0): a (.6, .6), b (.9, .2), c (.2, .9), d (.5, .5)."""
    table = {"a": (0.6, 0.6), "b": (0.9, 0.2), "c": (0.2, 0.9), "d": (0.5, 0.5)}
    labels = np.zeros(2, dtype=np.int64)

    def loss(members: list[str]) -> float:
        return mean_loss([np.array([[p, 1 - p] for p in table[one]]) for one in members], labels)

    assert loss(["a", "d"]) == pytest.approx(-np.log(0.55))
    assert greedy(list(table), 1, loss) == ["a"]  # type: ignore[arg-type, comparison-overlap]
    assert greedy(list(table), 2, loss) == ["a", "d"]  # type: ignore[arg-type, comparison-overlap]
    assert greedy(list(table), 5, loss) is None  # type: ignore[arg-type]
    assert greedy(list(table), 2, lambda _: float("inf")) is None  # type: ignore[arg-type]


def test_limits_are_on_the_sum_of_the_members(found: Answer) -> None:
    limit = 14_000.0
    for sampler in ("svgd-rd", "uniform", "nes-rs", "deep"):
        method = again(found, {"params": limit}, sampler=sampler, candidates=1, pool=12)
        for one in method.draw().scored:
            cells = [NASBENCH201.parse(text) for text in one.architectures]
            assert sum(NASBENCH201.cost(cell, method.context.task.scale).params for cell in cells) <= limit
    least = min(NASBENCH201.cost(NASBENCH201.parse(text), method.context.task.scale).params for text in (
        "|skip_connect~0|+|none~0|skip_connect~1|+|none~0|none~1|skip_connect~2|",
    ))  # fmt: skip
    with pytest.raises(InfeasibleError, match="limits are on their sum"):
        again(found, {"params": 2.0 * least - 1}).check()
    for sampler in ("uniform", "nes-rs"):
        with pytest.raises(InfeasibleError, match="in the sum of its members"):
            again(found, {"params": 1.0}, sampler=sampler, candidates=1, pool=3).draw()


def test_a_latency_limit_is_on_the_ensemble_as_one_network(found: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    class Watch:  # a convolution takes a ms, and joining members half a one
        def __init__(self, method: Nesbs, members: tuple[Any, ...]) -> None:
            alone = sum(str(one).count("conv") for one in members)
            self.timing, self.ms = method.timing, max(alone, 1.0) + 0.5 * (len(members) - 1)

        def times_ms(self, repeats: int) -> Any:
            return np.full(repeats, self.ms)

    monkeypatch.setattr(Nesbs, "_watch", lambda method, members: Watch(method, members))
    drawn = again(found, {"latency_ms": 6.0}, sampler="uniform", candidates=8).draw()
    sums = {tuple(one.architectures): sum(text.count("conv") for text in one.architectures) for one in drawn.scored}
    assert max(sums.values()) <= 6
    assert drawn.chosen.latency_ms is not None
    assert drawn.chosen.latency_ms <= MARGIN * 6.0
    kept = [one for one in drawn.scored if sums[tuple(one.architectures)] + 0.5 <= MARGIN * 6.0]
    assert drawn.chosen.architectures == min(kept, key=lambda one: one.loss).architectures
    again(found, {"latency_ms": 6.0}).check()
    with pytest.raises(InfeasibleError, match="random members alone takes"):
        again(found, {"latency_ms": 1.0}).check()
    (found.folder / "items" / "latency.jsonl").unlink()


def test_members_are_really_timed_and_only_once(found: Answer) -> None:
    def drawn() -> Any:
        return again(found, {"latency_ms": 1e6}, sampler="uniform", candidates=1).draw()

    first, log = drawn(), found.folder / "items" / "latency.jsonl"
    before = log.read_text()
    assert first.chosen.latency_ms > 0
    assert drawn() == first
    assert log.read_text() == before
    log.unlink()


def test_optuna_looks_for_delta_and_asks_the_same_when_resumed(found: Answer) -> None:
    def drawn() -> Any:
        return again(found, delta_search="optuna", candidates=1, svgd_steps=20).draw()

    first = drawn()
    deltas = [one.delta for one in first.scored]
    assert len(set(deltas)) == len(deltas) == len(ensembles.DELTAS)
    assert all(-0.75 <= delta <= 1 for delta in deltas)
    assert drawn() == first


def test_particles_on_one_architecture_are_an_error_that_offers_delta(found: Answer) -> None:
    with pytest.raises(InputError, match=r"different architectures.*all fall on fewer.*Raise --delta"):
        again(found, temperature=1e-4, delta=-1.0, candidates=1).draw()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"size": 1}, "size"),
        ({"sampler": "nes-rs", "size": 4, "pool": 3}, "a pool at least as large"),
        ({"limits": {"memory_bytes": 3.0}}, "a limit of the method nesbs .latency_ms, macs, params"),
        ({"benchmark": "nb201"}, "--benchmark with the method 'nesbs'"),
        ({"space": "mbconv"}, "a space with a supernet"),
        ({"partial_channels": 3}, "divisible by 3"),
        ({"supernet": "nowhere"}, "a run with a trained supernet"),
        ({"delta": float("nan")}, "delta"),
        ({"delta": 0.5, "delta_search": "optuna"}, "both"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(
    settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        search("nesbs", run=tmp_path / "run", **{**SMALL, **QUICK, **settings})
    assert not (tmp_path / "run").exists()


def test_more_members_than_architectures_are_refused(found: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(NASBENCH201), "size", 3)
    with pytest.raises(InputError, match="at most 3 members, all different, got --size 4"):
        again(found, size=4).check()


def test_best_response_fits_the_posterior_with_the_supernet(tmp_path: Path) -> None:
    settings = {**SMALL, **QUICK, "posterior": "best-response", "sampler": "mc", "partial_channels": 2}
    found = search("nesbs", run=tmp_path / "run", **{**settings, "supernet_epochs": 1})
    kept = json.loads((tmp_path / "run" / "stages" / "supernet.json").read_text())
    logits = np.array(kept.get("value", kept)["logits"]["cell"])
    assert logits.shape == (6, 4)
    assert np.abs(logits).max() > 0
    assert not (tmp_path / "run" / "stages" / "posterior.json").exists()
    assert len(found.members) == 2


def test_a_trained_supernet_serves_another_search_whose_answer_is_one_onnx_graph(found: Answer, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    own = {"sampler": "uniform", "supernet": found.run, "candidates": 1, "mean": "logits", "onnx": True}
    other = search("nesbs", run=tmp_path / "run", **SMALL, **QUICK, **own)
    ours, theirs = (Path(one.run) / "artifacts" / "supernet.safetensors" for one in (other, found))
    assert ours.read_bytes() == theirs.read_bytes()
    ensemble = other.best.load()
    assert isinstance(ensemble, Ensemble)
    assert ensemble.mean == "logits"
    assert other.best.onnx == "artifacts/best.onnx"
    assert all(one.onnx is None for one in other.members)
    images = torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    graph = load_classifier(other.folder / other.best.onnx)
    assert torch.allclose(graph.probabilities(images), ensemble.probabilities(images), atol=1e-5)


def test_it_searches_the_darts_space(tmp_path: Path) -> None:
    data = "random:classes=3,size=8,channels=1,count=120"
    settings = {
        **SMALL,
        **QUICK,
        "space": "darts",
        "data": data,
        "cells": 3,
        "supernet_epochs": 1,
        "supernet_batch": 40,
    }
    found = search("nesbs", run=tmp_path / "run", **{**settings, "batch_size": 40, "delta": 1.0, "candidates": 1})
    assert len(found.members) == 2


def test_what_draws_ensembles_does_not_know_the_method() -> None:
    assert not hasattr(ensembles, "Nesbs")
    assert "methods.nesbs import" not in Path(ensembles.__file__).read_text()
