"""``archwright predict``: classify image files and folders with a saved model, for people, scripts or a table."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING

import click

from archwright.cli.values import COUNT, OVERWRITE, PATH, TEXT, refuse_idle

if TYPE_CHECKING:
    from archwright.models import Prediction

CSV_HEAD = b"image,class_1,probability_1"
"""How every table of ours begins."""


@click.command("predict", epilog="Example: archwright predict last photos/ --csv answers.csv")
@click.argument("model", type=TEXT)
@click.argument("images", nargs=-1, required=True, type=PATH)
@click.option(
    "--space",
    type=TEXT,
    help="Space of a model whose space is your own: MODULE:OBJECT or FILE.py:OBJECT, which is imported.",
)
@click.option("--top", type=COUNT, default=3, show_default=True, help="Classes to show.")
@click.option("--csv", "table", type=PATH, help="Write classes and probabilities to this file.")
@OVERWRITE
@click.option("--skip-bad", is_flag=True, help="Leave out unreadable images instead of stopping.")
@click.option("--allow-import", is_flag=True, help="Run the module of yours that MODEL names, where it names one.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object as the last line.")
def predict_command(
    model: str,
    images: tuple[Path, ...],
    space: str | None,
    top: int,
    table: Path | None,
    overwrite: bool,
    skip_bad: bool,
    allow_import: bool,
    as_json: bool,
) -> None:
    """Classify IMAGES (files, or folders of them) with MODEL: a .safetensors or .onnx file, a run, or 'last'."""
    from archwright.cli.view import print_json, show_predictions
    from archwright.data.folder import image_files
    from archwright.errors import InputError
    from archwright.models import load_classifier
    from archwright.paths import check_output
    from archwright.runs.files import write_atomic
    from archwright.spaces.registry import find_space
    from archwright.terminal import say

    paths = [file for path in images for file in (image_files(path) if path.is_dir() else [path])]
    place = place_of(model)
    if table is None:
        refuse_idle("without --csv", "overwrite")
    else:
        check_output(table, CSV_HEAD, overwrite, (*paths, place))
    found: list[Prediction] = []
    own = None if space is None else find_space(space)
    for one in load_classifier(place, own, allow_import=allow_import).predictions(paths, top=top):
        if not isinstance(one, InputError):
            found.append(one)
        elif skip_bad:
            say(f"Left out: {one.got}", stderr=True)
        else:
            raise one
    if table is not None:
        write_atomic(table, _as_csv(found).encode("utf-8", "backslashreplace"))
    if as_json:
        rows = [{"image": p.image, "class": p.label, "probability": p.probability, "top": p.top} for p in found]
        print_json({"model": str(model), "predictions": rows})
    elif table is None:
        show_predictions(found)
    else:
        say(f"{table}: {len(found)} images")


def place_of(model: str) -> Path:
    """Where a model lies: a path as it is given, a run by its name, or the last run."""
    from archwright.runs.run import find_run, runs_root

    named = model == "last" or (runs_root() / model / "run.json").is_file()
    return find_run(model).folder if named else Path(model)


def _as_csv(predictions: list[Prediction]) -> str:
    """One row an image: its path, the class, its probability, then the further classes in pairs."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    most = max((len(one.top) for one in predictions), default=1)
    writer.writerow(["image", *(f"{name}_{rank}" for rank in range(1, most + 1) for name in ("class", "probability"))])
    for one in predictions:
        writer.writerow([one.image, *(f"{v:.6f}" if isinstance(v, float) else v for pair in one.top for v in pair)])
    return text.getvalue()
