"""The cell supernet against stand-alone networks and against a dense oracle with one module an edge and operation."""

import copy
import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from archwright.errors import InputError
from archwright.spaces.base import Scale
from archwright.spaces.cell_space import EdgeCell
from archwright.spaces.cells import CellPair
from archwright.spaces.darts import DARTS
from archwright.spaces.nasbench201 import NASBENCH201, Cell201
from archwright.spaces.operations import OPERATIONS
from archwright.supernets.cell import CellSupernet, MixedCell, Picked
from archwright.supernets.parallel import contiguous_runs

SPACES = {"nasbench201": NASBENCH201, "darts": DARTS}
SCALES = {
    "nasbench201": Scale(channels=4, cells=1, image_size=8),
    "darts": Scale(channels=4, cells=3, image_size=8),
}
BOTH = pytest.mark.parametrize("name", sorted(SPACES))


class OracleCell(nn.Module):
    """A mixed cell as its definition reads: every operation on every edge is its own stand-alone module."""

    def __init__(self, cell, affine, pool_norm, channels):
        super().__init__()
        self.inputs, self.edges, self.names = cell.inputs, cell.edges, cell.operations
        self.join, self.partial, self.halved = cell.join, cell.partial, cell.halved
        self.table = nn.ModuleDict()
        for (row, (source, _)), name in itertools.product(enumerate(cell.edges), cell.operations):
            stride = 2 if cell.halved and source < cell.inputs else 1
            width = channels // cell.partial
            module = OPERATIONS[name].build(width, width, stride, affine, pool_norm).double()
            if name != "none":
                module.load_state_dict(cell.export(row, name), strict=False)
            self.table[f"{row}:{name}"] = module

    def forward(self, *arguments):
        *states, weights, _ = arguments
        nodes = max(target for _, target in self.edges) + 1
        for node in range(self.inputs, nodes):
            rows = [row for row, (_, target) in enumerate(self.edges) if target == node]
            states.append(sum(self.edge(row, states[self.edges[row][0]], weights[row]) for row in rows))
        return states[-1] if self.join == "last" else torch.cat(states[self.inputs :], dim=1)

    def edge(self, row, x, weights):
        size = x.shape[1] // self.partial
        seen = x[:, :size]
        mixed = sum(w * self.table[f"{row}:{name}"](seen) for w, name in zip(weights, self.names, strict=True))
        if self.partial == 1:
            return mixed
        rest = x[:, size:]
        if self.halved and self.edges[row][0] < self.inputs:
            rest = F.max_pool2d(rest, 2, 2)
        joined = torch.cat([mixed, rest], dim=1)
        return joined[:, [group * size + i for i in range(size) for group in range(self.partial)]]


def oracle_of(supernet):
    """The supernet's network with every mixed cell replaced by its oracle, same weights."""
    network = copy.deepcopy(supernet.network)
    for module in network.modules():
        if isinstance(module, Picked):
            channels = next(iter(_channels(module.cell)))
            module.cell = OracleCell(module.cell, supernet.affine, supernet.scale.pool_norm, channels)
    return network


def _channels(cell):
    """Channels of the cell's nodes, read off its first stacked convolution."""
    for module in cell.modules():
        if hasattr(module, "depthwise"):
            yield module.channels * cell.partial


def make(name, **options):
    torch.manual_seed(0)
    pool_norm = options.pop("pool_norm", False)
    supernet = CellSupernet(SPACES[name], SCALES[name].changed(pool_norm=pool_norm), **options).double()
    with torch.no_grad():
        for parameter in supernet.parameters():
            if parameter.dim() == 1:  # batch norms start at 1 and 0, which would hide mistakes
                parameter.add_(0.3 * torch.rand_like(parameter))
    return supernet


def batch(count=4):
    generator = torch.Generator().manual_seed(5)
    images = torch.randn(count, 3, 8, 8, generator=generator, dtype=torch.float64)
    return images, torch.arange(count) % 10


