"""``archwright score``: training-free scores of architectures from arguments, a file or stdin."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from archwright.cli.values import BATCH, CELLS, CHANNELS, COUNT, PIXELS, SEED, TEXT, WORKERS
from archwright.errors import InputError


@click.command("score", epilog="Example: archwright score --file cells.txt --metrics trace,kappa")
@click.argument("architectures", nargs=-1)
@click.option("--file", "path", type=click.Path(path_type=Path), help="One architecture a line; - reads stdin.")
@click.option("--space", default="nasbench201", show_default=True, help="Their space.")
@click.option(
    "--metrics", default="grad,snip,trace,kappa", show_default=True, help="Comma-separated; see: archwright proxies."
)
@click.option("--data", default="digits", show_default=True, help="Images of the mini-batch.")
@click.option("--channels", type=CHANNELS, default=4, show_default=True, help="Of the small network that is scored.")
@click.option(
    "--cells",
    type=CELLS,
    default=3,
    show_default=True,
    help="Of that network (per stage, or in total).",
)
@click.option("--image-size", type=PIXELS, default=8, show_default=True, help="Images are averaged down to this.")
@click.option("--batch-size", type=BATCH, default=64, show_default=True, help="Images of a draw.")
@click.option("--initialisation", default="lecun", show_default=True, type=click.Choice(["lecun", "xavier", "he"]))
@click.option("--ntk", default="contracted", show_default=True, type=click.Choice(["contracted", "exact"]))
@click.option("--replicates", type=COUNT, default=1, show_default=True, help="Draws that a score averages.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="Of the draws.")
@click.option("--executor", default="here", show_default=True, help="here, processes or ray.")
@click.option("--workers", type=WORKERS, default=1, show_default=True, help="Processes of the executor.")
@click.option("--address", type=TEXT, help="HOST:PORT of a Ray cluster.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object as the last line of stdout.")
def score_command(
    architectures: tuple[str, ...],
    path: Path | None,
    space: str,
    metrics: str,
    data: str,
    channels: int,
    cells: int,
    image_size: int,
    batch_size: int,
    initialisation: str,
    ntk: str,
    replicates: int,
    seed: int,
    executor: str,
    workers: int,
    address: str | None,
    as_json: bool,
) -> None:
    """Score ARCHITECTURES without training them, the best by the first metric first."""
    from archwright.measuring import score
    from archwright.runs.progress import TerminalProgress
    from archwright.terminal import show_table

    texts = list(architectures)
    if path is not None:
        if str(path) != "-" and not path.is_file():
            raise InputError("a file with one architecture a line", str(path))
        lines = sys.stdin.read() if str(path) == "-" else _read(path)
        texts += [line.strip() for line in lines.splitlines() if line.strip()]
    if not texts:
        raise InputError("architectures as arguments, or --file", "none")
    scores = score(
        texts,
        tuple(name.strip() for name in metrics.split(",")),
        space=space,
        data=data,
        seed=seed,
        executor=executor,
        workers=workers,
        address=address or "",
        progress=TerminalProgress(),
        channels=channels,
        cells=cells,
        image_size=image_size,
        batch_size=batch_size,
        initialisation=initialisation,
        ntk=ntk,
        replicates=replicates,
    )
    order = scores.best_first(scores.metrics[0])
    rows = [
        {"architecture": texts[i], **{name: float(scores[name][i]) for name in scores.metrics}} for i in order.tolist()
    ]
    if as_json:
        from archwright.cli.view import print_json

        print_json({"space": space, "metrics": list(scores.metrics), "scores": rows})
        return
    directions = ["higher" if d > 0 else "lower" for d in scores.directions]
    heads = [f"{name} ({word} is better)" for name, word in zip(scores.metrics, directions, strict=True)]
    show_table(
        (*heads, "architecture"),
        [(*[f"{row[name]:.4g}" for name in scores.metrics], str(row["architecture"])) for row in rows],
    )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError("a text file with one architecture a line", f"{path} ({error})") from error
