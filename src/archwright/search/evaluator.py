"""How a search asks for accuracies: by a user's function, from a table, or by training; nothing is done twice."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from math import inf, isfinite
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F

from archwright.data import Batches, Steps
from archwright.data.request import DataRequest, load_data
from archwright.device import seconds_on
from archwright.errors import ArchwrightError, RunError
from archwright.execution.base import Item, Work, run_items
from archwright.numerics import autocast
from archwright.runs.files import Json
from archwright.search.context import Context
from archwright.search.jobs import evaluate_own, look_up, train_and_measure, training_job
from archwright.search.objectives import objectives_of, values_of
from archwright.search.values import OWN_FUNCTION
from archwright.spaces.base import Architecture
from archwright.training import Position, train

LOOK_UP_SECONDS = 0.002
"""Of an evaluation that a table answers."""
SHARED_STEPS = 4
"""That say how much quicker a team is than one process; the first is not counted."""


class Evaluated(NamedTuple):
    """An architecture and what the search saw: accuracy in percent, or a user's score; minus infinity if it failed."""

    architecture: Architecture
    accuracy: float
    objectives: tuple[float, ...] = ()
    """Of a search with several, each to be made large; empty where the evaluation failed."""


class Evaluator:
    """Accuracies of architectures: by the user's function or from the table if the search has one, else by training."""

    def __init__(self, context: Context, stage: str) -> None:
        self.context = context
        self.stage = stage
        self.log = context.run.items(stage)
        for key, result in self.log.done.items():
            self._check_kept(key, result)

    def _check_kept(self, key: str, result: Json) -> None:
        """Refuse what a run keeps of an evaluation where it is neither a failure nor a score that can be."""
        known = result if isinstance(result, dict) else {}
        accuracy: Json = known.get("accuracy")
        own = self.context.configuration.evaluate is not None  # a score of the user's own is in no unit that we know
        measured = type(accuracy) in (int, float) and isfinite(accuracy) and (own or 0 <= accuracy <= 100)
        if not measured and not isinstance(known.get("failure"), str):
            raise RunError(
                f"expected an accuracy in percent, a score or a failure in items/{self.stage}.jsonl of "
                f"{self.context.run.folder}, got {str(result)[:80]} for {key[:80]}."
            )

    def __call__(self, architectures: Sequence[Architecture], bar: Any = None) -> list[float]:
        """In the order given, minus infinity for those that failed; equal architectures are evaluated once.

        Every failure is kept in the run with its reason; more of them than the configuration allows are an error.
        """
        distinct, gpu = {str(a): a for a in architectures}, self._gpu
        items = [Item(text, self._payload(a), self._needs, gpu) for text, a in distinct.items()]
        executor, stop = self.context.executor, self.context.stop
        results = run_items(executor, self._work, items, self.log, stop, bar, self._record)
        self._check_failures()
        return [-inf if results[str(a)].get("failure") else results[str(a)]["accuracy"] for a in architectures]

    @property
    def _work(self) -> Work:
        if self.context.configuration.evaluate is not None:
            return evaluate_own
        return look_up if self.context.task.table is not None else train_and_measure

    @property
    def _needs(self) -> tuple[str, ...]:
        return self.context.task.data_request.needs if self._work is train_and_measure else ()

    @property
    def _gpu(self) -> Literal["none", "any", "must"]:
        return self.context.item_gpu if self._work is train_and_measure else "none"

    def _check_failures(self) -> None:
        allowed = self.context.configuration.failures
        reasons = [result["failure"] for result in self.log.done.values() if "failure" in result]
        if len(reasons) > allowed:
            raise ArchwrightError(
                f"expected at most {allowed} evaluations to fail (--failures), got {len(reasons)}; the last one: "
                f"{reasons[-1]}. All are kept in {self.context.run.folder}; resume it with more failures allowed."
            )

    def _record(self, key: str, result: Json) -> None:
        """One event an epoch of an evaluation, wherever it ran, and one for what came of it."""
        for epoch, metrics in enumerate(result.get("epochs", ())):
            self.context.run.on_epoch(self.stage, architecture=key)(epoch, metrics)
        if "failure" in result:
            self.context.run.event("failed", stage=self.stage, architecture=key, why=result["failure"])
            self.context.progress.warn(f"An evaluation failed: {result['failure']} ({key})")
        else:
            unit = "" if self.context.configuration.evaluate is not None else "%"
            found = {"accuracy": result["accuracy"], "unit": unit}
            self.context.run.event("evaluated", stage=self.stage, architecture=key, **found)

    def _payload(self, architecture: Architecture) -> Json:
        context, c, task = self.context, self.context.configuration, self.context.task
        fields = {"architecture": str(architecture), "space": task.space_text}
        if c.evaluate is not None:
            own = {"evaluate": c.evaluate, "timeout": c.timeout, "objectives": list(c.objectives or ())}
            return {**fields, **own, "scale": task.scale.to_dict()}
        if task.table is not None:
            return {**fields, "benchmark": c.benchmark, "dataset": c.dataset}
        changes = {"timeout": c.timeout, "device": context.item_device}
        job = training_job(context, architecture, self._checkpoints(architecture), **changes)
        return job.to_json()

    def objectives(self, architecture: Architecture) -> tuple[float, ...]:
        """What each objective of the search is for an evaluated architecture, its sign turned where less is better."""
        wanted, task = objectives_of(self.context.configuration), self.context.task
        if not wanted:
            return ()
        values = values_of(self.log.done[str(architecture)], wanted, task.costs(architecture))
        return tuple(one.sign * values[one.name] for one in wanted) if values else ()

    def _checkpoints(self, architecture: Architecture) -> str:
        key = hashlib.sha256(str(architecture).encode()).hexdigest()[:16]
        return str(self.context.run.folder / "checkpoints" / self.stage / key)


