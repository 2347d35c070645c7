"""Sub-networks measured on the supernet against the same networks cut out, for each batch-norm policy."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from archwright.errors import InputError
from archwright.spaces.base import Scale
from archwright.spaces.darts import DARTS
from archwright.spaces.mbconv import SCALES, MbConv
from archwright.spaces.nasbench201 import NASBENCH201
from archwright.supernets.cell import CellSupernet
from archwright.supernets.elastic import ElasticSupernet
from archwright.supernets.measure import BATCH, RUNNING, measure_subnetwork, recalibrated

IMAGES, LABELS = torch.randn(24, 1, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(24) % 10
BATCHES = [(IMAGES[:12], LABELS[:12]), (IMAGES[12:], LABELS[12:])]
TRAINING = [(2 * IMAGES.flip(0)[i : i + 8] + 1, LABELS[i : i + 8]) for i in (0, 8, 16)]


def cell_supernet(space, statistics):
    torch.manual_seed(0)
    scale = Scale(channels=4, cells=space.fewest_cells, image_size=8, image_channels=1)
    return CellSupernet(space, space.supernet_scale(scale), statistics=statistics).train()


@pytest.fixture(scope="module")
def elastic():
    torch.manual_seed(0)
    supernet = ElasticSupernet(MbConv(SCALES["mbconv-8"])).train()
    rng = np.random.default_rng(0)
    with torch.no_grad():
        for images, _ in TRAINING:
            supernet(images, supernet.space.to_choice(supernet.space.sample(rng)))  # moves the running statistics
    return supernet


def by_hand(network, mode, calibration=()):
    """Losses and hits of a stand-alone network; with ``calibration``, after averaging its statistics by hand."""
    network = network.train(mode)
    if calibration:
        for norm in (m for m in network.modules() if isinstance(m, torch.nn.BatchNorm2d)):
            norm.reset_running_stats()
            norm.momentum = None
        network.train()
        for images, _ in calibration:
            network(images)
        network.eval()
    with torch.no_grad():
        logits = torch.cat([network(images) for images, _ in BATCHES])
    return F.cross_entropy(logits, LABELS, reduction="none").numpy(), (logits.argmax(1) == LABELS).numpy()


def assert_same(outcome, losses, correct):
    assert outcome.losses == pytest.approx(losses, abs=2e-4)
    assert (outcome.correct == correct).mean() > 0.95
    assert outcome.loss == pytest.approx(losses.mean(), abs=2e-4)
    assert outcome.accuracy == pytest.approx(100 * outcome.correct.mean())


@pytest.mark.parametrize("space", [NASBENCH201, DARTS], ids=lambda space: space.name)
@pytest.mark.parametrize("statistics", ["batch", "running"])
def test_cell_sub_networks_are_their_inherited_networks(space, statistics):
    supernet = cell_supernet(space, statistics)
    architectures = [space.sample(np.random.default_rng(seed)) for seed in (1, 2)]
    choices = [supernet.one_hot(architecture) for architecture in architectures]
    before = copy.deepcopy(supernet.state_dict())
    for architecture, choice in zip(architectures, choices, strict=True):
        outcome = measure_subnetwork(supernet, choice, BATCHES, BATCH)
        assert_same(outcome, *by_hand(supernet.inherit(architecture), True))
        outcome = measure_subnetwork(supernet, choice, BATCHES, recalibrated(TRAINING, 24))
        assert_same(outcome, *by_hand(supernet.inherit(architecture), False, TRAINING))
    assert supernet.training
    after = supernet.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_running_statistics_are_those_the_supernet_kept_and_are_refused_where_it_keeps_none(elastic):
    architecture = elastic.space.sample(np.random.default_rng(3))
    outcome = measure_subnetwork(elastic, elastic.space.to_choice(architecture), BATCHES, RUNNING)
    assert_same(outcome, *by_hand(elastic.cut_out(architecture), False))
    supernet = cell_supernet(NASBENCH201, "batch")
    choice = supernet.one_hot(NASBENCH201.sample(np.random.default_rng(0)))
    with pytest.raises(InputError, match="running statistics"):
        measure_subnetwork(supernet, choice, BATCHES, RUNNING)


def test_elastic_sub_networks_are_their_cut_out_networks(elastic):
    before = copy.deepcopy(elastic.state_dict())
    architecture = elastic.space.sample(np.random.default_rng(4))
    choice = elastic.space.to_choice(architecture)
    outcome = measure_subnetwork(elastic, choice, BATCHES, BATCH)
    assert_same(outcome, *by_hand(elastic.cut_out(architecture), True))
    outcome = measure_subnetwork(elastic, choice, BATCHES, recalibrated(TRAINING, 24))
    assert_same(outcome, *by_hand(elastic.cut_out(architecture), False, TRAINING))
    after = elastic.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_recalibration_stops_at_the_number_of_images():
    supernet = cell_supernet(NASBENCH201, "batch")
    choice = supernet.one_hot(NASBENCH201.parse("|nor_conv_3x3~0|+|none~0|none~1|+|skip_connect~0|none~1|none~2|"))
    few = measure_subnetwork(supernet, choice, BATCHES, recalibrated(TRAINING, 8))
    first = measure_subnetwork(supernet, choice, BATCHES, recalibrated(TRAINING[:1], 24))
    assert (few.losses == first.losses).all()
    with pytest.raises(InputError, match="at least 2"):
        recalibrated(TRAINING, 1)


def test_masks_with_several_operations_an_edge_are_measured():
    supernet = cell_supernet(NASBENCH201, "batch")
    masks = {"cell": torch.ones(6, 5)}
    with torch.no_grad():
        logits = torch.cat([supernet(images, masks) for images, _ in BATCHES])
    outcome = measure_subnetwork(supernet, masks, BATCHES, BATCH)
    assert outcome.losses == pytest.approx(F.cross_entropy(logits, LABELS, reduction="none").numpy(), abs=1e-5)