def alphas(name):
    generator = torch.Generator().manual_seed(7)
    return {
        decision: torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True)
        for decision, shape in SPACES[name].decisions.items()
    }


def softmax(logits):
    return {name: tensor.softmax(-1) for name, tensor in logits.items()}


def straight_through(logits):
    """A hard sample whose gradient is the softmax's."""
    weights = {}
    for name, soft in softmax(logits).items():
        hard = F.one_hot(soft.argmax(-1), soft.shape[-1]).double()
        weights[name] = hard + soft - soft.detach()
    return weights


def close(one, other, tolerance=1e-4):
    one, other = one.detach(), other.detach()
    scale = max(float(other.abs().max()), 1e-12)
    return float((one - other).abs().max()) <= tolerance * scale


# --- one-hot weights are stand-alone networks ------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("pool_norm", [False, True])
@pytest.mark.parametrize("affine", [False, True])
def test_one_hot_weights_are_the_network_that_inherits(name, pool_norm, affine):
    space = SPACES[name]
    supernet = make(name, pool_norm=pool_norm, affine=affine, statistics="running")
    images, _ = batch()
    with torch.no_grad():
        for _ in range(3):
            supernet.train()(images + torch.randn_like(images), softmax(alphas(name)))
        supernet.eval()
        rng = np.random.default_rng(0)
        architectures = [space.sample(rng) for _ in range(12)]
        if name == "nasbench201":
            architectures += [Cell201((0,) * 6), Cell201((3, 0, 0, 0, 0, 3)), Cell201((0, 3, 3, 0, 3, 3))]
        seen = set()
        for architecture in architectures:
            weights = {key: value.double() for key, value in supernet.one_hot(architecture).items()}
            shared = supernet(images, weights)
            alone = supernet.inherit(architecture).double().eval()(images)
            assert torch.allclose(shared, alone, atol=1e-5), str(architecture)
            seen.add(round(float(shared.sum()), 8))
        assert len(seen) >= 10  # the architectures are told apart


@BOTH
def test_an_inherited_network_is_a_copy(name):
    supernet = make(name, statistics="running")
    before = {key: value.clone() for key, value in supernet.state_dict().items()}
    network = supernet.inherit(SPACES[name].sample(np.random.default_rng(0)))
    with torch.no_grad():
        for tensor in network.state_dict().values():
            tensor.zero_()
    assert all(torch.equal(before[key], value) for key, value in supernet.state_dict().items())


@BOTH
def test_batch_statistics_remember_nothing(name):
    supernet = make(name)
    images, _ = batch()
    weights = softmax(alphas(name))
    assert not list(supernet.buffers())
    with torch.no_grad():
        first = supernet(images, weights)
        supernet(images * 3 + 1, weights)
        assert torch.equal(supernet(images, weights), first)
        assert torch.equal(supernet.eval()(images, weights), first)


# --- against the dense oracle ----------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("weighting", [softmax, straight_through])
@pytest.mark.parametrize("options", [{}, {"affine": True, "pool_norm": True}], ids=["plain", "affine+pool_norm"])
def test_values_and_derivatives_are_the_oracles(name, weighting, options):
    supernet = make(name, **options)
    oracle = oracle_of(supernet)
    images, labels = batch()
    results = []
    for network in (lambda w: supernet(images, w), lambda w: oracle(images, w, w)):
        module = supernet if not results else oracle
        logits = alphas(name)
        output = network(weighting(logits))
        loss = F.cross_entropy(output, labels)
        first = torch.autograd.grad(loss, list(logits.values()), retain_graph=True)
        parameters = [p for p in module.parameters() if p.requires_grad]
        gradients = torch.autograd.grad(loss, parameters, create_graph=True, allow_unused=True)
        trace = sum(g.square().sum() for g in gradients if g is not None)
        second = torch.autograd.grad(trace, list(logits.values()))
        results.append((output, trace, *first, *second))
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = None if gradient is None else gradient.detach()
    for ours, theirs in zip(*results, strict=True):
        assert theirs.abs().max() > 0
        assert close(ours, theirs)
    compare_parameter_gradients(supernet, oracle)


