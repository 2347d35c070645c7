"""A space in a script of the user's, from the search to the prediction of another process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import archwright as aw
from archwright.ensembles import Ensemble
from archwright.errors import InputError

TINY = ["--data", "digits", "--channels", "4", "--cells", "1", "--epochs", "1", "--final-epochs", "1"]
QUICK = ["--size", "2", "--sampler", "mc", "--candidates", "1", "--supernet-epochs", "1", "--posterior-epochs", "1"]


def archwright(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """The program as a process of its own, in ``folder``."""
    command = [sys.executable, "-m", "archwright", *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a script that has a space, a run of a search on it, and an image."""
    folder = tmp_path_factory.mktemp("own")
    shutil.copy(Path(__file__).parents[1] / "helpers" / "triangle_space.py", folder / "my_spaces.py")
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 20), dtype=np.uint8)).save(folder / "three.png")
    space = ["--space", "my_spaces.py:TRIANGLE", "--run", "run"]
    done = archwright(folder, "search", "nesbs", *space, *TINY, *QUICK, "--supernet-batch", 400, "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["best"]["params"] == sum(member["params"] for member in answer["members"])
    return folder


def test_the_saved_ensemble_predicts_in_another_process(folder: Path) -> None:
    refused = archwright(folder, "predict", "run", "three.png", "--json")
    assert refused.returncode == 2
    assert "--allow-import" in refused.stderr
    answers = []
    for known in (["--space", "my_spaces.py:TRIANGLE"], ["--allow-import"]):
        done = archwright(folder, "predict", "run", "three.png", *known, "--json")
        assert done.returncode == 0, done.stderr
        answers.append(json.loads(done.stdout)["predictions"])
    assert answers[0] == answers[1]
    assert answers[0][0]["class"] in [str(digit) for digit in range(10)]


def test_the_saved_ensemble_is_loaded_by_a_space_that_is_given_or_imported(folder: Path) -> None:
    from archwright.spaces.registry import find_space

    with pytest.raises(InputError, match="expected your permission to run"):
        aw.load_model(folder / "run")
    space = find_space(f"{folder}/my_spaces.py:TRIANGLE")
    for ensemble in (aw.load_model(folder / "run"), aw.load_model(folder / "run", space=space)):
        assert isinstance(ensemble, Ensemble)
        (one,) = ensemble.predict([folder / "three.png"])
        assert one.label in [str(digit) for digit in range(10)]


def test_an_onnx_file_takes_no_space(folder: Path) -> None:
    done = archwright(folder, "predict", "any.onnx", "three.png", "--space", "my_spaces.py:TRIANGLE")
    assert done.returncode == 2
    assert "no space beside the ONNX file any.onnx" in done.stderr
