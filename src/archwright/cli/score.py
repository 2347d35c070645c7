"""``archwright score``: training-free scores of architectures from arguments, a file or stdin."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from archwright.cli.values import BATCH, CELLS, CHANNELS, COUNT, PATH, PIXELS, SEED, TEXT, WORKERS, YES, refuse_idle
from archwright.errors import InputError

if TYPE_CHECKING:
    from archwright.proxies.score import Scores

MOST_CHARACTERS = 100_000_000
"""Read from stdin."""


@click.command("score", epilog="Example: archwright score --file cells.txt --metrics trace,kappa")
@click.argument("architectures", nargs=-1)
@click.option("--file", "path", type=PATH, help="One architecture a line; - reads stdin.")
@click.option(
    "--network",
    "networks",
    multiple=True,
    type=TEXT,
    help="Your own network instead: MODULE:FUNCTION or FILE.py:FUNCTION, imported and called with what it takes of "
    "classes, image_size, image_channels; returns a module or a dict of modules. Repeatable.",
)
@click.option("--space", type=TEXT, default="nasbench201", show_default=True, help="Space of the architectures.")
@click.option(
    "--metrics",
    type=TEXT,
    default="grad,snip,trace,kappa",
    show_default=True,
    help="Comma-separated; see: archwright proxies.",
)
@click.option("--data", type=TEXT, default="digits", show_default=True, help="Images that a score is computed on.")
@click.option("--channels", type=CHANNELS, default=4, show_default=True, help="Channels of the network that is scored.")
@click.option(
    "--cells",
    type=CELLS,
    default=3,
    show_default=True,
    help="Cells of that network (a stage, or in all).",
)
@click.option("--image-size", type=PIXELS, help="Image size in pixels. [default: 8; with --network that of the data]")
@click.option("--batch-size", type=BATCH, default=64, show_default=True, help="Images of a batch.")
@click.option(
    "--initialisation",
    default="lecun",
    show_default=True,
    type=click.Choice(["lecun", "xavier", "he"]),
    help="Scale of the initial weights.",
)
@click.option(
    "--ntk",
    default="contracted",
    show_default=True,
    type=click.Choice(["contracted", "exact"]),
    help="Tangent kernel behind trace, kappa and knas.",
)
@click.option(
    "--replicates", type=COUNT, default=1, show_default=True, help="Draws of weights and images that a score averages."
)
@click.option("--seed", type=SEED, default=0, show_default=True, help="Random seed.")
@click.option("--executor", type=TEXT, default="here", show_default=True, help="here, processes or ray.")
@click.option("--workers", type=WORKERS, default=1, show_default=True, help="Processes of the executor.")
@click.option("--address", type=TEXT, help="HOST:PORT of a Ray cluster.")
@YES
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object as the last line of stdout.")
def score_command(
    architectures: tuple[str, ...],
    path: Path | None,
    networks: tuple[str, ...],
    space: str,
    metrics: str,
    data: str,
    channels: int,
    cells: int,
    image_size: int | None,
    batch_size: int,
    initialisation: str,
    ntk: str,
    replicates: int,
    seed: int,
    executor: str,
    workers: int,
    address: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Score ARCHITECTURES, or networks of your own, without training them, the best by the first metric first."""
    from archwright.measuring import build_networks, score
    from archwright.runs.progress import TerminalProgress

    texts = _texts(architectures, path)
    if bool(texts) == bool(networks):
        raise InputError("architectures as arguments or --file, or --network", "both" if texts else "none")
    request: dict[str, Any] = {
        "batch_size": batch_size,
        "initialisation": initialisation,
        "ntk": ntk,
        "replicates": replicates,
    }
    request |= {} if image_size is None else {"image_size": image_size}
    names = tuple(name.strip() for name in metrics.split(","))
    if networks:
        refuse_idle("beside --network", "space", "channels", "cells", "executor", "workers", "address")
        click.echo(f"importing {', '.join(networks)}", err=True)
        own = {name: network for one in networks for name, network in build_networks(one, data).items()}
        scores = score(list(own.values()), data, names, seed=seed, yes=yes, progress=TerminalProgress(), **request)
        _show("network", list(own), scores, as_json, {})
        return
    scores = score(
        texts,
        data,
        names,
        space=space,
        seed=seed,
        executor=executor,
        workers=workers,
        address=address or "",
        yes=yes,
        progress=TerminalProgress(),
        channels=channels,
        cells=cells,
        **request,
    )
    _show("architecture", texts, scores, as_json, {"space": space})


def _show(kind: str, labels: list[str], scores: Scores, as_json: bool, head: dict[str, str]) -> None:
    """One table of what was scored, the best by the first metric first."""
    order = scores.best_first(scores.metrics[0])
    rows = [{kind: labels[i], **{name: float(scores[name][i]) for name in scores.metrics}} for i in order.tolist()]
    if as_json:
        from archwright.cli.view import print_json

        print_json({**head, "metrics": list(scores.metrics), "scores": rows})
        return
    from archwright.terminal import show_table

    directions = ["higher" if d > 0 else "lower" for d in scores.directions]
    heads = [f"{name} ({word} is better)" for name, word in zip(scores.metrics, directions, strict=True)]
    show_table((*heads, kind), [(*[f"{row[name]:.4g}" for name in scores.metrics], str(row[kind])) for row in rows])


def _texts(architectures: tuple[str, ...], path: Path | None) -> list[str]:
    """The architectures of the arguments and of the file, or of stdin."""
    if path is None:
        return list(architectures)
    if str(path) != "-" and not path.is_file():
        raise InputError("a file with one architecture a line", str(path))
    lines = _read_stdin() if str(path) == "-" else _read(path)
    return [*architectures, *(line.strip() for line in lines.splitlines() if line.strip())]


def _read_stdin() -> str:
    """All that is piped in, up to a size that no list of architectures has."""
    text = sys.stdin.read(MOST_CHARACTERS + 1)
    if len(text) > MOST_CHARACTERS:
        raise InputError(f"up to {MOST_CHARACTERS:,} characters on stdin", "more")
    return text


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError("a text file with one architecture a line", f"{path} ({error})") from error
