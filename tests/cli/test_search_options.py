"""Options of the search commands as the command line reads them."""

from __future__ import annotations

import re
from typing import Any

import click
import pytest
from click.testing import CliRunner

from archwright.cli import view
from archwright.cli.main import cli, main
from archwright.search import engine
from archwright.search.flags import limit_flag
from archwright.search.registry import methods


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

    assert DartsOptions(order=searched[0]["order"]).order == order


def test_other_choices_are_refused(searched: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        main(["search", "darts", "--order", "3"])
    assert leaving.value.code == 2
    assert "'3' is not one of" in capsys.readouterr().err
    assert not searched


# --- help -------------------------------------------------------------------------------------------------------------

NAMES = [entry.name for entry in methods]


def sections(method: str) -> dict[str, str]:
    """The text under each heading of a method's help."""
    text = CliRunner().invoke(cli, ["search", method, "--help"], prog_name="archwright", terminal_width=400).output
    parts = re.split(r"^(\S.*):\n", text, flags=re.MULTILINE)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


@pytest.mark.parametrize("method", NAMES)
def test_help_shows_options_under_headings_limits_first(method: str) -> None:
    shown = sections(method)
    limits = ["Limits"] * bool(methods.get(method).resources)
    headings = [heading.partition(" (")[0] for heading in shown if heading]
    assert headings[: len(limits) + 2] == [*limits, "Data", "Time and device"]
    assert headings[-1] == "Run and output"
    assert "--data" in shown["Data"]
    assert "--device" in shown["Time and device"]
    assert len(set(headings)) == len(headings)


@pytest.mark.parametrize("method", NAMES)
def test_the_example_of_a_method_that_keeps_limits_has_one(method: str) -> None:
    (example,) = [line.strip() for line in sections(method)[""].splitlines() if "Example:" in line]
    words = example.removeprefix("Example: archwright search ").split()
    assert words[0] == method
    kept = {limit_flag(name) for name in methods.get(method).resources}
    assert bool(kept & set(words)) == bool(kept)


HANGING = re.compile(r"(Its|It|And|Of|At|With which|How it|How:|Where it|That of|As a part)\b")


@pytest.mark.parametrize("method", NAMES)
def test_every_line_of_help_is_a_sentence_that_stands_alone(method: str) -> None:
    command = cli.commands["search"].get_command(click.Context(cli), method)
    for option in command.params:
        if not option.hidden:
            assert re.match(r"[A-Z].*\.( \[default: .+\])?$", option.help), option.help
            assert not HANGING.match(option.help), option.help


def test_help_of_binas_has_its_options_by_plan() -> None:
    shown = sections("binas")
    options = {line.split()[0] for line in shown["Plan"].splitlines() if line.strip().startswith("--")}
    assert {"--plan", "--plan-from", "--pretrained", "--minutes-of", "--limits-equally"} == options
    assert "--beside" in shown["Time and device"]
    assert "--rows" in shown["With --plan paper"]
    assert "--latency-threads INTEGER" in shown["Latencies"]
    assert "--executor" not in "".join(shown.values())
    assert "Not with --plan fast, which counts steps" in shown["Training"]
