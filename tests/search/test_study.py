"""Ask and tell."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import archwright as aw
from archwright.errors import InputError, RunError

SPACE = aw.ChoiceSpace({"a": range(6), "b": range(6)})
HNAS = {"space": "nasbench201", "pool": 30, "replicates": 1, "probes": 2, "proxy_size": 8, "proxy_batch": 16}
METHODS: dict[str, dict[str, Any]] = {
    "random": {"space": SPACE},
    "evolution": {"space": SPACE, "population": 5, "sample": 3},
    "hnas": HNAS,
}


def score(architecture: Any) -> float:
    return -float(len(str(architecture)) % 7) - sum(map(ord, str(architecture))) % 97 / 97


def loop(study: aw.Study, count: int) -> list[str]:
    """Ask and tell one by one; what was asked."""
    asked = []
    for _ in range(count):
        architecture = study.ask()
        asked.append(str(architecture))
        study.tell(architecture, score(architecture))
    return asked


@pytest.mark.parametrize("method", METHODS)
def test_a_study_opened_again_asks_the_same(method: str, tmp_path: Path) -> None:
    with aw.Study(method, run=tmp_path / "whole", seed=3, **METHODS[method]) as study:
        whole = loop(study, 12)
        best = study.best
    parts = []
    for count in (3, 5, 4):
        with aw.Study(method, run=tmp_path / "parts", seed=3, **METHODS[method]) as study:
            parts += loop(study, count)
            study.ask()  # never answered: it is asked again first
    assert parts == whole
    assert study.best == best


@pytest.mark.parametrize("method", METHODS)
def test_a_study_asks_what_a_search_evaluates(method: str, tmp_path: Path) -> None:
    result = aw.search(method, evaluate=score, evaluations=10, run=tmp_path / "search", seed=5, **METHODS[method])
    study = aw.Study(method, run=tmp_path / "study", seed=5, **METHODS[method])
    asked = loop(study, 10)
    assert result.best.architecture in asked
    assert str(study.best.architecture) == result.best.architecture


@pytest.mark.parametrize("method", METHODS)
def test_several_are_out_at_once_and_come_back_in_any_order(method: str, tmp_path: Path) -> None:
    asked: list[list[str]] = []
    for name, reopen in (("whole", False), ("parts", True)):
        study = aw.Study(method, run=tmp_path / name, **METHODS[method])
        asked.append([])
        for _ in range(4):
            out = [study.ask() for _ in range(3)]
            asked[-1] += map(str, out)
            for one in (out[2], out[0], out[1]):
                study.tell(one, None if one == out[1] else score(one), "too long")
            if reopen:
                study.close()
                study = aw.Study(method, run=tmp_path / name, **METHODS[method])
        study.close()
    assert asked[0] == asked[1]
    assert len(study.history) == 12


def test_it_finds_the_best(tmp_path: Path) -> None:
    study = aw.Study("evolution", SPACE, population=10, sample=5)
    for _ in range(100):
        one = study.ask()
        study.tell(one, -abs(one["a"] - 4) - abs(one["b"] - 2))
    assert dict(study.best.architecture) == {"a": 4, "b": 2}


def test_a_killed_program_goes_on(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import os, sys\nimport archwright as aw\n"
        "space = aw.ChoiceSpace({'a': range(4), 'b': range(4)})\n"
        f"study = aw.Study('evolution', space, run={str(tmp_path / 's')!r}, population=3, sample=2)\n"
        "while len(study.history) < 12:\n"
        "    one = study.ask()\n"
        "    print(one, flush=True)\n"
        "    if len(study.history) == int(sys.argv[1]):\n"
        "        os.kill(os.getpid(), 9)\n"
        "    study.tell(one, one['a'] - one['b'])\n"
    )
    outputs = []
    for kill_at in (4, 99):
        command = [sys.executable, program, str(kill_at)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
        assert done.returncode == (-signal.SIGKILL if kill_at == 4 else 0), done.stderr
        outputs.append(done.stdout.splitlines())
    assert outputs[0][-1] == outputs[1][0], "the unanswered question is asked again"
    (tmp_path / "s").rename(tmp_path / "before")
    whole = subprocess.run([sys.executable, program, "99"], capture_output=True, text=True, check=True, env=os.environ)
    assert outputs[0] + outputs[1][1:] == whole.stdout.splitlines()


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    study = aw.Study("random", SPACE, run=tmp_path / "s")
    one = study.ask()
    with pytest.raises(InputError, match="a number"):
        study.tell(one, "good")  # type: ignore[arg-type]
    study.tell(one, 1)
    with pytest.raises(InputError, match="asked and not yet told"):
        study.tell(one, 1)
    with pytest.raises(RunError, match="in use"):
        aw.Study("random", SPACE, run=tmp_path / "s")
    study.close()
    with pytest.raises(InputError, match="seed"):
        aw.Study("random", SPACE, run=tmp_path / "s", seed=1)
    with pytest.raises(InputError, match="a study"):
        aw.resume(tmp_path / "s")
    for wrong in ({"method": "darts"}, {"method": "no_such"}, {"no_such": 1}, {"space": "no_such"}, {"seed": -1}):
        settings = {"method": "random", "space": SPACE, **wrong}
        with pytest.raises(InputError):
            aw.Study(run=tmp_path / "new", **settings)
    assert not (tmp_path / "new").exists()


def test_more_than_there_are_architectures(tmp_path: Path) -> None:
    study = aw.Study("random", aw.ChoiceSpace({"a": [1, 2, 3]}))
    assert len(set(itertools.islice(loop(study, 9), 9))) == 3


def test_best_of_nothing(tmp_path: Path) -> None:
    study = aw.Study("random", SPACE)
    study.tell(study.ask(), float("nan"), "broken")
    with pytest.raises(InputError, match="none so far"):
        _ = study.best


def test_only_a_method_that_remembers_proposes_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty thousand questions are read in less than a second (benchmarks/growth.py) because of it."""
    with aw.Study("evolution", SPACE, run=tmp_path / "s") as study:
        loop(study, 4)
    with monkeypatch.context() as patch:
        patch.setattr(type(study.method), "propose", lambda *_: 1 / 0)
        with aw.Study("evolution", SPACE, run=tmp_path / "s") as again:
            assert again.history == study.history


def test_unanswered_questions_come_in_their_order_also_equal_ones(tmp_path: Path) -> None:
    space = aw.ChoiceSpace({"a": [1, 2]})
    with aw.Study("random", space, run=tmp_path / "s", evaluations=4) as study:
        asked = [study.ask() for _ in range(6)]
        study.tell(asked[0], 1.0)
    with aw.Study("random", space, run=tmp_path / "s", evaluations=4) as study:
        assert [study.ask() for _ in range(5)] == asked[1:]


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"architecture": 3},
        {"architecture": "no such"},
        {"architecture": '{"a": 1, "b": 1}', "score": "x"},
        {"architecture": '{"a": 1, "b": 1}', "score": True},
        {"architecture": '{"a": 1, "b": 1}', "score": 1},
    ],
)
def test_a_damaged_log_is_named_by_its_line(tmp_path: Path, record: dict[str, Any]) -> None:
    aw.Study("random", SPACE, run=tmp_path / "s").close()
    (tmp_path / "s" / "items").mkdir()
    (tmp_path / "s" / "items" / "study.jsonl").write_text(json.dumps(record) + "\n")
    for _ in range(2):  # the second does not find the folder in use
        with pytest.raises(RunError, match=r"line 1 of .*study\.jsonl"):
            aw.Study("random", SPACE, run=tmp_path / "s")
