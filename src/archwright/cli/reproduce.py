"""``archwright reproduce ID``: a table of a paper, ours beside theirs."""

from __future__ import annotations

from typing import Any

import click

from archwright.cli.values import COUNT, WORKERS


@click.command("reproduce", epilog="Example: archwright reproduce thesis-7.3")
@click.argument("name", metavar="[ID]", required=False)
@click.option("--seeds", type=COUNT, help="Number of seeds or draws, instead of the table's own.")
@click.option("--data", help="Images to use instead of the CIFAR-10 subset in the data folder.")
@click.option("--only", help="One part alone, where the list of reproductions names parts.")
@click.option("--architectures", type=COUNT, help="Networks to take (proxies-201, proxies-darts); all by default.")
@click.option("--coverage", is_flag=True, help="Every table, figure and theorem of the texts, and what came out.")
@click.option("--workers", type=WORKERS, default=2, show_default=True, help="Processes that work at once.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object as the last line of stdout.")
def reproduce_command(
    name: str | None,
    seeds: int | None,
    data: str | None,
    only: str | None,
    architectures: int | None,
    coverage: bool,
    workers: int,
    as_json: bool,
) -> None:
    """Measure a table or figure of a paper again. Without ID: list what there is."""
    from archwright.cli.view import print_json
    from archwright.reproduce.base import Settings, folder_of, reproduce, reproductions
    from archwright.runs.progress import TerminalProgress

    if coverage:
        _show_coverage(name, as_json)
        return
    if name is None:
        for entry in reproductions:
            click.echo(f"{entry.name:<14} {entry.summary}")
        return
    settings = Settings(folder_of(name), seeds, data, workers, TerminalProgress(), only, architectures)
    result = reproduce(name, settings)
    if as_json:
        print_json(result)
    else:
        _show(result, str(settings.folder))


def _show_coverage(name: str | None, as_json: bool) -> None:
    from archwright.cli.view import print_json
    from archwright.errors import InputError
    from archwright.reproduce.coverage import coverage, page

    if name is not None:
        raise InputError("no ID with --coverage, which lists all", repr(name))
    if as_json:
        print_json(coverage())
    else:
        click.echo(page(), nl=False)


def _show(result: dict[str, Any], folder: str) -> None:
    from archwright.terminal import say, show_table

    rows = []
    for row in result["rows"]:
        cells = [_number(row[key], row["unit"]) for key in ("paper", "ours", "ours_std")]
        rows.append((row["label"], *cells, row["unit"]))
    show_table(("", "paper", "ours", "deviation", "unit"), rows, title=f"{result['id']} ({result['scale']})")
    for note in result["notes"]:
        say(f"- {note}")
    say(f"{folder}/result.json, {folder}/plot.png ({result['seconds']} s)")


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if unit == "evaluations" else f"{value:.2f}" if abs(value) >= 10 else f"{value:.3f}"
