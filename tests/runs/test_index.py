"""The index makes lists quick and is never believed over the folders."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from archwright.runs import disk, index
from archwright.runs.index import FILE, Listed, list_folder
from archwright.runs.run import Run

MACHINE = {"device": "cpu", "model": "test", "threads": 1}


def make(root: Path, name: str, **asked: object) -> Run:
    return Run.create(
        root / name, {"method": "random", "space": "nasbench201", "data": "digits", "seed": 3, **asked}, MACHINE
    )


def finish(run: Run, accuracy: float) -> None:
    run.finish_stage("answer", {"best": {"accuracy": accuracy, "accuracy_on": "digits test"}})
    run.artifact("result.json").write_text("{}")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three runs, long enough ago: in tests nothing is young."""
    monkeypatch.setattr(index, "YOUNG_NS", 0)
    for name in ("a", "b", "c"):
        make(tmp_path, name)
    finish(Run.open(tmp_path / "b"), 91.5)
    (tmp_path / "latency").mkdir()
    return tmp_path


def refuse_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: Path) -> Run:
        raise AssertionError("a run was read")

    monkeypatch.setattr(Run, "open", refused)


def test_a_list_says_what_the_folders_say(root: Path) -> None:
    found, damaged = list_folder(root)
    assert damaged == []
    assert found == [
        Listed("a", "stopped", "random", "nasbench201", "digits", "3", None, ""),
        Listed("b", "finished", "random", "nasbench201", "digits", "3", 91.5, "digits test"),
        Listed("c", "stopped", "random", "nasbench201", "digits", "3", None, ""),
    ]
    assert list_folder(root / "none") == ([], [])
    assert list_folder(root / "a" / "run.json") == ([], [])


def test_the_second_list_reads_no_run(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = list_folder(root)
    refuse_reading(monkeypatch)
    assert list_folder(root) == first


def test_what_changed_since_is_read_again(root: Path) -> None:
    list_folder(root)
    header = json.loads((root / "a" / "run.json").read_text())
    header["configuration"]["seed"] = 7
    (root / "a" / "run.json").write_text(json.dumps(header, indent=1) + "\n")  # as long as before
    finish(Run.open(root / "c"), 50.0)
    finish(Run.open(root / "b"), 92.5)
    make(root, "d", seed=9)
    found, _ = list_folder(root)
    assert [(one.name, one.status, one.seed, one.accuracy) for one in found] == [
        ("a", "stopped", "7", None),
        ("b", "finished", "3", 92.5),
        ("c", "finished", "3", 50.0),
        ("d", "stopped", "9", None),
    ]
    Run.open(root / "a").delete()
    assert [one.name for one in list_folder(root)[0]] == ["b", "c", "d"]
    assert "a" not in json.loads((root / FILE).read_text())["runs"]


def test_whether_a_run_is_at_work_is_never_remembered(root: Path) -> None:
    list_folder(root)
    with Run.open(root / "a").locked():
        assert list_folder(root)[0][0].status == "running"
    assert list_folder(root)[0][0].status == "stopped"
    (root / "b" / "artifacts" / "result.json").unlink()
    assert list_folder(root)[0][1].status == "stopped"


def test_an_unreadable_run_is_named_every_time_and_blocks_no_other(root: Path) -> None:
    list_folder(root)
    (root / "a" / "run.json").write_text("{")
    (root / "b" / "stages" / "answer.json").write_text("{}")
    for _ in range(2):
        found, damaged = list_folder(root)
        assert [(one.name, one.status) for one in found] == [("b", "damaged"), ("c", "stopped")]
        assert len(damaged) == 1
        assert damaged[0].startswith("a: expected JSON")


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff\xfe", b"[]", b'{"format": 2, "runs": {}}', b'{"format": 1, "runs": {"a": [[null, null], []]}}'],
)
def test_anything_else_in_its_place_is_no_index(root: Path, content: bytes) -> None:
    expected = list_folder(root)
    (root / FILE).write_bytes(content)
    assert list_folder(root) == expected
    assert json.loads((root / FILE).read_text())["runs"].keys() == {"a", "b", "c"}


def test_an_entry_of_other_files_does_not_count(root: Path) -> None:
    """As a copied or doctored index has them."""
    expected = list_folder(root)
    kept = json.loads((root / FILE).read_text())
    for stamp, row in kept["runs"].values():
        stamp[0][2] += 1
        row[0] = "a lie"
    (root / FILE).write_text(json.dumps(kept))
    assert list_folder(root) == expected


def test_links_and_pipes_are_not_read_and_links_not_written_through(root: Path) -> None:
    expected = list_folder(root)
    (root / FILE).unlink()
    os.mkfifo(root / FILE)
    assert list_folder(root) == expected
    outside = root / "latency" / "mine.json"
    outside.write_text("mine")
    (root / FILE).unlink()
    (root / FILE).symlink_to(outside)
    assert list_folder(root) == expected
    assert outside.read_text() == "mine"


def test_without_room_for_an_index_there_is_a_list(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: Path) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(disk, "create", full)
    assert [one.name for one in list_folder(root)[0]] == ["a", "b", "c"]
    assert not (root / FILE).exists()


def test_what_has_just_changed_is_not_remembered(tmp_path: Path) -> None:
    make(tmp_path, "a")
    list_folder(tmp_path)
    assert not (tmp_path / FILE).exists()


def test_a_list_does_not_wait_for_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from archwright.cli.show_runs import show_runs; from archwright.runs.index import list_folder; "
        "show_runs(*list_folder()); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=tmp_path).returncode == 0