def compare_parameter_gradients(supernet, oracle):
    """Gradients of the stacked parameters, cut into edges by ``export``, and of the skeleton's."""
    gradients = copy.deepcopy(supernet)
    with torch.no_grad():
        for parameter, original in zip(gradients.parameters(), supernet.parameters(), strict=True):
            parameter.copy_(torch.zeros_like(parameter) if original.grad is None else original.grad)
    theirs = dict(oracle.named_parameters())
    compared = 0
    for path, module in gradients.network.named_modules():
        if not isinstance(module, MixedCell):
            continue
        for row, name in itertools.product(range(len(module.edges)), module.operations):
            if name == "none":
                continue
            names = dict(oracle.get_submodule(f"{path}.table.{row}:{name}").named_parameters())
            exported = module.export(row, name)
            for key in names:
                expected = theirs.pop(f"{path}.table.{row}:{name}.{key}").grad
                assert close(exported[key], torch.zeros_like(exported[key]) if expected is None else expected) or (
                    exported[key].abs().max() < 1e-12
                )
                compared += 1
    skeleton = dict(gradients.network.named_parameters())
    for key, parameter in theirs.items():
        assert close(skeleton[key], parameter.grad), key
    assert compared > 10


@BOTH
def test_all_and_selected_operations_give_one_value(name):
    """A hard sample: the value and the selected gradients agree, the others are zero (GDAS' estimator)."""
    supernet = make(name)
    images, labels = batch()
    hard = {key: value.detach() for key, value in straight_through(alphas(name)).items()}
    hard = {key: (value > 0.5).double() for key, value in hard.items()}
    selected = {key: value.bool().numpy() for key, value in hard.items()}
    results = []
    for active in (None, selected):
        weights = {key: value.clone().requires_grad_() for key, value in hard.items()}
        loss = F.cross_entropy(supernet(images, weights, active), labels)
        results.append((loss, torch.autograd.grad(loss, list(weights.values()))))
    (all_loss, dense), (selected_loss, sparse) = results
    assert close(all_loss, selected_loss, 1e-10)
    assert close(supernet(images, hard).sum(), supernet(images, hard, selected).sum(), 1e-10)
    for ours, theirs, mask in zip(sparse, dense, selected.values(), strict=True):
        assert close(ours[mask], theirs[mask], 1e-8)
        assert not ours[~mask].any()
        assert theirs[~mask].any()


@BOTH
def test_what_runs_by_default(name):
    supernet = make(name)
    logits = alphas(name)
    assert all(array.all() for array in supernet.active_operations(straight_through(logits)).values())
    hard = {key: value.detach() for key, value in straight_through(logits).items()}
    for key, array in supernet.active_operations(hard).items():
        assert np.array_equal(array.sum(axis=1), np.ones(len(array))), key


# --- options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "partial"), [("darts", 2), ("nasbench201", 2), ("nasbench201", 4)])
@pytest.mark.parametrize("weighting", [softmax, straight_through])
def test_partial_channels_against_the_oracle(name, partial, weighting):
    supernet = make(name, partial=partial)
    oracle = oracle_of(supernet)
    images, _ = batch()
    with torch.no_grad():
        weights = weighting(alphas(name))
        ours, theirs = supernet(images, weights), oracle(images, weights, weights)
    assert ours.shape == (4, 10)
    assert close(ours, theirs, 1e-9)


def test_partial_channels_pass_by_when_nothing_is_selected():
    pattern = EdgeCell("cell", ((0, 1),))
    cell = MixedCell(pattern, ["none", "skip_connect"], 4, affine=False, statistics="batch", pool_norm=False, partial=2)
    x = torch.arange(4.0).view(1, 4, 1, 1) + 1
    nothing = cell(x, torch.tensor([[1.0, 0.0]]), np.array([[True, False]]))
    assert nothing.flatten().tolist() == [0, 3, 0, 4]
    passed = cell(x, torch.tensor([[0.0, 1.0]]), np.array([[False, True]]))
    assert passed.flatten().tolist() == [1, 3, 2, 4]


