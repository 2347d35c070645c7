"""The registered spaces; listing them imports no torch."""

from __future__ import annotations

from archwright.registry import Entry, Registry

spaces = Registry(
    "space",
    Entry("nasbench201", "archwright.spaces.nasbench201:NASBENCH201", "6 edges x 5 operations, 15,625 cells"),
    Entry(
        "nasbench1shot1-1", "archwright.spaces.nasbench1shot1:NASBENCH1SHOT1_1", "4 vertices with operations, space 1"
    ),
    Entry(
        "nasbench1shot1-2", "archwright.spaces.nasbench1shot1:NASBENCH1SHOT1_2", "4 vertices with operations, space 2"
    ),
    Entry(
        "nasbench1shot1-3", "archwright.spaces.nasbench1shot1:NASBENCH1SHOT1_3", "5 vertices with operations, space 3"
    ),
    Entry("mbconv", "archwright.spaces.mbconv:MBCONV", "mobile networks: 5 stages of 2 to 4 blocks, 12 configurations"),
    Entry(
        "compact",
        "archwright.spaces.compact:COMPACT",
        "small images: 3 stages of 1 to 3 blocks, 4 kinds, 4 widths a stage",
    ),
    Entry("darts", "archwright.spaces.darts:DARTS", "normal and reduction cell, 4 nodes x 2 inputs x 7 operations"),
)
