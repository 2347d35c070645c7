"""Isomorphism of NAS-Bench-101 cells by brute force."""

from __future__ import annotations

import itertools

import numpy as np

from archwright.spaces.nasbench101 import Cell101


def smallest_form(cell: Cell101) -> str:
    """The smallest (edges, operations) over all renumberings of the vertices between input and output."""
    count, edges = len(cell.operations), cell.edges()
    forms = []
    for order in itertools.permutations(range(1, count + 1)):
        full = [0, *order, count + 1]
        forms.append((edges[np.ix_(full, full)].tobytes().hex(), [cell.operations[v - 1] for v in order]))
    return str(min(forms))
