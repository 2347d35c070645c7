"""An installed wheel tried from the outside, by whichever Python runs this file: `python .ci/smoke.py`.

Needs nothing but the wheel and what it depends on: imports, a search, its page, a model that predicts, a resumed run, the
command line, and what type checkers look for.
"""

from __future__ import annotations

import importlib.resources
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

import archwright as aw

SMALL = {"evaluations": 2, "epochs": 1, "final_epochs": 2, "channels": 4, "cells": 1}


def main(folder: Path) -> None:
    """Try everything, below ``folder``."""
    assert "site-packages" in (aw.__file__ or ""), f"not the installed wheel: {aw.__file__}"
    assert importlib.resources.files("archwright").joinpath("py.typed").is_file()
    assert "ArchwrightClassifier" in dir(aw)
    found = aw.search("random", data="digits", run=folder / "run", **SMALL)
    assert found.best.accuracy is not None
    assert aw.resume(folder / "run").best == found.best
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(folder / "image.png")
    (answer,) = found.best.predict([folder / "image.png"])
    assert answer.label in set("0123456789")
    found.best.export(folder / "model.pt2")
    space = aw.ChoiceSpace({"x": aw.Real(0.0, 1.0)})
    tried = aw.search("evolution", space=space, evaluate=lambda one: -abs(one["x"] - 0.5), run=folder / "own")
    assert tried.best.accuracy is not None and tried.best.accuracy > -0.2
    program = [sys.executable, "-m", "archwright"]
    subprocess.run([*program, "runs", "report", str(folder / "run"), "--out", str(folder / "page.html")], check=True)
    subprocess.run([*program, "predict", str(folder / "run"), str(folder / "image.png")], check=True)
    assert "<h2>Found</h2>" in (folder / "page.html").read_text()
    print(f"Python {platform.python_version()}: the wheel works, {found.best.accuracy:.1f} % on the digits.")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        main(Path(made))
