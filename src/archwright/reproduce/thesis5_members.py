"""Figure 5.4 of the thesis: errors of the members of each ensemble, and how far apart their predictions are in a plane.

Two members are as far from each other as the root of the share of test images on which they differ. That is a distance
between points of a space of many dimensions, of which classical scaling keeps the two in which they differ most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from archwright.runs.files import save_figure
from archwright.solvers.svgd import Floats


def disagreement(predicted: Sequence[NDArray[np.int64]]) -> Floats:
    """Share of images on which two members differ, (members, members).

    Args:
        predicted: class of every image, (images,), by member.
    """
    classes = np.stack(predicted)
    shares: Floats = (classes[:, None] != classes[None]).mean(axis=2)
    return shares


def in_a_plane(squares: Floats) -> tuple[Floats, float]:
    """Points (n, 2) by classical scaling, and the share of the spread that the two axes keep.

    Args:
        squares: squared distances (n, n); what is fitted are the inner products of the centred points.
    """
    n = len(squares)
    centring = np.eye(n) - 1 / n
    values, vectors = np.linalg.eigh(-0.5 * centring @ squares @ centring)
    spread = np.maximum(values, 0.0)
    points: Floats = vectors[:, -2:] * np.sqrt(spread[-2:])
    return points, float(spread[-2:].sum() / spread.sum()) if spread.any() else 1.0


def plot_members(
    errors: Mapping[str, Sequence[float]], predicted: Mapping[str, Sequence[NDArray[np.int64]]], path: Path
) -> None:
    """Errors of members by ensemble (of all seeds) beside their predictions in a plane (of one).

    Args:
        errors: test errors in percent of all members, by ensemble.
        predicted: class of every test image, (images,), of each member of one seed, by ensemble.
        path: of the image.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    points, kept = in_a_plane(disagreement([one for own in predicted.values() for one in own]))
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6))
    begin = 0
    for place, (name, own) in enumerate(predicted.items()):
        left.plot([place] * len(errors[name]), errors[name], "o", alpha=0.6)
        right.plot(*points[begin : begin + len(own)].T, "o", label=name)
        begin += len(own)
    left.set_xticks(range(len(predicted)), list(predicted), fontsize=7)
    left.set_ylabel("test error of a member (%)")
    left.margins(x=0.15)
    said = f"distance: root of the share of images on which two differ\n(these two axes keep {kept:.0%} of the spread)"
    right.set_title(said, fontsize=8)
    right.set_aspect("equal", adjustable="datalim")
    right.legend(fontsize=7)
    for axis in (left, right):
        axis.grid(alpha=0.3)
    figure.tight_layout()
    save_figure(figure, path)
    plt.close(figure)
