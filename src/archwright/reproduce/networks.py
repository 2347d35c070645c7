"""What the tables measure outside the scoring engine: cells of NAS-Bench-101, and traces that are no metric.

NAS-Bench-101 is a table without a space of its own, so its cells are built and scored one network at a time. The traces
are the approximations of ||Theta||_tr in eq. 6.4 to 6.7. Every finished chunk is recorded, so a killed table resumes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from archwright.data.request import load_data
from archwright.execution.base import Item, Work, run_items
from archwright.proxies.engine import ScoreRequest, draw_batch, scored_pairs
from archwright.proxies.initialise import initialise
from archwright.proxies.metrics import Proxy
from archwright.proxies.modules import record_module
from archwright.proxies.ntk import batch_gradient_trace, layer_kernel, sample_gradient_trace, trace_norm
from archwright.proxies.records import LayerRecord
from archwright.proxies.score import Scores, combine, find_proxies, score
from archwright.proxies.stacked import ProxyScale, score_stacked
from archwright.reproduce.base import Settings
from archwright.runs.files import Json
from archwright.runs.run import ItemLog
from archwright.runs.stop import Stop
from archwright.spaces.base import Architecture, Scale
from archwright.spaces.cells import CellPair, parse_cell_pair
from archwright.spaces.nasbench101 import Cell101, build_network, parse_cell101
from archwright.spaces.nasbench201 import NASBENCH201, Cell201

CHUNK, PAIRS_CHUNK, STACKED_CHUNK = 8, 48, 256
"""Architectures a work item: built one by one, or run stacked (cells of DARTS, of NAS-Bench-201)."""


@dataclass(frozen=True)
class SmallScale:
    """The small networks that stand in for those of NAS-Bench-101, and the batch they see."""

    channels: int
    cells: int
    image_size: int
    batch_size: int

    def __str__(self) -> str:
        return f"{self.channels} channels, {self.cells} cells a stage, {self.image_size} px, batch {self.batch_size}"

    def request(self, settings: Settings, metrics: tuple[str, ...], seed: int) -> ScoreRequest:
        """One draw at this scale.

        Args:
            settings: say the images.
            metrics: names of the scores.
            seed: of the draw.
        """
        return ScoreRequest(
            metrics, settings.images(), self.channels, self.cells, self.image_size, self.batch_size, seed=seed
        )


def cell_scores(settings: Settings, cells: Sequence[Cell101], request: ScoreRequest) -> Scores:
    """Scores of NAS-Bench-101 cells in one draw; cached.

    Args:
        settings: cache, executor and progress.
        cells: what is scored.
        request: metrics, images, scale and seed.
    """
    request.check(load_data(request.data))
    rows = _run(settings, score_cells, cells, request, CHUNK)
    return combine(find_proxies(request.metrics), rows[:, None, :])


def pair_scores(settings: Settings, pairs: Sequence[CellPair], request: ScoreRequest) -> Scores:
    """Scores of any DARTS-style cells in one draw; cached.

    Args:
        settings: cache, executor and progress.
        pairs: what is scored.
        request: metrics, images, scale and seed.
    """
    request.check(load_data(request.data))
    rows = _run(settings, score_pairs, pairs, request, PAIRS_CHUNK)
    return combine(find_proxies(request.metrics), rows[:, None, :])


def cell_traces(
    settings: Settings, cells: Sequence[Cell101], request: ScoreRequest, columns: Sequence[str]
) -> NDArray[np.float64]:
    """Traces (cells, columns) of NAS-Bench-101 cells in one draw; cached.

    A column is ``exact`` (||Theta||_tr with one backward pass an example, eq. 6.4), ``sum`` (squared gradients of the
    examples' losses, left of eq. 6.6) or a number b (gradient of the mini-batch of the first b examples, eq. 6.7).

    Args:
        settings: cache, executor and progress.
        cells: what is measured.
        request: images, scale and seed.
        columns: kinds of trace.
    """
    return _run(settings, trace_cells, cells, request, CHUNK, columns=list(columns))


def trace_of_201(settings: Settings, cells: Sequence[Cell201], request: ScoreRequest) -> NDArray[np.float64]:
    """Mini-batch trace (eq. 6.7) of NAS-Bench-201 cells in one draw, (cells,); cached.

    Args:
        settings: cache, executor and progress.
        cells: what is measured.
        request: images, scale and seed.
    """
    return _run(settings, trace_stacked, cells, request, STACKED_CHUNK)


def _run(
    settings: Settings, work: Work, cells: Sequence[Architecture], request: ScoreRequest, size: int, **extra: Json
) -> NDArray[np.float64]:
    """Rows that ``work`` gives for ``cells``, in chunks, kept under a name made of everything that decides them."""
    texts = [str(cell) for cell in cells]
    name = getattr(work, "__name__", "work")
    key = json.dumps([name, request.to_json(), load_data(request.data).fingerprint, extra, texts])
    log = ItemLog(settings.cache / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.jsonl")
    items = [
        Item(str(start), {"cells": texts[start : start + size], "request": request.to_json(), **extra})
        for start in range(0, len(texts), size)
    ]
    with settings.progress.task("scoring", len(items), sum(item.key in log.done for item in items)) as bar:
        found = run_items(settings.executor, work, items, log, Stop(), bar)
    return np.concatenate([np.array(found[item.key], dtype=np.float64) for item in items])


def score_pairs(payload: Json, stop: Stop) -> Json:
    """Work item: all metrics of some pairs of cells, as rows.

    Args:
        payload: cells and request, as JSON.
        stop: not looked at; a chunk takes seconds.
    """
    request, batch, scale = _drawn(payload)
    pairs = [parse_cell_pair(text) for text in payload["cells"]]
    return scored_pairs(pairs, batch, request, scale, request.seed)


def score_cells(payload: Json, stop: Stop) -> Json:
    """Work item: all metrics of some cells, as rows.

    Args:
        payload: cells and request, as JSON.
        stop: not looked at; a chunk takes seconds.
    """
    request, (images, labels), scale = _drawn(payload)
    networks = (build_network(parse_cell101(text), scale) for text in payload["cells"])
    scores = score(
        networks,
        (images, labels),
        request.metrics,
        ntk=request.ntk,
        initialisation=request.initialisation,
        seed=request.seed,
    )
    return scores.values.tolist()


def trace_cells(payload: Json, stop: Stop) -> Json:
    """Work item: the traces of some cells, as rows; all columns see the same weights.

    Args:
        payload: cells, columns and request, as JSON.
        stop: not looked at; a chunk takes seconds.
    """
    request, (images, labels), scale = _drawn(payload)
    rows = []
    for text in payload["cells"]:
        network = build_network(parse_cell101(text), scale)
        initialise(network, torch.Generator().manual_seed(request.seed), request.initialisation)
        rows.append([one_trace(network, images, labels, column) for column in payload["columns"]])
    return rows


def one_trace(network: nn.Module, images: Tensor, labels: Tensor, column: str) -> float:
    """One entry of :func:`cell_traces`.

    Args:
        network: with the weights of the draw.
        images: (m, C, H, W).
        labels: (m,).
        column: kind of trace.
    """
    if column == "exact":
        layers, *_ = record_module(network, images, labels, needs=("logit",), ntk="exact")
        return float(sum(trace_norm(layer_kernel(layer)) for layer in layers))
    first = len(labels) if column == "sum" else int(column)
    layers, *_ = record_module(network, images[:first], labels[:first], needs=("loss",))
    return float((sample_gradient_trace if column == "sum" else batch_gradient_trace)(layers))


def trace_stacked(payload: Json, stop: Stop) -> Json:
    """Work item: the mini-batch trace of some NAS-Bench-201 cells.

    Args:
        payload: cells and request, as JSON.
        stop: not looked at; a chunk takes seconds.
    """
    request, (images, labels), scale = _drawn(payload)
    operations = np.array([NASBENCH201.parse(text).operations for text in payload["cells"]])
    small = ProxyScale(request.channels, request.cells, scale.classes)
    found = score_stacked(operations, images, labels, [BATCH_TRACE], seed=request.seed, scale=small)
    return (found[BATCH_TRACE.name] * len(labels)).tolist()


def _squared_gradient(record: LayerRecord) -> Tensor:
    """Squared norm of the layer's gradient of the batch-mean loss: (A,)."""
    assert record.weight_gradient is not None
    return record.weight_gradient.flatten(1).square().sum(1)


BATCH_TRACE = Proxy("batch-trace", +1, frozenset({"loss"}), _squared_gradient)
"""Eq. 6.7 up to its factor m, for networks that run stacked."""


def _drawn(payload: Json) -> tuple[ScoreRequest, tuple[Tensor, Tensor], Scale]:
    """The request, its mini-batch and the scale of its networks."""
    request = ScoreRequest.from_json(payload["request"])
    data = load_data(request.data)
    images, labels = draw_batch(request, data, 0)
    return (
        request,
        (images, labels),
        Scale(request.channels, request.cells, data.classes, images.shape[-1], data.image_channels),
    )
