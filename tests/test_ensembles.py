"""Ensembles: one classifier out of several, in memory, on disk and as one ONNX graph."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from archwright.costs.measure import Timing
from archwright.data import load as load_images
from archwright.ensembles import Ensemble, load_ensemble
from archwright.errors import ArchwrightError, InputError, RunError
from archwright.models import Model, load_classifier, load_model
from archwright.runs.run import Run
from archwright.spaces.nasbench201 import NASBENCH201


@pytest.fixture(scope="module")
def members() -> tuple[Model, ...]:
    data = load_images("digits", seed=0)
    scale = NASBENCH201.scales["small"].changed(channels=4, classes=10, image_size=8, image_channels=1)
    made = []
    for number in range(3):
        torch.manual_seed(number)
        cell = NASBENCH201.sample(np.random.default_rng(number))
        made.append(Model(NASBENCH201.build(cell, scale), "nasbench201", cell, scale, data.preprocessing))
    return tuple(made)


@pytest.fixture
def images() -> Tensor:
    return torch.randn(6, 1, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("mean", ["probabilities", "logits"])
def test_the_answer_is_the_mean_of_the_members(members: tuple[Model, ...], images: Tensor, mean: str) -> None:
    found = Ensemble(members, mean).probabilities(images)
    with torch.no_grad():
        logits = [member.network.eval()(images) for member in members]
    of_each = logits if mean == "logits" else [one.softmax(1) for one in logits]
    expected = sum(of_each) / len(members)
    assert torch.allclose(found, expected.softmax(1) if mean == "logits" else expected, atol=1e-6)


@pytest.mark.parametrize("mean", ["probabilities", "logits"])
def test_one_onnx_graph_equals_the_mean(members: tuple[Model, ...], images: Tensor, mean: str, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    ensemble = Ensemble(members, mean, {"accuracy": 50.0})
    assert ensemble.export(tmp_path / "m.onnx") < 1e-5
    loaded = load_classifier(tmp_path / "m.onnx")
    assert torch.allclose(loaded.probabilities(images), ensemble.probabilities(images), atol=1e-5)
    facts = {one.key: json.loads(one.value) for one in onnx.load(tmp_path / "m.onnx").metadata_props}
    assert json.loads(facts["archwright"]["architecture"]) == [str(one.architecture) for one in members]
    assert facts["archwright"]["measured"] == {"accuracy": 50.0}


def test_an_ensemble_comes_back_from_its_folder_and_from_a_run(
    members: tuple[Model, ...], images: Tensor, tmp_path: Path
) -> None:
    ensemble = Ensemble(members, "logits", {"accuracy": 50.0})
    run = Run.create(tmp_path / "run", {"method": "nesbs", "data": "digits"}, {})
    ensemble.save(run.artifact("best"))
    for path in (run.folder, run.artifact("best")):
        for loaded in (load_model(path), load_classifier(path)):
            assert isinstance(loaded, Ensemble)
            assert torch.equal(loaded.probabilities(images), ensemble.probabilities(images))
            assert (loaded.mean, loaded.measured, loaded.architecture) == (
                "logits",
                {"accuracy": 50.0},
                ensemble.architecture,
            )
    Image.new("L", (30, 30), 200).save(tmp_path / "grey.png")
    (one,) = load_classifier(run.folder).predict([tmp_path / "grey.png"], top=10)
    assert sum(p for _, p in one.top) == pytest.approx(1, abs=1e-5)


def test_a_folder_without_a_member_is_refused(members: tuple[Model, ...], tmp_path: Path) -> None:
    Ensemble(members).save(tmp_path)
    (tmp_path / "1.safetensors").unlink()
    with pytest.raises(InputError, match=r"all 3 members of the ensemble.*no file 1\.safetensors"):
        load_model(tmp_path)
    listed = json.loads((tmp_path / "ensemble.json").read_text())
    for change, message in (
        ({"members": ["../../secret"]}, "leads out"),
        ({"members": ["x" * 300]}, "no name of a file"),
        ({"checksums": {"gone.safetensors": "00000000"}}, "no file .*gone"),
        ({"format": 9}, "format 9"),
        ({"mean": 3}, "mean"),
    ):
        (tmp_path / "ensemble.json").write_text(json.dumps({**listed, **change}))
        with pytest.raises(ArchwrightError, match=message):
            load_ensemble(tmp_path)


def test_members_must_fit_together(members: tuple[Model, ...]) -> None:
    with pytest.raises(InputError, match="at least two members"):
        Ensemble(members[:1])
    other = replace(members[1], preprocessing=replace(members[1].preprocessing, mean=(0.9,)))
    with pytest.raises(InputError, match="same image size"):
        Ensemble((members[0], other))
    with pytest.raises(InputError, match="mean of"):
        Ensemble(members, "median")  # type: ignore[arg-type]


class Fixed(nn.Module):
    """Logits looked up by the first pixel, which numbers the image."""

    def __init__(self, probabilities: list[list[float]]) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.tensor(probabilities).log())

    def forward(self, x: Tensor) -> Tensor:
        return self.logits[x[:, 0, 0, 0].long()]


def test_the_report_by_hand(members: tuple[Model, ...]) -> None:
    """Two members, three images of true classes 0, 1, 1."""
    first = replace(members[0], network=Fixed([[0.7, 0.3], [0.4, 0.6], [0.9, 0.1]]))
    second = replace(members[1], network=Fixed([[0.4, 0.6], [0.2, 0.8], [0.4, 0.6]]))
    images = torch.arange(3.0).reshape(3, 1, 1, 1).expand(3, 1, 8, 8)
    labels = torch.tensor([0, 1, 1])
    report = Ensemble((first, second)).report([(images[:2], labels[:2]), (images[2:], labels[2:])])
    assert report.member_errors == pytest.approx((100 / 3, 100 / 3))
    assert report.error == pytest.approx(100 / 3)  # means 0.55, 0.3, 0.65: the last is wrong
    assert report.ate == pytest.approx(100 / 3)
    assert report.ppd == pytest.approx(200 / 3)
    assert report.ece == pytest.approx(100 * (0.45 + 0.3 + 0.65) / 3, abs=1e-4)
    costs = [NASBENCH201.cost(one.architecture, one.scale) for one in (first, second)]
    assert (report.params, report.macs) == (costs[0].params + costs[1].params, costs[0].macs + costs[1].macs)
    assert "latency_ms" not in report.to_dict()


def test_times_are_of_all_and_of_each(members: tuple[Model, ...], images: Tensor) -> None:
    report = Ensemble(members).report([(images, torch.zeros(6, dtype=torch.int64))], Timing(warm_up=0, repeats=2))
    assert report.latency_ms is not None
    assert report.latency_ms > 0
    assert len(report.to_dict()["member_latency_ms"]) == 3


def test_the_member_of_another_ensemble_is_refused(members: tuple[Model, ...], tmp_path: Path) -> None:
    Ensemble(members[:2]).save(tmp_path / "both")
    members[1].save(tmp_path / "both" / "0.safetensors")
    with pytest.raises(RunError, match=r"got another 0\.safetensors"):
        load_model(tmp_path / "both")
    listed = json.loads((tmp_path / "both" / "ensemble.json").read_text())
    del listed["checksums"]  # as lists were before
    (tmp_path / "both" / "ensemble.json").write_text(json.dumps(listed))
    assert load_model(tmp_path / "both") is not None
