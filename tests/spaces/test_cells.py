import json

import numpy as np
import pytest
import torch

from archwright.errors import InputError
from archwright.spaces.base import Scale
from archwright.spaces.cells import Cell, CellPair, build_cells, cost_cells, parse_cell_pair, reaches_output
from archwright.spaces.darts import DARTS
from archwright.spaces.gallery import GALLERY

PUBLISHED = {
    "darts-v2": 3_349_342,
    "enas": 3_859_894,
    "amoebanet-a": 3_145_078,
    "nasnet-a": 3_830_950,
    "snas": 2_661_382,
    "darts-v1": 3_169_414,
}
TINY = Scale(channels=4, cells=3, image_size=8)


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_published_parameter_counts_to_the_digit(name):
    paper = DARTS.scales["paper"]
    assert paper.auxiliary
    assert cost_cells(GALLERY[name], paper).params == PUBLISHED[name]
    with torch.device("meta"):
        network = build_cells(GALLERY[name], paper)
    head = sum(parameter.numel() for parameter in network.auxiliary.parameters())
    assert head > 400_000
    assert sum(parameter.numel() for parameter in network.parameters()) - head == PUBLISHED[name]


@pytest.mark.parametrize("name", sorted(GALLERY))
def test_gallery_cells_round_trip_and_run(name):
    pair = GALLERY[name]
    text = str(pair)
    assert parse_cell_pair(text) == pair
    assert text == json.dumps(json.loads(text), separators=(",", ":"), sort_keys=True)
    out = build_cells(pair, TINY)(torch.randn(2, 3, 8, 8))
    assert out.shape == (2, 10)
    assert out.isfinite().all()


def test_the_order_of_a_nodes_edges_does_not_matter():
    one = Cell(((("skip_connect", 1), ("sep_conv_3x3", 0)),), (2,))
    other = Cell(((("sep_conv_3x3", 0), ("skip_connect", 1)),), (2,))
    assert one == other
    assert hash(one) == hash(other)


def test_auxiliary_logits_come_in_training_only():
    scale = Scale(channels=4, cells=3, classes=5, image_size=16, auxiliary=True)
    network = build_cells(GALLERY["darts-v2"], scale)
    images = torch.randn(2, 3, 16, 16)
    logits, side = network.train().with_auxiliary(images)
    assert logits.shape == side.shape == (2, 5)
    assert network.eval().with_auxiliary(images)[1] is None
    assert build_cells(GALLERY["darts-v2"], TINY).with_auxiliary(images)[1] is None


def test_drop_path_is_set_for_the_whole_network_and_changes_training():
    torch.manual_seed(0)
    network = build_cells(GALLERY["darts-v2"], TINY)
    images = torch.randn(4, 3, 8, 8)
    assert torch.equal(network(images), network(images))
    network.drop_path = 0.5
    assert network.drop_path == 0.5
    assert not torch.equal(network(images), network(images))
    assert torch.equal(network.eval()(images), network(images))


def test_a_node_that_nothing_reaches_is_zero_and_so_are_operations_of_it():
    empty = Cell(((), (("none", 0), ("sep_conv_3x3", 2)), (("sep_conv_3x3", 1),)), (2, 3, 4))
    for pair in (CellPair(empty, GALLERY["snas"].reduce), CellPair(GALLERY["snas"].normal, empty)):
        network = build_cells(parse_cell_pair(str(pair)), TINY)
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.copy_(torch.rand_like(parameter))
        joined = []
        changed_cell = next(cell for cell, _ in network.cells() if cell.cell == empty)
        changed_cell.register_forward_hook(lambda module, inputs, output, joined=joined: joined.append(output))
        out = network(torch.randn(2, 3, 8, 8))
        assert out.isfinite().all()
        channels = joined[0].shape[1] // 3
        assert not joined[0][:, : 2 * channels].any()
        assert joined[0][:, 2 * channels :].any()


def test_reaching_the_output():
    through = Cell(((("none", 0),), (("sep_conv_3x3", 2),), (("skip_connect", 1),)), (3, 4))
    assert reaches_output(through)
    assert not reaches_output(Cell(through.nodes, (3,)))


GOOD = str(GALLERY["darts-v2"])


def changed(path, value):
    tree = json.loads(GOOD)
    here = tree
    for key in path[:-1]:
        here = here[key]
    here[path[-1]] = value
    return json.dumps(tree)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "JSON"),
        ("{", "JSON"),
        ("[1, 2]", "normal"),
        ("null", "normal"),
        ('{"normal": {}}', '"reduce"'),
        (json.dumps({**json.loads(GOOD), "concat": []}), '"normal" and "reduce"'),
        (changed(["normal"], 3), "a cell like"),
        (changed(["normal"], {"nodes": []}), "a cell like"),
        (changed(["normal", "nodes", 0, 0], ["sep_conv_3x3"]), "a cell like"),
        (changed(["normal", "nodes", 0, 0], 5), "a cell like"),
        (changed(["normal", "nodes", 0, 0, 1], True), "a cell like"),
        (changed(["normal", "nodes", 0, 0, 1], "0"), "a cell like"),
        (changed(["normal", "nodes", 0, 0, 1], 0.0), "a cell like"),
        (changed(["normal", "concat", 0], False), "a cell like"),
        (changed(["normal", "nodes", 0, 0, 0], "sep_conv3x3"), "Did you mean 'sep_conv_3x3'"),
        (changed(["normal", "nodes", 0, 0, 1], 2), "source from 0 to 1 at node 2, got 2"),
        (changed(["reduce", "nodes", 2, 0, 1], -1), "source from 0 to 3 at node 4, got -1"),
        (changed(["reduce", "concat"], [2, 2]), "distinct nodes"),
        (changed(["reduce", "concat"], []), "distinct nodes"),
        (changed(["reduce", "concat"], [7]), "from 2 to 5"),
    ],
)
@pytest.mark.parametrize("parse", [parse_cell_pair, DARTS.parse], ids=["any cell", "darts"])
def test_malformed_text_says_what_is_wrong(parse, text, named):
    with pytest.raises(InputError) as caught:
        parse(text)
    assert named in str(caught.value)


def test_random_cells_count_like_their_networks():
    rng = np.random.default_rng(3)
    for _ in range(5):
        pair = DARTS.sample(rng)
        with torch.device("meta"):
            built = sum(p.numel() for p in build_cells(pair, DARTS.scales["search"]).parameters())
        assert cost_cells(pair, DARTS.scales["search"]).params == built
