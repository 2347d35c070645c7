"""One cell, or several side by side: everything the analysis says of them, as JSON and as one HTML page.

Structure costs nothing; with ``epochs`` a small network of every cell is trained and its convergence, landscape,
gradient variance and sharpness are measured as well.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from archwright.analysis.convergence import CellStudy, plot_curves, study_cell
from archwright.analysis.drawing import draw_cells
from archwright.analysis.landscape import Landscape, plot_landscapes
from archwright.analysis.named import NamedCell, build_network, count_cost
from archwright.analysis.placement import SAMPLE, Placement, placements, plot_placement
from archwright.data import Batches, ImageData
from archwright.data.request import DataRequest, load_data
from archwright.effort import TRAINING, seconds_of
from archwright.proxies.score import score
from archwright.report.style import GENERATOR
from archwright.runs.files import Json, save_figure, write_atomic
from archwright.runs.progress import Progress
from archwright.runs.stop import Stop
from archwright.spaces.base import Scale
from archwright.spaces.cells import CellPair

METRICS = ("trace", "kappa", "grad", "snip")
SCORED_IMAGES = 64


@dataclass(frozen=True)
class AnalysisOptions:
    """What to measure, and at which scale.

    Attributes:
        epochs: of the small networks' training; 0 leaves all that needs training out.
        grid: points a side of the landscape.
        variance_grid: points a side of the gradient's variance.
    """

    data: DataRequest
    epochs: int = 4
    channels: int = 8
    cells: int = 5
    images: int = 1000
    lr: float = 0.025
    grid: int = 15
    variance_grid: int = 5
    seed: int = 0
    sample: int = SAMPLE


def analyse(cells: Sequence[NamedCell], options: AnalysisOptions, progress: Progress) -> dict[str, Json]:
    """Topology, place, costs, scores and (with epochs) the study of every cell, by label.

    Args:
        cells: what is analysed, one after the other.
        options: images, scale, metrics and trainings.
        progress: where to show how far it is.
    """
    data = load_data(options.data)
    found: dict[str, Json] = {}
    with progress.task("analysing", len(cells)) as bar:
        for cell in cells:
            bar.note(cell.label)
            found[cell.label] = _one(cell, options, data)
            bar.advance()
    return found


def seconds_of_analysis(cells: Sequence[NamedCell], options: AnalysisOptions) -> float:
    """Seconds that :func:`analyse` takes, roughly: the trainings, and the passes behind every point of the pictures.

    Args:
        cells: that are analysed.
        options: how.
    """
    data = load_data(options.data)
    images = min(options.images, len(data.train))
    passes = TRAINING * (images * options.epochs + options.variance_grid**2 * CellStudy.variance_images)
    passes = passes + options.grid**2 * CellStudy.landscape_images if options.epochs else SCORED_IMAGES
    return sum(seconds_of(count_cost(one.architecture, scale_of(one, options, data)).macs, passes) for one in cells)


def scale_of(cell: NamedCell, options: AnalysisOptions, data: ImageData) -> Scale:
    """The small network's scale: ``options.cells`` in all for DARTS-style cells, one a stage for NAS-Bench-201.

    Args:
        cell: decides by its kind.
        options: channels and cells.
        data: classes, size and channels of the images.
    """
    depth = options.cells if isinstance(cell.architecture, CellPair) else 1
    return Scale(options.channels, depth, data.classes, data.image_size, data.image_channels)


def _one(cell: NamedCell, options: AnalysisOptions, data: ImageData) -> dict[str, Json]:
    scale = scale_of(cell, options, data)
    cost = count_cost(cell.architecture, scale)
    images, labels = Batches(data, "train", SCORED_IMAGES, seed=options.seed).get(0, 0)
    scores = score(build_network(cell.architecture, scale), (images, labels), METRICS, seed=options.seed)
    found: dict[str, Json] = {
        "architecture": str(cell.architecture),
        "topology": {
            name: place.to_json() for name, place in placements(cell.architecture, options.seed, options.sample).items()
        },
        "params": cost.params,
        "macs": cost.macs,
        "scores": {name: float(scores[name][0]) for name in METRICS},
    }
    if options.epochs:
        study = CellStudy(
            options.data, str(cell.architecture), scale.to_dict(), options.lr, options.epochs, options.seed
        )
        study = replace(study, images=options.images, grid=options.grid, variance_grid=options.variance_grid)
        found["study"] = study_cell(study.to_json(), Stop())
    return found


# --- the page --------------------------------------------------------------------------------------------------------

STYLE = """
:root { color-scheme: light dark; --ink: #1b2733; --paper: #fbfcfe; --card: #ffffff; --line: #cfd8e3; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf5; --paper: #12181f; --card: #1b242e; --line: #34414f; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 0 auto; padding: 1rem;
  max-width: 76rem; }
