"""The registered spaces; listing them imports no torch."""

from __future__ import annotations

from archwright.registry import Entry, Registry

spaces = Registry(
    "space",
    Entry("nasbench201", "archwright.spaces.nasbench201:NASBENCH201", "6 edges x 5 operations, 15,625 cells"),
    Entry("darts", "archwright.spaces.darts:DARTS", "normal and reduction cell, 4 nodes x 2 inputs x 7 operations"),
)
