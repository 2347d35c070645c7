"""Answers in the terminal: whatever a method knows of its models, and nothing that it does not."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from archwright.cli.main import cli
from archwright.cli.view import show_answer
from archwright.report.columns import COLUMNS
from archwright.runs.run import Run
from archwright.search.answer import Answer, Candidate, Found, Spread
from archwright.search.method import Method, Options, Stage
from archwright.search.registry import methods


class Ladder(Method):
    """A method of somebody else: one network a limit on parameters, whose accuracy nobody measured."""

    name = "ladder"
    several_limits = True
    Options = Options

    def check(self) -> None:
        """Several limits of one resource are welcome."""

    def stages(self) -> list[Stage]:
        return [Stage("answer", "answer", self._answer)]

    def _answer(self) -> Found:
        limits = self.context.configuration.limits["params"]
        space, rng = self.context.task.space, self.context.rng("ladder")
        drawn = [str(space.sample(rng)) for _ in limits]
        models = [Candidate(architecture=a, limits={"params": m}) for a, m in zip(drawn, limits, strict=True)]
        return Found(best=models[-1], models=models, evaluations=len(models))


@pytest.fixture
def ladder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(methods, "entries", dict(methods.entries))
    monkeypatch.setattr(methods, "_added", set(methods._added))
    methods.register("ladder", Ladder)


@pytest.mark.usefixtures("ladder")
def test_a_method_of_somebody_else_answers_limits(tmp_path: Path) -> None:
    asked = ["search", "ladder", "--data", "digits", "--params", "1e6", "--params", "2e6", "--run", str(tmp_path / "r")]
    done = CliRunner().invoke(cli, asked, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "1e+06 parameters" in done.output
    assert "2e+06 parameters" in done.output
    assert "test accuracy" not in done.output
    assert "None" not in done.output
    text = (tmp_path / "r" / "report.html").read_text()
    assert "<h2>For each limit</h2>" in text
    assert "None" not in re.sub("<details>.*?</details>", "", text)
    written = json.loads((tmp_path / "r" / "artifacts" / "result.json").read_text())
    assert set(written) == {"format", "method", "space", "data", "seed", "best", "models", "front"} | {
        "evaluations",
        "seconds",
        "run",
    }


@pytest.fixture
def shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Shows an answer with these fields; gives what the terminal said."""
    folder = Run.create(tmp_path / "run", {"method": "m", "space": "compact", "seed": 0}, {}).folder

    def show(**fields: Any) -> str:
        known = {"method": "m", "space": "compact", "data": "d", "seed": 0, "seconds": 1.0, "evaluations": 1}
        answer = Answer(**known, run=str(folder), **fields)
        answer.save()
        show_answer(answer, as_json=False)
        return capsys.readouterr().out

    return show


def test_columns_without_a_value_are_left_out(shown: Any) -> None:
    bare = Candidate(architecture="a", accuracy=90.0, accuracy_on="d test")
    text = shown(best=bare, models=[bare])
    assert "90.00 % *" in text
    assert "Accuracies on d test." in text
    assert not {"limit", "measured", "predicted", "parameters"} & set(re.findall(r"\w+", text.splitlines()[2]))
    full = bare.model_copy(
        update={
            "limits": {"latency_ms": 2.0, "params": 5.0},
            "accuracy_interval": (85.0, 95.0),
            "measured_latency_ms": Spread(median_ms=1.5, low_ms=1.0, high_ms=1.75),
            "params": 1234,
            "image_size": 96,
            "precision": "int8",
        }
    )
    untimed = bare.model_copy(update={"predicted_latency_ms": 1.25})
    text = shown(best=full, models=[untimed, full])
    assert all(column.head in text for column in COLUMNS)
    for said in ("2 ms, 5 parameters", "90.00 % (85.0 to 95.0) *", "1.25 ms", "1.5 ms", "1.75 ms", "96 px", "1,234"):
        assert said in text


def test_what_is_known_beside_the_models_is_said(shown: Any) -> None:
    one = Candidate(architecture="a", accuracy=90.0, accuracy_on="d test", model="artifacts/a.safetensors")
    text = shown(
        best=one,
        models=[one],
        latency_on="this machine",
        reachable_ms=(0.5, 4.0),
        verdict="Warning: so so.",
        insights=["Wide stages pay."],
        beside={"plain network": {"accuracy": 80.0, "accuracy_on": "d test", "latency_ms": 0.7}},
    )
    for said in (
        "Files: artifacts/a.safetensors",
        "Latency: this machine; networks of this space take 0.5 to 4 ms.",
        "To compare, on the same images: plain network 80.0 % (0.7 ms).",
        "Warning: so so.",
        "- Wide stages pay.",
        "Use the best with: archwright predict",
    ):
        assert said in text


def test_a_reason_of_several_limits_is_said_once(shown: Any) -> None:
    limits, reasons = [0.2, 0.35, 0.5, 1.0], ["Too close to tell.", "Too close to tell.", "Another one.", None]
    models = [
        Candidate(architecture="a", limits={"latency_ms": limit}, reason=reason)
        for limit, reason in zip(limits, reasons, strict=True)
    ]
    text = shown(best=models[0], models=models)
    assert "- 0.2 ms and 0.35 ms: Too close to tell." in text
    assert "- 0.5 ms: Another one." in text
    assert text.count("Too close") == 1


def test_one_architecture_whose_accuracy_nobody_measured(shown: Any) -> None:
    text = shown(best=Candidate(architecture="a"), failures=2)
    assert "not measured" in text
    assert "1, of which 2 failed" in text
