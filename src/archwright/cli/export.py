"""``archwright export``: a trained network as files for other programs, each checked against PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from archwright.cli.predict import place_of
from archwright.cli.values import OVERWRITE, PATH, TEXT

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MOST_IMAGES = 1000
"""Training images that are read to calibrate int8; some of them are taken."""


@click.command("export", epilog="Example: archwright export last model.onnx model.pt2")
@click.argument("model", type=TEXT)
@click.argument("files", nargs=-1, required=True, type=PATH, metavar="FILE...")
@click.option("--int8", is_flag=True, help="Compute in int8; ranges are taken from the run's training images.")
@click.option("--calibrate", type=TEXT, metavar="DATA", help="Other images for --int8: folder:PATH, npz:PATH or a set.")
@OVERWRITE
@click.option("--allow-import", is_flag=True, help="Run the module of yours that MODEL names, where it names one.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object as the last line.")
def export_command(
    model: str,
    files: tuple[Path, ...],
    int8: bool,
    calibrate: str | None,
    overwrite: bool,
    allow_import: bool,
    as_json: bool,
) -> None:
    """Write MODEL (a run, a .safetensors file, or 'last') as each FILE; the ending of a FILE says the format.

    .onnx, .xml (OpenVINO), .pt2 (torch.export) and .torchscript. Each is run and compared with PyTorch first.
    """
    from archwright.cli.view import print_json
    from archwright.errors import InputError
    from archwright.formats import FORMATS, export
    from archwright.models import load_model
    from archwright.terminal import show_table

    if calibrate is not None and not int8:
        raise InputError("--calibrate with --int8", "--calibrate alone")
    place = place_of(model)
    found = load_model(place, allow_import=allow_import)
    images = _calibration(place, calibrate, found) if int8 else None
    rows: list[dict[str, Any]] = []
    for path in files:
        difference = export(found, path, overwrite, images)
        size = path.stat().st_size + (path.with_suffix(".bin").stat().st_size if path.suffix == ".xml" else 0)
        rows.append({"file": str(path), "format": FORMATS[path.suffix].name, "bytes": size, "difference": difference})
    if as_json:
        print_json({"model": model, "int8": int8, "files": rows})
        return
    texts = [
        (one["file"], one["format"], f"{one['bytes'] / 1e3:,.0f} kB", f"{one['difference']:.1e}", _runs(one["file"]))
        for one in rows
    ]
    show_table(("file", "format", "size", "difference from PyTorch", "runs in"), texts)


def _runs(file: str) -> str:
    from archwright.formats import FORMATS

    return FORMATS[Path(file).suffix].runs.replace("`", "")


def _calibration(place: Path, named: str | None, model: Any) -> NDArray[np.uint8]:
    """Training images of the data that are named, or of the run."""
    import numpy as np

    from archwright.data import load
    from archwright.errors import InputError

    if named is not None:
        data = load(named, image_size=model.preprocessing.image_size)
    elif (place / "run.json").is_file():
        data = _images_of_run(place)
    else:
        raise InputError("a run, or --calibrate DATA, for --int8", str(place), "Images to calibrate on are needed.")
    if data.image_channels != model.preprocessing.image_channels:
        raise InputError(
            f"images of {model.preprocessing.image_channels} channel(s)", f"{data.image_channels} in {data.spec}"
        )
    pixels: NDArray[np.uint8] = data.train.pixels(np.arange(min(MOST_IMAGES, len(data.train)))).numpy()
    return pixels


def _images_of_run(folder: Path) -> Any:
    from archwright.runs.run import Run
    from archwright.search.configuration import Configuration, validated
    from archwright.search.task import Task

    configuration = validated(Configuration, Run.open(folder).configuration, f"configuration in {folder}")
    return Task(configuration, folder).data
