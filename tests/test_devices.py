"""Everything that computes stays on one device and does without float64 there: shown on an accelerator of our own.

See :mod:`helpers.fake_device`: its tensors refuse float64, the company of CPU tensors, and ``numpy()``, as MPS' do.
"""

import copy
import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import archwright as aw
from archwright.costs.measure import Timing, measure
from archwright.device import Device, useful_threads, widest_float
from archwright.errors import InputError
from archwright.proxies.score import find_proxies, score
from archwright.proxies.stacked import score_stacked
from archwright.search.registry import methods
from archwright.spaces.base import Scale
from archwright.spaces.darts import DARTS
from archwright.spaces.mbconv import SCALES, MbConv
from archwright.spaces.nasbench201 import NASBENCH201
from archwright.supernets.cell import CellSupernet
from archwright.supernets.elastic import ElasticSupernet, deal
from archwright.supernets.measure import BATCH, measure_subnetwork, recalibrated
from archwright.training import evaluate
from helpers.fake_device import DEVICE, FakeAccelerator
from helpers.small_searches import smallest
from helpers.tiny_start import tiny_start, write_grey_photos

GOLDEN = Path(__file__).parents[1] / "benchmarks" / "golden"
CELL = "|nor_conv_3x3~0|+|skip_connect~0|nor_conv_1x1~1|+|none~0|avg_pool_3x3~1|nor_conv_3x3~2|"
SCALE = Scale(channels=4, cells=3, classes=3, image_size=8, image_channels=1)
IMAGES = torch.randn(8, 1, 8, 8, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(8) % 3
SHARED = {"supernet_epochs": 1, "supernet_batch": 32}
SEARCHES = {
    "darts": {"search_epochs": 1, "search_batch": 32, "order": 2},
    "rarts": {"search_epochs": 1, "search_batch": 32, "latency_weight": 0.01, "selection": "perturbation"},
    "nasi": {"steps": 2, "nu_samples": 2, "proxy_batch": 16, "estimator": "selected"},
    "hnas": {"evaluations": 2, "replicates": 1, "proxy_batch": 8, "pool": 8},
    "random": {"evaluations": 2},
    "evolution": {"evaluations": 3, "population": 2, "sample": 2},
    "nsga2": {"evaluations": 3, "population": 2},
    "conas": {**SHARED, "measurements": 12, "images": 32, "threshold": 9.0, "rounds": 1},
    "rsps": {**SHARED, "measurements": 4, "images": 32},
    "nesbs": {**SHARED, "posterior_epochs": 1, "sampler": "mc", "candidates": 2, "size": 2},
    **{
        name: {"search_epochs": 1, "search_batch": 32, "search_images": 32}
        for name in ("milenas", "gdas", "pc-darts", "drnas", "smooth-darts", "oles", "snas")
    },
}


@pytest.fixture
def accelerator(monkeypatch):
    monkeypatch.setattr(Device, "choose", classmethod(lambda cls, name="auto", threads=None: cls(DEVICE.type, 1)))
    with FakeAccelerator():
        yield DEVICE


def test_the_fake_device_refuses_what_a_real_one_does(accelerator):
    there = torch.ones(3).to(accelerator)
    with pytest.raises(RuntimeError, match="on cpu"):
        there + torch.ones(3)
    with pytest.raises(TypeError, match="float64"):
        there.double()
    with pytest.raises(TypeError, match="numpy"):
        there.numpy()
    assert (there + 1).cpu().tolist() == [2, 2, 2]
    assert widest_float(accelerator) == torch.float32


@pytest.mark.parametrize("method", SEARCHES)
def test_whole_searches_stay_on_the_device(method, accelerator, tmp_path):
    few = {"data": "random:classes=3,size=8,channels=1,count=120", "channels": 4, "cells": 1}
    settings = {**few, "epochs": 1, "final_epochs": 1, "options": SEARCHES[method]}
    result = aw.search(method, run=tmp_path / "run", **settings)
    found = json.loads(result.best.architecture) if method == "nesbs" else [result.best.architecture]
    assert all(NASBENCH201.is_connected(NASBENCH201.parse(one)) for one in found)
    assert Device.choose().describe()["device"] == "meta"


def test_a_whole_search_under_a_limit_stays_on_the_device(accelerator, tmp_path, monkeypatch):
    monkeypatch.setattr("archwright.models.Model.export", lambda *_: None)  # its tracing is no computation
    options = {"plan": "paper", "verify": False, "latency_table": str(GOLDEN / "paper.json"), "rows": 100}
    few = {"epochs": 1, "final_epochs": 1, "limits": {"latency_ms": 2.0}, "batch_size": 64}
    result = aw.search("binas", data="digits", run=tmp_path / "run", **few, options={**options, "supernet_epochs": 1})
    assert len(result.models) == 1


def test_every_method_is_tried_on_the_device():
    assert {*SEARCHES, "binas", "rarts-width", "train"} == set(methods.entries)


def test_an_architecture_is_trained_on_the_device(accelerator, tmp_path):
    few = {"data": "random:classes=3,size=8,channels=1,count=120", "channels": 4, "cells": 1, "epochs": 1}
    assert aw.train(CELL, run=tmp_path / "run", **few).best.accuracy is not None


def test_small_networks_from_scratch_stay_on_the_device(accelerator, tmp_path, monkeypatch):
    monkeypatch.setattr("archwright.models.Model.export", lambda *_: None)  # its tracing is no computation
    result = aw.search("binas", run=tmp_path / "run", verify=False, **smallest("binas", tmp_path / "plan"))
    assert len(result.models) == 2


def test_a_search_around_trained_weights_stays_on_the_device(accelerator, tmp_path, monkeypatch):
    monkeypatch.setattr("archwright.models.Model.export", lambda *_: None)  # its tracing is no computation
    data = write_grey_photos(tmp_path / "photos")
    with tiny_start():
        result = aw.search("binas", run=tmp_path / "run", data=data, pretrained="tiny", minutes=0.1, threads=1)
    assert result.models


def test_a_network_is_thinned_on_the_device(accelerator, tmp_path, monkeypatch):
    monkeypatch.setattr("archwright.models.Model.export", lambda *_: None)  # its tracing is no computation
    options = {"network": "resnet20", "keep_channels": 0.6, "timing": False, "search_epochs": 1, "search_images": 32}
    few = {"data": "random:classes=3,size=16,count=120", "epochs": 1, "final_epochs": 1}
    result = aw.search("rarts-width", run=tmp_path / "run", **few, options=options)
    assert result.best.accuracy is not None


@pytest.mark.parametrize("space", [NASBENCH201, DARTS], ids=lambda space: space.name)
def test_a_supernet_computes_there_what_it_does_here(space, accelerator):
    torch.manual_seed(0)
    here = CellSupernet(space, SCALE)
    there = copy.deepcopy(here).to(accelerator)
    softmax = {name: torch.rand(shape).softmax(-1) for name, shape in space.decisions.items()}

    def gradients(supernet, device):
        weights = {name: value.to(device).requires_grad_() for name, value in softmax.items()}
        loss = F.cross_entropy(supernet(IMAGES.to(device), weights), LABELS.to(device))
        return [g.cpu() for g in torch.autograd.grad(loss, [*weights.values(), *supernet.parameters()])]

    for ours, theirs in zip(gradients(here, "cpu"), gradients(there, accelerator), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5)


def test_sub_networks_are_measured_there_as_here(accelerator):
    torch.manual_seed(0)
    cells, space = CellSupernet(NASBENCH201, SCALE), MbConv(SCALES["mbconv-8"].changed(classes=3))
    elastic = ElasticSupernet(space)
    one = space.to_choice(space.sample(np.random.default_rng(0)))
    cell = NASBENCH201.sample(np.random.default_rng(0))
    for supernet, choose in ((cells, lambda device: cells.one_hot(cell, device)), (elastic, lambda _: one)):
        found = []
        for device in ("cpu", accelerator):
            batches = [(IMAGES.to(device), LABELS.to(device))]
            moved = copy.deepcopy(supernet).to(device)
            policies = (BATCH, recalibrated(batches, 8))
            found += [measure_subnetwork(moved, choose(device), batches, norms).losses for norms in policies]
        assert found[0] == pytest.approx(found[2], abs=1e-4)
        assert found[1] == pytest.approx(found[3], abs=1e-4)
    paths = deal(8, np.random.default_rng(1), space.scale)
    there = copy.deepcopy(elastic).to(accelerator).train()
    F.cross_entropy(there(IMAGES.to(accelerator), paths), LABELS.to(accelerator)).backward()


METRICS = ["grad", "snip", "trace", "kappa", "synflow", "naswot", "fisher", "params", "macs", "regions", "knas"]


def test_scores_are_the_same_there_as_here(accelerator):
    network = NASBENCH201.build(NASBENCH201.sample(np.random.default_rng(5)), SCALE)
    ours = score(network, (IMAGES, LABELS), METRICS)
    theirs = score(network.to(accelerator), (IMAGES.to(accelerator), LABELS.to(accelerator)), METRICS)
    assert theirs.values == pytest.approx(ours.values, rel=1e-2)


def test_stacked_scores_are_the_same_there_as_here(accelerator):
    operations = np.random.default_rng(0).integers(5, size=(4, 6))
    proxies = find_proxies(METRICS)
    ours = score_stacked(operations, IMAGES, LABELS, proxies)
    theirs = score_stacked(operations, IMAGES.to(accelerator), LABELS.to(accelerator), proxies)
    for name in METRICS:
        assert theirs[name] == pytest.approx(ours[name], rel=1e-2), name


def test_evaluation_and_latency_use_the_device(accelerator):
    network = NASBENCH201.build(NASBENCH201.sample(np.random.default_rng(0)), SCALE)
    here = evaluate(network, [(IMAGES, LABELS)])
    there = evaluate(network, [(IMAGES, LABELS)], device=accelerator)
    assert there.loss == pytest.approx(here.loss, rel=1e-5)
    seen = []
    network.register_forward_hook(lambda _module, given, _out: seen.append(given[0].device))
    measure(network, (1, 8, 8), Timing(processor=accelerator.type, warm_up=0, repeats=1))
    assert seen == [accelerator]


def test_onnx_runtime_is_timed_on_the_cpu_only():
    with pytest.raises(InputError, match="CPU with onnxruntime"):
        Timing(backend="onnxruntime", processor="cuda")


@pytest.mark.parametrize(("of_two", "found"), [(0.5, 2), (0.9, 1), (40.0, 1)])
def test_several_threads_are_taken_only_where_they_are_quicker_now(monkeypatch, of_two, found):
    before, now = torch.get_num_threads(), [0.0]

    def clock() -> float:
        now[0] += 1.0 if torch.get_num_threads() == 1 else of_two
        return now[0]

    monkeypatch.setattr("archwright.device.time.perf_counter", clock)
    torch.set_num_threads(2)
    try:
        assert useful_threads() == found
        assert torch.get_num_threads() == 2
        torch.set_num_threads(1)
        assert useful_threads() == 1
    finally:
        torch.set_num_threads(before)
