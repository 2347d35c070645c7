from __future__ import annotations

import re
import subprocess
import sys
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from archwright.cli.main import cli
from archwright.errors import InputError
from archwright.report.compared import report_comparison
from archwright.report.page import LARGEST_PAGE, report_run, run_page
from archwright.runs.run import Run
from archwright.search.engine import search
from archwright.search.flags import command_of


class Checked(HTMLParser):
    """Every tag that is opened is closed, and nothing points outside."""

    VOID: ClassVar = {"meta", "link", "img", "line", "circle", "polyline", "path", "rect", "br"}

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag, attrs) -> None:
        self.links += [value for name, value in attrs if name in ("href", "src") and value]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs) -> None:
        pass

    def handle_endtag(self, tag) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


def checked(text: str) -> Checked:
    parser = Checked()
    parser.feed(text)
    assert parser.open == []
    assert not [link for link in parser.links if re.match(r"(https?:)?//", link)]
    assert len(text) < LARGEST_PAGE
    return parser


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "trained [red]"
    search(
        "random", space="nasbench201", data="digits", evaluations=2, epochs=1, final_epochs=1, channels=2, run=folder
    )
    return folder


def test_the_page_of_a_trained_answer(trained, tmp_path) -> None:
    text = report_run(trained).read_text()
    found = checked(text)
    assert "artifacts/best.safetensors" in found.links
    assert (trained / "artifacts" / "best.safetensors").is_file()
    assert "trained [red]" in text
    assert "best so far" in text
    assert text.count("<section>") >= 5
    assert "width" in text  # topology of the cell


def test_the_snippet_works_when_pasted(trained, tmp_path) -> None:
    text = run_page(Run.open(trained))
    code = re.search(r"<pre><code>(import archwright.*?)</code></pre>", text, re.S)
    assert code is not None
    Image.fromarray(np.zeros((8, 8), dtype=np.uint8)).save(tmp_path / "image.png")
    done = subprocess.run([sys.executable, "-c", unescape(code[1])], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    label, probability = done.stdout.split()
    assert label in "0123456789"
    assert 0 < float(probability) <= 1


def test_an_unfinished_run_has_a_page_that_says_how_to_go_on(tmp_path) -> None:
    run = Run.create(tmp_path / "stopped", {"method": "random", "space": "nasbench201", "seed": 0, "data": "<i>"}, {})
    run.describe(plan=[{"name": "search", "title": "evaluate proposals"}])
    run.event("started", threads=1)
    text = run_page(run)
    checked(text)
    assert "0 of 1 stages" in text
    assert "runs resume" in text
    assert "<i>" not in text


def test_the_command_asks_for_the_same_again(trained) -> None:
    words = command_of(Run.open(trained).configuration)
    assert words.startswith("archwright search random --data digits --space nasbench201")
    assert "--epochs 1" in words
    assert "--evaluations 2" in words
    several = {"method": "binas", "space": "mbconv", "limits": {"latency_ms": [1.5, 2.0]}, "options": {"verify": False}}
    assert command_of(several).endswith("--latency-ms 1.5 --latency-ms 2.0 --no-verify")


def test_the_command_line_writes_reports(trained, tmp_path) -> None:
    page = tmp_path / "page.html"
    done = CliRunner().invoke(cli, ["runs", "report", str(trained), "--out", str(page)])
    assert done.exit_code == 0, done.output
    checked(page.read_text())


def test_two_runs_side_by_side(trained, tmp_path, nb201) -> None:
    other = tmp_path / "other"
    search("random", space="nasbench201", benchmark="nb201", evaluations=3, run=other)
    path = report_comparison([trained, other], tmp_path / "both.html")
    text = path.read_text()
    checked(text)
    assert "other" in text
    assert "trained [red]" in text
    with pytest.raises(InputError, match="two or more"):
        report_comparison([trained], path)


def test_large_pictures_are_linked(trained) -> None:
    (trained / "artifacts" / "huge.png").write_bytes(b"x" * 500_000)
    text = run_page(Run.open(trained))
    (trained / "artifacts" / "huge.png").unlink()
    assert "artifacts/huge.png" in checked(text).links
