"""Score many architectures: each canonical class once, in chunks, on any executor, every finished chunk recorded.

NAS-Bench-201 (`archwright.proxies.stacked`) and DARTS-style cells (`archwright.proxies.stacked_cells`) run stacked;
other spaces build one network at a time. A *draw* is one initialisation and one mini-batch; a score is the mean over
``replicates`` draws (of the logarithm where the metric is a positive scale). Memory holds one chunk at a time, whatever
the number of architectures.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from archwright import __version__
from archwright.data import ImageData
from archwright.data.request import DataRequest, load_data
from archwright.errors import InputError
from archwright.execution.base import Executor, Item, run_items
from archwright.proxies.initialise import Initialisation
from archwright.proxies.score import Scores, combine, find_proxies, score
from archwright.proxies.stacked import ProxyScale, operations_of, score_stacked
from archwright.proxies.stacked_cells import pairs_of, score_stacked_cells
from archwright.runs.files import Json
from archwright.runs.progress import Progress
from archwright.runs.run import ItemLog
from archwright.runs.stop import Stop
from archwright.spaces.base import Architecture, Scale, Space
from archwright.spaces.cells import CellPair
from archwright.spaces.registry import find_space, name_space
from archwright.spaces.source import source_digest

STACKED_CHUNK, PAIRS_CHUNK, CHUNK = 256, 96, 16
"""Architectures a work item: cells of NAS-Bench-201 and of DARTS, which are stacked, and others, one by one."""
LOOKED_AT = 3
"""Networks whose layers enter the name that scores are kept under."""


@dataclass(frozen=True)
class ScoreRequest:
    """What to score with: metrics, the small network that stands in for the real one, and the draws.

    Attributes:
        metrics: registered names.
        data: images the mini-batches come from.
        channels, cells, image_size: of the stand-in network; images are averaged down to ``image_size``.
        batch_size: of each draw's mini-batch.
        labels: ``true``, or ``random`` to show that a metric does not need them.
        replicates: draws that are averaged.
        seed: the draws are numbered from it; requests of different seeds share no draw.
    """

    metrics: tuple[str, ...]
    data: DataRequest
    channels: int = 4
    cells: int = 3
    image_size: int = 8
    batch_size: int = 64
    initialisation: Initialisation = "lecun"
    ntk: Literal["contracted", "exact"] = "contracted"
    labels: Literal["true", "random"] = "true"
    replicates: int = 1
    seed: int = 0

    def to_json(self) -> Json:
        """Plain fields; :meth:`from_json` inverts it."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Json) -> ScoreRequest:
        """A request as :meth:`to_json` wrote it."""
        return cls(**{**value, "metrics": tuple(value["metrics"]), "data": DataRequest(**value["data"])})

    def check(self, data: ImageData) -> None:
        """Refuse what cannot be scored, before anything runs."""
        find_proxies(self.metrics)
        if self.replicates < 1:
            raise InputError("at least one replicate", str(self.replicates))
        if not 2 <= self.batch_size <= len(data.train):
            raise InputError(f"a batch of 2 to {len(data.train)} images", str(self.batch_size))


def small_scale(space: Space[Any], request: ScoreRequest, data: ImageData) -> Scale:
    """The scale of the networks that are scored.

    Args:
        space: of the networks.
        request: channels, cells, and the most pixels a side.
        data: its images are what is scored on, at their own size where that is smaller.
    """
    size = min(request.image_size, data.image_size)
    return space.proxy_scale(request.channels, request.cells, data.classes, size, data.image_channels)


def draw_batch(request: ScoreRequest, data: ImageData, replicate: int) -> tuple[Tensor, Tensor]:
    """The mini-batch of one draw: images (m, C, S, S), normalised, and labels (m,).

    Args:
        request: its size, pixels a side, labels and seed.
        data: training images to draw from.
        replicate: number of the draw.
    """
    rng = np.random.default_rng([request.seed, replicate, 7])
    indices = rng.choice(len(data.train), size=request.batch_size, replace=False)
    images = data.normalise(data.train.pixels(indices))
    size = min(request.image_size, data.image_size)
    if size != data.image_size:
        images = F.adaptive_avg_pool2d(images, size)
    labels = data.train.labels[indices]
    if request.labels == "random":
        labels = rng.integers(data.classes, size=len(labels))
    return images, torch.from_numpy(labels)


