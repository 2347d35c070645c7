"""The command line as scripts and people meet it, mostly in this process through its entry point."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from PIL import Image

from archwright.cli.main import main
from archwright.errors import Interrupted
from archwright.runs.run import Run
from archwright.search.engine import search
from archwright.tables.nasbench201 import CompactTable

TINY = ["--data", "digits", "--channels", "4", "--cells", "1", "--epochs", "1", "--final-epochs", "1"]


class Outcome(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The only line of stdout."""
        (line,) = self.out.splitlines()
        found: dict[str, Any] = json.loads(line)
        return found


@pytest.fixture
def archwright(capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*arguments: object) -> Outcome:
        capsys.readouterr()
        with pytest.raises(SystemExit) as leaving:
            main([str(argument) for argument in arguments])
        return Outcome(int(leaving.value.code or 0), *capsys.readouterr())

    return call


# --- what needs no torch ---------------------------------------------------------------------------------------------

LISTING = """
import sys
from archwright.cli.main import main
for arguments in (["--help"], ["spaces"], ["datasets"], ["methods"], ["benchmarks"], ["search", "--help"],
                  ["runs", "--help"], ["predict", "--help"], ["--version"]):
    try:
        main(arguments)
    except SystemExit as leaving:
        assert not leaving.code, arguments
    assert "torch" not in sys.modules, f"{arguments} imported torch"
    if arguments == ["--help"]:  # these take longer than all the rest of it
        assert not {"numpy", "pydantic", "rich"} & set(sys.modules)
"""


def test_help_and_lists_do_not_import_torch() -> None:
    done = subprocess.run([sys.executable, "-c", LISTING], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name in (
        "nasbench201",
        "darts",
        "digits",
        "fashion-mnist",
        "cifar10",
        "folder",
        "random",
        "evolution",
        "nb201",
    ):
        assert any(line.split()[:1] == [name] for line in done.stdout.splitlines()), name


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("search rndom", "Did you mean 'random'"),
        ("search random --space nasbench200", "Did you mean 'nasbench201'"),
        ("search random --data digts", "Did you mean 'digits'"),
        ("search random --benchmark nb2o1", "Did you mean 'nb201'"),
        ("search random --evaluatons 3", "--evaluations"),
        ("search random --evaluations 0", "evaluations"),
        ("search random --evaluations many", "not a valid integer"),
        ("search random --seed -1", "seed"),
        ("search random --device abacus", "'abacus'"),
        ("search random --data folder:no/such/place", "no/such/place"),
        (f"search random --data {Path(__file__).parent}", f"Write folder:{Path(__file__).parent}"),
        ("search --data digits", "Name a method before --data"),
        ("search evolution --sample 30", "cannot be larger than --population"),
        ("runs show no-such-run", "a run folder"),
        ("runs resume no-such-run", "a run folder"),
        ("runs resume", "a run in"),
        ("predict no-such-model image.png", "a model file"),
        ("serch", "No such command"),
    ],
)
def test_bad_input_exits_with_2_and_leaves_nothing_behind(
    archwright: Any, runs_folder: Path, arguments: str, message: str
) -> None:
    outcome = archwright(*arguments.split())
    assert outcome.code == 2, outcome
    assert message in outcome.err
    assert outcome.out == ""
    assert "Traceback" not in outcome.err
    assert not runs_folder.exists()


def test_a_limit_that_nothing_meets_exits_with_3(archwright: Any, runs_folder: Path) -> None:
    outcome = archwright("search", "random", *TINY, "--params", 10)
    assert outcome.code == 3
    assert "Reachable" in outcome.err
    assert not runs_folder.exists()


# --- searches on a table ---------------------------------------------------------------------------------------------


def test_json_is_the_only_line_of_stdout(archwright: Any, nb201: CompactTable) -> None:
    command = "search evolution --space nasbench201 --benchmark nb201 --evaluations 30 --seed 0 --json"
    outcome = archwright(*command.split())
    assert outcome.code == 0
    answer = outcome.json
    assert set(answer) >= {"method", "space", "data", "seed", "best", "front", "evaluations", "seconds", "run"}
    assert answer["evaluations"] == 30
    assert 90 < answer["best"]["accuracy"] <= 94.374
    assert "about" in outcome.err  # the estimate, for people
    assert archwright("runs", "resume", answer["run"], "--json").json == answer
    assert archwright("runs", "show", "last", "--json").json["status"] == "finished"
    (listed,) = archwright("runs", "list", "--json").json["runs"]
    assert (listed["run"], listed["method"], listed["seed"]) == (answer["run"], "evolution", 0)


def test_people_get_tables(archwright: Any, nb201: CompactTable) -> None:
    assert "No runs here" in archwright("runs", "list").out
    outcome = archwright("search", "random", "--benchmark", "nb201", "--evaluations", 3, "--seed", 2)
    run = Run.open(next(Path(os.environ["ARCHWRIGHT_RUNS"]).iterdir()))
    for text in ("random on nasbench201", "accuracy", "parameters", "imagenet16-120", str(run.folder)):
        assert text in outcome.out
    assert run.folder.name in archwright("runs", "list").out
    shown = archwright("runs", "show").out
    assert "finished" in shown
    assert "multiply-accumulates" in shown  # what it found
    assert "evaluations" in shown


