"""A user's own code may do anything: it becomes a recorded failure or a sentence, never a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

import archwright as aw
from archwright.data import from_object
from archwright.errors import InputError, Interrupted
from archwright.owncode import OwnCodeError, called, own_code
from archwright.references import resolve
from archwright.runs.run import Run
from archwright.runs.stop import AT_FIRST
from helpers import hostile_code
from helpers.hostile_code import FUNCTIONS, NETWORKS

SPACE = 'choices:{"x": [1, 2, 3, 4, 5]}'
HERE = Path(hostile_code.__file__)


def run(*arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "archwright", *map(str, arguments)]
    return subprocess.run(command, cwd=folder, env=os.environ, capture_output=True, text=True, check=False, timeout=120)


# --- the one place ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("no\nway."), r"ValueError: no \(.*test_owncode\.py, line \d+\)"),
        (KeyError("a"), r"KeyError: 'a'"),
        (SystemExit("done"), r"SystemExit: done"),
        (SystemExit(), r"SystemExit \("),
        (StopIteration(), r"StopIteration"),
        (RecursionError("deep"), r"RecursionError: deep"),
        (MemoryError(), r"MemoryError"),
        (OSError(2, "nothing there"), r"FileNotFoundError: \[Errno 2\] nothing there"),
    ],
)
def test_whatever_leaves_it_is_one_error(error: BaseException, said: str) -> None:
    with pytest.raises(OwnCodeError, match=f"expected your code to return, got {said}"), own_code("your code"):
        raise error


@pytest.mark.parametrize("error", [InputError("a", "b"), Interrupted("stop"), KeyboardInterrupt()])
def test_our_errors_and_ctrl_c_pass(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("signal.getsignal", lambda _: signal.default_int_handler)  # a shell's background has none
    with pytest.raises(type(error)), own_code("your code"):
        raise error


def test_ctrl_c_of_the_code_itself_in_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("signal.getsignal", lambda _: signal.SIG_IGN)
    with pytest.raises(OwnCodeError, match="KeyboardInterrupt"), own_code("your code"):
        raise KeyboardInterrupt


def test_what_never_returns_is_ended() -> None:
    before, begin = signal.getsignal(signal.SIGALRM), time.monotonic()
    with pytest.raises(OwnCodeError, match=r"within 0\.3 s, got no answer"), own_code("your code", 0.3):
        hostile_code.hangs(None)
    assert time.monotonic() - begin < 20
    assert signal.getsignal(signal.SIGALRM) is before
    with own_code("your code", 60):
        pass
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_function_gets_what_it_has_parameters_for() -> None:
    known = {"classes": 3, "image_size": 8}
    assert called(lambda classes: classes, known, "f") == 3
    assert called(lambda **rest: rest, known, "f") == known
    assert called(lambda: 0, known, "f") == 0
    with pytest.raises(OwnCodeError, match="colour"):
        called(lambda colour: colour, known, "your function f")


@pytest.mark.parametrize(
    "body", ["import sys; sys.exit(4)", "1 / 0", "raise KeyError", "x = (", "import no_such_module"]
)
def test_modules_that_cannot_be_imported(body: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(body)
    with pytest.raises(InputError, match="that can be imported for the evaluate"):
        resolve(f"{tmp_path / 'mine.py'}:f", "evaluate")


# --- functions that score --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_that_fails_is_a_recorded_failure(name: str, tmp_path: Path) -> None:
    reference = f"helpers.hostile_code:{name}"
    with pytest.raises(aw.errors.ArchwrightError, match="at most 2 evaluations to fail"):
        aw.search("random", space=SPACE, evaluate=reference, evaluations=5, failures=2, run=tmp_path / "run")
    found = Run.open(tmp_path / "run")
    assert found.status() == "stopped"
    assert sum(event["kind"] == "failed" for event in found.events()) == 3


@pytest.mark.parametrize("name", ["leaves", "recurses", "interrupts"])
def test_in_worker_processes_too(name: str, tmp_path: Path) -> None:
    with pytest.raises(aw.errors.ArchwrightError, match="at most 1 evaluations to fail"):
        aw.search(
            "random",
            space=SPACE,
            evaluate=f"helpers.hostile_code:{name}",
            evaluations=5,
            failures=1,
            run=tmp_path / "run",
            executor="processes",
        )


def test_a_callback_that_fails_is_a_sentence_and_the_run_goes_on_later(tmp_path: Path) -> None:
    def callback(event: dict[str, Any]) -> None:
        if event["kind"] == "evaluated":
            raise ZeroDivisionError("by me")

    settings: dict[str, Any] = {"space": SPACE, "evaluations": 3, "run": tmp_path / "run"}
    with pytest.raises(OwnCodeError, match="a callback to return, got ZeroDivisionError: by me"):
        aw.search("random", evaluate="helpers.hostile_code:signals", callbacks=[callback], **settings)
    assert Run.open(tmp_path / "run").status() == "stopped"
    assert aw.resume(tmp_path / "run").best.accuracy is not None


# --- networks and data -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_that_cannot_be_scored(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from archwright.cli.main import main

    with pytest.raises(SystemExit) as leaving:
        main(["score", "--network", f"{HERE}:{name}"])
    said = capsys.readouterr().err
    assert leaving.value.code == 2, said
    assert "unexpected" not in said


def test_a_network_that_can_is_left_as_it_was() -> None:
    network = hostile_code.Plain()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    network.conv.eval()
    assert np.isfinite(aw.score(network, "digits", ["grad"]).values).all()
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
    assert (network.training, network.conv.training) == (True, False)
    assert network.conv.weight.grad is None


@pytest.mark.parametrize("name", sorted(set(NETWORKS) - {"frozen", "detached"}))
def test_a_network_that_cannot_be_thinned(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch_pruning", reason="needs the extra prune")
    with pytest.raises(aw.errors.ArchwrightError):
        aw.search("rarts-width", network=f"{HERE}:{name}", data="digits", keep_channels=0.5, run=tmp_path / "run")
    assert not (tmp_path / "run").exists()


class Broken(Dataset[Any]):
    def __init__(self, length: int | BaseException) -> None:
        self.length = length

    def __len__(self) -> int:
        if isinstance(self.length, BaseException):
            raise self.length
        return self.length

    def __getitem__(self, number: int) -> Any:
        raise SystemExit("no more")


@pytest.mark.parametrize("length", [5, RuntimeError("unknown"), SystemExit()])
def test_a_dataset_that_fails(length: Any) -> None:
    with pytest.raises(OwnCodeError, match="of the Dataset to return"):
        from_object(Broken(length))


def test_an_augmentation_that_fails_is_a_recorded_failure(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def f(images):\n    raise SystemExit('enough')\n")
    small: dict[str, Any] = {"channels": 4, "cells": 1, "epochs": 1, "final_epochs": 1, "evaluations": 2, "failures": 0}
    with pytest.raises(aw.errors.ArchwrightError, match="SystemExit: enough"):
        aw.search("random", data="digits", augment=f"{tmp_path / 'mine.py'}:f", run=tmp_path / "run", **small)


# --- the program -----------------------------------------------------------------------------------------------------


def test_a_space_that_fails_is_the_user_s_and_not_a_bug(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from archwright.spaces.choice_space import ChoiceSpace\n"
        "class Mine(ChoiceSpace):\n"
        "    def sample(self, rng):\n"
        "        return {}['nothing']\n"
        "SPACE = Mine({'x': [1, 2]})\n"
        "def f(a):\n    return 1.0\n"
    )
    done = run("search", "random", "--space", "mine.py:SPACE", "--evaluate", "mine.py:f", folder=tmp_path)
    assert done.returncode == 2
    assert "expected your own code to work, got KeyError: 'nothing'" in done.stderr
    assert "mine.py, line 4" in done.stderr
    assert "bug" not in done.stderr


SLEEPS = "time.sleep(600)"


@pytest.mark.parametrize("hang", [SLEEPS, f"try: {SLEEPS}\n        except BaseException: pass"])
def test_ctrl_c_says_that_a_second_ends_it(hang: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        f"import time\ndef f(a):\n    open('begun', 'w').close()\n    while True:\n        {hang}\n"
    )
    words = ["search", "random", "--space", SPACE, "--evaluate", "mine.py:f", "--run", "run"]
    process = subprocess.Popen(
        [sys.executable, "-m", "archwright", *words], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    try:
        while not (tmp_path / "begun").exists():
            time.sleep(0.05)
            assert process.poll() is None, process.communicate()
        for _ in range(3):  # a third one ends what swallows the second
            process.send_signal(signal.SIGINT)
            time.sleep(0.5)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert AT_FIRST.strip() in err
    assert process.returncode in (130, -signal.SIGINT)
    assert Run.open(tmp_path / "run").status() == "stopped"


def test_an_evaluation_that_hangs_is_a_recorded_failure(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"space": SPACE, "evaluations": 3, "failures": 1, "timeout": 0.3}
    for executor in ("here", "processes"):
        folder, own = tmp_path / executor, "helpers.hostile_code:hangs"
        with pytest.raises(aw.errors.ArchwrightError, match=r"within 0\.3 s, got no answer"):
            aw.search("random", evaluate=own, run=folder, executor=executor, **settings)
        assert sum(event["kind"] == "failed" for event in Run.open(folder).events()) > 1


def test_a_training_that_takes_too_long_is_a_recorded_failure(tmp_path: Path) -> None:
    small: dict[str, Any] = {"channels": 4, "cells": 1, "epochs": 200, "evaluations": 2, "failures": 0}
    with pytest.raises(aw.errors.ArchwrightError, match=r"the training to return within 0\.2 s"):
        aw.search("random", data="digits", run=tmp_path / "run", timeout=0.2, **small)
