"""How a search asks for accuracies: from a table, or by training; here or by an executor, and nothing twice."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from archwright.execution.base import Item, run_items
from archwright.runs.files import Json
from archwright.search.context import Context
from archwright.search.jobs import look_up, train_and_measure, training_job
from archwright.spaces.base import Architecture


class Evaluated(NamedTuple):
    """An architecture and the accuracy, in percent, that the search saw."""

    architecture: Architecture
    accuracy: float


class Evaluator:
    """Accuracies of architectures, from the table if the search has one, else by training; nothing is done twice."""

    def __init__(self, context: Context, stage: str) -> None:
        self.context = context
        self.stage = stage
        self.log = context.run.items(stage)

    @property
    def accuracy_on(self) -> str:
        """What the search sees."""
        task = self.context.task
        if task.table is not None:
            split, epochs = task.table.search_protocol
            return f"{task.configuration.dataset} {split} after {epochs} epochs ({task.table.name} table)"
        return f"{task.data.name} validation after {task.recipe.epochs} epochs"

    def __call__(self, architectures: Sequence[Architecture], bar: Any = None) -> list[float]:
        """Percent, in the order given; equal architectures are evaluated once."""
        task = self.context.task
        needs = () if task.table is not None else task.data_request.needs
        items = {str(a): Item(str(a), self._payload(a), needs) for a in architectures}
        work = look_up if task.table is not None else train_and_measure
        executor, stop = self.context.executor, self.context.stop
        results = run_items(executor, work, list(items.values()), self.log, stop, bar, self._record)
        return [results[str(a)]["accuracy"] for a in architectures]

    def _record(self, key: str, result: Json) -> None:
        """One event an epoch of an evaluation, wherever it ran."""
        for epoch, metrics in enumerate(result.get("epochs", ())):
            self.context.run.on_epoch(self.stage, architecture=key)(epoch, metrics)

    def _payload(self, architecture: Architecture) -> Json:
        context, c, task = self.context, self.context.configuration, self.context.task
        if task.table is not None:
            text, name = str(architecture), task.space.name
            return {"architecture": text, "space": name, "benchmark": c.benchmark, "dataset": c.dataset}
        return training_job(context, architecture, self._checkpoints(architecture)).to_json()

    def _checkpoints(self, architecture: Architecture) -> str:
        key = hashlib.sha256(str(architecture).encode()).hexdigest()[:16]
        return str(self.context.run.folder / "checkpoints" / self.stage / key)

    def seconds_each(self) -> float:
        """How long one evaluation will take, from a few timed steps of a random architecture."""
        context, task, device = self.context, self.context.task, self.context.device.torch
        if task.table is not None:
            return 0.002
        job = training_job(context, task.space.sample(context.rng("estimate")), None)
        network = job.network().to(device).train()
        scale, size = task.scale, min(task.recipe.batch_size, len(task.data.train))
        x = torch.zeros(size, scale.image_channels, scale.image_size, scale.image_size, device=device)
        y = torch.zeros(size, dtype=torch.int64, device=device)
        times = []
        for _ in range(3):
            begin = time.perf_counter()
            F.cross_entropy(network(x), y).backward()  # type: ignore[no-untyped-call]
            times.append(time.perf_counter() - begin)
        steps = task.recipe.epochs * max(1, len(task.data.train) // size)
        return 1.3 * sorted(times)[1] * steps
