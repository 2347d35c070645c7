"""Options of the search commands as the command line reads them."""

from __future__ import annotations

from typing import Any

import pytest

from archwright.cli import view
from archwright.cli.main import main
from archwright.search import engine


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What reaches :func:`archwright.search.engine.search`."""
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(engine, "search", lambda name, **values: calls.append(values))
    monkeypatch.setattr(view, "show_answer", lambda *_: None)
    return calls


@pytest.mark.parametrize(("text", "order"), [("1", 1), ("2", 2)])
def test_choices_that_are_numbers_reach_the_method_as_numbers(
    searched: list[dict[str, Any]], text: str, order: int
) -> None:
    with pytest.raises(SystemExit) as leaving:
        main(["search", "darts", "--data", "digits", "--order", text])
    assert not leaving.value.code
    from archwright.methods.darts import DartsOptions

    assert DartsOptions(**searched[0]["options"]).order == order


def test_other_choices_are_refused(searched: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        main(["search", "darts", "--order", "3"])
    assert leaving.value.code == 2
    assert "'3' is not one of" in capsys.readouterr().err
    assert not searched
