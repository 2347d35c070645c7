"""The page of all that the texts claim: complete by number, every command there is, every row with a verdict."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from archwright.cli.main import cli
from archwright.reproduce.base import reproductions
from archwright.reproduce.coverage import VERDICTS, claims, coverage, data, page, runs

ROOT = Path(__file__).parents[2]
WORDS = {
    "Table": r"(?:Table|TABLE)s?",
    "Figure": r"(?:Figure|FIGURE|Fig\.)s?",
    "Theorem": r"(?:Theorem|THEOREM)",
    "Proposition": r"Proposition",
    "Corollary": r"Corollary",
    "Algorithm": r"Algorithm",
}
FILES = {"IQNAS": "iqnas", "BINAS": "binas-appendix", "CoNAS": "conas", "RARTS": "rarts", "thesis": "thesis"}


def numbered() -> list[str]:
    return [
        f"{t} {kind} {n}" for t, kinds in data()["numbers"].items() for kind, several in kinds.items() for n in several
    ]


def test_every_number_of_the_texts_has_one_row() -> None:
    labels = [one.label for one in claims()]
    assert len(set(labels)) == len(labels)
    assert set(labels) == set(numbered())


@pytest.mark.parametrize("text", FILES)
def test_the_numbers_are_those_of_the_texts(text: str) -> None:
    path = ROOT.parent / "shared" / "papers" / f"{FILES[text]}.txt"
    if not path.is_file():
        pytest.skip(f"no {path.name} beside the project")
    content = path.read_text(encoding="utf-8", errors="replace")
    named = {
        f"{kind} {number}"
        for kind, word in WORDS.items()
        for number in re.findall(rf"\b{word}\s*((?:[A-H]\.)?\d+(?:\.\d+)*)", content)
    }
    known = {f"{kind} {n}" for kind, several in data()["numbers"][text].items() for n in several}
    assert named - known - set(data()["elsewhere"][text]) == set()
    assert known - named == set()  # nothing is made up


def test_every_row_has_a_verdict_and_a_command_that_exists() -> None:
    names = {entry.name for entry in reproductions}
    for one in claims():
        assert one.verdict in VERDICTS, one.label
        assert one.paper, one.label
        assert one.ours or one.verdict == "claims nothing", one.label
        words = one.command.split()
        assert words or one.verdict == "claims nothing", one.label
        if words[:2] == ["archwright", "reproduce"]:
            assert words[2] in names, one.label
            assert words[2] in runs(), one.label
        elif words[:1] == ["pytest"]:
            assert (ROOT / words[1]).is_file(), one.label
    assert set(runs()) <= names
    assert set(data()["beside"]) <= set(runs())


def test_the_page_in_the_documentation_is_the_command_s() -> None:
    assert (ROOT / "docs" / "papers.md").read_text(encoding="utf-8") == page()


def test_rows_in_the_documentation_are_of_commands_that_exist() -> None:
    files = sorted((ROOT / "docs" / "measured" / "rows").glob("*.json"))
    assert files
    names = {entry.name for entry in reproductions}
    for path in files:
        found = json.loads(path.read_text(encoding="utf-8"))
        assert found["id"] in names, path
        assert path.stem.startswith(found["id"]), path
        assert set(found) == {"id", "scale", "seconds", "rows", "notes"}
        assert all(set(row) == {"label", "unit", "paper", "ours", "ours_std"} for row in found["rows"])


def test_the_command_prints_rows_as_json() -> None:
    result = CliRunner().invoke(cli, ["reproduce", "--coverage", "--json"])
    assert result.exit_code == 0
    assert '"label": "thesis Table 7.3"' in result.output
    found = coverage()
    assert sum(found["verdicts"].values()) == len(found["rows"])
    bad = CliRunner().invoke(cli, ["reproduce", "thesis-7.3", "--coverage"])
    assert bad.exit_code != 0
