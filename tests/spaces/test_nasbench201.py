import numpy as np
import pytest
import torch

from archwright.errors import InputError
from archwright.spaces.base import Scale
from archwright.spaces.nasbench201 import (
    EDGES,
    NAMES,
    NASBENCH201,
    Cell201,
    all_operations,
    canonical_index,
)
from archwright.spaces.operations import Cost
from archwright.tables.locate import shared_data
from archwright.testing import measured_cost

PAPER = NASBENCH201.scales["paper"]
TINY = Scale(channels=4, cells=1, image_size=8)
NONE, SKIP, CONV1, CONV3, POOL = range(5)


def random_cells(count, seed=0):
    rng = np.random.default_rng(seed)
    return [NASBENCH201.sample(rng) for _ in range(count)]


# --- text and encodings ----------------------------------------------------------------------------------------------


def test_the_text_is_the_benchmarks_own():
    text = "|nor_conv_3x3~0|+|none~0|skip_connect~1|+|avg_pool_3x3~0|nor_conv_1x1~1|none~2|"
    assert NASBENCH201.parse(text) == Cell201((CONV3, NONE, SKIP, POOL, CONV1, NONE))
    assert str(NASBENCH201.parse(text)) == text
    assert NASBENCH201.parse(f"  {text}\n") == NASBENCH201.parse(text)


def test_parse_and_decode_invert_format_and_encode_on_ten_thousand():
    cells = random_cells(10_000)
    assert [NASBENCH201.parse(NASBENCH201.format(cell)) for cell in cells] == cells
    encodings = [NASBENCH201.encode(cell) for cell in cells]
    assert all(encoding["cell"].shape == (6, 5) for encoding in encodings)
    assert [NASBENCH201.decode(encoding) for encoding in encodings] == cells


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "1 nodes instead of 3"),
        ("|none~0|+|none~0|none~1|", "2 nodes instead of 3"),
        ("|none~0|+|none~0|none~1|+|none~0|none~1|none~2|+", "4 nodes instead of 3"),
        ("none~0|+|none~0|none~1|+|none~0|none~1|none~2|", "node 1 does not begin and end"),
        ("|none~0|+|none~0|none~1+|none~0|none~1|none~2|", "node 2 does not begin and end"),
        ("|none~0|+|none~0|+|none~0|none~1|none~2|", "node 2 has 1 edges instead of 2"),
        ("|none~0|+|none~0|none~1|+|none~0|none~1|none~2|none~2|", "node 3 has 4 edges instead of 3"),
        ("|none~1|+|none~0|none~1|+|none~0|none~1|none~2|", "edge 'none~1' where"),
        ("|none~0|+|none~0|none~0|+|none~0|none~1|none~2|", "edge 'none~0' where .*'~1'"),
        ("|nor_conv_5x5~0|+|none~0|none~1|+|none~0|none~1|none~2|", "edge 'nor_conv_5x5~0'"),
        ("|none|+|none~0|none~1|+|none~0|none~1|none~2|", "edge 'none' where"),
        ("|none~²|+|none~0|none~1|+|none~0|none~1|none~2|", "edge 'none~²'"),
        ("|+|none~0|none~1|+|none~0|none~1|none~2|", "node 1 does not begin"),
        ("||+|none~0|none~1|+|none~0|none~1|none~2|", "edge ''"),
    ],
)
def test_malformed_text_says_what_is_wrong(text, named):
    with pytest.raises(InputError, match=named.replace("~", r"\~")):
        NASBENCH201.parse(text)


def test_an_encoding_has_one_operation_an_edge():
    for rows, named in (([[0] * 5] * 6, r"\[0, 0, 0, 0, 0, 0\]"), ([[1, 1, 0, 0, 0]] * 6, r"\[2, 2, 2, 2, 2, 2\]")):
        with pytest.raises(InputError, match=named):
            NASBENCH201.decode({"cell": np.array(rows)})
    with pytest.raises(InputError, match="cell"):
        NASBENCH201.decode({"normal": np.eye(6, 5)})


def test_there_are_24_neighbours_at_hamming_distance_one():
    for cell in random_cells(20):
        neighbours = NASBENCH201.neighbours(cell)
        assert len(set(neighbours)) == 24
        assert all(sum(a != b for a, b in zip(n.operations, cell.operations, strict=True)) == 1 for n in neighbours)


def test_sampling_is_uniform_over_operations():
    counts = np.zeros((6, 5))
    for cell in random_cells(5_000):
        counts[np.arange(6), cell.operations] += 1
    assert np.abs(counts / 5_000 - 0.2).max() < 5 * (0.2 * 0.8 / 5_000) ** 0.5


# --- cost ------------------------------------------------------------------------------------------------------------


def published_cost(operations):
    """Parameters and multiply-accumulates at 16 channels and 5 cells a stage, for (..., 6) operations."""
    ones, threes = (operations == CONV1).sum(-1), (operations == CONV3).sum(-1)
    params = 73_306 + 28_000 * ones + 243_040 * threes
    return params, 7_783_040 + 3_932_160 * ones + 35_389_440 * threes


