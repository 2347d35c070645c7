"""The picture of each method's page: the part of a real run's page that shows what the method found out."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

from archwright.report import report_run
from archwright.search.answer import Answer
from archwright.search.engine import search

pytestmark = pytest.mark.e2e
EXAMPLES = Path(__file__).parents[2] / "examples"
SHOWN = {
    "tutorials/rarts_width": "The network",
    "tutorials/conas": "What the loss depends on",
    "tutorials/nesbs": "Good alone or different from each other",
    "tutorials/nsga2": "Objectives",
}
"""The heading whose card is the picture."""


def test_hnas_learns_how_to_weigh_scores(open_page: Callable, shots: Path, tmp_path: Path, nb201) -> None:
    found = search("hnas", benchmark="nb201", evaluations=20, pool=300, run=tmp_path / "run")
    page = open_page(report_run(found.folder).resolve().as_uri(), 860, 900).page
    card = page.locator("section", has=page.get_by_role("heading", name="The history of the optimisation")).first
    assert card.locator("circle").count() >= 15
    card.screenshot(path=shots / "method-hnas.png")


@pytest.mark.parametrize("name", SHOWN)
def test_the_page_of_an_example_shows_what_its_method_found_out(
    name: str, open_page: Callable, shots: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = runpy.run_path(str(EXAMPLES / f"{name}.py"))["found"]
    assert isinstance(found, Answer)
    page = open_page(report_run(found.folder).resolve().as_uri(), 860, 900).page
    card = page.locator("section", has=page.get_by_role("heading", name=SHOWN[name], exact=True)).first
    card.scroll_into_view_if_needed()
    assert card.locator("svg, table").count() >= 1
    card.screenshot(path=shots / f"method-{Path(name).name}.png")
