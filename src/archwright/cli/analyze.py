"""``archwright analyze CELL``: what a cell is like and why it was chosen, as a table, JSON and one HTML page."""

from __future__ import annotations

from pathlib import Path

import click

from archwright.cli.values import OVERWRITE, PATH, TEXT, YES, FiniteRange, refuse_idle


@click.command("analyze")
@click.argument("cell", type=TEXT)
@click.option("--compare", multiple=True, type=TEXT, help="Another cell to compare with; repeatable.")
@click.option("--data", type=TEXT, default="digits", show_default=True, help="Images for the scores and the training.")
@click.option("--image-size", type=click.IntRange(4, 512), help="Image size in pixels.")
@click.option("--epochs", type=click.IntRange(0, 1000), default=4, show_default=True, help="Training epochs; 0: none.")
@click.option("--images", type=click.IntRange(80, 10_000_000), default=1000, show_default=True, help="Training images.")
@click.option(
    "--lr", type=FiniteRange(0, 10, min_open=True), default=0.025, show_default=True, help="Learning rate at the start."
)
@click.option(
    "--channels", type=click.IntRange(4, 256), default=8, show_default=True, help="Channels of the small network."
)
@click.option("--cells", type=click.IntRange(3, 100), default=5, show_default=True, help="Cells of the small network.")
@click.option(
    "--grid", type=click.IntRange(2, 201), default=15, show_default=True, help="Points a side of the landscape."
)
@click.option(
    "--variance-grid", type=click.IntRange(2, 51), default=5, show_default=True, help="The same for gradient variance."
)
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True, help="Random seed.")
@click.option("--out", type=PATH, help="The page; CELL.html here if not given.")
@OVERWRITE
@YES
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object as the last line of stdout.")
def analyze_command(
    cell: str,
    compare: tuple[str, ...],
    data: str,
    image_size: int | None,
    epochs: int,
    images: int,
    lr: float,
    channels: int,
    cells: int,
    grid: int,
    variance_grid: int,
    seed: int,
    out: Path | None,
    overwrite: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Why CELL? Width, depth, place in its space, scores, convergence, loss landscape, gradient variance.

    CELL is a published cell (darts-v2, enas, ...), a genotype, or a run whose best is taken.

    Example: archwright analyze DARTS_V2 --compare enas --epochs 8
    """
    from archwright.analysis.named import find_cell
    from archwright.analysis.page import AnalysisOptions, analyse, rows_of, seconds_of_analysis, write_page
    from archwright.data.request import DataRequest
    from archwright.effort import refuse_large
    from archwright.errors import InputError
    from archwright.paths import check_output
    from archwright.report.style import MARK
    from archwright.runs.progress import TerminalProgress
    from archwright.terminal import say, show_table

    if epochs == 0:
        refuse_idle("with --epochs 0", "lr", "images", "grid", "variance_grid")
    chosen = [find_cell(text) for text in (cell, *compare)]
    labels = [one.label for one in chosen]
    if len(set(labels)) < len(labels):
        raise InputError("different cells", f"{', '.join(labels)}", "Give each cell once.")
    path = out or Path(f"{'-'.join(labels)}.html")
    images_of = DataRequest(data, seed, image_size)
    check_output(path, MARK, overwrite, map(Path, images_of.needs))
    options = AnalysisOptions(images_of, epochs, channels, cells, images, lr, grid, variance_grid, seed)
    refuse_large("the analysis", seconds_of_analysis(chosen, options), yes=yes)
    found = analyse(chosen, options, TerminalProgress())
    write_page(chosen, found, options, path)
    if as_json:
        from archwright.cli.view import print_json

        print_json({"cells": found, "page": str(path)})
        return
    show_table(("", *labels), [(head, *values) for head, values in rows_of(found).items()])
    say(f"Page: {path}")
