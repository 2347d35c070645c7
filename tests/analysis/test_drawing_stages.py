from __future__ import annotations

import itertools
import xml.etree.ElementTree as ET

import pytest

from archwright.analysis.drawing import cell_graphs
from archwright.analysis.drawing_stages import Block, blocks, draw_stages
from archwright.errors import InputError
from archwright.spaces.nasbench101 import parse_cell101

SVG = "{http://www.w3.org/2000/svg}"
TEXT = "cn_r1_k3_s2_c16/cn_r1_k3_s2_c64|bb_r1_k3_s1_c64/er_r1_k5_s1_e2_c32/ir_r1_k3_s1_e6_c8_se0.25"


def test_words_become_blocks() -> None:
    found = blocks(TEXT)
    assert [len(stage) for stage in found] == [1, 2, 1, 1]
    assert found[2] == [Block("er", 5, 1, 2, 32, False)]
    assert found[3][0].words == "inverted residual 3x3, 8 channels, expansion 6, squeeze-excite"
    for text in ("|nor_conv_3x3~0|", "", "cn_r1_k3_s2_c16/"):
        with pytest.raises(InputError):
            blocks(text)


def test_every_block_is_drawn_side_by_side_and_wider_ones_are_higher() -> None:
    picture = ET.fromstring(draw_stages(TEXT))
    groups = picture.findall(f"{SVG}g")
    rects = [group.find(f"{SVG}rect") for group in groups]
    assert len(rects) == 5
    lefts = [float(rect.get("x")) for rect in rects]
    assert all(right - left > float(rects[0].get("width")) for left, right in itertools.pairwise(lefts))
    heights = [float(rect.get("height")) for rect in rects]
    assert heights[1] == heights[2] == max(heights)
    assert heights[4] == min(heights)
    strides = [text.text for text in picture.findall(f"{SVG}text") if (text.text or "").startswith("/")]
    assert strides == ["/2", "/2"]
    assert "stage 2: convolution 3x3, 64 channels, stride 2, then residual 3x3" in picture.find(f"{SVG}title").text
    assert float(picture.get("width")) > lefts[-1] + float(rects[-1].get("width"))


def test_cells_with_operations_on_their_nodes_are_graphs_too() -> None:
    cell = parse_cell101('{"operations":["conv3x3","maxpool3x3"],"parents":[[0],[0,1],[1,2]]}')
    (graph,) = cell_graphs(cell)
    assert graph.names == ("in", "conv3x3", "maxpool3x3", "out")
    assert [(edge.source, edge.target) for edge in graph.edges] == [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3)]
