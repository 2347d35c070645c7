"""How a search asks for accuracies, and what every search does with its choice: train it, test it, save it."""

from __future__ import annotations

import hashlib
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from archwright.errors import InfeasibleError, Interrupted, RunError
from archwright.execution.base import Item, run_items
from archwright.models import Model
from archwright.runs.files import Json
from archwright.search.context import Context
from archwright.search.jobs import TrainingJob, look_up, train_and_measure, train_network
from archwright.search.method import Method, Stage
from archwright.spaces.base import Architecture
from archwright.spaces.cells import CellPair
from archwright.spaces.topology import pair_topology


class Evaluated(NamedTuple):
    """An architecture and the accuracy, in percent, that the search saw."""

    architecture: Architecture
    accuracy: float


Propose = Callable[[Sequence[Evaluated], int], Architecture]
"""From the evaluations so far and the number of the next one, the architecture to evaluate; a pure function."""


def training_job(context: Context, architecture: Architecture, checkpoints: str | None, **changes: Any) -> TrainingJob:
    """The job that trains ``architecture`` as one evaluation of this search."""
    fields: dict[str, Any] = {
        "data": context.data_request,
        "space": context.space.name,
        "scale": context.scale.to_dict(),
        "architecture": str(architecture),
        "recipe": context.recipe.model_dump(),
        "seed": context.configuration.seed,
        "device": context.device.name,
        "split": "validation",
        "checkpoints": checkpoints,
    }
    return TrainingJob(**{**fields, **changes})


