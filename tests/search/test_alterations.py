"""What was changed in a run since it stopped is noticed: settings, files and numbers that cannot be."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from archwright.errors import ArchwrightError, InputError, Interrupted, RunError
from archwright.imports import trust
from archwright.models import load_model
from archwright.runs.files import Sealed, read_sealed, write_sealed
from archwright.runs.run import Run
from archwright.search.engine import _worked, resume, search
from archwright.search.method import Stage
from helpers.small_searches import smallest

SMALL: dict[str, Any] = {
    "space": "nasbench201",
    "data": "random:count=24,size=8,classes=2",
    "channels": 4,
    "cells": 1,
    "epochs": 1,
    "final_epochs": 1,
    "evaluations": 2,
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    search("random", run=folder, **SMALL)
    return folder


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that stopped after its first stage."""

    def leave(event: dict[str, Any]) -> None:
        if event["kind"] == "stage" and event["name"] == "train":
            raise Interrupted("enough")

    folder = tmp_path_factory.mktemp("half") / "run"
    with pytest.raises(Interrupted):
        search("random", run=folder, callbacks=[leave], **SMALL)
    return folder


def edited(folder: Path, **changes: Any) -> None:
    """Other settings in run.json; those of the method's own after ``options_``."""
    path = folder / "run.json"
    header = json.loads(path.read_text())
    for name, value in changes.items():
        own = name.startswith("options_")
        place = header["configuration"]["options"] if own else header["configuration"]
        place[name.removeprefix("options_")] = value
    path.write_text(json.dumps(header))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"epochs": 5}, "epochs"),
        ({"options_evaluations": 7}, "options.evaluations"),
        ({"lr": 0.1, "channels": 8}, "channels, lr"),
        ({"recipe": "nasbench201"}, "recipe"),
    ],
)
def test_edited_settings_are_named_and_may_be_accepted(
    changes: dict[str, Any], named: str, half: Path, tmp_path: Path
) -> None:
    shutil.copytree(half, tmp_path / "run")
    edited(tmp_path / "run", **changes)
    with pytest.raises(RunError, match=f"in its run.json: {named}. Put them back, or go on with them by"):
        resume(tmp_path / "run")
    assert resume(tmp_path / "run", accept_changes=True).best.accuracy is not None
    assert resume(tmp_path / "run").best.accuracy is not None  # from now on they are its settings
    accepted = [event["settings"] for event in Run.open(tmp_path / "run").events() if event["kind"] == "accepted"]
    assert [", ".join(one) for one in accepted] == [named]


@pytest.mark.parametrize("changes", [{"threads": 1}, {"failures": 3}, {"minutes": 5.0}, {"device": "cpu"}])
def test_where_and_how_long_a_run_works_may_change(changes: dict[str, Any], half: Path, tmp_path: Path) -> None:
    shutil.copytree(half, tmp_path / "run")
    edited(tmp_path / "run", **changes)
    assert resume(tmp_path / "run").best.accuracy is not None


def test_a_run_of_before_digests_goes_on(half: Path, tmp_path: Path) -> None:
    shutil.copytree(half, tmp_path / "run")
    path = tmp_path / "run" / "stages" / "search.json"
    value = read_sealed(path).value
    from archwright.runs.files import _checksum

    path.write_text(json.dumps({"checksum": _checksum(value), "value": value}))
    edited(tmp_path / "run", epochs=1)
    assert resume(tmp_path / "run").best.accuracy is not None


@pytest.mark.parametrize("change", [{"accuracy": 170.0}, {"accuracy": -3.0}, {"accuracy": None, "evaluations": "many"}])
def test_a_result_that_cannot_be_is_refused(change: dict[str, Any], half: Path, tmp_path: Path) -> None:
    """With a checksum that is right: whoever alters a run can write that, too."""
    shutil.copytree(half, tmp_path / "run")
    path = tmp_path / "run" / "stages" / "search.json"
    kept = read_sealed(path)
    write_sealed(path, Sealed({**kept.value, **change}, kept.made_with, kept.files))
    with pytest.raises(RunError):
        resume(tmp_path / "run")


@pytest.mark.parametrize("accuracy", [100.5, -1.0, 1e9])
def test_an_answer_that_cannot_be_is_refused(accuracy: float, whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "run")
    path = tmp_path / "run" / "artifacts" / "result.json"
    answer = json.loads(path.read_text())
    path.write_text(json.dumps({**answer, "best": {**answer["best"], "accuracy": accuracy}}))
    with pytest.raises(RunError, match="damaged or altered"):
        resume(tmp_path / "run")


def test_the_network_of_another_run_is_noticed(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "run")
    search("random", run=tmp_path / "other", seed=1, **SMALL)
    assert load_model(tmp_path / "run") is not None
    name = "artifacts/best.safetensors"
    shutil.copy(tmp_path / "other" / name, tmp_path / "run" / name)
    with pytest.raises(RunError, match="as this run left it, got another file"):
        load_model(tmp_path / "run")


def test_items_that_no_stage_can_use_are_no_bug(half: Path, tmp_path: Path) -> None:
    shutil.copytree(half, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "stages")
    run = Run.open(tmp_path / "run")
    known = dict(run.items("search").done)
    (tmp_path / "run" / "items" / "search.jsonl").unlink()
    for key, result in known.items():
        run.items("search").record(key, {**result, "accuracy": None, "failure": "never"})
    with pytest.raises(ArchwrightError):
        resume(tmp_path / "run", failures=0)


