"""What methods say of themselves, and the front: on made-up answers whose charts are known."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from archwright.errors import RunError
from archwright.report.insights import insights
from archwright.report.page import run_page, title_of
from archwright.runs.run import Run
from archwright.search.answer import Answer, Candidate

ASKED: dict[str, Any] = {"method": "m", "space": "compact", "seed": 3, "data": "npz:/far/away/x.npz"}


def answer(run: Run, **fields: Any) -> Answer:
    found = {
        "best": Candidate(architecture="cn_r1_k3_s1_c8", accuracy=90.0),
        "evaluations": 3,
        "seconds": 1.0,
        **fields,
    }
    return Answer(method="m", space="compact", data=None, seed=3, run=str(run.folder), **found)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "run", ASKED, {})


def labels(text: str, kind: str = "point|chosen") -> list[str]:
    return re.findall(rf'<circle class="(?:{kind})"[^>]*aria-label="([^"]*)"', text)


def test_a_polynomial_is_drawn_to_both_sides(run: Run) -> None:
    terms = [{"bits": ["a", "<b>"], "coefficient": -0.4}, {"bits": ["c"], "coefficient": 0.1}]
    text = insights(run, answer(run, loss_rounds=[{"terms": terms}], insights=list("pqrst")))
    assert re.findall(r"margin-left:([\d.]+)%;width:([\d.]+)%", text) == [("0.0", "50.0"), ("50.0", "12.5")]
    assert "a and &lt;b&gt;" in text
    assert text.count("<li>") == 3


def test_the_history_of_the_weighing(run: Run) -> None:
    tried = [[-1.0, 0.5, 80.0], [0.0, 0.25, None], [1.0, 0.75, 85.0]]
    run.finish_stage("search", {"mu": 10.0, "nu": 0.3, "tried": tried})
    text = insights(run, answer(run))
    assert "tried 3 weightings" in text
    assert labels(text, "chosen") == ["evaluation 3: 85.00 % with a relative mu of 10, nu at quantile 0.75"]
    assert len(labels(text, "point")) == 1


def test_the_trade_off_of_ensembles(run: Run) -> None:
    def scored(delta: float, error: float, ate: float, ppd: float) -> dict[str, Any]:
        return {"architectures": [], "delta": delta, "loss": 1.0, "error": error, "ate": ate, "ppd": ppd}

    both = [scored(0.0, 12.0, 14.0, 3.0), scored(1.0, 10.0, 15.0, 9.0)]
    text = insights(run, answer(run, scored_ensembles=both, chosen_ensemble=both[1]))
    assert "delta = 1 won" in text
    assert labels(text, "chosen") == ["delta 1: the ensemble errs on 10.0 %, its members on 15.0 %, disagree on 9.0 %"]


def test_nothing_to_say(run: Run) -> None:
    assert insights(run, answer(run)) == ""


def finished(run: Run, **fields: Any) -> str:
    answer(run, **fields).save()
    return run_page(run)


def test_a_front_of_tried_networks_is_at_their_validation_accuracy(run: Run) -> None:
    def tried(latency_ms: float, validated: float, **more: Any) -> Candidate:
        known = {"architecture": "cn_r1_k3_s1_c8", **more}
        return Candidate(latency_ms=latency_ms, validation_accuracy=validated, **known)

    chosen = tried(1.0, 95.0, architecture="cn_r1_k3_s1_c16", accuracy=93.0, limits={"latency_ms": 2.0})
    text = finished(run, front=[tried(2.0, 90.0), tried(3.0, 94.0)], models=[chosen])
    assert [label.partition(":")[0] for label in labels(text)] == [
        "2 ms, 90.00 % on validation",
        "3 ms, 94.00 % on validation",
        "1 ms, 95.00 % on validation",
    ]
    assert 'class="front"' not in text  # one network beats all others: no line
    text = finished(run, front=[tried(0.5, 90.0), tried(3.0, 97.0)], models=[chosen])
    (way,) = re.findall(r'class="front" d="(M[^"]+)"', text)
    assert way.count("H") == way.count("V") == 2


def test_one_network_is_a_picture_beside_its_limits_and_the_plain_one(run: Run) -> None:
    """Which both limits chose, and which was measured slower than when it was tried."""
    tried = Candidate(architecture="cn_r1_k3_s1_c8", latency_ms=1.0, validation_accuracy=95.0)
    measured = tried.model_copy(update={"latency_ms": 1.25, "accuracy": 94.0})
    models = [measured.model_copy(update={"limits": {"latency_ms": limit}}) for limit in (1.5, 4.0)]
    plain = {"accuracy": 90.0, "validation_accuracy": 91.0, "accuracy_on": "x", "latency_ms": 0.5}
    simple = {"accuracy": 80.0, "validation_accuracy": 81.0, "accuracy_on": "x"}
    text = finished(run, front=[tried], models=models, beside={"plain network": plain, "chance": simple})
    assert labels(text, "chosen") == ["1.25 ms, 95.00 % on validation: cn_r1_k3_s1_c8"]
    assert labels(text, "point") == []
    assert labels(text, "beside") == ["plain network: 0.5 ms, 91.00 % on validation"]
    assert re.findall("limit [\\d.]+", text) == ["limit 1.5", "limit 4"]
    assert "Ring: plain network, to compare." in text
    assert "<td>90.00\N{NO-BREAK SPACE}%, 0.5\N{NO-BREAK SPACE}ms</td>" in text
    assert "<td>80.00\N{NO-BREAK SPACE}%</td>" in text
    assert "Line:" not in text


def test_models_without_a_front_are_drawn_by_what_is_limited(run: Run) -> None:
    models = [
        Candidate(architecture=str(n), accuracy=80.0 + n, latency_ms=1.0, params=10 * n, limits={"params": 11.0 * n})
        for n in (1, 2)
    ]
    text = finished(run, models=models)
    assert labels(text, "chosen") == [f"{10 * n} parameters, 8{n}.00 % on test: {n}" for n in (1, 2)]
    assert re.findall("limit [\\d.]+", text) == ["limit 11", "limit 22"]
    (alone,) = (one.model_copy(update={"limits": None}) for one in models[:1])
    assert "accuracy against cost" not in finished(run, best=alone)
    assert labels(finished(run, best=models[0]), "chosen") == ["10 parameters, 81.00 % on test: 1"]
    unmeasured = [one.model_copy(update={"accuracy": None}) for one in models]
    assert "accuracy against cost" not in finished(run, best=unmeasured[0], models=unmeasured)


def test_an_exact_front_is_as_predicted_and_its_answers_as_tested(run: Run) -> None:
    front = [Candidate(architecture="x", latency_ms=float(n), predicted_accuracy=80.0 + n) for n in (1, 2)]
    models = [Candidate(architecture="y", latency_ms=1.5, predicted_accuracy=81.0, accuracy=79.0)]
    text = finished(run, front=front, models=models, front_points=1234)
    assert "1,234 networks that no other one beats in both, as predicted" in text
    assert labels(text, "chosen") == ["1.5 ms, 79.00 % on test: y"]


def test_networks_of_stages_are_drawn_and_paths_are_short(run: Run) -> None:
    text = finished(run)
    assert "stage 1: 8 channels" in text
    assert "<h1>m on compact, npz:x.npz, seed 3</h1>" in text
    assert title_of({"method": "m", "space": "s", "seed": 0, "data": "folder:/a/photos"}).startswith(
        "m on s, folder:photos"
    )


def test_a_score_of_a_function_has_no_percent(run: Run) -> None:
    best = Candidate(architecture="x", accuracy=-1234.5, accuracy_on="your own function")
    text = finished(run, best=best)
    assert '<p class="big">-1234.5</p>' in text
    assert "by your own function" in text


def test_links_lead_nowhere_but_into_the_run(run: Run) -> None:
    best = Candidate(architecture="x", accuracy=1.0, model="javascript:alert(1)", onnx="artifacts/x.onnx")
    assert 'href="javascript' not in finished(run, best=best, models=[best])
    outside = best.model_copy(update={"onnx": "../../etc/passwd"})
    with pytest.raises(RunError, match="leads out of it"):
        finished(run, best=outside, models=[outside])


def test_a_thinned_network_shows_what_stays(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "thin", {**ASKED, "space": "width:vgg16"}, {})
    text = finished(run, best=Candidate(architecture='{"layer <1>":"0-3,7","layer 2":"5"}', accuracy=90.0))
    assert "layer &lt;1&gt;" in text
    assert re.findall(r"<td>(\d+ channels?)</td>", text) == ["5 channels", "1 channel"]
    finished(run, best=Candidate(architecture='{"layer":"x"}', accuracy=90.0))


def test_points_are_coloured_by_what_they_differ_in_and_precision_makes_another_network(run: Run) -> None:
    def tried(latency_ms: float, **changes: object) -> Candidate:
        known = {"architecture": "cn_r1_k3_s1_c8", "validation_accuracy": 90.0, "precision": "fp32", "image_size": 64}
        return Candidate(**{**known, "latency_ms": latency_ms, **changes})

    chosen = tried(1.0, precision="int8", accuracy=91.0, limits={"latency_ms": 2.0})
    text = finished(run, front=[tried(2.0), tried(1.0, precision="int8")], models=[chosen])
    assert labels(text, "point s0") == ["2 ms, 90.00 % on validation, fp32, 64 px images: cn_r1_k3_s1_c8"]
    assert labels(text, "chosen s1") == ["1 ms, 90.00 % on validation, int8, 64 px images: cn_r1_k3_s1_c8"]
    assert ">91.0 %</text>" in text
    assert "on validation; the numbers are test accuracies." in text
    assert "validation accuracy (%)</text>" in text
    sizes = finished(run, front=[tried(2.0), tried(1.0, image_size=48)], models=[tried(3.0)])
    assert re.findall(r'<span class="key s\d"></span>(\d+ px images)', sizes) == ["48 px images", "64 px images"]