@pytest.mark.parametrize("size", [8, 9])
@pytest.mark.parametrize("partial", [1, 2])
def test_pooled_and_strided_supernets_have_the_same_shapes(size, partial):
    images = torch.randn(2, 3, size, size)
    weights = {key: value.float() for key, value in softmax(alphas("darts")).items()}
    sizes = {}
    for downsample in ("strided", "pooled"):
        supernet = CellSupernet(DARTS, SCALES["darts"].changed(image_size=size), downsample=downsample, partial=partial)
        shapes = sizes.setdefault(downsample, [])
        for module in supernet.modules():
            if isinstance(module, Picked):
                module.register_forward_hook(lambda module, inputs, output, s=shapes: s.append(tuple(output.shape)))
        assert supernet(images, weights).shape == (2, 10)
    assert sizes["strided"] == sizes["pooled"]
    half = -(-size // 2)
    assert [shape[2:] for shape in sizes["pooled"]] == [(size, size), (half, half), (-(-half // 2),) * 2]


def test_pooled_cells_run_at_full_size_inside():
    supernet = CellSupernet(DARTS, SCALES["darts"], downsample="pooled")
    shapes = []
    for module in supernet.modules():
        if isinstance(module, MixedCell):
            module.register_forward_hook(lambda module, inputs, output: shapes.append(output.shape[-1]))
    supernet(torch.randn(2, 3, 8, 8), {key: value.float() for key, value in softmax(alphas("darts")).items()})
    assert shapes == [8, 8, 4]


def counted_runs(supernet):
    """How often each operation's stacked module has run, by operation name."""
    runs = dict.fromkeys(supernet.space.operations, 0)

    def count(name):
        def hook(module, inputs, output):
            runs[name] += 1

        return hook

    for cell in supernet.modules():
        if isinstance(cell, MixedCell):
            for key, module in cell.parallel.items():
                module.register_forward_hook(count(key.split(":")[1]))
    return runs


@BOTH
def test_operations_outside_the_subset_never_run(name):
    supernet = make(name, operations=["skip_connect", "avg_pool_3x3"])
    runs = counted_runs(supernet)
    images, _ = batch()
    logits = alphas(name)
    output = supernet(images, softmax(logits))
    assert {operation for operation, count in runs.items() if count} == {"skip_connect", "avg_pool_3x3"}
    gradients = torch.autograd.grad(output.square().sum(), list(logits.values()))
    assert all(gradient.isfinite().all() for gradient in gradients)
    weights = softmax(logits)
    kept = [operation in ("skip_connect", "avg_pool_3x3") for operation in supernet.space.operations]
    masked = {key: value * torch.tensor(kept) for key, value in weights.items()}
    full = make(name)
    full.load_state_dict(supernet.state_dict())
    assert close(output, full(images, masked), 1e-10)


def test_one_hot_weights_run_one_operation_an_edge():
    supernet = make("nasbench201")
    runs = counted_runs(supernet)
    images, _ = batch()
    weights = {key: value.double() for key, value in supernet.one_hot(Cell201((3, 3, 1, 1, 0, 0))).items()}
    supernet(images, weights)
    cells = 3
    assert runs == {
        "none": 0,
        "nor_conv_1x1": 0,
        "avg_pool_3x3": 0,
        "nor_conv_3x3": cells,  # two edges of one source are one convolution
        "skip_connect": 2 * cells,
    }


def test_a_disconnected_cell_is_zero_and_its_logits_are_finite():
    supernet = make("nasbench201")
    outputs = []
    for module in supernet.modules():
        if isinstance(module, MixedCell):
            module.register_forward_hook(lambda module, inputs, output: outputs.append(output))
    images, _ = batch()
    for operations in ((0,) * 6, (3, 3, 3, 0, 0, 0)):
        weights = {key: value.double() for key, value in supernet.one_hot(Cell201(operations)).items()}
        logits = supernet(images, weights)
        assert logits.isfinite().all()
        assert torch.equal(logits, logits[:1].expand_as(logits))
    assert len(outputs) == 6
    assert not any(output.any() for output in outputs)


def test_a_mask_sums_the_operations_of_an_edge():
    supernet = make("nasbench201")
    oracle = oracle_of(supernet)
    images, _ = batch()
    mask = {"cell": (torch.rand(6, 5, generator=torch.Generator().manual_seed(1)) < 0.5).double()}
    mask["cell"][0, 2] = mask["cell"][1, 2] = 1
    with torch.no_grad():
        assert close(supernet(images, mask), oracle(images, mask, mask), 1e-9)


# --- bad input -------------------------------------------------------------------------------------------------------


def test_channels_must_be_divisible_by_partial():
    with pytest.raises(InputError, match="divisible by 4"):
        CellSupernet(DARTS, SCALES["darts"].changed(channels=6), partial=4)


def test_an_unknown_operation_is_refused():
    with pytest.raises(InputError, match="'sep_conv_3x3'"):
        CellSupernet(DARTS, SCALES["darts"], operations=["sep_conv3x3"])


@pytest.mark.parametrize(("options", "named"), [({"downsample": "pooled"}, "strided"), ({"partial": 2}, "partial=1")])
def test_only_like_networks_inherit(options, named):
    supernet = CellSupernet(DARTS, SCALES["darts"], **options)
    pair = DARTS.sample(np.random.default_rng(0))
    assert isinstance(pair, CellPair)
    with pytest.raises(InputError, match=named):
        supernet.inherit(pair)


def test_a_too_small_image_is_refused():
    with pytest.raises(InputError, match="4 px"):
        CellSupernet(NASBENCH201, SCALES["nasbench201"].changed(image_size=3))


def test_contiguous_runs():
    assert contiguous_runs([0, 1, 3, 5, 6, 7]) == [slice(0, 2), slice(3, 4), slice(5, 8)]
    assert contiguous_runs([]) == []


# --- the supernet of DARTS as its authors count it ---


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


def counted_supernet(channels, cells, classes=10):
    """Weights of DARTS' search network by hand: no batch norm but the stem's is affine, pools have no weights."""
    total = 27 * 3 * channels + 2 * 3 * channels
    before, last, c = 3 * channels, 3 * channels, channels
    for number in range(cells):
        reduction = number in (cells // 3, 2 * cells // 3)
        c *= 2 if reduction else 1
        total += before * c + last * c  # 1x1 convolutions on both inputs; two halves make one where the first is halved
        separable = sum(2 * (k * k * c + c * c) for k in (3, 5))
        dilated = sum(k * k * c + c * c for k in (3, 5))
        total += 14 * (separable + dilated)
        total += 8 * c * c if reduction else 0  # a skip that halves, on the 8 edges from the cell's inputs
        before, last = last, 4 * c
    return total + (last + 1) * classes


@pytest.mark.parametrize(("channels", "cells"), [(16, 8), (8, 3), (4, 6)])
def test_the_darts_supernet_has_the_weights_of_the_authors(channels, cells):
    supernet = CellSupernet(DARTS, DARTS.supernet_scale(Scale(channels, cells, auxiliary=True)))
    assert count(supernet) == counted_supernet(channels, cells)


def test_the_darts_supernet_at_its_published_scale_and_the_final_network_apart_from_it():
    """1.930618 M is what public DARTS code prints for 16 channels and 8 cells."""
    scale = DARTS.scales["search"]
    supernet = CellSupernet(DARTS, DARTS.supernet_scale(scale))
    assert count(supernet) == 1_930_618
    assert supernet.scale.pool_norm
    final = DARTS.build(DARTS.sample(np.random.default_rng(0)), scale)
    assert normed_pools(supernet) == 8 * 2 * 5  # one of each kind a cell and source
    assert normed_pools(final) == 0


def normed_pools(network):
    stacks = [module for module in network.modules() if isinstance(module, nn.Sequential)]
    return sum(isinstance(stack[0], nn.AvgPool2d | nn.MaxPool2d) for stack in stacks)
