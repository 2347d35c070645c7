"""Where a network errs on the test images: by class, by confusion, by confidence, and the surest mistakes as pictures.

Everything is drawn from what the run keeps (:mod:`archwright.search.tested`); names of classes and files are escaped.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from html import escape
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from archwright.data.image_files import IMAGE_SUFFIXES
from archwright.references import DataRef
from archwright.report.charts import bars, lines
from archwright.runs.run import Run
from archwright.search.tested import OnTestImages, read_tested
from archwright.training.evaluation import Outcomes, wilson_interval

MOST_CLASSES = 20
"""Classes up to which the whole confusion matrix is drawn; of more the pairs that are confused most."""
MOST_ROWS = 40
"""Classes whose accuracy is shown: of more those of lowest accuracy."""
MOST_PAIRS = 12
BINS = 10
FEWEST = 10
"""Test images behind a point of the reliability diagram."""


def errors_of(run: Run, model: str | None, linked: bool = True) -> list[tuple[str, str]]:
    """Titles and bodies (HTML) of what is known of a network on the test images; none where nothing is kept.

    Args:
        run: that keeps it.
        model: the network's file in the run.
        linked: whether images may be linked where they lie on this machine.
    """
    tested = read_tested(run.folder, model)
    if tested is None:
        return []
    return [
        ("Accuracy by class", by_class(tested) + confusions(tested)),
        ("Can its confidence be trusted?", reliability(tested.outcomes)),
        ("Most confident mistakes", mistakes(tested, image_root(run) if linked else None)),
    ]


def image_root(run: Run) -> Path | None:
    """The folder that the images of ``run`` lie in, where they are files."""
    named = DataRef.parse(str(run.configuration.get("data") or ""))
    return named.path if named.kind == "folder" else None


# --- classes ---


def confusion_matrix(outcomes: Outcomes, classes: int) -> NDArray[np.int64]:
    """Images by true class (rows) and by the class that they are taken for (columns).

    Args:
        outcomes: of every image.
        classes: how many there are.
    """
    matrix = np.zeros((classes, classes), np.int64)
    np.add.at(matrix, (outcomes.labels, outcomes.predicted), 1)
    return matrix


def by_class(tested: OnTestImages) -> str:
    """A bar a class: the share of its test images that are classified right, with its 95 % interval."""
    matrix = confusion_matrix(tested.outcomes, len(tested.class_names))
    found = []
    for number, name in enumerate(tested.class_names):
        count, right = int(matrix[number].sum()), int(matrix[number, number])
        if count:
            low, high = (100 * end for end in wilson_interval(right, count))
            text = f"{100 * right / count:.1f} % ({low:.0f} to {high:.0f}), {right} of {count}"
            found.append(((name, 100 * right / count, text, False), (low, high)))
    hidden = len(found) - MOST_ROWS
    if hidden > 0:
        found = sorted(found, key=lambda one: one[0][1])[:MOST_ROWS]
    note = f" The {hidden} classes with higher ones are not drawn." if hidden > 0 else ""
    drawn = bars([row for row, _ in found], 100.0, [interval for _, interval in found])
    return f'{drawn}<p class="soft">Test accuracy of each class, with its 95 % interval as a thin line.{note}</p>'


def confusions(tested: OnTestImages) -> str:
    """The confusion matrix, or of many classes the pairs that are confused most."""
    names = tested.class_names
    matrix = confusion_matrix(tested.outcomes, len(names))
    pairs = [(i, j) for i, j in np.argwhere(matrix).tolist() if i != j]
    pairs.sort(key=lambda pair: -matrix[pair])
    if not pairs:
        return "<p>No test image is classified wrong.</p>"
    said = [f"{names[i]} taken for {names[j]} ({matrix[i, j]} of {matrix[i].sum()})" for i, j in pairs[:3]]
    text = f"<p>Most often confused: {escape(', '.join(said))}.</p>"
    if len(names) <= MOST_CLASSES:
        return f"<h3>Confusion matrix</h3>{text}{_matrix(matrix, names)}"
    rows = [
        (f"{names[i]} taken for {names[j]}", float(matrix[i, j]), f"{matrix[i, j]} of {matrix[i].sum()}", False)
        for i, j in pairs[:MOST_PAIRS]
    ]
    return f"<h3>Most often confused</h3>{bars(rows, rows[0][1])}"


def _matrix(matrix: NDArray[np.int64], names: Sequence[str]) -> str:
    """A table, each cell as dark as its share of the row."""
    head = "".join(f'<th scope="col"><span>{escape(name)}</span></th>' for name in names)
    body = ""
    for name, row in zip(names, matrix, strict=True):
        cells = ""
        for other, count in zip(names, row, strict=True):
            share = count / max(1, row.sum())
            kind = "hit" if name == other else "miss" if count else "none"
            title = escape(f"{count} of {row.sum()} images of {name} are taken for {other}")
            shown = count or ""
            cells += f'<td class="{kind}" style="--share:{share:.3f}" title="{title}">{shown}</td>'
        body += f'<tr><th scope="row">{escape(name)}</th>{cells}</tr>'
    return (
        '<div class="wide" tabindex="0" role="group" aria-label="confusion matrix">'
        f'<table class="matrix"><thead><tr><td></td>{head}</tr></thead><tbody>{body}</tbody></table></div>'
        '<p class="soft">Rows: the true class. Columns: the class that the network says.</p>'
    )


# --- confidence ---


def binned(outcomes: Outcomes, bins: int = BINS) -> list[tuple[float, float, int]]:
    """Mean confidence and accuracy in percent, and images, of each bin of confidence that has any.

    Args:
        outcomes: of every image.
        bins: equal ones from 0 to 1.
    """
    place = np.minimum((outcomes.confidence * bins).astype(int), bins - 1)
    found = []
    for number in range(bins):
        own = place == number
        if own.any():
            sure, right = outcomes.confidence[own].mean(), outcomes.right[own].mean()
            found.append((100 * float(sure), 100 * float(right), int(own.sum())))
    return found


def expected_calibration_error(outcomes: Outcomes, bins: int = 15) -> float:
    """ECE in percent: the gap of confidence and accuracy in each bin, weighed by its images.

    Args:
        outcomes: of every image.
        bins: equal ones of confidence from 0 to 1.
    """
    gaps = [abs(sure - right) * count for sure, right, count in binned(outcomes, bins)]
    return float(sum(gaps)) / len(outcomes.labels)


def equal_parts(outcomes: Outcomes, parts: int = BINS) -> list[tuple[float, float, int]]:
    """As :func:`binned`, in parts of equally many images by rising confidence: a bin of two images says nothing.

    Args:
        outcomes: of every image.
        parts: at most so many, each of :data:`FEWEST` images or more.
    """
    order = np.argsort(outcomes.confidence, kind="stable")
    found = []
    for own in np.array_split(order, max(1, min(parts, len(order) // FEWEST))):
        sure, right = outcomes.confidence[own].mean(), outcomes.right[own].mean()
        found.append((100 * float(sure), 100 * float(right), len(own)))
    return found


def reliability(outcomes: Outcomes) -> str:
    """The reliability diagram and what it says in a sentence."""
    found, gap = equal_parts(outcomes), expected_calibration_error(outcomes)
    sure, right = 100 * float(outcomes.confidence.mean()), 100 * float(outcomes.right.mean())
    way = "overconfident" if sure > right + 1 else "underconfident" if sure < right - 1 else "well calibrated"
    least = max(0.0, 10 * math.floor(min(min(one[:2]) for one in found) / 10) - 10.0)
    series = {
        "this network": [(one[0], one[1]) for one in found],
        "perfect": [(least, least), (100.0, 100.0)],
    }
    chart = lines("reliability diagram", series, "confidence (%)", "accuracy (%)")
    note = f"Each point is about {found[0][2]:,} test images of similar confidence." if len(found) > 1 else ""
    return (
        f"<p>Its mean confidence is {sure:.1f} % and its accuracy {right:.1f} %: {way}. Expected calibration error "
        f'(ECE, 15 bins): {gap:.2f} %.</p>{chart}<p class="soft">{note}</p>'
    )


# --- pictures ---


def mistakes(tested: OnTestImages, root: Path | None) -> str:
    """Pictures of the wrong images that the network is surest of, each linked to its file where there is one.

    Args:
        tested: what is kept.
        root: of the data set's files; None links nothing.
    """
    if not len(tested.shown):
        return ""
    figures = []
    for number, pixels, name in zip(tested.shown.tolist(), tested.pictures, tested.files, strict=True):
        label, taken = (
            tested.class_names[int(one[number])] for one in (tested.outcomes.labels, tested.outcomes.predicted)
        )
        sure = 100 * float(tested.outcomes.confidence[number])
        picture = f'<img alt="{escape(f"an image of {label}")}" src="data:image/png;base64,{_png(pixels)}">'
        address = file_address(root, name)
        if address:
            picture = f'<a href="{escape(address)}" title="{escape(name)}">{picture}</a>'
        words = f"says <strong>{escape(taken)}</strong> ({sure:.0f} %), is <strong>{escape(label)}</strong>"
        file = f'<span class="soft">{escape(name)}</span>' if name else f'<span class="soft">test image {number}</span>'
        figures.append(f'<figure class="thumb">{picture}<figcaption>{words}{file}</figcaption></figure>')
    note = "Look here first for wrong labels, cut-off objects and classes that look alike."
    return f'<div class="thumbs">{"".join(figures)}</div><p class="soft">{note}</p>'


def file_address(root: Path | None, name: str) -> str:
    """Where a browser on this machine finds the image ``name`` below ``root``; empty for anything else.

    A run may be somebody else's: only an image file below the folder of its data is linked.
    """
    parts = PurePosixPath(name).parts
    if root is None or not parts or ".." in parts or PurePosixPath(name).is_absolute():
        return ""
    path = root.expanduser().absolute().joinpath(*parts)
    if path.suffix.lower() not in IMAGE_SUFFIXES or not path.is_file():
        return ""
    try:
        return path.as_uri()
    except (ValueError, UnicodeEncodeError):
        return ""


def _png(pixels: NDArray[np.uint8]) -> str:
    """(C, H, W) as a PNG in base64."""
    flat = pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0))
    file = io.BytesIO()
    Image.fromarray(flat).save(file, "png")
    return base64.b64encode(file.getvalue()).decode()
