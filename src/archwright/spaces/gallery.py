"""Published architectures: DARTS-style cells, and mobile networks of the paper's ``mbconv`` space.

The cells are those of NASNet-A, AmoebaNet-A, ENAS, DARTS of both orders and SNAS (mild constraint), facts from their
papers; the first three have five nodes and operations beyond the ``darts`` space. The networks are HardCoRe-NAS A to F
and BINAS A to F, facts that their authors published with the weights.
"""

from __future__ import annotations

from collections.abc import Mapping

from archwright.spaces.cells import Cell, CellPair
from archwright.spaces.mbconv import SCALES, MbConv, MbConvArchitecture, MbConvBlock

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

PUBLISHED_MBCONV = MbConv(SCALES["mbconv-224-published"])
"""The space that the published networks are of, at their scale."""

_BLOCKS: Mapping[str, str] = {
    "hardcore-a": "35 35s/35 65s/65s 65s/65s 65s/65s 65s",
    "hardcore-b": "35 35s 33/35 35 35/35 35 33 33/35 33 33 33/65s 65s 33s",
    "hardcore-c": "35 35s/35 35 35 35/45 65s 33 33/65s 33 33 33/65s 65s 33s",
    "hardcore-d": "35s 35s/35s 45s 33s/45s 33s 33s 33s/43s 45s 33s 35s/65s 65s 65s 63s",
    "hardcore-e": "35s 35s/65s 45s 45s 33s/45s 63s/65s 65s 65s 35s/65s 65s 65s 63s",
    "hardcore-f": "35s 35s/65s 65s/65s 65s 33s 33s/63s 65s 65s 33s/65s 65s 63s 63s",
    "binas-a": "35 33s/35s 45s/35 35s 45s/45s 45s/45s 45s 43s 35s",
    "binas-b": "35 35s/35s 45s/45s 45s 45s/43s 45s 45s/43s 45s 43s 45s",
    "binas-c": "35 35s/35s 45s/45s 45s 45s/43s 65s 45s/63s 65s 63s 45s",
    "binas-d": "35 35s/35s 45s/35 65s 43s 35s/63s 65s 45s 43s/63s 45s 65s 45s",
    "binas-e": "35 33 33s/35 43s 43s 65s/35 35s 43s 65s/43s 65s 63s 45s/63s 43s 65s 65s",
    "binas-f": "35 33 33s/35 45 43s 65s/35 63s 65s 65s/65s 65s 63s 63s/63s 43s 65s 65s",
}
"""A word a block: expansion, kernel, and ``s`` for squeeze-excite."""


def _network(words: str) -> MbConvArchitecture:
    """The architecture whose blocks ``words`` says; widths and strides are the space's."""
    scale = PUBLISHED_MBCONV.scale
    return MbConvArchitecture(
        tuple(
            tuple(
                MbConvBlock(int(word[0]), int(word[1]), word.endswith("s"), 1 if number else stride, channels)
                for number, word in enumerate(blocks.split())
            )
            for blocks, stride, channels in zip(
                words.split("/"), scale.stage_strides, scale.stage_channels, strict=True
            )
        )
    )


NETWORKS: Mapping[str, MbConvArchitecture] = {name: _network(words) for name, words in _BLOCKS.items()}
"""Published mobile networks by name, of the space :data:`PUBLISHED_MBCONV`."""