def test_an_existing_run_is_not_overwritten(archwright: Any, nb201: CompactTable, tmp_path: Path) -> None:
    command = ["search", "random", "--benchmark", "nb201", "--evaluations", 2, "--run", tmp_path / "mine"]
    assert archwright(*command).code == 0
    before = (tmp_path / "mine" / "run.json").read_bytes()
    outcome = archwright(*command)
    assert outcome.code == 2
    assert f"archwright runs resume {tmp_path / 'mine'}" in outcome.err
    assert (tmp_path / "mine" / "run.json").read_bytes() == before


def test_a_session_that_ends_at_once_exits_with_130(archwright: Any, nb201: CompactTable, tmp_path: Path) -> None:
    def stop(event: dict[str, Any]) -> None:
        raise Interrupted("stopped by a test")

    with pytest.raises(Interrupted):
        search("random", benchmark="nb201", evaluations=5, run=tmp_path / "mine", callbacks=[stop])
    outcome = archwright("runs", "resume", tmp_path / "mine", "--minutes", 0)
    assert outcome.code == 130
    assert f"archwright runs resume {tmp_path / 'mine'}" in outcome.err
    assert archwright("runs", "resume", tmp_path / "mine", "--json").json["evaluations"] == 5


def test_a_full_disk_is_said_and_the_run_can_be_resumed(
    archwright: Any, nb201: CompactTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = os.fsync, [0]

    def full_at_tenth(descriptor: int) -> None:
        calls[0] += 1
        if calls[0] >= 10:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full_at_tenth)
        outcome = archwright("search", "random", "--benchmark", "nb201", "--evaluations", 20)
    assert outcome.code == 1
    assert "the disk is full" in outcome.err
    assert "archwright runs resume last" in outcome.err
    assert "Traceback" not in outcome.err
    assert archwright("runs", "resume", "last", "--json").json["evaluations"] == 20


def test_a_run_of_another_format_is_refused(archwright: Any, nb201: CompactTable, tmp_path: Path) -> None:
    archwright("search", "random", "--benchmark", "nb201", "--evaluations", 2, "--run", tmp_path / "mine")
    path = tmp_path / "mine" / "run.json"
    path.write_text(path.read_text().replace('"format": 1', '"format": 2'))
    outcome = archwright("runs", "resume", tmp_path / "mine")
    assert outcome.code == 2
    assert "expected a run of format 1, got format 2" in outcome.err


def test_a_run_on_a_table_has_no_model_to_predict_with(archwright: Any, nb201: CompactTable, tmp_path: Path) -> None:
    archwright("search", "random", "--benchmark", "nb201", "--evaluations", 2, "--run", tmp_path / "mine")
    outcome = archwright("predict", tmp_path / "mine", "image.png")
    assert outcome.code == 2
    assert "trained no network" in outcome.err


# --- searches with training ------------------------------------------------------------------------------------------


def test_search_and_predict_on_its_result(archwright: Any, tmp_path: Path, runs_folder: Path) -> None:
    run = runs_folder / "mine"
    outcome = archwright("search", "random", *TINY, "--evaluations", 1, "--run", run, "--json")
    assert outcome.code == 0
    best = outcome.json["best"]
    assert best["accuracy_interval"][0] <= best["accuracy"] <= best["accuracy_interval"][1]
    assert best["accuracy_on"].startswith("digits test")
    image = tmp_path / "three.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 20), dtype=np.uint8)).save(image)
    for model in (run, run / best["model"], "mine", "last"):
        (one,) = archwright("predict", model, image, "--top", 2, "--json").json["predictions"]
        assert one["class"] in [str(digit) for digit in range(10)]
        assert len(one["top"]) == 2
    assert str(one["class"]) in archwright("predict", run, image).out
    (tmp_path / "words.png").write_text("not an image")
    for model, picture, message in (
        (run, tmp_path / "words.png", "words.png"),
        (run, tmp_path / "absent.png", "absent.png"),
        (image, image, "three.png"),
    ):
        failed = archwright("predict", model, picture, "--json")
        assert failed.code == 2
        assert message in failed.err
        assert failed.out == ""