class Evaluator:
    """Accuracies of architectures, from the table if the search has one, else by training; nothing is done twice."""

    def __init__(self, context: Context, stage: str) -> None:
        self.context = context
        self.stage = stage
        self.log = context.run.items(stage)

    @property
    def accuracy_on(self) -> str:
        """What the search sees."""
        c = self.context
        if c.benchmark is not None:
            split, epochs = c.benchmark.search_protocol
            return f"{c.configuration.dataset} {split} after {epochs} epochs ({c.benchmark.name} table)"
        return f"{c.data.name} validation after {c.recipe.epochs} epochs"

    def __call__(self, architectures: Sequence[Architecture], bar: Any = None) -> list[float]:
        """Percent, in the order given; equal architectures are evaluated once."""
        needs = () if self.context.benchmark is not None else self.context.data_request.needs
        items = {str(a): Item(str(a), self._payload(a), needs) for a in architectures}
        work = look_up if self.context.benchmark is not None else train_and_measure
        results = run_items(self.context.executor, work, list(items.values()), self.log, self.context.stop, bar)
        return [results[str(a)]["accuracy"] for a in architectures]

    def _payload(self, architecture: Architecture) -> Json:
        c = self.context
        if c.benchmark is not None:
            text, table = str(architecture), c.configuration.benchmark
            return {"architecture": text, "space": c.space.name, "benchmark": table, "dataset": c.configuration.dataset}
        return training_job(c, architecture, self._checkpoints(architecture)).to_json()

    def _checkpoints(self, architecture: Architecture) -> str:
        key = hashlib.sha256(str(architecture).encode()).hexdigest()[:16]
        return str(self.context.run.folder / "checkpoints" / self.stage / key)

    def seconds_each(self) -> float:
        """How long one evaluation will take, from a few timed steps of a random architecture."""
        c = self.context
        if c.benchmark is not None:
            return 0.002
        job = training_job(c, c.space.sample(c.rng("estimate")), None)
        network = job.network().to(c.device.torch).train()
        size = min(c.recipe.batch_size, len(c.data.train))
        x = torch.zeros(size, c.scale.image_channels, c.scale.image_size, c.scale.image_size, device=c.device.torch)
        y = torch.zeros(size, dtype=torch.int64, device=c.device.torch)
        times = []
        for _ in range(3):
            begin = time.perf_counter()
            F.cross_entropy(network(x), y).backward()  # type: ignore[no-untyped-call]
            times.append(time.perf_counter() - begin)
        steps = c.recipe.epochs * max(1, len(c.data.train) // size)
        return 1.3 * sorted(times)[1] * steps


def evaluate_proposals(
    context: Context, stage: str, propose: Propose, evaluations: int, batch: int = 1
) -> list[Evaluated]:
    """Propose, evaluate, repeat; ``batch`` architectures are proposed from the same past.

    A resumed run proposes the same again and finds the finished ones in the item log. The end of the time budget ends
    the search with what it has.
    """
    evaluator = Evaluator(context, stage)
    history: list[Evaluated] = []
    with context.progress.task("evaluating", evaluations) as bar:
        while len(history) < evaluations:
            count = min(batch, evaluations - len(history))
            chosen = [propose(history, len(history) + i) for i in range(count)]
            try:
                accuracies = evaluator(chosen)
            except Interrupted:
                done = evaluator.log.done
                history += [Evaluated(a, done[str(a)]["accuracy"]) for a in chosen if str(a) in done]
                if context.stop.signalled or not history:
                    raise
                context.run.event("budget", stage=stage, evaluations=len(history))
                context.progress.say(f"The time budget ends the search after {len(history)} evaluations.")
                return history
            for architecture, accuracy in zip(chosen, accuracies, strict=True):
                history.append(Evaluated(architecture, accuracy))
            best = max(history, key=lambda one: one.accuracy)
            bar.advance(count)
            bar.note(f"best {best.accuracy:.2f} %")
    return history


def feasible_sample(context: Context, draw: Callable[[], Architecture], tries: int = 10_000) -> Architecture:
    """The first drawn architecture that is connected and meets the limits."""
    for _ in range(tries):
        architecture = draw()
        if context.space.is_connected(architecture) and context.feasible(architecture):
            return architecture
    limits = ", ".join(f"{name} <= {limit:g}" for name, limit in context.configuration.single_limits.items())
    raise InfeasibleError(f"no architecture that meets {limits or 'connectedness'} was found in {tries:,} draws.")


class SearchMethod(Method):
    """A method whose first stages choose one architecture; training and testing it is common to all.

    Subclasses give :meth:`search_stages`; the last of them returns at least ``architecture``, ``accuracy`` (what the
    search saw, or None), ``accuracy_on`` and ``evaluations``.
    """

    @abstractmethod
    def search_stages(self) -> list[Stage]:
        """The method's own stages."""

    def stages(self) -> list[Stage]:
        """The method's own, then train (unless a table gives the answer's accuracy) and answer."""
        own = self.search_stages()
        training = [Stage("train", "train the chosen network", lambda: self._train(own[-1].name))]
        rest = training if self.trains_answer else []
        return own + rest + [Stage("answer", "answer", lambda: self._answer(own[-1].name))]

    @property
    def trains_answer(self) -> bool:
        """Whether the chosen network is trained on the data."""
        return self.context.trains_answer

    @property
    def rounds(self) -> float:
        """How many evaluations the search makes one after another, for the estimate of time; none by default."""
        return 0

    def estimate_seconds(self) -> float:
        """The evaluations and the final training, from a few timed steps; what a method does besides is not counted."""
        return Evaluator(self.context, "search").seconds_each() * (self.rounds + self.final_rounds)

    @property
    def final_rounds(self) -> float:
        """How many evaluations the training of the answer takes as long as."""
        c = self.context
        epochs = c.configuration.final_epochs or 3 * c.recipe.epochs
        return epochs / c.recipe.epochs if self.trains_answer else 0.0

    def chosen(self, stage: str) -> Architecture:
        """The architecture that ``stage`` ended with."""
        architecture: Architecture = self.context.space.parse(self.result(stage)["architecture"])
        return architecture

    def _train(self, stage: str) -> Json:
        """Train the choice for longer, test it once, save the model."""
        context = self.context
        architecture = self.chosen(stage)
        epochs = context.configuration.final_epochs or 3 * context.recipe.epochs
        recipe = context.recipe.model_copy(update={"epochs": epochs})
        folder = str(context.run.folder / "checkpoints" / "train")
        job = training_job(context, architecture, folder, recipe=recipe.model_dump(), split="test")
        network = job.network()
        steps = epochs * max(1, len(context.data.train) // recipe.batch_size)
        with context.progress.task("training", steps) as bar:
            accuracy = train_network(network, job, context.stop, on_step=lambda _: bar.advance())
        model = Model(network, context.space.name, architecture, context.scale, context.data.preprocessing)
        model.measured = {
            "accuracy": accuracy.percent,
            "accuracy_interval": [accuracy.low, accuracy.high],
            "accuracy_on": f"{context.data.name} test, {accuracy.count} images",
            "epochs": epochs,
        }
        path = context.run.artifact("best.safetensors")
        model.save(path)
        return {**model.measured, "model": str(path.relative_to(context.run.folder))}

    def _answer(self, stage: str) -> Json:
        context = self.context
        search = self.result(stage)
        architecture = self.chosen(stage)
        if not context.feasible(architecture):
            raise RunError(f"the chosen architecture {architecture} breaks the limits; this is a bug.")
        best: dict[str, Json] = {"architecture": str(architecture)}
        if context.benchmark is not None:
            split, epochs = context.benchmark.report_protocol
            tests = {d: context.benchmark.accuracy(architecture, d, epochs, split) for d in context.benchmark.datasets}
            dataset = context.configuration.dataset
            best["accuracy"] = tests[dataset]
            best["accuracy_on"] = f"{dataset} {split} after {epochs} epochs ({context.benchmark.name} table)"
            best["tests"] = tests
        if context.trains_answer:
            best |= self.result("train")
        if isinstance(architecture, CellPair):
            best["topology"] = pair_topology(architecture)
        best["search_accuracy"], best["search_accuracy_on"] = search["accuracy"], search["accuracy_on"]
        return {"best": best | context.costs(architecture), "front": [], "evaluations": search["evaluations"]}
