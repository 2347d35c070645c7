from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from archwright.cli.show_runs import show_run
from archwright.errors import InputError, RunError
from archwright.runs.files import _checksum
from archwright.runs.run import Run, find_run, list_runs, new_folder

MACHINE = {"device": "cpu", "model": "test", "threads": 1}


def make(folder: Path) -> Run:
    return Run.create(folder, {"method": "random", "space": "nasbench201", "seed": 3}, MACHINE)


def test_a_run_opens_as_it_was_created(tmp_path: Path) -> None:
    made = make(tmp_path / "a")
    opened = Run.open(tmp_path / "a")
    assert opened.header == made.header
    assert opened.configuration["seed"] == 3
    assert opened.header["versions"].keys() >= {"archwright", "torch", "numpy", "python"}
    assert opened.status() == "stopped"


def test_a_run_is_never_overwritten(tmp_path: Path) -> None:
    make(tmp_path / "a")
    with pytest.raises(InputError, match="archwright runs resume"):
        make(tmp_path / "a")


def test_a_folder_with_other_files_is_refused_and_an_empty_one_taken(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    make(tmp_path / "photos")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(InputError, match="a new or empty folder"):
        make(tmp_path / "mine")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="a new or empty folder"):
        make(tmp_path / "file")


def test_what_a_kill_left_while_the_header_was_written_does_not_block_the_folder(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / ".run.json.4711.tmp").write_text('{"for')
    assert make(tmp_path / "a").configuration["seed"] == 3


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="archwright runs list"):
        Run.open(tmp_path)


def test_a_run_of_another_format_names_the_version_that_wrote_it(tmp_path: Path) -> None:
    make(tmp_path / "a")
    path = tmp_path / "a" / "run.json"
    header = json.loads(path.read_text())
    path.write_text(json.dumps({**header, "format": 99, "versions": {"archwright": "7.5"}}))
    with pytest.raises(RunError, match=r"format 99 .*archwright 7\.5.*archwright==7\.5"):
        Run.open(tmp_path / "a")
    assert list_runs(tmp_path) == []


@pytest.mark.parametrize("content", ["[1, 2]", "{}", '{"format": 1', "null"])
def test_a_damaged_header_is_a_clear_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(RunError):
        Run.open(tmp_path)


