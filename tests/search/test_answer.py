"""The typed answer: its JSON, what is done with it, and damaged or foreign files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError

import archwright as aw
from archwright.errors import InputError, RunError
from archwright.search.answer import RESULT, Answer, Candidate, Found

TINY: dict[str, Any] = {"data": "digits", "channels": 4, "cells": 1, "epochs": 1, "final_epochs": 1, "threads": 1}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Answer:
    answer = aw.search("random", run=tmp_path_factory.mktemp("answers") / "run", evaluations=1, **TINY)
    assert isinstance(answer, Answer)
    return answer


def answer(**changes: Any) -> Answer:
    best = Candidate(architecture="a", accuracy=50.0, accuracy_on="x", params=3, macs=4)
    values: dict[str, Any] = {"method": "m", "space": "s", "data": "d", "seed": 0, "best": best, "evaluations": 1}
    return Answer(**{**values, "seconds": 1.0, "run": "nowhere", **changes})


def test_the_json_is_what_scripts_rely_on() -> None:
    front = [Candidate(architecture="b", predicted_accuracy=40.0, latency_ms=1.0)]
    models = [Candidate(architecture="a", accuracy=50.0, validation_accuracy=51.0, limits={"latency_ms": 2.0})]
    written = answer(front=front, models=models, beside={"chance": {"accuracy": 10.0, "accuracy_on": "x"}}).to_json()
    assert written == {
        "format": 2,
        "method": "m",
        "space": "s",
        "data": "d",
        "seed": 0,
        "best": {"architecture": "a", "accuracy": 50.0, "accuracy_on": "x", "params": 3, "macs": 4},
        "front": [{"architecture": "b", "predicted_accuracy": 40.0, "latency_ms": 1.0}],
        "models": [
            {"architecture": "a", "accuracy": 50.0, "validation_accuracy": 51.0, "limits": {"latency_ms": 2.0}},
        ],
        "beside": {"chance": {"accuracy": 10.0, "accuracy_on": "x"}},
        "evaluations": 1,
        "seconds": 1.0,
        "run": "nowhere",
    }
    assert set(answer().to_json()) & set(Found.model_fields) == {"best", "front", "evaluations"}
    assert answer(data=None).to_json()["data"] is None


def test_numbers_that_json_does_not_have_are_refused() -> None:
    with pytest.raises(ValidationError, match="finite"):
        Candidate(architecture="a", accuracy=float("nan"))


def test_an_answer_predicts_and_exports(found: Answer, tmp_path: Path) -> None:
    image = tmp_path / "three.png"
    Image.fromarray(np.full((20, 20), 90, dtype=np.uint8)).save(image)
    (prediction,) = found.best.predict([image])
    assert prediction.label in found.best.load().preprocessing.class_names
    pytest.importorskip("onnxruntime")
    assert found.best.export(tmp_path / "m.onnx") < 1e-4
    assert aw.models.load_classifier(tmp_path / "m.onnx").predict([image])[0].label == prediction.label


def test_an_answer_reads_back_equal_also_where_its_run_was_moved(found: Answer, tmp_path: Path) -> None:
    assert Answer.read(found.folder) == found
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    (moved / "artifacts").mkdir()
    for name in ("result.json", "best.safetensors"):
        (moved / "artifacts" / name).write_bytes((found.folder / "artifacts" / name).read_bytes())
    again = Answer.read(moved)
    assert again.folder == moved
    assert again.best == found.best
    assert str(again.best.load().architecture) == found.best.architecture


def test_a_front_is_records_and_a_data_frame() -> None:
    pd = pytest.importorskip("pandas")
    front = [Candidate(architecture=a, predicted_accuracy=p, latency_ms=m) for a, p, m in (("x", 1, 2), ("y", 3, 4))]
    frame = answer(front=front).front_frame()
    expected = {"architecture": ["x", "y"], "predicted_accuracy": [1.0, 3.0], "latency_ms": [2.0, 4.0]}
    pd.testing.assert_frame_equal(frame, pd.DataFrame(expected))


def test_an_architecture_without_a_model_says_so() -> None:
    with pytest.raises(InputError, match="an architecture that was trained"):
        answer().best.export("never.onnx")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 99}, "expected an answer of format 1 or 2"),
        ({"best": 3}, "damaged or altered"),
        ({"colour": "red"}, "damaged or altered"),
        ({"format": 1, "details": 3}, "damaged or altered"),
        ({"format": 1, "best": None}, "damaged or altered"),
        ({"format": 1, "members": [3], "best": {"architecture": "a", "details": {}}}, "damaged or altered"),
        ({"evaluations": None}, "damaged or altered"),
    ],
)
def test_damaged_answers_are_errors(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    (tmp_path / "artifacts").mkdir()
    (tmp_path / RESULT).write_text(json.dumps({**answer().to_json(), **change}))
    with pytest.raises(RunError, match=message):
        Answer.read(tmp_path)


def test_an_answer_of_the_first_form_is_read_under_the_names_of_now(tmp_path: Path) -> None:
    scored = {"architectures": ["a"], "delta": None, "loss": 0.5, "error": 9.0, "ate": 10.0, "ppd": 3.0}
    terms = [{"bits": ["x"], "coefficient": -0.5}]
    details = {
        "verdict": "Warning.",
        "insights": ["One.", "Two."],
        "latency_on": "here",
        "reachable_ms": [0.5, 2.0],
        "front_points": 9,
        "failures": 1,
        "rounds": [{"terms": terms, "fixed": 2}],
        "scored": [scored],
        "estimated": scored,
        "plan": {"steps": 3},
    }
    alone = {"error": 9.0, "member_errors": [9.5, 10.5], "ate": 10.0, "ppd": 3.0, "ece": 1.0, "images": 5, "params": 7}
    written = answer(members=[Candidate(architecture="a")]).to_json()
    old = {**written, "format": 1, "details": details, "best": {"architecture": "a", "details": alone}}
    (tmp_path / "artifacts").mkdir()
    (tmp_path / RESULT).write_text(json.dumps(old))
    found = Answer.read(tmp_path)
    assert (found.verdict, found.insights, found.latency_on) == ("Warning.", ["One.", "Two."], "here")
    assert (found.reachable_ms, found.front_points, found.failures) == ((0.5, 2.0), 9, 1)
    assert found.loss_rounds[0].terms[0].bits == ["x"]
    assert found.chosen_ensemble == found.scored_ensembles[0]
    assert found.ensemble is not None
    assert found.ensemble.member_errors == [9.5, 10.5]
    assert found.details == {"plan": {"steps": 3}}
    found.save()
    assert Answer.read(tmp_path) == found
    assert found.to_json()["loss_rounds"] == [{"terms": terms, "fixed": 2}]


def test_a_model_outside_the_run_is_refused(tmp_path: Path) -> None:
    best = {"architecture": "a", "model": "../../x.safetensors"}
    with pytest.raises(RunError, match="leads out of it"):
        answer(best=best, run=str(tmp_path)).best.load()


def test_the_package_is_callable_and_holds_its_modules() -> None:
    import archwright.search.engine

    assert callable(aw.search)
    assert aw.search.engine.resume is archwright.search.engine.resume


def test_an_onnx_file_is_written_where_it_is_asked_for(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    found = aw.search("random", run=tmp_path / "run", evaluations=1, onnx=True, **TINY)
    assert found.best.onnx == "artifacts/best.onnx"
    assert (tmp_path / "run" / "artifacts" / "best.onnx").stat().st_size > 0
