"""Exact limits inside a user's own network: limits kept, ranks said, weights of the user's, files that load."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import archwright as aw
from archwright.device import Device
from archwright.errors import InfeasibleError, InputError
from archwright.methods.binas import own
from archwright.report.page import report_run
from archwright.runs.run import Run
from archwright.search.answer import Answer
from archwright.search.configuration import Configuration
from archwright.search.context import Context
from archwright.search.engine import resume, search
from archwright.search.registry import methods
from archwright.spaces.registry import find_space
from helpers.choice_networks import Tiny
from helpers.latency_tables import steady_clock

TESTS = Path(__file__).parents[2]
SETTINGS: dict[str, Any] = {
    "space": "model:helpers.choice_networks:Tiny",
    "data": "random:classes=3,size=8,channels=1,count=60",
    "channels": 4,
    "batch_size": 16,
    "epochs": 1,
    "final_epochs": 1,
    "threads": 1,
    "beside": False,
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Answer:
    folder = tmp_path_factory.mktemp("own")
    with steady_clock(), pytest.MonkeyPatch.context() as patch:
        patch.setenv("ARCHWRIGHT_RUNS", str(folder / "runs"))
        patch.setattr(own, "MEASURED", 24)
        patch.setattr(own, "RANKS_WELL", 1.1)
        return search("binas", run=folder / "run", limits={"latency_ms": [0.004, 0.006]}, **SETTINGS)


def test_answers_keep_their_limits_and_say_how_well_options_add_up(finished: Answer) -> None:
    for model, limit in zip(finished.models, (0.004, 0.006), strict=True):
        assert model.latency_ms is not None
        assert model.latency_ms <= limit
        assert model.onnx is not None
    assert -1 <= finished.details["rank"]["kendall"] <= 1
    (said,) = [event["text"] for event in Run.open(Path(finished.run)).events() if "warning" in event.values()]
    assert "the choices interact too strongly for a sum" in said
    points = json.loads((Path(finished.run) / "artifacts" / "front.json").read_text())
    assert finished.front_points == len(points)
    costs = [point["latency_ms"] for point in points]
    assert costs == sorted(costs)


def test_the_last_third_of_the_measurements_is_around_the_limits(finished: Answer, tmp_path: Path) -> None:
    run, space = Run.open(Path(finished.run)), aw.ModelSpace(Tiny)
    rounds, measured = run.stage_result("rounds")["networks"], run.items("rounds").done
    assert 1 <= len(rounds) <= 8
    assert set(rounds) == set(measured)
    assert len(run.items("measure").done) == 16
    assert finished.evaluations == 16 + len(rounds)
    strategy = methods.get("binas")(Context(Configuration(**run.configuration), run, Device.choose("cpu", 1))).strategy
    size = strategy.stages.scale.image_size
    for one in run.stage_result("verify")["chosen"]:
        ((name, limit),) = one["limits"].items()
        within = [text for text in rounds if strategy.table.predicted(size, space.parse(text))[name] <= limit]
        best = max(within, key=lambda text: measured[text]["accuracy"], default=None)
        if best is not None:  # the best of the rounds was looked at, too
            assert strategy._loss(one["architecture"]) <= measured[best]["loss"]
    with steady_clock():
        without = search("binas", run=tmp_path / "run", limits={"latency_ms": 0.006}, rounds=0, **SETTINGS)
    assert Run.open(tmp_path / "run").stage_result("rounds") is None
    assert without.evaluations == len(Run.open(tmp_path / "run").items("measure").done)


def test_what_other_options_would_change_is_of_the_best_answer(finished: Answer) -> None:
    space, picks = aw.ModelSpace(Tiny), json.loads(finished.best.architecture)
    assert set(finished.details["options"]) == set(picks)
    for name, others in finished.details["options"].items():
        assert set(others) == set(space.choices[name]) - {picks[name]}


def test_the_page_draws_the_network_with_its_choices(finished: Answer) -> None:
    text = report_run(Path(finished.run)).read_text()
    assert "allow_import=True)" in text  # what is shown works when it is pasted
    assert "image.png --allow-import" in text
    picture = text.split('<div class="drawing">')[1].split("</svg>")[0]
    for name, options in aw.ModelSpace(Tiny).choices.items():
        reached = name in json.loads(finished.best.architecture)
        assert (f">{name}" in picture) == reached
        assert not reached or name == "stage" or all(f">{option}<" in picture for option in options)


def test_a_limit_below_reach_says_the_range_and_further_limits_are_answered(finished: Answer) -> None:
    with steady_clock(), pytest.raises(InfeasibleError, match="from"):
        resume(finished.run, latency_ms=[1e-6])
    run = Run.open(Path(finished.run))
    known = run.header["network"]
    run.describe(network={**known, "digest": "0" * 8})
    with steady_clock():
        more = resume(finished.run, latency_ms=[0.005])
    run.describe(network=known)
    assert [event["what"] for event in run.events() if "changed" in event.values()] == ["network"]
    assert [model.limits for model in more.models] == [{"latency_ms": limit} for limit in (0.004, 0.006, 0.005)]
    assert all((model.latency_ms or 1) <= (model.limits or {})["latency_ms"] for model in more.models)


PROGRAM = """
import json, sys
import torch
import archwright as aw
from archwright.errors import ArchwrightError
try:
    aw.load_model(sys.argv[1])
