"""Work items that methods send to executors: look an architecture up, train and measure it, or ask a user's function.

Payloads are JSON, so that an item runs the same here, in another process or on another machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from torch import nn

from archwright.data import Batches, ImageData
from archwright.data.augmentation import find_augmentation
from archwright.data.request import DataRequest, load_data
from archwright.device import Device
from archwright.errors import InputError, Interrupted, RunError
from archwright.execution.base import cheap
from archwright.numerics import Numerics, using
from archwright.owncode import OwnCodeError, own_code, time_limit, told
from archwright.references import resolve
from archwright.runs.checkpoints import Checkpoints
from archwright.runs.files import Json
from archwright.runs.stop import Stop
from archwright.search.context import Context
from archwright.search.objectives import read_scores
from archwright.spaces.base import Architecture, Network, Space
from archwright.spaces.registry import find_space
from archwright.tables.base import Benchmark, load_benchmark
from archwright.training import Accuracy, Position, Recipe, evaluate, train
from archwright.training.team import ALONE, Team


@lru_cache(maxsize=2)
def _table(spec: str) -> Benchmark:
    """The same for every look-up, also where a plug-in's loader reads its file each time."""
    return load_benchmark(spec)


@cheap
def look_up(payload: Json, stop: Stop) -> Json:
    """Work item: the accuracy in a table, in percent, by the protocol that a search may look at.

    Args:
        payload: ``benchmark`` (the table), ``space``, ``architecture`` and ``dataset``, as texts.
        stop: not asked; a look-up is over at once.
    """
    table = _table(payload["benchmark"])
    architecture = find_space(payload["space"]).parse(payload["architecture"])
    split, epochs = table.search_protocol
    return {"accuracy": table.accuracy(architecture, payload["dataset"], epochs, split)}


def _kept(work: Callable[[], dict[str, Json]], stopping: tuple[type[Exception], ...]) -> Json:
    """What ``work`` returns, or why it failed; errors that are not the architecture's are ``stopping`` the search."""
    try:
        found = work()
    except stopping:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, it is kept in the run, and too many of them are an error
        ours = isinstance(error, OwnCodeError) and error.__cause__ is None  # it was ended
        return {"accuracy": None, "failure": (str(error) if ours else told(error.__cause__ or error))[:500]}
    if not isfinite(found["accuracy"]):
        return {"accuracy": None, "failure": f"the score is {found['accuracy']}"}
    return found


def evaluate_own(payload: Json, stop: Stop) -> Json:
    """Work item: what a user's own function says of an architecture, or why it failed.

    Args:
        payload: ``space``, ``scale``, ``architecture`` and ``evaluate``, the reference of the function.
        stop: not asked; the function may take as long as it likes.
    """
    space: Space[Any] = find_space(payload["space"])
    architecture = space.at_scale(space.scale_from(payload["scale"])).parse(payload["architecture"])
    function = resolve(payload["evaluate"], "evaluate")

    def score() -> dict[str, Json]:
        with own_code(f"your function {payload['evaluate']}", payload.get("timeout")):
            found = function(architecture)
            found = found if isinstance(found, Mapping) else float(found)
        return read_scores(found, payload.get("objectives", ()), space.builds_networks)

    return _kept(score, (Interrupted, InputError))


