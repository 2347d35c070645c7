"""Several objectives: a known front is found, dicts are read, and what cannot be is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from archwright.cli.main import main
from archwright.errors import InputError
from archwright.report.page import run_page
from archwright.runs.run import Run
from archwright.search.engine import search
from archwright.search.study import Study
from archwright.spaces.choice_space import ChoiceSpace
from archwright.spaces.ranges import Real

SPACE = ChoiceSpace({"x": Real(0.0, 1.0), "y": Real(0.0, 1.0), "z": Real(0.0, 1.0)})


def zdt1(one) -> dict[str, float]:
    """ZDT1 of three variables (Zitzler et al., 2000): on the front y = z = 0 and f2 = 1 - sqrt(f1)."""
    g = 1 + 9 * (one["y"] + one["z"]) / 2
    return {"f1": one["x"], "f2": g * (1 - np.sqrt(one["x"] / g))}


def distance(front) -> float:
    """Mean distance of a front from the true one, along the second objective."""
    return float(np.mean([one.objectives["f2"] - (1 - np.sqrt(one.objectives["f1"])) for one in front]))


def test_the_known_front_is_found_better_than_by_chance(tmp_path: Path) -> None:
    asked = {"space": SPACE, "evaluate": zdt1, "objectives": ("-f1", "-f2"), "evaluations": 300}
    found = search("nsga2", run=tmp_path / "nsga2", **asked)
    drawn = search("random", run=tmp_path / "random", **asked)
    assert distance(found.front) < 0.5 * distance(drawn.front)
    assert distance(found.front) < 0.6
    assert len(found.front) >= 10
    firsts = [one.objectives["f1"] for one in found.front]
    assert firsts == sorted(firsts)  # the best in the first objective first
    assert found.best.accuracy == -min(firsts)
    page = run_page(Run.open(tmp_path / "nsga2"))
    assert "Objectives" in page
    assert "that no other one beats in all objectives" in page


def test_accuracy_against_cost_of_trained_networks(tmp_path: Path) -> None:
    small = {"evaluations": 3, "population": 2, "epochs": 1, "final_epochs": 1, "channels": 2, "cells": 1}
    found = search("nsga2", data="digits", run=tmp_path / "run", beside=False, **small)
    assert set(found.front[0].objectives) == {"accuracy", "macs"}
    assert found.front[0].objectives["macs"] == found.front[0].macs
    assert found.best.model is not None


def test_what_the_function_returns_is_read_strictly(tmp_path: Path) -> None:
    asked = {"space": SPACE, "evaluations": 2}
    with pytest.raises(InputError, match="--objectives"):
        search("random", evaluate=zdt1, run=tmp_path / "a", **asked)
    with pytest.raises(InputError, match="a dict with f1, f3"):
        search("random", evaluate=zdt1, objectives=("-f1", "f3"), run=tmp_path / "b", **asked)
    with pytest.raises(InputError, match="a dict with f1, f2"):
        search("random", evaluate=lambda one: 1.0, objectives=("f1", "f2"), run=tmp_path / "c", **asked)
    with pytest.raises(InputError, match="two or more different names"):
        search("random", evaluate=zdt1, objectives="f1,-f1", run=tmp_path / "d", **asked)
    with pytest.raises(InputError, match="--objectives beside --evaluate"):
        search("nsga2", evaluate=zdt1, run=tmp_path / "e", **asked)
    with pytest.raises(InputError, match="objectives among accuracy"):
        search("random", data="digits", objectives=("accuracy", "-seconds"), run=tmp_path / "f")
    with pytest.raises(InputError, match="one score"):
        Study("nsga2", SPACE)
    assert not any((tmp_path / name).exists() for name in "def")


def test_a_number_that_is_none_is_a_failure_and_the_search_goes_on(tmp_path: Path) -> None:
    def fragile(one) -> dict[str, float]:
        return {"f1": one["x"], "f2": float("nan") if one["x"] < 0.5 else one["y"]}

    found = search(
        "nsga2", space=SPACE, evaluate=fragile, objectives="f1,f2", evaluations=12, failures=12, run=tmp_path / "run"
    )
    assert 0 < found.failures < 12
    assert all(one.objectives["f1"] >= 0.5 for one in found.front)


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text("def score(one):\n    return {'good': one['a'], 'cost': one['a'] ** 2 + one['b']}\n")
    space = 'choices:{"a": [1, 2, 3], "b": [0, 5]}'
    words = ["search", "nsga2", "--space", space, "--evaluate", "own.py:score", "--objectives", "good,-cost"]
    with pytest.raises(SystemExit) as done:
        main([*words, "--evaluations", "20", "--population", "4"])
    assert done.value.code == 0
    assert "3 that no other beats" in capsys.readouterr().out
