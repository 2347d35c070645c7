"""What users read is true: Python is run, command lines are parsed, option tables name options that exist."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import click
import pytest

from archwright.cli.main import cli
from archwright.errors import InputError
from archwright.proxies.registry import PROXIES
from archwright.reproduce.base import reproductions
from archwright.search.configuration import Configuration
from archwright.search.registry import methods
from archwright.spaces.registry import spaces

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LONGEST = 1500
"""Words of a page, but for what was measured, and for the reference."""
REFERENCE = {"api.md", "papers.md"}
STANDS_FOR = {"METHOD": "random", "ID": "thesis-7.3", "DATA": "digits", "N": "2", "COMMAND": "doctor"}
"""Words in command lines that a reader replaces."""


def blocks(name: str) -> list[str]:
    """The Python blocks of a page, in order."""
    return re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), flags=re.DOTALL)


def run(page: str) -> None:
    """All Python blocks of a page as one program."""
    names: dict[str, object] = {"__name__": "docs"}
    for block in blocks(page):
        exec(compile(block, page, "exec"), names)  # noqa: S102 - our own page


def test_your_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(blocks("docs/your-own.md")) >= 8
    run("docs/your-own.md")
    assert (tmp_path / "my-study" / "run.json").exists()


def test_your_own_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    run("docs/own-network.md")
    assert "156 networks" in capsys.readouterr().out


def test_extending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    for registry in (spaces, methods, PROXIES):  # what the page registers is for this test only
        monkeypatch.setattr(registry, "entries", dict(registry.entries))
        monkeypatch.setattr(registry, "_added", set(registry._added))
    run("docs/extending.md")
    assert "|" in capsys.readouterr().out  # the architecture that the page's own method found


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


def defaults() -> dict[str, set[str]]:
    """Option -> its defaults in all methods, as text; numbers as floats are written."""
    found: dict[str, set[str]] = {}
    for entry in methods:
        for name, field in {**Configuration.model_fields, **methods.get(entry.name).Options.model_fields}.items():
            if isinstance(field.default, int | float | str) and not isinstance(field.default, bool):
                found.setdefault(name, set()).add(plain(str(field.default)))
    return found


def plain(text: str) -> str:
    """A number in one form; a name without its quotes."""
    try:
        return str(float(text))
    except ValueError:
        return text.strip("`")


def test_defaults_in_tables_are_the_codes() -> None:
    known, compared = defaults(), 0
    for page in PAGES:
        for row in re.findall(r"^\|(.*)\|$", page.read_text(), flags=re.MULTILINE):
            first, second, *_ = [*re.split(r"(?<!\\)\|", row), ""]
            options = [name.replace("-", "_") for name in re.findall(r"`(?:--)?([a-z_-]+)`", first)]
            said = second.strip().split(", ")
            for option, text in zip(options, said, strict=False) if len(options) == len(said) else ():
                if option in known and re.fullmatch(r"-?[\d.]+(e-?\d+)?|`[a-z-]+`", text):
                    assert plain(text) in known[option], f"{page.name}: {first.strip()}"
                    compared += 1
    assert compared > 40


# --- pages -----------------------------------------------------------------------------------------------------------


def test_every_method_has_a_page_with_all_that_readers_look_for() -> None:
    wanted = (r"^#+ When to use", r"^#+ Settings", r"^#+ Where .*differ", r"^#+ Measured")
    texts = [both(page) for page in PAGES if page.parent.name == "docs"]
    whole = [text for text in texts if all(re.search(head, text, flags=re.MULTILINE) for head in wanted)]
    without = [
        entry.name
        for entry in methods
        if not any(re.search(rf"`{entry.name}`|search {entry.name} ", text) for text in whole)
    ]
    choosing = (ROOT / "docs" / "choosing.md").read_text()
    assert without == []
    assert [name for name in ("binas", "hnas", "nasi", "conas", "rarts", "nesbs") if name not in choosing] == []


def both(page: Path) -> str:
    """A page with what was measured and what a paper has, where these have pages of their own."""
    further = (page.parent / "measured" / page.name, page.with_stem(f"{page.stem}-paper"))
    return page.read_text() + "".join(one.read_text() for one in further if one.exists())


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_a_page_can_be_read_at_a_sitting(page: Path) -> None:
    assert page.name in REFERENCE or len(page.read_text().split()) <= LONGEST


def test_pages_of_what_was_measured_are_led_to() -> None:
    for page in (ROOT / "docs" / "measured").glob("*.md"):
        assert f"measured/{page.name}" in (ROOT / "docs" / page.name).read_text()


@pytest.mark.parametrize("page", ["docs/trackers.md", "docs/coming-from.md"])
def test_pages_with_programs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert blocks(page)
    run(page)


def test_numbers_of_the_decision_table_are_on_the_pages_it_leads_to() -> None:
    """A page that was measured anew changes the table, too."""
    own = ROOT / "docs" / "choosing.md"
    others = "".join(page.read_text() for page in PAGES if page != own)
    numbers = re.findall(r"\d+\.\d+(?= (?:s|%|times|and)\b| %)", own.read_text())
    assert len(numbers) > 10
    assert [one for one in numbers if not re.search(rf"(?<![\d.]){re.escape(one)}(?!\d)", others)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_files_lead_somewhere(page: Path) -> None:
    """In the repository; on the site `make docs` checks them, with their anchors."""
    prose = re.sub(r"^```.*?^```|`[^`]*`", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    links = re.findall(r"\]\(([^)#\s]+)", prose)
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


# --- command lines ---------------------------------------------------------------------------------------------------


def command_lines(text: str) -> list[str]:
    """What begins with ``archwright`` in blocks without a language and in inline code."""
    blocks = re.findall(r"^```(?:|bash|console)\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    inline = [" ".join(one.split()) for one in re.findall(r"`([^`]+)`", prose)]
    lines = [line.strip() for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    inline = [f"archwright {one}" if re.match(r"reproduce [a-z]+-\S+", one) else one for one in inline]
    return [line for line in [*lines, *inline] if re.match(r"archwright (?![.=])\S", line)]


def parse(arguments: list[str]) -> None:
    """All that click does before it would call the command."""
    context, command = click.Context(cli), cli
    while isinstance(command, click.Group):
        if not arguments or arguments[0].startswith("-"):
            if arguments[:1] == ["--debug"]:
                arguments = arguments[1:]
                continue
            return
        _, found, arguments = command.resolve_command(context, arguments)
        assert found is not None
        command = found
    if not arguments or "--help" in arguments:  # its name alone, in a sentence
        return
    context = command.make_context("command", arguments, parent=context)
    if command.name == "reproduce" and context.params["name"]:
        reproductions.get(context.params["name"])


def problem(words: list[str]) -> str:
    """What is wrong with a command line; empty where nothing is."""
    try:
        parse([STANDS_FOR.get(word, word) for word in words if word != "..."])
    except click.ClickException as error:
        return error.format_message()
    except InputError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_line_parses(page: Path) -> None:
    lines = [one for line in command_lines(page.read_text()) for one in line.split(" ; ")]
    single = [line for line in lines if "|" not in re.sub(r"'[^']*'", "", line)]  # not lists such as list|show
    wrong = {line: problem(shlex.split(line, comments=True)[1:]) for line in single}
    assert not {line: text for line, text in wrong.items() if text}


def all_options(command: click.Command, context: click.Context) -> set[str]:
    """Options of a command and of those below it."""
    if isinstance(command, click.Group):
        below = [command.get_command(context, name) for name in command.list_commands(context)]
        return {option for one in below if one is not None for option in all_options(one, context)}
    return {text for one in command.params for text in (*one.opts, *one.secondary_opts)}


def test_every_option_that_pages_name_exists() -> None:
    ours = all_options(cli, click.Context(cli)) | {"--debug", "--help"}
    scripts = "".join(
        path.read_text() for folder in ("benchmarks", "examples") for path in (ROOT / folder).glob("*.py")
    )
    torchrun = {"--nnodes", "--nproc-per-node", "--standalone", "--no-python", "--max-restarts"}
    torchrun |= {"--rdzv-backend", "--rdzv-endpoint", "--rdzv-id"}
    slurm = {"--nodes", "--ntasks-per-node", "--cpus-per-task", "--gpus-per-task", "--signal"}
    theirs = {"--head", "--strict", "--logdir"} | torchrun | slurm  # of Ray, MkDocs, TensorBoard and these
    for page in PAGES:
        named = {
            option
            for code in re.findall(r"`([^`]+)`", page.read_text())
            for option in re.findall(r"(?<!\S)--[a-z][a-z0-9-]*", code)
        }
        unknown = {one for one in named - ours - theirs if f'"{one}"' not in scripts}
        assert not unknown, page.name


def test_a_wrong_command_line_would_be_seen() -> None:
    lines = command_lines("```\narchwright search binas --latncy-ms 3  # wrong\n```\nand `archwright runs shw`.")
    assert [line.split()[1] for line in lines] == ["search", "runs"]
    assert "--latency-ms" in problem(shlex.split(lines[0], comments=True)[1:])
    assert problem(shlex.split(lines[1])[1:])