@dataclass(frozen=True)
class TrainingJob:
    """One network to train and measure, as JSON fields.

    Attributes:
        split: the part the accuracy is measured on (``validation`` in a search, ``test`` once at the end).
        checkpoints: folder in a run for states inside the training, or None; a machine of a cluster that does not
            share the run's folder keeps none.
        timeout: seconds that it may take, or None.
        numerics: how it computes (:class:`archwright.numerics.Numerics`).
    """

    data: DataRequest
    space: str
    scale: dict[str, Any]
    architecture: str
    recipe: dict[str, Any]
    augment: str
    seed: int
    device: str
    split: str
    checkpoints: str | None = None
    timeout: float | None = None
    numerics: dict[str, bool] = field(default_factory=dict)

    def to_json(self) -> Json:
        """The payload of a work item."""
        return asdict(self)

    @classmethod
    def from_json(cls, payload: Json) -> TrainingJob:
        """The job whose :meth:`to_json` this is, on a device of this machine."""
        device = Device.choose("auto").name if payload["device"] == "auto" else payload["device"]
        return cls(**{**payload, "data": DataRequest(**payload["data"]), "device": device})

    def network(self) -> Network:
        """The network with the initial weights of ``seed``."""
        space: Space[Any] = find_space(self.space)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            scale = space.scale_from(self.scale)
            return space.build(space.at_scale(scale).parse(self.architecture), scale)


def training_job(context: Context, architecture: Architecture, checkpoints: str | None, **changes: Any) -> TrainingJob:
    """The job that trains ``architecture`` as one evaluation of this search.

    Args:
        context: of the search: data, space, scale, recipe, augmentation, seed and device.
        architecture: that is trained.
        checkpoints: folder for states inside the training; None for none.
        changes: fields of :class:`TrainingJob` that are otherwise.
    """
    task = context.task
    fields: dict[str, Any] = {
        "data": task.data_request,
        "space": task.space_text,
        "scale": task.scale.to_dict(),
        "architecture": str(architecture),
        "recipe": task.recipe.model_dump(),
        "augment": context.configuration.augment,
        "seed": context.configuration.seed,
        "device": context.device.name,
        "split": "validation",
        "checkpoints": checkpoints,
        "numerics": context.configuration.numerics.to_json(),
    }
    return TrainingJob(**{**fields, **changes})


def train_and_measure(payload: Json, stop: Stop) -> Json:
    """Work item: train a network from scratch and measure it; checkpointed inside where the job says where.

    Args:
        payload: a :class:`TrainingJob` as JSON.
        stop: asked at every step of the training.
    """
    job = TrainingJob.from_json(payload)

    def trained() -> dict[str, Json]:
        numerics = Numerics(**job.numerics)
        with time_limit("the training", job.timeout), using(numerics, torch.device(job.device)):
            return _train_and_measure(job, stop)

    return _kept(trained, (Interrupted, InputError, RunError, OSError))


def _train_and_measure(job: TrainingJob, stop: Stop) -> dict[str, Json]:
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
    team: Team = ALONE,
) -> tuple[Accuracy, list[dict[str, float]]]:
    """Train ``network`` in place by the job's recipe; its accuracy on the job's split, and all epochs' metrics.

    Args:
        network: of the job's architecture, with its initial weights.
        job: data, recipe, augmentation, seed, device and split.
        stop: asked at every step.
        on_step: called after each step with where it is.
        on_epoch: called after each epoch with its number and metrics.
        team: who trains with this process; a work item is trained alone.
    """
    data = load_data(job.data)
    recipe = Recipe(**job.recipe)
    augment = find_augmentation(job.augment, data)
    batches = Batches(data, "train", recipe.batch_size, seed=job.seed, augment=augment, device=job.device)
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
        team=team,
    )
    return measure(network, data, job.split, job.device), epochs


def measure(network: nn.Module, data: ImageData, split: str, device: str) -> Accuracy:
    """Accuracy on a whole split.

    Args:
        network: moved to ``device``.
        data: that has the split.
        split: ``train``, ``validation`` or ``test``.
        device: where it runs.
    """
    batches = Batches(data, split, 256, shuffle=False, drop_last=False, device=device)  # type: ignore[arg-type]
    return evaluate(network, batches, device=device)


def _store(job: TrainingJob) -> Checkpoints | None:
    """Where states are kept; nowhere on a machine that does not share the run's folder."""
    folder = None if job.checkpoints is None else Path(job.checkpoints)
    shared = folder is not None and any((parent / "run.json").is_file() for parent in folder.parents)
    return Checkpoints(folder) if folder is not None and shared else None
