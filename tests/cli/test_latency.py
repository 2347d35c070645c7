"""``archwright latency``: a table that a search can use."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from archwright.cli.main import cli, main
from archwright.costs.tables import LatencyTable
from archwright.errors import InputError
from archwright.methods.binas import Binas
from archwright.search.configuration import Configuration
from archwright.search.task import Task
from archwright.spaces.compact import Compact
from archwright.spaces.compact import scale_for as compact_scale
from archwright.spaces.mbconv import SCALES, MbConv, scale_for
from helpers.latency_tables import SteadyWatch


def test_the_command_writes_a_table_of_the_space(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("archwright.costs.tables.Stopwatch", SteadyWatch)
    out = tmp_path / "table.json"
    shape = ["--image-size", "8", "--image-channels", "1", "--classes", "2"]
    cli.main(
        ["latency", "--space", "mbconv", *shape, "--repeats", "1", "--out", str(out), "--json"], standalone_mode=False
    )
    (line,) = capsys.readouterr().out.splitlines()
    found = json.loads(line)
    LatencyTable.load(out).check(MbConv(scale_for(8, 2, 1)))
    assert found["table"] == str(out)
    assert found["batch"] == found["threads"] == 1
    assert found["correction"]["networks"] == 22
    assert found["heaviest_ms"] > found["lightest_ms"] > 0
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".jsonl"] == []


def test_a_preset_is_measured_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("archwright.costs.tables.Stopwatch", SteadyWatch)
    out = tmp_path / "table.json"
    preset = ["--space", "mbconv", "--scale", "mbconv-32-fast"]
    cli.main(["latency", *preset, "--repeats", "1", "--out", str(out)], standalone_mode=False)
    LatencyTable.load(out).check(MbConv(SCALES["mbconv-32-fast"]))
    with pytest.raises(InputError, match="without"):
        LatencyTable.load(out).check(MbConv(SCALES["mbconv-32"]))


def test_a_space_without_blocks_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["latency", "--space", "nasbench201"])
    assert left.value.code == 2
    assert "mbconv" in capsys.readouterr().err


def test_the_table_of_named_images_fits_a_search_on_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("archwright.costs.tables.Stopwatch", SteadyWatch)
    out = tmp_path / "table.json"
    smooth = "random:classes=2,size=96,count=12"  # images much larger than what a search takes
    cli.main(["latency", "--data", smooth, "--repeats", "1", "--out", str(out)], standalone_mode=False)
    assert f"archwright search binas --data {smooth} --latency-table {out}" in capsys.readouterr().out
    size = Binas.completed(Task(Configuration(method="binas", data=smooth)))["image_size"]
    assert size < 96
    LatencyTable.load(out).check(Compact(compact_scale(image_size=size, classes=2, image_channels=3)))
