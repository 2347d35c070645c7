"""The networks of the fast plan of BINAS: proposed, trained for counted steps, grown, and compared on validation.

Nothing here reads the clock but the latencies of what is proposed, which are kept; so a resumed run does the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import nn

from archwright.costs.limits import met
from archwright.data import Batches, Steps
from archwright.data.augmentation import Augment
from archwright.errors import InfeasibleError
from archwright.methods.binas.latency import Clock
from archwright.methods.binas.plan import CANDIDATES, PLAIN_WIDTH, STEP, Plan, Wish, growth, wishes, worth
from archwright.models import Model, load_member
from archwright.runs.files import Json
from archwright.search.context import Context
from archwright.solvers.problem import StagedProblem
from archwright.spaces.base import Network
from archwright.spaces.compact import Compact, CompactArchitecture
from archwright.spaces.compact_network import CompactNetwork
from archwright.supernets.grow import grow
from archwright.training import Recipe, train

ANNEALED = 0.25
"""Part of an answer's training over which the learning rate falls to nothing. Until then it is steady, and that is
where the next, larger network goes on from: annealed weights would have to be warmed up again."""

Limits = Mapping[str, float]


@dataclass(frozen=True)
class Trained:
    """A network that was trained and validated.

    Attributes:
        name: of its files.
        steps: of its training, with those of the network it comes from.
        losses: cross entropy of each validation image, (n,).
        costs: predicted, by resource.
        latency_ms: median as measured when it was proposed; as predicted where nothing was timed.
    """

    name: str
    architecture: str
    steps: int
    validation_accuracy: float
    losses: NDArray[np.float64]
    costs: dict[str, float]
    latency_ms: float

    @property
    def loss(self) -> float:
        """Mean cross entropy on validation."""
        return float(self.losses.mean())

    def to_json(self) -> Json:
        """For the run."""
        return {**vars(self), "losses": [round(loss, 5) for loss in self.losses.tolist()]}

    @classmethod
    def from_json(cls, values: Json) -> Self:
        """Inverse of :meth:`to_json`."""
        known = {one.name: values[one.name] for one in fields(cls)}
        return cls(**{**known, "losses": np.array(values["losses"])})

    def within(self, limits: Limits) -> bool:
        """Whether it keeps all limits, its latency as measured."""
        return met(limits, {**self.costs, "latency_ms": max(self.latency_ms, self.costs["latency_ms"])})


def pays(new: Trained, old: Trained) -> bool:
    """Whether ``new`` is better than ``old`` on the validation images beyond the noise of their difference."""
    gain = old.losses - new.losses
    noise = gain.std() / np.sqrt(len(gain))
    return bool(gain.mean() > noise and new.validation_accuracy >= old.validation_accuracy)


def order(one: Trained) -> tuple[float, float, float]:
    """The better network has the greater one: accuracy on validation, then cross entropy, then latency."""
    return one.validation_accuracy, -one.loss, -one.latency_ms


@dataclass
class Trunk:
    """Proposing, training and choosing for one search.

    Attributes:
        problem: costs of the space, ``step_ms`` among them.
        clock: times proposals here; None where latencies are only predicted.
        recipe: of one pass of counted steps.
        augment: of the training images.
    """

    context: Context
    space: Compact
    problem: StagedProblem
    recipe: Recipe
    augment: Augment | None
    clock: Clock | None

    @cached_property
    def valued(self) -> StagedProblem:
        """The problem with what networks are thought to be worth before any is measured."""
        return worth(self.space, self.problem)

    # --- proposing ---

    def propose(self, limits: Limits, plan: Plan) -> list[Json]:
        """Different networks within ``limits`` to try, each with its latency; kept, as timing does not repeat."""
        log, key = self.context.run.items("proposals"), json.dumps(limits)
        if key not in log.done:
            by_hand = self._by_hand(limits)
            found = {} if by_hand is None else {by_hand["architecture"]: by_hand}
            for wish in wishes(self.space, self.valued, plan):
                one = self._fitting(wish, limits) if len(found) < CANDIDATES else None
                if one is not None:
                    found.setdefault(one["architecture"], one)
            if not found:
                raise InfeasibleError(
                    f"no network within {dict(limits)} was found whose training step takes at most "
                    f"{plan.longest_step_ms:.3g} ms. Raise the limit, or give more time (--minutes)."
                )
            log.record(key, list(found.values()))
        proposals: list[Json] = log.done[key]
        return proposals

    def _by_hand(self, limits: Limits) -> Json | None:
        """The plain network that a person would try, where it keeps the limits: what is chosen is not worse than it."""
        architecture = self.space.plain(width=PLAIN_WIDTH)
        costs = self.problem.evaluate(self.space.to_choice(architecture))[1]
        known = {name: float(cost) for name, cost in costs.items()}
        if not met(limits, known):
            return None
        limit, latency = limits.get("latency_ms", np.inf), known["latency_ms"]
        if self.clock is not None:
            timed = self.clock.time_within(architecture, limit)
            if not timed.within(limit):
                return None
            latency = timed.median_ms
        return {"architecture": str(architecture), "costs": known, "latency_ms": latency}

    def _fitting(self, wish: Wish, limits: Limits) -> Json | None:
        """The network of a wish, timed and stepped down where there is a clock; None where there is none."""
        timed = None
        try:
            if self.clock is None:
                solution = wish.within(limits)
            else:
                least = wish.problem.cost_range("latency_ms")[0]
                solution, timed, _ = self.clock.step_down(wish.within, dict(limits), least)
        except InfeasibleError:
            return None
        return {
            "architecture": str(self.space.from_choice(solution.choice)),
            "costs": dict(solution.costs),
            "latency_ms": solution.costs["latency_ms"] if timed is None else timed.median_ms,
        }

    # --- training ---

    def trained(self) -> dict[str, Trained]:
        """Every network that was trained to the end so far, by name."""
        return {name: Trained.from_json(one) for name, one in self.context.run.items("trained").done.items()}

    def steady(self) -> dict[str, Trained]:
        """What they were before the learning rate fell: where larger networks go on from."""
        return {name: Trained.from_json(one) for name, one in self.context.run.items("steady").done.items()}

    def new_network(self, architecture: CompactArchitecture) -> Network:
        """With the initial weights of the seed."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.context.configuration.seed)
            return self.space.build(architecture, self.space.scale)

    def candidates(self, limits: Limits, plan: Plan) -> list[Trained]:
        """What is proposed for ``limits``, each after a short training."""
        proposals = self.propose(limits, plan)
        return [self._candidate(one, plan, plan.candidate_seconds(len(proposals))) for one in proposals]

    def _candidate(self, proposal: Json, plan: Plan, seconds: float) -> Trained:
        steps = plan.steps(seconds, proposal["costs"][STEP])
        network = self.new_network(self.space.parse(proposal["architecture"]))
        name = _name(f"{proposal['architecture']} {steps}", "candidate")
        return self._train(name, network, proposal, None, self.recipe, steps)

    def train_answer(self, limits: Limits, plan: Plan) -> Json:
        """One more training for ``limits``: says which network it was, what it came from, and whether it paid.

        The first is the trunk's: the network that a person would try goes on, or the best candidate that is better
        beyond the noise: differences after some hundred steps are mostly that. For a looser limit the best network so
        far grows to the largest that the limit and the time allow; where a growth did not pay it goes on as it is.
        Where the time is too short to be shared the trunk has had all of it, and answers the limits of the plan.
        """
        answers = self._answers()
        base = max((one for one in self.pool() if one.within(limits)), key=order, default=None)
        if base is None:
            first = self._first(self.candidates(limits, plan))
            return self._answer(first, first, _what(first), plan.trunk_seconds, plan, "trained")
        if len(answers) < plan.limits and not plan.shared:
            return self._kept(base, "all of the time is worth more to it than to a larger one")
        steady = self.steady()[next(one["steady"] for one in answers if one["trained"] == base.name)]
        failed = {one["how"] for one in answers if one.get("from") == steady.name and not one["paid"]}
        grown = None if "grown" in failed else self._grown(steady, limits, plan.longest_grown_ms)
        if grown is not None:
            return self._answer(steady, base, grown, plan.growth_seconds, plan, "grown")
        if "trained" not in failed:
            return self._answer(steady, base, _what(steady), plan.growth_seconds, plan, "trained")
        return self._kept(base, "neither a larger one nor more training was better")

    def _first(self, tried: list[Trained]) -> Trained:
        """What becomes the trunk: the best candidate, but the one of a person where none is better beyond the noise."""
        by_hand = next((one for one in tried if one.architecture == str(self.space.plain(width=PLAIN_WIDTH))), None)
        better = tried if by_hand is None else [one for one in tried if one is by_hand or pays(one, by_hand)]
        return max(better, key=order)

    @staticmethod
    def _kept(base: Trained, why: str) -> Json:
        return {"trained": base.name, "base": base.name, "how": "kept", "paid": True, "why": why}

    def _answer(self, before: Trained, base: Trained, what: Json, seconds: float, plan: Plan, how: str) -> Json:
        """Train on from ``before``, steadily and then with a falling rate, and compare with ``base``.

        A network that was only trained on counts where it became better; a larger one only beyond the noise.
        """
        name = f"{before.name} {what['architecture']} {how}"
        larger = what["architecture"] != before.architecture
        network = self._larger(before, what["architecture"], name) if larger else self._load(before)
        steps, climb = plan.steps(seconds, what["costs"][STEP]), 0.0 if larger else self.recipe.warmup_epochs
        last = max(1, round(ANNEALED * steps))
        rate = self.recipe.changed(schedule="constant", warmup_epochs=climb)
        fall = self.recipe.changed(schedule="linear", warmup_epochs=0.0)
        steady = self._train(_name(name, "steady"), network, what, before, rate, max(1, steps - last), "steady")
        new = self._train(_name(name, how), self._load(steady), what, steady, fall, last)
        paid = base.name == before.name or (pays(new, base) if larger else order(new) > order(base))
        return {
            "trained": new.name,
            "steady": steady.name,
            "from": before.name,
            "base": base.name,
            "how": how,
            "paid": paid,
        }

    def _load(self, one: Trained) -> Network:
        """With its trained weights."""
        return load_member(self.file(one.name)).network

    def _larger(self, base: Trained, architecture: str, name: str) -> Network:
        """A network of ``architecture`` that computes what ``base`` does."""
        network = self._load(base)
        assert isinstance(network, CompactNetwork)
        smaller, larger = (self.space.parse(text) for text in (base.architecture, architecture))
        images, _ = self.batches(name).get(0, 0)
        return grow(network, smaller, larger, self.space, self.context.configuration.seed, images)

    def _answers(self) -> list[Json]:
        return list(self.context.run.items("answers").done.values())

    def pool(self) -> list[Trained]:
        """The networks that answers are chosen among: trained for one, and better than what they came from."""
        trained = self.trained()
        return [trained[name] for name in dict.fromkeys(one["trained"] for one in self._answers() if one["paid"])]

    def _grown(self, base: Trained, limits: Limits, step_ms: float) -> Json | None:
        """What ``base`` grows into within ``limits``, None if nothing; kept, as what is timed does not repeat."""
        log, key = self.context.run.items("growth"), f"{json.dumps(limits)} from {base.name}"
        if key not in log.done:
            choice = self.space.to_choice(self.space.parse(base.architecture))
            wish = growth(self.space, self.valued, choice, step_ms)
            found = self._fitting(wish, limits)
            same = found is not None and found["architecture"] == base.architecture
            log.record(key, None if same else found)
        return log.done[key]

    def _train(
        self,
        name: str,
        network: Network,
        what: Json,
        before: Trained | None,
        recipe: Recipe,
        steps: int,
        log: str = "trained",
    ) -> Trained:
        """Train, validate and save a network; one that is finished is not trained again.

        Args:
            name: of its files.
            network: with the weights to begin with.
            what: its architecture, costs and latency.
            before: what the weights come from; None for new ones.
            recipe: of one pass over the steps.
            steps: for how long.
            log: of the run, in which it is kept.
        """
        context, items = self.context, self.context.run.items(log)
        if name not in items.done:
            store = context.run.checkpoints(f"trained/{name}")
            with context.progress.task(f"training {name}", steps) as bar:
                train(
                    network,
                    Steps(self.batches(name), steps),
                    recipe,
                    seed=context.configuration.seed,
                    device=context.device.name,
                    checkpoints=store,
                    stop=context.stop,
                    on_step=lambda _: bar.advance(),
                )
            losses, right = self.outcomes(network)
            found = Trained(
                name=name,
                architecture=what["architecture"],
                steps=steps + (0 if before is None else before.steps),
                validation_accuracy=100 * float(right.mean()),
                losses=losses,
                costs=what["costs"],
                latency_ms=what["latency_ms"],
            )
            self.model(network, self.space.parse(found.architecture)).save(self.file(name))
            items.record(name, found.to_json())
            store.clear()
        return Trained.from_json(items.done[name])

    def batches(self, name: str) -> Batches:
        """Training batches; every training sees the images in another order and otherwise augmented."""
        context = self.context
        seed = int(context.rng(f"batches of {name}").integers(2**31))
        data, size, device = context.task.data, self.recipe.batch_size, context.device.name
        return Batches(data, "train", size, seed=seed, augment=self.augment, device=device)

    @torch.no_grad()
    def outcomes(self, network: nn.Module) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Cross entropy of every validation image, and whether it is classified right, (n,) each."""
        data, device = self.context.task.data, self.context.device.name
        losses, right = [], []
        network.eval()
        for images, labels in Batches(data, "validation", 256, shuffle=False, drop_last=False, device=device):
            logits = network(images)
            losses.append(F.cross_entropy(logits, labels, reduction="none"))
            right.append(logits.argmax(1) == labels)
        return torch.cat(losses).double().cpu().numpy(), torch.cat(right).cpu().numpy()

    def model(self, network: Network, architecture: CompactArchitecture) -> Model:
        """With the data's preprocessing."""
        return Model(network, self.space.name, architecture, self.space.scale, self.context.task.data.preprocessing)

    def file(self, name: str) -> Path:
        """Of a network."""
        return self.context.run.artifact(f"networks/{name}.safetensors")


def _what(one: Trained) -> Json:
    """A network with its costs, to be trained on."""
    return {"architecture": one.architecture, "costs": one.costs, "latency_ms": one.latency_ms}


def _name(of: str, how: str) -> str:
    """A short name for a network that comes from ``of``."""
    return f"{how}-{hashlib.sha256(of.encode()).hexdigest()[:8]}"