# --- modules that a run names ----------------------------------------------------------------------------------------


OWN = """
from pathlib import Path
Path({mark!r}).write_text("it ran")

def score(architecture):
    return float(architecture["x"])
"""


def run(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "archwright", *map(str, arguments)]
    return subprocess.run(command, cwd=folder, env=os.environ, capture_output=True, text=True, check=False)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder with a stopped run, which names the function in ``own.py``."""
    (tmp_path / "own.py").write_text(OWN.format(mark=str(tmp_path / "ran")))
    words = ["search", "random", "--space", 'choices:{"x": [1, 2, 3]}', "--evaluate", "own.py:score", "--run", "run"]
    assert run(tmp_path, *words, "--evaluations", 3).returncode == 0
    shutil.rmtree(tmp_path / "run" / "stages")
    (tmp_path / "run" / "artifacts" / "result.json").unlink()
    (tmp_path / "ran").unlink()
    return tmp_path


def test_resume_imports_what_a_run_names_only_when_it_may(own: Path) -> None:
    refused = run(own, "runs", "resume", "run")
    assert refused.returncode == 2, refused.stderr
    assert f"permission to run {own / 'own.py'}" in refused.stderr
    assert not (own / "ran").exists()
    allowed = run(own, "runs", "resume", "run", "--allow-import")
    assert allowed.returncode == 0, allowed.stderr
    assert (own / "ran").exists()
    (own / "ran").unlink()
    assert run(own, "runs", "resume", "run").returncode == 0  # finished: its answer is read
    assert not (own / "ran").exists()


@pytest.mark.parametrize("name", ["evaluate", "augment", "space"])
def test_the_standard_library_is_refused_in_any_place(name: str, own: Path) -> None:
    edited(own / "run", **{name: "os:abort"})
    refused = run(own, "runs", "resume", "run", "--allow-import")
    assert refused.returncode == 2, refused.stderr
    assert "standard library" in refused.stderr


def test_what_is_given_again_needs_no_permission(own: Path) -> None:
    code = (
        "import archwright as aw, own; from pathlib import Path; Path('ran').unlink(); "
        "print(aw.resume('run', evaluate=own.score) is not None, Path('ran').exists())"
    )
    header = json.loads((own / "run" / "run.json").read_text())
    header["configuration"]["evaluate"] = "own:score"
    (own / "run" / "run.json").write_text(json.dumps(header))
    done = subprocess.run([sys.executable, "-c", code], cwd=own, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["True", "False"], done.stderr


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"executor": "ray", "address": "127.0.0.1:9"}, "what the Ray cluster at 127.0.0.1:9 answers"),
        ({"benchmark": "nats:/tmp/theirs", "data": None}, "the pickles in /tmp/theirs"),
    ],
)
def test_a_foreign_cluster_or_pickle_is_announced_and_allowed_like_a_module(
    tmp_path: Path, settings: dict[str, str | None], said: str
) -> None:
    asked = {"method": "random", "space": "nasbench201", "seed": 0, "data": "digits", "dataset": "", "options": {}}
    folder = tmp_path / "run"
    Run.create(folder, {**asked, **settings}, {})
    with pytest.raises(InputError, match=rf"permission to run {said}.*--allow-import"):
        resume(folder)
    with pytest.raises(InputError) as refused:  # there is neither a cluster nor such a folder
        resume(folder, allow_import=True)
    assert "permission" not in str(refused.value)
    trust(said)  # as a search that this process began
    with pytest.raises(InputError) as refused:
        resume(folder)
    assert "permission" not in str(refused.value)


@pytest.mark.parametrize("own", [True, False])
def test_a_result_without_a_field_is_refused_wherever_it_is_read(own: bool, tmp_path: Path) -> None:
    def leave(event: dict[str, Any]) -> None:
        if event["kind"] == "stage" and event["name"] == "train":
            raise Interrupted("enough")

    given = smallest("binas", tmp_path / "plan")
    if own:
        with pytest.raises(Interrupted):
            search("binas", run=tmp_path / "run", callbacks=[leave], **given)
    path = (tmp_path / "run" if own else Path(given["plan_from"])) / "stages" / "table.json"
    kept = read_sealed(path)
    write_sealed(path, kept._replace(value={name: one for name, one in kept.value.items() if name != "most_ms"}))
    with pytest.raises(RunError, match="most_ms"):
        resume(tmp_path / "run") if own else search("binas", run=tmp_path / "run", **given)


def test_a_state_that_no_network_takes_is_said_to_be_altered(half: Path, tmp_path: Path) -> None:
    shutil.copytree(half, tmp_path / "run")
    run = Run.open(tmp_path / "run")

    load: Any = partial(nn.Linear(1, 1).load_state_dict, {"weight": "x", "bias": "y"})
    with pytest.raises(RunError, match="may have been altered"):
        _worked(Stage("train", "train", load), run, resumed=True)
    with pytest.raises(RuntimeError, match="state_dict"):
        _worked(Stage("train", "train", load), run, resumed=False)