def score_chunk(payload: Json, stop: Stop) -> Json:
    """Work item: all metrics of some architectures in one draw, as rows of numbers.

    Args:
        payload: space, architectures, request and number of the draw, as JSON.
        stop: not looked at; a chunk takes seconds.
    """
    request = ScoreRequest.from_json(payload["request"])
    data = load_data(request.data)
    space: Space[Any] = find_space(payload["space"])
    images, labels = draw_batch(request, data, payload["replicate"])
    architectures = [space.parse(text) for text in payload["architectures"]]
    seed = _draw_seed(request, payload["replicate"])
    operations = operations_of(architectures)
    if request.ntk == "contracted" and operations is not None:
        proxies = find_proxies(request.metrics)
        scale = ProxyScale(request.channels, request.cells, data.classes)
        found = score_stacked(
            operations, images, labels, proxies, seed=seed, scale=scale, initialisation=request.initialisation
        )
        return np.stack([found[name] for name in request.metrics], axis=1).tolist()
    small = small_scale(space, request, data)
    pairs = pairs_of(architectures)
    if request.ntk == "contracted" and pairs is not None:
        return scored_pairs(pairs, (images, labels), request, small, seed)
    networks = (space.build(architecture, small) for architecture in architectures)
    scores = score(
        networks, (images, labels), request.metrics, ntk=request.ntk, initialisation=request.initialisation, seed=seed
    )
    return scores.values.tolist()


def scored_pairs(
    pairs: list[CellPair], batch: tuple[Tensor, Tensor], request: ScoreRequest, scale: Scale, seed: int
) -> Json:
    """Rows of numbers of DARTS-style cells, stacked: one row a pair, one number a metric.

    Args:
        pairs: of cells.
        batch: images (m, C, H, W) and labels (m,).
        request: metrics and initialisation.
        scale: of the small networks.
        seed: of their weights.
    """
    start = request.initialisation
    found = score_stacked_cells(
        pairs, *batch, find_proxies(request.metrics), scale=scale, seed=seed, initialisation=start
    )
    return np.stack([found[name] for name in request.metrics], axis=1).tolist()


def score_architectures(
    space: Space[Any],
    architectures: Sequence[Architecture],
    request: ScoreRequest,
    *,
    executor: Executor,
    log: ItemLog,
    stop: Stop | None = None,
    progress: Progress | None = None,
) -> Scores:
    """Scores (A, M); canonical twins are scored once and share the result.

    Args:
        space: of the architectures.
        architectures: A of them.
        request: metrics, images, scale and draws.
        executor: where chunks are scored.
        log: finished chunks; those in it are not scored again.
        stop: looked at between two chunks.
        progress: where to show how far it is.
    """
    classes: dict[Architecture, int] = {}
    member = [classes.setdefault(space.canonical(architecture), len(classes)) for architecture in architectures]
    found = score_canonical(space, list(classes), request, executor=executor, log=log, stop=stop, progress=progress)
    return found.of(member)


def score_canonical(
    space: Space[Any],
    architectures: Sequence[Architecture],
    request: ScoreRequest,
    *,
    executor: Executor,
    log: ItemLog,
    stop: Stop | None = None,
    progress: Progress | None = None,
) -> Scores:
    """As :func:`score_architectures` for architectures that are canonical and differ: each is scored as it is.

    Args:
        space: of the architectures.
        architectures: A of them.
        request: metrics, images, scale and draws.
        executor: where chunks are scored.
        log: finished chunks; those in it are not scored again.
        stop: looked at between two chunks.
        progress: where to show how far it is.
    """
    request.check(load_data(request.data))
    if not architectures:
        raise InputError("at least one architecture to score", "none")
    texts = [str(architecture) for architecture in architectures]
    size = chunk_size(architectures)
    items = []
    for replicate in range(request.replicates):
        for start in range(0, len(texts), size):
            payload = {
                "space": name_space(space),
                "architectures": texts[start : start + size],
                "request": request.to_json(),
                "replicate": replicate,
            }
            items.append(Item(f"{replicate}:{start}", payload, request.data.needs))
    progress = progress or Progress()
    with progress.task("scoring", len(items), sum(item.key in log.done for item in items)) as bar:
        found = run_items(executor, score_chunk, items, log, stop or Stop(), bar)
    per_replicate = len(items) // request.replicates
    rows = [
        np.concatenate([np.array(found[item.key]) for item in items[r * per_replicate : (r + 1) * per_replicate]])
        for r in range(request.replicates)
    ]
    draws = np.stack(rows, axis=1)
    return combine(find_proxies(request.metrics), draws)


