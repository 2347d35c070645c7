from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from archwright.analysis.drawing import INK, cell_graphs, draw, draw_cells
from archwright.errors import InputError
from archwright.spaces.base import Architecture
from archwright.spaces.gallery import GALLERY
from archwright.spaces.nasbench201 import NASBENCH201
from archwright.spaces.topology import cell_topology

SVG = "{http://www.w3.org/2000/svg}"


def parsed(text: str) -> ET.Element:
    return ET.fromstring(text)  # our own output, no entity can be in it


@pytest.mark.parametrize("name", sorted(GALLERY))
def test_every_edge_is_drawn_with_its_operation(name: str) -> None:
    for graph in cell_graphs(GALLERY[name]):
        picture = parsed(draw(graph))
        labels = [text.text for text in picture.iter(f"{SVG}text")]
        for edge in graph.edges:
            if edge.operation:
                assert labels.count(edge.operation) == sum(e.operation == edge.operation for e in graph.edges)
        assert len(list(picture.iter(f"{SVG}path"))) == len(graph.edges)
        assert set(graph.names) <= set(labels)


@pytest.mark.parametrize("name", sorted(GALLERY))
def test_the_columns_are_the_depth(name: str) -> None:
    graph = cell_graphs(GALLERY[name])[0]
    nodes = [rect for rect in parsed(draw(graph)).iter(f"{SVG}rect") if rect.get("rx")]
    xs = {round(float(rect.get("x")) + float(rect.get("width")) / 2) for rect in nodes}
    assert len(xs) == cell_topology(GALLERY[name].normal).depth + 1


def test_what_carries_nothing_is_dashed() -> None:
    picture = parsed(draw_cells(NASBENCH201.parse("|none~0|+|skip_connect~0|none~1|+|none~0|none~1|avg_pool_3x3~2|")))
    dashed = [path for path in picture.iter(f"{SVG}path") if path.get("stroke-dasharray")]
    assert len(dashed) == 4
    assert {path.get("stroke") for path in dashed} == {INK["none"]}


def test_two_cells_in_one_document_do_not_overlap() -> None:
    whole = parsed(draw_cells(GALLERY["darts-v2"]))
    first, second = whole.findall(f"{SVG}svg")
    assert float(second.get("y")) >= float(first.get("height"))


def test_other_spaces_are_refused() -> None:
    with pytest.raises(InputError, match="made of cells"):
        draw_cells(Architecture())
