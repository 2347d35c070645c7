"""The code that users read is run: the page on own objects, the example, and the README's Python."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def blocks(name: str) -> list[str]:
    """The Python blocks of a page, in order."""
    return re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), flags=re.DOTALL)


def test_your_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = blocks("docs/your-own.md")
    assert len(code) >= 8
    names: dict[str, object] = {"__name__": "docs"}
    for block in code:
        exec(compile(block, "docs/your-own.md", "exec"), names)  # noqa: S102 - our own page
    assert (tmp_path / "my-study" / "run.json").exists()


def test_the_example_is_short_and_goes_on(tmp_path: Path) -> None:
    path = ROOT / "examples" / "own_objective.py"
    assert len(path.read_text().splitlines()) < 40
    example = runpy.run_path(str(path))
    found = example["main"](tmp_path / "run", evaluations=6)
    assert found.evaluations == 6
    assert 0 < found.best.accuracy <= 100
    assert example["main"](tmp_path / "run").best == found.best


def test_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL import Image

    monkeypatch.chdir(tmp_path)
    Image.new("L", (8, 8), 128).save("three.png")
    small = ", evaluations=2, epochs=1, final_epochs=1, channels=4, cells=1"
    (code,) = blocks("README.md")
    shortened = re.sub(r", evaluations=\d+", small, code)
    assert shortened != code
    names: dict[str, object] = {"__name__": "readme"}
    exec(compile(shortened, "README.md", "exec"), names)  # noqa: S102