def start(*arguments: object) -> subprocess.Popen[str]:
    """The program as a process of its own."""
    command = [sys.executable, "-m", "archwright.cli.main", *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def wait_for_session(process: subprocess.Popen[str], folder: Path, number: int) -> bool:
    """Wait until the ``number``-th session on the run has begun; whether the process still works."""
    events = folder / "events.jsonl"
    while process.poll() is None:
        if events.exists() and events.read_text().count('"started"') >= number:
            return True
        time.sleep(0.02)
    return False


def test_a_second_process_is_refused_and_ctrl_c_saves(archwright: Any, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    process = start("search", "random", *TINY, "--evaluations", 500, "--run", folder, "--json")
    try:
        assert wait_for_session(process, folder, 1), process.communicate()
        second = archwright("runs", "resume", folder)
        assert second.code == 2
        assert f"in use by process {process.pid}." in second.err
        assert archwright("runs", "show", folder, "--json").json["status"] == "running"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130, err
    assert f"archwright runs resume {folder}" in err
    assert out == ""
    run = Run.open(folder)
    assert run.status() == "stopped"
    assert [event["why"] for event in run.events() if event["kind"] == "interrupted"] == ["stopped by Ctrl-C"]


SEARCH = ["search", "random", "--space", "nasbench201", "--data", "digits", "--evaluations", "6", "--seed", "0"]
SCALE = ["--channels", "4", "--epochs", "1", "--final-epochs", "1"]


def kill_and_compare(folder: Path, kills: int, seed: int) -> None:
    """Kill one search again and again at random moments; resumed, it is the uninterrupted one bit for bit."""
    whole = start(*SEARCH, *SCALE, "--run", folder / "whole", "--json")
    assert wait_for_session(whole, folder / "whole", 1), whole.communicate()
    begin = time.monotonic()
    out, err = whole.communicate()
    assert whole.returncode == 0, err
    seconds = time.monotonic() - begin
    killed, rng = folder / "killed", np.random.default_rng(seed)
    command: list[object] = [*SEARCH, *SCALE, "--run", killed]
    moments = []
    for number in range(1, kills + 1):
        process = start(*command)
        if wait_for_session(process, killed, number):
            moments.append(float(rng.uniform(0, 2 * seconds / kills)))
            time.sleep(moments[-1])
        process.kill()
        process.communicate()
        command = ["runs", "resume", killed]
    last = start("runs", "resume", killed, "--json")
    resumed, err = last.communicate()
    assert last.returncode == 0, err
    expected, found = json.loads(out.splitlines()[-1]), json.loads(resumed.splitlines()[-1])
    for answer in (expected, found):
        assert answer.pop("seconds") > 0
        del answer["run"]
    assert found == expected, f"killed at {moments} of {seconds:.1f} s"
    model = Path("artifacts") / "best.safetensors"
    assert (killed / model).read_bytes() == (folder / "whole" / model).read_bytes()
    assert sum(event["kind"] == "started" for event in Run.open(killed).events()) >= min(kills, 2)


def test_a_search_killed_five_times_equals_the_uninterrupted_one(tmp_path: Path) -> None:
    kill_and_compare(tmp_path, 5, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3])
def test_a_search_killed_twenty_times_equals_the_uninterrupted_one(tmp_path: Path, seed: int) -> None:
    kill_and_compare(tmp_path, 20, seed)


def test_an_own_function_and_space(archwright: Any, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "def score(a):\n    if a['b'] == 9:\n        raise ValueError('nine')\n    return a['a'] - a['b']\n"
    )
    own = ["--evaluate", f"{tmp_path}/mine.py:score", "--space", 'choices:{"a": [1, 2, 3], "b": [0, 9]}']
    outcome = archwright("search", "random", *own, "--evaluations", 6, "--run", tmp_path / "run")
    assert outcome.code == 0, outcome.err
    assert "score" in outcome.out
    assert "%" not in outcome.out
    assert " failed" in outcome.out
    assert "ValueError: nine" in outcome.err
    assert archwright("runs", "resume", tmp_path / "run", "--json").json["best"]["accuracy"] == 3
    outcome = archwright("search", "random", *own, "--evaluations", 6, "--failures", 1)
    assert outcome.code == 1
    assert "--failures" in outcome.err
    for wrong in (["--evaluate", "mine:score"], ["--evaluate", "json:dumps"], ["--minutes", "nan"], ["--workers", "2"]):
        assert archwright("search", "random", *own[2:], *wrong).code == (1 if wrong[1] == "json:dumps" else 2)


def test_own_networks_are_scored_in_one_table(archwright: Any, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from torch import nn\n"
        "def make(classes, image_size):\n"
        "    def one(width):\n"
        "        first, last = nn.Linear(image_size**2, width), nn.Linear(width, classes)\n"
        "        return nn.Sequential(nn.Flatten(), first, nn.ReLU(), last)\n"
        "    return {'narrow': one(4), 'wide': one(16)}\n"
        "nothing = 3\n"
    )
    own = ["score", "--network", f"{tmp_path}/mine.py:make", "--metrics", "params,naswot", "--batch-size", 16]
    outcome = archwright(*own, "--json")
    assert [row["network"] for row in outcome.json["scores"]] == ["wide", "narrow"]
    assert [row["params"] for row in outcome.json["scores"]] == [16 * 74, 4 * 74]
    assert "narrow" in archwright(*own).out
    assert archwright("score", "--network", f"{tmp_path}/mine.py:nothing").code == 2
    assert archwright(*own, "|none~0|").code == 2
    assert archwright("score").code == 2