HOLDER = """
import sys
from pathlib import Path
from archwright.runs.run import Run
with Run.open(Path(sys.argv[1])).locked():
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_the_second_process_gets_an_error_that_names_the_first(tmp_path: Path) -> None:
    run = make(tmp_path / "a")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(run.folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == "held\n"
        assert run.status() == "running"
        with pytest.raises(RunError, match=rf"in use by process {holder.pid}\b"), run.locked():
            pass
        holder.kill()  # a killed process leaves no lock behind
        holder.wait()
        assert run.status() == "stopped"
        with run.locked():
            assert (run.folder / "lock").read_text().split()[0] == str(os.getpid())
    finally:
        holder.kill()
        holder.communicate()


def test_events_items_and_stages_come_back(tmp_path: Path) -> None:
    run = make(tmp_path / "a")
    run.event("started", threads=1)
    run.items("search").record("x", {"accuracy": 1.5})
    run.finish_stage("search", {"best": "x"})
    opened = Run.open(run.folder)
    assert [event["kind"] for event in opened.events()] == ["started"]
    assert opened.items("search").done == {"x": {"accuracy": 1.5}}
    assert opened.stage_result("search") == {"best": "x"}
    assert opened.stage_result("train") is None


def test_a_finished_stage_drops_its_checkpoints(tmp_path: Path) -> None:
    run = make(tmp_path / "a")
    run.checkpoints("train").save(3, {"a": 1})
    run.finish_stage("train", {})
    assert run.checkpoints("train").latest() is None


def test_damaged_checkpoints_of_all_stages_are_listed(tmp_path: Path) -> None:
    run = make(tmp_path / "a")
    assert run.damaged_checkpoints() == []
    for name in ("train", "search/0a1b", "search/2c3d"):
        run.checkpoints(name).save(1, {"a": 1})
        run.checkpoints(name).save(2, {"a": 2})
    assert run.damaged_checkpoints() == []
    for name in ("train", "search/2c3d"):
        (run.folder / "checkpoints" / name / "000000002.safetensors").write_bytes(b"half")
    found = run.damaged_checkpoints()
    assert len(found) == 2
    assert "search/2c3d/000000002" in found[0]
    assert "train/000000002" in found[1]


def test_new_folders_differ_and_hold_only_safe_characters(runs_folder: Path) -> None:
    made = [new_folder("random", "my space/1") for _ in range(3)]
    assert len(set(made)) == 3
    assert all(folder.is_dir() and folder.parent == runs_folder for folder in made)
    assert all("my-space-1" in folder.name for folder in made)
    assert len(new_folder("rarts-width", "width:" + 500 * "blocks.0: 0-15 ").name) < 100, "a name that no disk refuses"


def test_runs_are_found_by_path_name_and_last(runs_folder: Path) -> None:
    with pytest.raises(InputError, match="none"):
        find_run("last")
    for name in ("20200101-000000-a", "20200102-000000-b"):
        make(runs_folder / name)
    assert find_run("last").folder.name == "20200102-000000-b"
    assert find_run("20200101-000000-a").folder == runs_folder / "20200101-000000-a"
    assert find_run(str(runs_folder / "20200101-000000-a")).folder == runs_folder / "20200101-000000-a"
    with pytest.raises(InputError, match="nothing-here"):
        find_run("nothing-here")


@pytest.mark.parametrize("odd", [{"made_with": []}, {"files": "x"}, {"made_with": {}, "files": 3}])
def test_a_stage_that_depends_on_something_odd_is_refused_by_name(tmp_path: Path, odd: dict[str, object]) -> None:
    run = make(tmp_path / "a")
    kept = {"value": 1, "made_with": {}, "files": {}, **odd}
    (run.folder / "stages").mkdir()
    (run.folder / "stages" / "search.json").write_text(json.dumps({"checksum": _checksum(kept), **kept}))
    for read in (lambda: run.stage_result("search"), run.changed_settings):
        with pytest.raises(RunError, match=r"search\.json"):
            read()


def test_options_that_are_none_are_refused(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "a", {"method": "random", "space": "nasbench201", "seed": 3, "options": "x"}, MACHINE)
    with pytest.raises(RunError, match="options by name"):
        run.changed_settings()


def test_the_last_events_are_read_and_all_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make(tmp_path / "a")
    assert run.last_events(5) == ([], 0)
    show_run(run)
    for number in range(100):
        run.event("noted", number=number)
    with (run.folder / "events.jsonl").open("a") as file:
        file.write('{"kind": "torn"')
    events, total = run.last_events(3)
    assert total == 100
    assert [event["number"] for event in events] == [97, 98, 99]
    capsys.readouterr()
    show_run(run)
    said = capsys.readouterr().out
    assert "100 events, all in" in said
    assert "number 59" not in said
    assert "number 60" in said
    assert "number 99" in said


def test_a_damaged_last_event_is_named_by_its_line(tmp_path: Path) -> None:
    run = make(tmp_path / "a")
    run.event("noted")
    with (run.folder / "events.jsonl").open("a") as file:
        file.write('{"no": "kind"}\n')
    with pytest.raises(RunError, match=r"line 2 of .*events\.jsonl"):
        run.last_events(5)


def test_the_last_run_is_the_newest_that_can_be_read(runs_folder: Path) -> None:
    make(runs_folder / "20200101-000000-a")
    make(runs_folder / "20200102-000000-b")
    (runs_folder / "20200102-000000-b" / "run.json").write_text("{")
    assert find_run("last").folder.name == "20200101-000000-a"
