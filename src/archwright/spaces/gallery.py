"""Published DARTS-style cells: NASNet-A, AmoebaNet-A, ENAS, DARTS of both orders and SNAS (mild constraint).

Facts from their papers. The first three have five nodes and operations beyond the ``darts`` space.
"""

from __future__ import annotations

from collections.abc import Mapping

from archwright.spaces.cells import Cell, CellPair

GALLERY: Mapping[str, CellPair] = {
    "nasnet-a": CellPair(
        Cell(
            (
                (("sep_conv_5x5", 1), ("sep_conv_3x3", 0)),
                (("sep_conv_5x5", 0), ("sep_conv_3x3", 0)),
                (("avg_pool_3x3", 1), ("skip_connect", 0)),
                (("avg_pool_3x3", 0), ("avg_pool_3x3", 0)),
                (("sep_conv_3x3", 1), ("skip_connect", 1)),
            ),
            (2, 3, 4, 5, 6),
        ),
        Cell(
            (
                (("sep_conv_5x5", 1), ("sep_conv_7x7", 0)),
                (("max_pool_3x3", 1), ("sep_conv_7x7", 0)),
                (("avg_pool_3x3", 1), ("sep_conv_5x5", 0)),
                (("skip_connect", 3), ("avg_pool_3x3", 2)),
                (("sep_conv_3x3", 2), ("max_pool_3x3", 1)),
            ),
            (4, 5, 6),
        ),
    ),
    "amoebanet-a": CellPair(
        Cell(
            (
                (("avg_pool_3x3", 0), ("max_pool_3x3", 1)),
                (("sep_conv_3x3", 0), ("sep_conv_5x5", 2)),
                (("sep_conv_3x3", 0), ("avg_pool_3x3", 3)),
                (("sep_conv_3x3", 1), ("skip_connect", 1)),
                (("skip_connect", 0), ("avg_pool_3x3", 1)),
            ),
            (4, 5, 6),
        ),
        Cell(
            (
                (("avg_pool_3x3", 0), ("sep_conv_3x3", 1)),
                (("max_pool_3x3", 0), ("sep_conv_7x7", 2)),
                (("sep_conv_7x7", 0), ("avg_pool_3x3", 1)),
                (("max_pool_3x3", 0), ("max_pool_3x3", 1)),
                (("conv_7x1_1x7", 0), ("sep_conv_3x3", 5)),
            ),
            (3, 4, 6),
        ),
    ),
    "enas": CellPair(
        Cell(
            (
                (("sep_conv_3x3", 1), ("skip_connect", 1)),
                (("sep_conv_5x5", 1), ("skip_connect", 0)),
                (("avg_pool_3x3", 0), ("sep_conv_3x3", 1)),
                (("sep_conv_3x3", 0), ("avg_pool_3x3", 1)),
                (("sep_conv_5x5", 1), ("avg_pool_3x3", 0)),
            ),
            (2, 3, 4, 5, 6),
        ),
        Cell(
            (
                (("sep_conv_5x5", 0), ("avg_pool_3x3", 1)),
                (("sep_conv_3x3", 1), ("avg_pool_3x3", 1)),
                (("sep_conv_3x3", 1), ("avg_pool_3x3", 1)),
                (("sep_conv_5x5", 4), ("avg_pool_3x3", 1)),
                (("sep_conv_3x3", 5), ("sep_conv_5x5", 0)),
            ),
            (2, 3, 6),
        ),
    ),
    "darts-v1": CellPair(
        Cell(
            (
                (("sep_conv_3x3", 1), ("sep_conv_3x3", 0)),
                (("skip_connect", 0), ("sep_conv_3x3", 1)),
                (("skip_connect", 0), ("sep_conv_3x3", 1)),
                (("sep_conv_3x3", 0), ("skip_connect", 2)),
            ),
            (2, 3, 4, 5),
        ),
        Cell(
            (
                (("max_pool_3x3", 0), ("max_pool_3x3", 1)),
                (("skip_connect", 2), ("max_pool_3x3", 0)),
                (("max_pool_3x3", 0), ("skip_connect", 2)),
                (("skip_connect", 2), ("avg_pool_3x3", 0)),
            ),
            (2, 3, 4, 5),
        ),
    ),
    "darts-v2": CellPair(
        Cell(
            (
                (("sep_conv_3x3", 0), ("sep_conv_3x3", 1)),
                (("sep_conv_3x3", 0), ("sep_conv_3x3", 1)),
                (("sep_conv_3x3", 1), ("skip_connect", 0)),
                (("skip_connect", 0), ("dil_conv_3x3", 2)),
            ),
            (2, 3, 4, 5),
        ),
        Cell(
            (
                (("max_pool_3x3", 0), ("max_pool_3x3", 1)),
                (("skip_connect", 2), ("max_pool_3x3", 1)),
                (("max_pool_3x3", 0), ("skip_connect", 2)),
                (("skip_connect", 2), ("max_pool_3x3", 1)),
            ),
            (2, 3, 4, 5),
        ),
    ),
    "snas": CellPair(
        Cell(
            (
                (("sep_conv_3x3", 0), ("sep_conv_3x3", 1)),
                (("skip_connect", 0), ("dil_conv_3x3", 1)),
                (("skip_connect", 0), ("skip_connect", 1)),
                (("skip_connect", 0), ("sep_conv_3x3", 1)),
            ),
            (2, 3, 4, 5),
        ),
        Cell(
            (
                (("max_pool_3x3", 0), ("max_pool_3x3", 1)),
                (("skip_connect", 2), ("max_pool_3x3", 1)),
                (("max_pool_3x3", 1), ("skip_connect", 2)),
                (("dil_conv_5x5", 2), ("max_pool_3x3", 0)),
            ),
            (2, 3, 4, 5),
        ),
    ),
}
