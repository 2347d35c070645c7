import itertools
import json

import numpy as np
import pytest
import torch

from archwright.errors import InputError
from archwright.spaces.cells import Cell, CellPair
from archwright.spaces.darts import CONCAT, DARTS, EDGES, NAMES
from archwright.spaces.gallery import GALLERY
from archwright.testing import measured_cost


def random_pairs(count, seed=0):
    rng = np.random.default_rng(seed)
    return [DARTS.sample(rng) for _ in range(count)]


def test_parse_and_decode_invert_format_and_encode_on_ten_thousand():
    pairs = random_pairs(10_000)
    assert [DARTS.parse(DARTS.format(pair)) for pair in pairs] == pairs
    encodings = [DARTS.encode(pair) for pair in pairs]
    assert all(array.shape == (14, 8) and array.sum() == 8 for array in encodings[0].values())
    assert [DARTS.decode(encoding) for encoding in encodings] == pairs
    assert len(set(pairs)) == 10_000


def test_size_by_enumeration_of_each_node():
    """Nodes are chosen independently, so the size is the square of the product of the nodes' own counts."""
    total = 1
    for node in CONCAT:
        edges = list(itertools.product(NAMES[1:], range(node)))
        total *= sum(a[1] != b[1] for a, b in itertools.combinations(edges, 2))
    assert DARTS.size == total**2
    assert 1.0e18 < DARTS.size < 1.1e18


def test_120_neighbours_differ_in_one_edge():
    for pair in random_pairs(5):
        encoding = DARTS.encode(pair)
        neighbours = DARTS.neighbours(pair)
        assert len(set(neighbours)) == 2 * (8 * 6 + 2 * (0 + 1 + 2 + 3)) == 120
        for neighbour in neighbours:
            other = DARTS.encode(neighbour)
            assert sum(int((other[name] != array).sum()) for name, array in encoding.items()) == 2


def renumbered(cell, order):
    """``cell`` with its node ``old`` at position ``order.index(old)``, or None where a source would come too late."""
    nodes = []
    for old in order:
        nodes.append([(name, s if s < 2 else 2 + order.index(s - 2)) for name, s in cell.nodes[old]])
        if any(source >= len(nodes) + 1 for _, source in nodes[-1]):
            return None
    return Cell(tuple(map(tuple, nodes)), CONCAT)


def test_canonical_is_invariant_under_renumbering():
    moved = 0
    for pair in random_pairs(100):
        canonical = DARTS.canonical(pair)
        assert DARTS.canonical(canonical) == canonical
        orders = [list(order) for order in itertools.permutations(range(4))]
        normals = [c for c in (renumbered(pair.normal, order) for order in orders) if c is not None]
        reduces = [c for c in (renumbered(pair.reduce, order) for order in orders) if c is not None]
        assert canonical.normal in normals
        assert canonical.reduce in reduces
        for normal, reduce in zip(normals, itertools.cycle(reduces), strict=False):
            assert DARTS.canonical(CellPair(normal, reduce)) == canonical
            moved += normal != pair.normal
    assert moved > 50


def test_cells_that_differ_in_more_than_numbers_stay_apart():
    for pair in random_pairs(20):
        for neighbour in DARTS.neighbours(pair)[:8]:
            same = DARTS.canonical(neighbour) == DARTS.canonical(pair)
            orders = [list(order) for order in itertools.permutations(range(4))]
            assert same == (neighbour.normal in [renumbered(pair.normal, order) for order in orders])


def test_the_imagenet_network_of_darts():
    scale = DARTS.scales["imagenet"]
    cost = DARTS.cost(GALLERY["darts-v2"], scale)
    assert cost == measured_cost(DARTS, GALLERY["darts-v2"], scale)
    assert round(cost.params / 1e6, 1) == 4.7  # the paper's
    sizes = []
    with torch.device("meta"):
        network = DARTS.build(GALLERY["darts-v2"], scale)
        for part in (network.stem, network.second_stem, network.stack[-1]):
            part.register_forward_hook(lambda module, inputs, output: sizes.append(output.shape[-1]))
        assert network(torch.empty(2, 3, 224, 224)).shape == (2, 1000)
    assert sizes == [56, 28, 7]


def test_cost_at_odd_sizes():
    for pair in random_pairs(3):
        for change in ({"image_size": 13}, {"stem": "imagenet", "image_size": 45}, {"cells": 1}, {"cells": 2}):
            scale = DARTS.scales["small"].changed(**change)
            assert DARTS.cost(pair, scale) == measured_cost(DARTS, pair, scale)


def edited(edit):
    tree = json.loads(str(GALLERY["darts-v2"]))
    edit(tree["normal"]["nodes"])
    return json.dumps(tree)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (str(GALLERY["enas"]), "a normal cell with 5 nodes"),
        (edited(lambda nodes: nodes.pop()), "distinct nodes from 2 to 4"),
        (edited(lambda nodes: nodes[3].pop()), "at node 5"),
        (edited(lambda nodes: nodes[1].append(["skip_connect", 2])), "at node 3"),
        (edited(lambda nodes: nodes[0].__setitem__(1, ["skip_connect", 0])), "at node 2"),
        (edited(lambda nodes: nodes[0].__setitem__(1, ["none", 1])), "the operation 'none'"),
        (edited(lambda nodes: nodes[0].__setitem__(1, ["sep_conv_7x7", 1])), "the operation 'sep_conv_7x7'"),
    ],
)
def test_cells_outside_the_space_are_refused(text, named):
    with pytest.raises(InputError) as caught:
        DARTS.parse(text)
    assert named in str(caught.value)


def test_an_encoding_outside_the_space_is_refused():
    good = DARTS.encode(GALLERY["darts-v1"])
    one_less, none = good["normal"].copy(), good["normal"].copy()
    one_less[EDGES.index((0, 2))] = 0
    none[EDGES.index((0, 2))] = np.eye(8)[0]
    for wrong in (one_less, none, np.ones((14, 8))):
        with pytest.raises(InputError, match="'normal'"):
            DARTS.decode({**good, "normal": wrong})
    with pytest.raises(InputError, match="normal, reduce"):
        DARTS.decode({"normal": good["normal"]})