table { border-collapse: collapse; }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .8rem; text-align: right; }
th:first-child, td:first-child { text-align: left; }
figure { background: #ffffff; border: 1px solid var(--line); border-radius: 8px; margin: 1rem 0; padding: .5rem;
  overflow-x: auto; } figure img { max-width: 100%; } figcaption { color: #1b2733; font-size: .9rem; }
.wide { overflow-x: auto; }
"""


def write_page(cells: Sequence[NamedCell], found: Mapping[str, Json], options: AnalysisOptions, path: Path) -> None:
    """The analysis as one HTML file without outside parts.

    Args:
        cells: in the order of the page.
        found: what :func:`analyse` gave, by label.
        options: with which it was made; the page says them.
        path: of the file.
    """
    title = " and ".join(cell.label for cell in cells)
    parts = [f"<h1>Why this cell? {escape(title)}</h1>", f'<div class="wide">{_table(found)}</div>']
    for cell in cells:
        caption = f"<figcaption>{escape(cell.label)}: <code>{escape(str(cell.architecture))}</code></figcaption>"
        parts.append(f"<figure>{draw_cells(cell.architecture)}{caption}</figure>")
    with TemporaryDirectory() as folder:
        parts += [_image(*picture) for picture in _pictures(cells, found, options, Path(folder))]
    parts.append(f"<p>{escape(_how(options))}</p>")
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'{GENERATOR}<meta name="viewport" '
        f'content="width=device-width, initial-scale=1"><title>{escape(title)}</title><style>{STYLE}</style></head>'
        f"<body>{''.join(parts)}</body></html>"
    )
    write_atomic(path, page.encode(errors="backslashreplace"))


def _how(options: AnalysisOptions) -> str:
    scale = (
        f"{options.channels} channels, {options.cells} cells (one a stage for NAS-Bench-201), data {options.data.spec}"
    )
    if not options.epochs:
        return f"Scores are of untrained networks of {scale}. Nothing was trained (--epochs 0)."
    return (
        f"Networks of {scale} were trained for {options.epochs} epochs on {options.images} images without "
        f"regularisation; landscape of {options.grid} x {options.grid} points along filter-normalised random "
        "directions, batch norms with the running statistics of the end weights."
    )


def rows_of(found: Mapping[str, Json]) -> dict[str, list[str]]:
    """What is shown of every cell, as text: rows of the table by their heading, one entry a cell."""
    rows: dict[str, list[str]] = {}

    def put(head: str, value: str) -> None:
        rows.setdefault(head, []).append(value)

    names = list(dict.fromkeys(name for one in found.values() for name in one["topology"]))
    for one in found.values():
        for name in names:
            place = one["topology"].get(name)
            put(f"{name}: width", f"{place['width']:g} c" if place else "")
            put(f"{name}: depth", str(place["depth"]) if place else "")
            put(f"{name}: skip share", f"{place['skip_share']:.0%}" if place else "")
            put(f"{name}: wider than", f"{place['wider_than']:.0%}" if place else "")
            put(f"{name}: shallower than", f"{place['shallower_than']:.0%}" if place else "")
        put("parameters", f"{one['params']:,.0f}")
        put("multiply-accumulates", f"{one['macs']:,.0f}")
        for metric in METRICS:
            put(metric, f"{one['scores'][metric]:.4g}")
        study = one.get("study")
        if study is not None:
            put("test accuracy", f"{study['accuracy'][-1]:.1f} %")
            put("mean test loss", f"{study['area']:.3f}")
            for key, head in (
                ("sharpness", "largest curvature"),
                ("variance_here", "gradient variance"),
                ("share_under_double", "share under twice the loss"),
            ):
                value = study.get(key)
                put(head, "" if value is None else f"{value:.3g}")
    return rows


def _table(found: Mapping[str, Json]) -> str:
    heads = "".join(f"<th>{escape(label)}</th>" for label in found)
    lines = [
        f"<tr><td>{escape(head)}</td>{''.join(f'<td>{escape(value)}</td>' for value in values)}</tr>"
        for head, values in rows_of(found).items()
    ]
    return f"<table><thead><tr><th></th>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _image(path: Path, caption: str) -> str:
    data = base64.b64encode(path.read_bytes()).decode()
    return (
        f'<figure><img alt="{escape(caption)}" src="data:image/png;base64,{data}">'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _pictures(
    cells: Sequence[NamedCell], found: Mapping[str, Json], options: AnalysisOptions, folder: Path
) -> list[tuple[Path, str]]:
    pictures = [(folder / "place.png", "Width and depth of random cells of the same space, and of these cells")]
    places = {cell.label: placements(cell.architecture, options.seed, options.sample) for cell in cells}
    _plot_places(places, pictures[0][0])
    studies: dict[str, Any] = {label: one["study"] for label, one in found.items() if "study" in one}
    if studies:
        curves = {label: {key: [study[key]] for key in ("loss", "accuracy")} for label, study in studies.items()}
        pictures.append((folder / "curves.png", "Test loss and accuracy during training"))
        plot_curves(curves, pictures[-1][0])
        for key, what, root in (("landscape", "test loss", False), ("variance", "deviation of the gradient", True)):
            grids = {label: Landscape.from_json(study[key]) for label, study in studies.items() if key in study}
            if not all(one.cut.all() for one in grids.values()):  # else the weights have diverged
                pictures.append((folder / f"{key}.png", f"{what} around the end weights: contours and surface"))
                plot_landscapes(grids, pictures[-1][0], what, root)
    return pictures


def _plot_places(places: Mapping[str, Mapping[str, Placement]], path: Path) -> None:
    from matplotlib.figure import Figure

    shown = [(f"{label} {name}", place) for label, cells in places.items() for name, place in cells.items()]
    figure = Figure(figsize=(4.2 * len(shown), 3.6), layout="constrained")
    for number, (name, place) in enumerate(shown, 1):
        plot_placement(figure.add_subplot(1, len(shown), number), name, place)
    save_figure(figure, path)
