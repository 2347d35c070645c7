"""Work items that methods send to executors: look an architecture up, or train and measure it.

Payloads are JSON, so that an item runs the same here, in another process or on another machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from archwright.data import Augmentation, Batches, ImageData
from archwright.data.request import DataRequest, load_data
from archwright.execution.base import cheap
from archwright.runs.checkpoints import Checkpoints
from archwright.runs.files import Json
from archwright.runs.stop import Stop
from archwright.search.context import Context
from archwright.spaces.base import Architecture, Network, Space
from archwright.spaces.registry import spaces
from archwright.tables.base import Benchmark, load_benchmark
from archwright.training import Accuracy, Position, Recipe, evaluate, train


@lru_cache(maxsize=2)
def _table(spec: str) -> Benchmark:
    return load_benchmark(spec)


@cheap
def look_up(payload: Json, stop: Stop) -> Json:
    """Accuracy of ``payload["architecture"]`` in a table, by the protocol that a search may look at."""
    table = _table(payload["benchmark"])
    architecture = spaces.get(payload["space"]).parse(payload["architecture"])
    split, epochs = table.search_protocol
    return {"accuracy": table.accuracy(architecture, payload["dataset"], epochs, split)}


@dataclass(frozen=True)
class TrainingJob:
    """One network to train and measure, as JSON fields.

    Attributes:
        split: the part the accuracy is measured on (``validation`` in a search, ``test`` once at the end).
        checkpoints: folder in a run for states inside the training, or None; a machine of a cluster that does not
            share the run's folder keeps none.
    """

    data: DataRequest
    space: str
    scale: dict[str, Any]
    architecture: str
    recipe: dict[str, Any]
    seed: int
    device: str
    split: str
    checkpoints: str | None = None

    def to_json(self) -> Json:
        """The payload of a work item."""
        return asdict(self)

    @classmethod
    def from_json(cls, payload: Json) -> TrainingJob:
        """Inverse of :meth:`to_json`."""
        return cls(**{**payload, "data": DataRequest(**payload["data"])})

    def network(self) -> Network:
        """The network with the initial weights of ``seed``."""
        space: Space[Any] = spaces.get(self.space)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            scale = space.scale_from(self.scale)
            return space.build(space.at_scale(scale).parse(self.architecture), scale)


def training_job(context: Context, architecture: Architecture, checkpoints: str | None, **changes: Any) -> TrainingJob:
    """The job that trains ``architecture`` as one evaluation of this search."""
    task = context.task
    fields: dict[str, Any] = {
        "data": task.data_request,
        "space": task.space.name,
        "scale": task.scale.to_dict(),
        "architecture": str(architecture),
        "recipe": task.recipe.model_dump(),
        "seed": context.configuration.seed,
        "device": context.device.name,
        "split": "validation",
        "checkpoints": checkpoints,
    }
    return TrainingJob(**{**fields, **changes})


def train_and_measure(payload: Json, stop: Stop) -> Json:
    """Train a network from scratch and measure it; checkpointed inside where the job says where."""
    job = TrainingJob.from_json(payload)
    network = job.network()
    begin = time.perf_counter()
    accuracy, epochs = train_network(network, job, stop)
    store = _store(job)
    if store is not None:
        store.clear()
    seconds = round(time.perf_counter() - begin, 3)
    return {"accuracy": accuracy.percent, "loss": accuracy.loss, "seconds": seconds, "epochs": epochs}


def train_network(
    network: Network,
    job: TrainingJob,
    stop: Stop,
    on_step: Callable[[Position], None] | None = None,
    on_epoch: Callable[[int, dict[str, float]], None] | None = None,
) -> tuple[Accuracy, list[dict[str, float]]]:
    """Train ``network`` in place by the job's recipe; its accuracy on the job's split, and all epochs' metrics."""
    data = load_data(job.data)
    recipe = Recipe(**job.recipe)
    batches = Batches(
        data, "train", recipe.batch_size, seed=job.seed, augment=Augmentation.default_for(data), device=job.device
    )
    epochs = train(
        network,
        batches,
        recipe,
        seed=job.seed,
        device=job.device,
        checkpoints=_store(job),
        stop=stop,
        on_step=on_step,
        on_epoch=on_epoch,
    )
    return measure(network, data, job.split, job.device), epochs


def measure(network: Network, data: ImageData, split: str, device: str) -> Accuracy:
    """Accuracy on a whole split."""
    batches = Batches(data, split, 256, shuffle=False, drop_last=False, device=device)  # type: ignore[arg-type]
    return evaluate(network, batches, device=device)


def _store(job: TrainingJob) -> Checkpoints | None:
    """Where states are kept; nowhere on a machine that does not share the run's folder."""
    folder = None if job.checkpoints is None else Path(job.checkpoints)
    shared = folder is not None and any((parent / "run.json").is_file() for parent in folder.parents)
    return Checkpoints(folder) if folder is not None and shared else None