def accuracy_on(context: Context) -> str:
    """What the accuracies that a search sees are measured on, for people."""
    task = context.task
    if task.configuration.evaluate is not None:
        return OWN_FUNCTION
    if task.table is not None:
        split, epochs = task.table.search_protocol
        return f"{task.configuration.dataset} {split} after {epochs} epochs ({task.table.name} table)"
    return f"{task.data.name} validation after {task.recipe.epochs} epochs"


def team_share(context: Context) -> float:
    """Seconds of a training step with the team over those of this process alone, by steps of a random architecture.

    1 where nobody trains with this process. Images are random, as those in memory are not known to others yet.
    """
    task, team = context.task, context.team
    if team.size == 1:
        return 1.0
    scale, size = task.scale, min(task.recipe.batch_size, len(task.data.train))
    spec = f"random:classes={scale.classes},size={scale.image_size},channels={scale.image_channels},count={4 * size}"
    batches = Steps(Batches(load_data(DataRequest(spec, 0)), "train", size, device=context.device.name), SHARED_STEPS)
    recipe = task.recipe.changed(epochs=1, ema_decay=0.0)
    least = {}
    for one in (context.alone, team):
        network = training_job(context, task.space.sample(context.rng("estimate")), None).network()
        ends = list[float]()
        noted = partial(_note_time, ends, context.device.torch)
        train(network, batches, recipe, seed=0, device=context.device.name, on_step=noted, team=one)
        least[one.size] = min(later - earlier for earlier, later in pairwise(ends))
    return least[team.size] / least[1]


def _note_time(ends: list[float], device: torch.device, _position: Position) -> None:
    ends.append(seconds_on(device))


def evaluation_seconds(context: Context) -> float:
    """How long one evaluation will take, in seconds, from a few timed steps of a random architecture."""
    task, device = context.task, context.device.torch
    if task.table is not None:
        return LOOK_UP_SECONDS
    job = training_job(context, task.space.sample(context.rng("estimate")), None)
    network = job.network().to(device).train()
    scale, size = task.scale, min(task.recipe.batch_size, len(task.data.train))
    x = torch.zeros(size, scale.image_channels, scale.image_size, scale.image_size, device=device)
    y = torch.zeros(size, dtype=torch.int64, device=device)
    times = []
    for _ in range(3):
        begin = seconds_on(device)
        with autocast(device, task.recipe.precision):
            loss = F.cross_entropy(network(x), y)
        loss.backward()  # type: ignore[no-untyped-call]
        times.append(seconds_on(device) - begin)
    steps = task.recipe.epochs * max(1, len(task.data.train) // size)
    return 1.3 * sorted(times)[1] * steps
