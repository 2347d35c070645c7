"""The networks of the fast plan of BINAS: proposed, trained for counted steps, grown, and compared on validation.

Nothing here reads the clock but the latencies of what is proposed, which are kept; so a resumed run does the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
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
from archwright.methods.binas.plan import PLAIN_WIDTH, STEP, Plan, Wish, growth, wishes, worth
from archwright.models import Model, load_member
from archwright.runs.files import Json
from archwright.search.context import Context
from archwright.solvers.problem import StagedProblem
from archwright.spaces.base import Network
from archwright.spaces.compact import Compact, CompactArchitecture
from archwright.spaces.compact_network import CompactNetwork
from archwright.supernets.grow import grow
from archwright.training import Recipe, train

RESTART = 0.5
"""Learning rate after the trunk's training, as a part of the one that candidates and trunk have."""

Limits = Mapping[str, float]


@dataclass(frozen=True)
class Trained:
    """A network that was trained and validated.

    Attributes:
        name: of its files.
        origin: the candidate that it comes from.
        steps: of its training, with those of the network it comes from.
        losses: cross entropy of each validation image, (n,).
        costs: predicted, by resource.
        latency_ms: median as measured when it was proposed; as predicted where nothing was timed.
    """

    name: str
    architecture: str
    origin: str
    steps: int
    validation_accuracy: float
    losses: NDArray[np.float64]
    costs: dict[str, float]
    latency_ms: float

    @property
    def loss(self) -> float:
        """Mean cross entropy on validation."""
        return float(self.losses.mean())

    @property
    def is_candidate(self) -> bool:
        """Whether its training was only a short try."""
        return self.name == self.origin

    def to_json(self) -> Json:
        """For the run."""
        return {**vars(self), "losses": [round(loss, 5) for loss in self.losses.tolist()]}

    @classmethod
    def from_json(cls, values: Json) -> Self:
        """Inverse of :meth:`to_json`."""
        return cls(**{**values, "losses": np.array(values["losses"])})

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
        candidate_seconds: of the short training of a candidate.
        recipe: of one pass of counted steps.
        augment: of the training images.
    """

    context: Context
    space: Compact
    problem: StagedProblem
    recipe: Recipe
    augment: Augment | None
    clock: Clock | None
    candidate_seconds: float = 0.0

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
                one = self._fitting(wish, limits) if len(found) < plan.candidates else None
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
        timed = None if self.clock is None or not met(limits, known) else self.clock.time(architecture)
        if not met(limits, known) or (timed is not None and not timed.within(limits.get("latency_ms", np.inf))):
            return None
        latency = known["latency_ms"] if timed is None else timed.median_ms
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
        """Everything trained so far, by name."""
        return {name: Trained.from_json(one) for name, one in self.context.run.items("trained").done.items()}

    def new_network(self, architecture: CompactArchitecture) -> Network:
        """With the initial weights of the seed."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.context.configuration.seed)
            return self.space.build(architecture, self.space.scale)

    def candidate(self, proposal: Json, plan: Plan) -> Trained:
        """A proposal after its short training."""
        network = self.new_network(self.space.parse(proposal["architecture"]))
        return self._train(_name(proposal["architecture"]), network, proposal, None, self.candidate_seconds, plan)

    def train_answer(self, limits: Limits, plan: Plan) -> Json:
        """One more training for ``limits``: says which network it was, what it came from, and whether it paid.

        The first is the trunk's: the best candidate goes on. For a looser limit the best network so far grows, but only
        where larger candidates were the better ones in the same time, and to their size; else it goes on as it is.
        """
        trained = self.trained()
        base = max((one for one in self.pool() if one.within(limits)), key=order, default=None)
        best = min((trained[_name(one["architecture"])] for one in self.propose(limits, plan)), key=lambda o: o.loss)
        if base is None:
            new = self._go_on(best, plan.trunk_seconds, plan)
            return {"trained": new.name, "base": best.name, "how": "trained", "paid": True}
        failed = {one["how"] for one in self._answers() if one["base"] == base.name and not one["paid"]}
        larger = best.costs[STEP] > base.costs[STEP] and "grown" not in failed
        grown = self._grown(base, limits, best.costs[STEP]) if larger else None
        if grown is not None:
            name = _name(f"{base.name} {grown['architecture']}", "grown")
            network = self._larger(base, grown["architecture"], name)
            return self._compared(self._train(name, network, grown, base, plan.growth_seconds, plan), base, "grown")
        if "trained" not in failed:
            return self._compared(self._go_on(base, plan.growth_seconds, plan), base, "trained")
        return {"trained": base.name, "base": base.name, "how": "kept", "paid": True}

    def _larger(self, base: Trained, architecture: str, name: str) -> Network:
        """A network of ``architecture`` that computes what ``base`` does."""
        network = load_member(self.file(base.name)).network
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

    def _compared(self, new: Trained, base: Trained, how: str) -> Json:
        """A network that was trained on counts where it became better; a larger one only beyond the noise."""
        paid = order(new) > order(base) if new.architecture == base.architecture else pays(new, base)
        return {"trained": new.name, "base": base.name, "how": how, "paid": paid}

    def _go_on(self, one: Trained, seconds: float, plan: Plan) -> Trained:
        """The same network, trained on."""
        what = {"architecture": one.architecture, "costs": one.costs, "latency_ms": one.latency_ms}
        return self._train(
            _name(one.name, "trained"), load_member(self.file(one.name)).network, what, one, seconds, plan
        )

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
        self, name: str, network: Network, what: Json, before: Trained | None, seconds: float, plan: Plan
    ) -> Trained:
        """Train, validate and save a network; one that is finished is not trained again.

        Args:
            name: of its files.
            network: with the weights to begin with.
            what: its architecture, costs and latency.
            before: what the weights come from; None for a candidate.
            seconds: for how long.
            plan: that says how many steps these are.
        """
        context, log = self.context, self.context.run.items("trained")
        if name not in log.done:
            steps = plan.steps(seconds, what["costs"][STEP])
            later = self.recipe.changed(lr=RESTART * self.recipe.lr)
            store = context.run.checkpoints(f"trained/{name}")
            with context.progress.task(f"training {name}", steps) as bar:
                train(
                    network,
                    Steps(self.batches(name), steps),
                    self.recipe if before is None or before.is_candidate else later,
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
                origin=name if before is None else before.origin,
                steps=steps + (0 if before is None else before.steps),
                validation_accuracy=100 * float(right.mean()),
                losses=losses,
                costs=what["costs"],
                latency_ms=what["latency_ms"],
            )
            self.model(network, self.space.parse(found.architecture)).save(self.file(name))
            log.record(name, found.to_json())
            store.clear()
        return Trained.from_json(log.done[name])

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


def _name(of: str, how: str = "candidate") -> str:
    """A short name for a network that comes from ``of``."""
    return f"{how}-{hashlib.sha256(of.encode()).hexdigest()[:8]}"
