from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from archwright.analysis.named import find_cell
from archwright.cli.main import cli
from archwright.errors import InputError
from archwright.search.engine import search
from archwright.spaces.gallery import GALLERY
from archwright.spaces.nasbench201 import Cell201

BEST = "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|skip_connect~0|nor_conv_3x3~1|nor_conv_3x3~2|"


def test_cells_by_name_genotype_and_run() -> None:
    assert find_cell("DARTS_V2").architecture == GALLERY["darts-v2"]
    assert find_cell("enas").label == "enas"
    assert str(find_cell(BEST).architecture) == BEST
    assert find_cell(str(GALLERY["snas"])).architecture == GALLERY["snas"]
    with pytest.raises(InputError, match="darts-v2"):
        find_cell("no-such-cell")


def test_the_best_of_a_run(nb201, tmp_path) -> None:
    search("random", space="nasbench201", benchmark="nb201", evaluations=2, run=tmp_path / "runs" / "one")
    assert str(find_cell("last").architecture) == str(find_cell("one").architecture)
    assert find_cell(str(tmp_path / "runs" / "one")).label == "one"
    assert isinstance(find_cell("one").architecture, Cell201)


def test_structure_alone_needs_no_training(tmp_path) -> None:
    page = tmp_path / "page.html"
    done = CliRunner().invoke(cli, ["analyze", "DARTS_V2", "--epochs", "0", "--json", "--out", str(page)])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout.splitlines()[-1])["cells"]["darts-v2"]
    assert (found["topology"]["normal"]["width"], found["topology"]["normal"]["depth"]) == (3.5, 3)
    assert found["scores"]["kappa"] > 1
    text = page.read_text()
    assert text.count("<svg") == 3  # two cells in one
    assert "http" not in text.replace("http://www.w3.org", "")


def test_several_cells_with_training_side_by_side(tmp_path) -> None:
    page = tmp_path / "page.html"
    small = ["--epochs=1", "--images=80", "--channels=4", "--cells=3", "--grid=3", "--variance-grid=2"]
    done = CliRunner().invoke(cli, ["analyze", "snas", "--compare", BEST, *small, "--json", "--out", str(page)])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout.splitlines()[-1])["cells"]
    for one in found.values():
        assert len(one["study"]["loss"]) == 1
        assert len(one["study"]["landscape"]["values"]) == 3
        assert one["study"]["variance_here"] > 0
    assert page.read_text().count("data:image/png") == 4


def test_a_training_that_diverges_is_a_page_without_its_landscape(tmp_path) -> None:
    page = tmp_path / "page.html"
    small = ["--epochs=1", "--images=80", "--channels=4", "--cells=3", "--grid=2", "--variance-grid=2", "--lr=10"]
    done = CliRunner().invoke(cli, ["analyze", "snas", *small, "--json", "--out", str(page)])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout.splitlines()[-1])["cells"]["snas"]
    cut = [all(map(all, found["study"].get(key, {"cut": [[True]]})["cut"])) for key in ("landscape", "variance")]
    assert any(cut)
    assert page.read_text().count("data:image/png") == 2 + cut.count(False)


def test_one_cell_twice_is_refused() -> None:
    done = CliRunner().invoke(cli, ["analyze", "snas", "--compare", "SNAS", "--epochs", "0"])
    assert isinstance(done.exception, InputError)
