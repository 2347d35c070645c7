"""``archwright latency``: the latency table of a space on this machine."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from archwright.bounds import MOST_COUNT
from archwright.cli.values import (
    BATCH,
    CLASSES,
    COUNT,
    COUNT_OR_NONE,
    OVERWRITE,
    PATH,
    PIXELS,
    TEXT,
    THREADS,
    WIDTH,
    YES,
)

NETWORKS = click.IntRange(20, MOST_COUNT)
CHOICE_1_3 = click.Choice(["1", "3"])


@click.command("latency", epilog="Example: archwright latency --data folder:photos --threads 2")
@click.option(
    "--space",
    type=TEXT,
    default="compact",
    show_default=True,
    help="Space whose blocks are timed; mbconv for --plan paper, or model:FILE.py:OBJECT.",
)
@click.option("--data", type=TEXT, help="Take image size, channels and classes from these data, as a search does.")
@click.option("--image-size", type=PIXELS, help="Without --data: image size in pixels. [default: 32]")
@click.option("--image-channels", type=CHOICE_1_3, help="Without --data: 1 (grey) or 3. [default: 3]")
@click.option("--classes", type=CLASSES, help="Without --data: number of classes. [default: 10]")
@click.option(
    "--scale",
    "preset",
    type=TEXT,
    default="small",
    show_default=True,
    help="Size of the networks, as --scale of a search.",
)
@click.option("--width", type=WIDTH, help="Factor on all widths, instead of the scale's.")
@click.option(
    "--backend",
    default="eager",
    show_default=True,
    type=click.Choice(["eager", "onnxruntime"]),
    help="What runs the networks: PyTorch as it is, or ONNX Runtime on the CPU.",
)
@click.option(
    "--device", type=TEXT, default="cpu", show_default=True, help="What runs the eager back end: cpu, cuda or mps."
)
@click.option("--threads", type=THREADS, default=1, show_default=True, help="CPU threads of the back end.")
@click.option("--batch", type=BATCH, default=1, show_default=True, help="Images a call.")
@click.option(
    "--dtype",
    default="float32",
    show_default=True,
    type=click.Choice(["float32", "bfloat16", "float16"]),
    help="Number type of weights and images; float32 with ONNX Runtime.",
)
@click.option(
    "--warm-up", type=COUNT_OR_NONE, default=10, show_default=True, help="Calls before each round that do not count."
)
@click.option("--repeats", type=COUNT, default=50, show_default=True, help="Timed calls; the quickest round counts.")
@click.option("--networks", type=NETWORKS, default=20, show_default=True, help="Whole networks that correct the sums.")
@click.option(
    "--validation-networks", type=COUNT_OR_NONE, default=0, show_default=True, help="Further ones to check it on."
)
@click.option("--out", type=PATH, help="Where to write the table; default: in the runs folder.")
@OVERWRITE
@YES
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object as the last line of stdout.")
def latency_command(
    space: str,
    data: str | None,
    image_size: int | None,
    image_channels: str | None,
    classes: int | None,
    preset: str,
    width: float | None,
    backend: str,
    device: str,
    threads: int,
    batch: int,
    dtype: str,
    warm_up: int,
    repeats: int,
    networks: int,
    validation_networks: int,
    out: Path | None,
    overwrite: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Measure every block of a space here, for searches under a latency limit; an interrupted measurement goes on."""
    import time

    from archwright.costs.measure import Timing
    from archwright.measuring import latency
    from archwright.runs.progress import TerminalProgress

    begin = time.perf_counter()
    measured = latency(
        space,
        data=data,
        classes=classes,
        image_size=image_size,
        image_channels=None if image_channels is None else int(image_channels),
        scale=preset,
        width=width,
        timing=Timing(backend, threads, batch, dtype, warm_up, repeats, processor=device),  # type: ignore[arg-type]
        networks=networks,
        validation_networks=validation_networks,
        out=out,
        overwrite=overwrite,
        yes=yes,
        progress=TerminalProgress(),
    )
    table, path, chosen = measured.table, measured.path, measured.space
    costs, correction = table.costs(chosen), table.correction
    assert correction is not None
    lightest, heaviest = table.predict(chosen, [chosen.lightest(), chosen.heaviest()]).tolist()
    result = {
        "space": space,
        "table": str(path),
        **table.provenance.model_dump(),
        "image_size": chosen.scale.image_size,
        "parts": len(table.entries),
        "fixed_ms": costs.fixed_costs["latency_ms"],
        "lightest_ms": lightest,
        "heaviest_ms": heaviest,
        "correction": correction.model_dump(),
        "seconds": round(time.perf_counter() - begin, 1),
    }
    if as_json:
        from archwright.cli.view import print_json

        print_json(result)
        return
    many = f"{threads} thread{'s' * (threads != 1)}"
    click.echo(f"{table.provenance.device}, {backend}, {many}, batch {batch}: {len(table.entries)} parts.")
    click.echo(f"Networks of the space take {lightest:.3g} ms (lightest) to {heaviest:.3g} ms (heaviest).")
    more = f"{1000 * correction.part_ms:+.3g} µs for each part and {1000 * correction.intercept_ms:+.3g} µs"
    click.echo(f"Whole networks take {correction.slope:.3f} times the sum of their parts, {more}.")
    if correction.median_error is not None:
        click.echo(f"Median error on {validation_networks} other networks: {100 * correction.median_error:.1f} %.")
        assert correction.repeat_noise is not None
        click.echo(f"Two halves of the measurement of one differ by {100 * correction.repeat_noise:.1f} % (median).")
    words = [*(["--plan", "paper"] if space == "mbconv" else []), *([] if data is None else ["--data", data])]
    click.echo(f"Use it with: archwright search binas {shlex.join([*words, '--latency-table', str(path)])}")
