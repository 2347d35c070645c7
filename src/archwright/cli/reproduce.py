"""``archwright reproduce ID``: a table of a paper, ours beside theirs."""

from __future__ import annotations

from typing import Any

import click


@click.command("reproduce")
@click.argument("name", metavar="ID", required=False)
@click.option("--seeds", type=int, help="Seeds or draws instead of the table's own number.")
@click.option("--data", help="Images to use instead of the CIFAR-10 subset in the data folder.")
@click.option("--only", help="One data set of a reproduction of several (binas-compare).")
@click.option("--workers", type=int, default=2, show_default=True, help="Processes.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object as the last line of stdout.")
def reproduce_command(
    name: str | None, seeds: int | None, data: str | None, only: str | None, workers: int, as_json: bool
) -> None:
    """Measure a table or figure of a paper again. Without ID: list what there is."""
    from archwright.cli.view import print_json
    from archwright.errors import InputError
    from archwright.reproduce.base import Settings, folder_of, reproduce, reproductions
    from archwright.runs.progress import TerminalProgress

    if name is None:
        for entry in reproductions:
            click.echo(f"{entry.name:<14} {entry.summary}")
        return
    if seeds is not None and seeds < 1:
        raise InputError("at least one seed", str(seeds))
    settings = Settings(folder_of(name), seeds, data, workers, TerminalProgress(), only)
    result = reproduce(name, settings)
    if as_json:
        print_json(result)
    else:
        _show(result, str(settings.folder))


def _show(result: dict[str, Any], folder: str) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, soft_wrap=True)
    table = Table("", "paper", "ours", "deviation", "unit", title=f"{result['id']} ({result['scale']})")
    for row in result["rows"]:
        cells = [_number(row[key], row["unit"]) for key in ("paper", "ours", "ours_std")]
        table.add_row(row["label"], *cells, row["unit"])
    console.print(table)
    for note in result["notes"]:
        console.print(f"- {note}", markup=False)
    console.print(f"{folder}/result.json, {folder}/plot.png ({result['seconds']} s)", markup=False)


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if unit == "evaluations" else f"{value:.2f}" if abs(value) >= 10 else f"{value:.3f}"