def test_cost_is_the_published_formula_for_all():
    counted = np.array([_pair(NASBENCH201.cost(Cell201(tuple(row)), PAPER)) for row in all_operations().tolist()])
    assert np.array_equal(counted.T, published_cost(all_operations()))


def test_cost_is_that_of_the_built_network():
    for cell in [Cell201((CONV3,) * 6), Cell201((SKIP,) * 6), *map(NASBENCH201.canonical, random_cells(6))]:
        assert _pair(measured_cost(NASBENCH201, cell, PAPER)) == published_cost(np.array(cell.operations))
        odd = Scale(channels=6, cells=2, classes=3, image_size=13, image_channels=1)
        assert measured_cost(NASBENCH201, cell, odd) == NASBENCH201.cost(cell, odd)


def test_cost_is_that_of_the_benchmarks_table():
    path = shared_data("nb201.npz")
    if path is None:
        pytest.skip("nb201.npz is not in $ARCHWRIGHT_DATA or ../shared/data")
    table = np.load(path)
    assert tuple(table["op_names"]) == NAMES
    costs = [NASBENCH201.cost(Cell201(tuple(row)), PAPER) for row in table["ops"].tolist()]
    assert np.array_equal([cost.params for cost in costs], table["c10_params"])
    assert np.array_equal([cost.macs for cost in costs], table["c10_flops"])


def _pair(cost: Cost):
    return cost.params, cost.macs


# --- canonical forms -------------------------------------------------------------------------------------------------


def test_4930_classes_are_those_of_generic_functions():
    """Put an unrelated non-linear function with f(0) = 0 for each operation: cells are equal when their values are."""
    functions = {
        CONV1: lambda v: np.sin(1.7 * v) + 0.31 * v * v,
        CONV3: lambda v: np.tanh(0.9 * v) - 0.23 * v * v,
        POOL: lambda v: np.sinh(0.4 * v) + 0.57 * np.sin(v) ** 2,
    }
    operations = all_operations()
    nodes = np.zeros((4, len(operations), 3))
    nodes[0] = [0.3, -0.7, 1.1]
    for column, (source, target) in enumerate(EDGES):
        chosen = operations[:, column, None]
        nodes[target] += np.where(chosen == SKIP, nodes[source], 0)
        for operation, function in functions.items():
            nodes[target] += np.where(chosen == operation, function(nodes[source]), 0)
    _, classes = np.unique(np.round(nodes[3], 9) + 0.0, axis=0, return_inverse=True)
    assert classes.max() + 1 == 4930
    pairs = set(zip(classes.ravel().tolist(), canonical_index().tolist(), strict=True))
    assert len(pairs) == len(set(canonical_index().tolist())) == 4930


def test_canonical_is_idempotent_and_first_of_its_class():
    index = canonical_index()
    assert np.array_equal(index[index], index)
    assert (index <= np.arange(len(index))).all()
    cell = Cell201((POOL, CONV3, NONE, NONE, NONE, SKIP))
    assert NASBENCH201.canonical(cell) == Cell201((NONE, NONE, NONE, CONV3, NONE, NONE))


def shared_weights(cell, skeleton):
    """The network of ``cell`` in which an operation's weights depend on its name and the cell's position alone."""
    network = NASBENCH201.build(cell, TINY).double()
    network.load_state_dict({k: v for k, v in skeleton.state_dict().items() if ".edges." not in k}, strict=False)
    with torch.no_grad():
        for position, module in enumerate(network.cells()):
            for operation, edge in zip(cell.operations, module.edges, strict=True):
                generator = torch.Generator().manual_seed(100 * position + operation)
                for parameter in edge.parameters():
                    parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return network.train()


def test_canonical_preserves_the_function_at_initialisation():
    torch.manual_seed(0)
    skeleton = NASBENCH201.build(Cell201((NONE,) * 6), TINY).double()
    images = torch.randn(4, 3, 8, 8, dtype=torch.float64)
    changed = [cell for cell in random_cells(1_000) if NASBENCH201.canonical(cell) != cell]
    broken = [cell for cell in changed if not NASBENCH201.is_connected(cell)]
    assert len(broken) >= 10
    cells = broken[:10] + [cell for cell in changed if NASBENCH201.is_connected(cell)][:90]
    outputs = set()
    with torch.no_grad():
        for cell in cells:
            given = shared_weights(cell, skeleton)(images)
            canonical = shared_weights(NASBENCH201.canonical(cell), skeleton)(images)
            assert torch.allclose(given, canonical, atol=1e-4), str(cell)
            outputs.add(round(given.sum().item(), 6))
    assert len(outputs) > 40  # the weights matter: most classes are different functions


def test_connectedness_by_paths():
    for row in all_operations()[::37].tolist():
        reached = {0}
        for operation, (source, target) in zip(row, EDGES, strict=True):
            if operation != NONE and source in reached:
                reached.add(target)
        assert NASBENCH201.is_connected(Cell201(tuple(row))) == (3 in reached)