except ArchwrightError as error:
    refused = str(error)
model = aw.load_model(sys.argv[1], allow_import=True)
images = torch.linspace(-1, 1, 3 * 64).reshape(3, 1, 8, 8)
print(json.dumps([refused, model.probabilities(images).tolist()]))
"""


def test_another_process_loads_it_with_permission_and_predicts_the_same(finished: Answer) -> None:
    env = {**os.environ, "PYTHONPATH": str(TESTS)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, finished.run], env=env, capture_output=True, text=True, check=True
    )
    refused, there = json.loads(done.stdout.splitlines()[-1])
    assert f"your permission to run {TESTS / 'helpers' / 'choice_networks.py'}" in refused
    assert "--allow-import" in refused
    model = aw.load_model(finished.run)
    assert isinstance(model, aw.Model)
    here = model.probabilities(torch.linspace(-1, 1, 3 * 64).reshape(3, 1, 8, 8))
    assert np.allclose(here.numpy(), there, atol=1e-6)
    assert model.space.rpartition("@")[0] == SETTINGS["space"]


def test_code_that_has_changed_is_said(finished: Answer, capsys: pytest.CaptureFixture[str]) -> None:
    space = aw.ModelSpace(Tiny)
    find_space(f"{SETTINGS['space']}@{'0' * 8}")
    assert "has changed since this was saved" in capsys.readouterr().err
    find_space(space.saved_as)
    assert capsys.readouterr().err == ""
    assert Run.open(Path(finished.run)).header["network"]["digest"] == space.digest


def test_a_table_measured_before_serves_a_search(finished: Answer, tmp_path: Path) -> None:
    shape = {"classes": 3, "image_size": 8, "image_channels": 1}
    with steady_clock():
        measured = aw.latency(SETTINGS["space"], out=tmp_path / "table.json", **shape)
    given = {**SETTINGS, "latency_table": str(measured.path), "verify": False}
    with pytest.raises(InfeasibleError, match="from"):  # by the table, before anything is trained
        search("binas", run=tmp_path / "run", limits={"latency_ms": 1e-6}, **given)
    assert not (tmp_path / "run").exists()
    with pytest.raises(InputError, match="no --width with your own network"):
        aw.latency(SETTINGS["space"], width=2.0, **shape)


# --- weights of the user's --------------------------------------------------------------------------------------------


def strategy(tmp_path: Path, **options: Any) -> own.OwnNetworkLimits:
    settings = {name: value for name, value in SETTINGS.items() if name != "beside"}
    configuration = Configuration(method="binas", **{**settings, **options.pop("settings", {})}, options=options)
    device = Device.choose("cpu", 1)
    run = Run.create(tmp_path / "run", configuration.model_dump(), device.describe())
    found = methods.get("binas")(Context(configuration, run, device)).make_strategy()
    assert isinstance(found, own.OwnNetworkLimits)
    return found


def test_a_file_of_weights_starts_the_options_that_have_them_at_a_low_rate(tmp_path: Path) -> None:
    space = aw.ModelSpace(Tiny)
    plain = strategy(tmp_path / "plain")
    written = space.build(space.as_written(), plain.stages.scale).body.state_dict()
    save_file({"a.0.weight": written["a.0.weight"] + 1}, tmp_path / "mine.safetensors")
    started = strategy(tmp_path / "started", pretrained=str(tmp_path / "mine.safetensors"))
    assert started.recipe.lr == pytest.approx(0.1 * plain.recipe.lr)
    own_weights, others = started.fresh().network, plain.fresh().network
    assert torch.equal(own_weights.a.parts[0][0].weight.contiguous(), written["a.0.weight"] + 1)
    assert torch.equal(own_weights.stem.weight, others.stem.weight)
    loaded = strategy(tmp_path / "loaded", settings={"space": "model:helpers.choice_networks:Loaded"})
    assert loaded.recipe.lr == started.recipe.lr


@pytest.mark.parametrize("keys", [{"unknown.weight": torch.zeros(3)}, None])
def test_weights_that_fit_nothing_are_refused_before_there_is_a_folder(tmp_path: Path, keys: Any) -> None:
    path = tmp_path / "mine.safetensors"
    path.write_bytes(b"no weights") if keys is None else save_file(keys, path)
    with pytest.raises(InputError, match="weights"):
        search("binas", run=tmp_path / "run", pretrained=str(path), **SETTINGS)
    assert not (tmp_path / "run").exists()