def score_networks(networks: Sequence[nn.Module], request: ScoreRequest, progress: Progress | None = None) -> Scores:
    """Scores (A, M) of modules as they are given.

    Args:
        networks: A modules from images (m, C, H, W) to logits.
        request: metrics, images and draws; its ``channels`` and ``cells`` mean nothing here.
        progress: where to show how far it is.
    """
    data = load_data(request.data)
    request.check(data)
    draws: list[list[NDArray[np.float64]]] = [[] for _ in networks]
    with (progress or Progress()).task("scoring", len(networks) * request.replicates) as bar:
        for replicate in range(request.replicates):
            batch = draw_batch(request, data, replicate)
            seed = _draw_seed(request, replicate)
            for network, rows in zip(networks, draws, strict=True):
                found = score(
                    network, batch, request.metrics, ntk=request.ntk, initialisation=request.initialisation, seed=seed
                )
                rows.append(found.values[0])
                bar.advance()
    return combine(find_proxies(request.metrics), np.array(draws))


def _draw_seed(request: ScoreRequest, replicate: int) -> int:
    return int(np.random.SeedSequence([request.seed, replicate]).generate_state(1)[0])


def scores_key(space: Space[Any], architectures: Sequence[Architecture], request: ScoreRequest) -> str | None:
    """A name made of everything that decides the scores: what, at which scale, of which images, by which versions.

    None where nobody can tell whether a space's networks are the same as before: its code is in no file.

    Args:
        space: of the architectures.
        architectures: in their order.
        request: metrics, images, scale and draws.
    """
    source = source_digest(space.makers)
    if source is None:
        return None
    data = load_data(request.data)
    fields = {name: value for name, value in request.to_json().items() if name != "data"}  # wherever the images lie
    versions = [__version__, torch.__version__]
    digest = hashlib.sha256(json.dumps([space.name, source, fields, data.fingerprint, versions]).encode())
    for architecture in architectures:
        digest.update(str(architecture).encode())
    for network in _some_networks(space, architectures, request, data):
        digest.update(str(network).encode())
    return digest.hexdigest()[:24]


def _some_networks(
    space: Space[Any], architectures: Sequence[Architecture], request: ScoreRequest, data: ImageData
) -> Iterator[nn.Module]:
    """A few of the networks, whose layers show what code does not: values that it takes from elsewhere."""
    small = small_scale(space, request, data)
    with torch.random.fork_rng(devices=[]):
        for architecture in architectures[:: max(1, len(architectures) // LOOKED_AT)][:LOOKED_AT]:
            yield space.build(architecture, small)


def chunk_size(architectures: Sequence[Architecture]) -> int:
    """Architectures a work item."""
    if operations_of(architectures) is not None:
        return STACKED_CHUNK
    return CHUNK if pairs_of(architectures) is None else PAIRS_CHUNK


def cached_scores(
    folder: Path,
    space: Space[Any],
    architectures: Sequence[Architecture],
    request: ScoreRequest,
    *,
    executor: Executor,
    progress: Progress | None = None,
) -> Scores:
    """As :func:`score_architectures`, kept on disk under a name made of everything that decides the result.

    Args:
        folder: where scores are kept.
        space: of the architectures.
        architectures: A of them.
        request: metrics, images, scale and draws.
        executor: where chunks are scored.
        progress: where to show how far it is.
    """
    key = scores_key(space, architectures, request)
    if key is None:
        raise InputError("a space whose code is in a file", repr(space.name), "Scores of it cannot be kept.")
    log = ItemLog(folder / f"{key}.jsonl")
    return score_architectures(space, architectures, request, executor=executor, log=log, progress=progress)
