"""``--minutes``: cut once, kept, and never looked at again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import archwright as aw
from archwright.device import Device
from archwright.errors import InputError, Interrupted
from archwright.runs.run import Run
from archwright.search import method
from archwright.search.configuration import Configuration
from archwright.search.context import Context
from archwright.search.evaluator import Evaluator
from archwright.search.plan import FEWEST, cut
from archwright.search.registry import methods

TINY: dict[str, Any] = {
    "data": "random:classes=2,size=8,channels=1,count=64",
    "channels": 4,
    "cells": 1,
    "batch_size": 16,
}


def prepared(name: str, tmp_path: Path, **settings: Any) -> Any:
    configuration = Configuration(method=name, **{**TINY, **settings})
    return methods.get(name)(Context(configuration, Run(tmp_path, {}), Device("cpu", 1)))


def seconds_of(configuration: Configuration, an_epoch: float) -> float:
    """Evaluations one after another, then the final training: what an oracle with a known epoch would say."""
    return an_epoch * (configuration.options["evaluations"] * configuration.epochs + configuration.final_epochs)


@pytest.mark.parametrize("budget", [10_000, 1000, 500, 300, 100, 50, 20, 12])
def test_what_is_planned_fits_and_uses_the_time(tmp_path: Path, budget: float) -> None:
    """100 evaluations of 10 epochs and 30 epochs at the end, a second each: 1030 s."""
    asked = {"epochs": 10, "final_epochs": 30, "options": {"evaluations": 100}}
    plan, minutes = cut(prepared("evolution", tmp_path, **asked), 1030.0, budget)
    taken = seconds_of(plan, 1.0)
    assert taken <= max(budget, FEWEST + 1)
    assert 0.6 * taken <= minutes * 60 <= 1.6 * taken, "epochs are whole numbers"
    if budget < 1030:
        bigger = [{**plan.options, "evaluations": plan.options["evaluations"] + 1}, plan.options]
        more = [(bigger[0], plan.epochs, plan.final_epochs), (bigger[1], plan.epochs + 1, plan.final_epochs + 3)]
        extended = [
            Configuration(**{**plan.model_dump(), "options": options, "epochs": epochs, "final_epochs": final})
            for options, epochs, final in more
        ]
        assert any(seconds_of(one, 1.0) > budget for one in extended)
    else:
        assert (plan.options["evaluations"], plan.epochs) == (100, 10)


def test_epochs_of_a_method_are_cut_too(tmp_path: Path) -> None:
    darts = prepared("darts", tmp_path, epochs=20, options={"search_epochs": 50})
    plan, _ = cut(darts, 1000.0, 100.0)
    assert (plan.options["search_epochs"], plan.epochs, plan.final_epochs) == (5, 2, 6)
    plan, _ = cut(darts, 1000.0, 1e-9)
    assert (plan.options["search_epochs"], plan.epochs, plan.final_epochs) == (1, 1, 1)


def test_a_stopped_run_under_minutes_answers_as_an_uninterrupted_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(method, "evaluation_seconds", lambda context: 60.0)
    settings = {**TINY, "minutes": 5.0, "evaluations": 40, "epochs": 4, "seed": 1}
    whole = aw.search("random", run=tmp_path / "whole", **settings)
    kept = json.loads((tmp_path / "whole" / "run.json").read_text())["configuration"]
    assert (kept["options"]["evaluations"], kept["epochs"], kept["final_epochs"]) == (8, 1, 5)
    assert (tmp_path / "whole" / "artifacts" / "best.safetensors").exists()

    def stop(event: dict[str, Any]) -> None:
        if event["kind"] == "evaluated":
            raise Interrupted("enough")

    with pytest.raises(Interrupted):
        aw.search("random", run=tmp_path / "part", callbacks=[stop], **settings)
    monkeypatch.setattr(method, "evaluation_seconds", lambda context: 1.0)  # a quicker moment: the plan stays
    again = aw.resume(tmp_path / "part")
    assert again.best == whole.best
    assert again.evaluations == 8


@pytest.mark.parametrize("name", ["random", "hnas", "darts", "conas", "nesbs"])
def test_an_estimate_needs_no_evaluator(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would open a log in a folder that is not there yet."""
    monkeypatch.setattr(Evaluator, "__init__", None)
    small = {"pool": 12, "replicates": 1, "proxy_size": 8, "proxy_batch": 16} if name == "hnas" else {}
    assert prepared(name, tmp_path / "run", options=small).estimate_seconds() > 0
    assert not (tmp_path / "run").exists()


def test_hnas_ends_with_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(method, "evaluation_seconds", lambda context: 600.0)
    small = {"pool": 12, "replicates": 1, "probes": 2, "proxy_size": 8, "proxy_batch": 16}
    result = aw.search("hnas", run=tmp_path / "run", minutes=0.001, **TINY, **small)
    assert result.evaluations == FEWEST
    assert result.best.load().architecture


@pytest.mark.parametrize("minutes", [0, -1, float("nan"), float("inf"), "soon"])
def test_odd_minutes_are_refused(minutes: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="minutes"):
        aw.search("random", run=tmp_path / "run", minutes=minutes, **TINY)
    assert not (tmp_path / "run").exists()
