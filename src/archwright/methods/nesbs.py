"""NESBS (thesis, chapter 5): an ensemble of different architectures by Bayesian sampling from a trained supernet.

1. A supernet is trained one uniformly drawn path a step, on 70 % of the training images.
2. Its weights stay, and a posterior over architectures maximises E[log p(D|A)] - KL(p_alpha || uniform) (eq. 5.4) on
   the other 30 %, by straight-through Gumbel samples. With N images and the mean cross entropy CE of a batch the loss
   is CE + kl_weight * KL / N: at kl_weight 1 it is the bound itself over N, as the log likelihood is -N CE.
3. T ensembles of n architectures are drawn from it, independently (``mc``) or by SVGD with regularised diversity
   (``svgd-rd``), and scored with the supernet's weights on the validation images, which steps 1 and 2 have not seen;
   the one of least loss is kept (algorithm 5.1). A member is evaluated once, whatever the ensembles it is in.
4. Its members are trained from scratch, and their probabilities averaged.

The baselines differ in step 3 only and need no posterior: ``uniform`` draws, ``nes-rs`` builds one ensemble greedily
from a random pool, and ``deep`` trains the pool's best architecture n times. Members of an ensemble are different
architectures (also up to isomorphism) but for ``deep``; draws that repeat one are left out and counted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from operator import attrgetter
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from archwright.costs.clock import Clock, middle_round, stopwatch
from archwright.costs.limits import check_reachable, met
from archwright.costs.measure import Stopwatch, Timing
from archwright.data import Batches
from archwright.data.shards import Shard, taken
from archwright.ensembles import Averaged, Mean
from archwright.errors import InfeasibleError, InputError
from archwright.methods.nesbs_ensembles import DELTAS, DrawOptions, EnsembleSearch, Inherited
from archwright.search.answer import Candidate, EnsembleErrors, Found, ScoredEnsemble
from archwright.search.beside import verdict
from archwright.search.configuration import OF_TABLES, AbsolutePath
from archwright.search.driving import drive_stage
from archwright.search.evaluator import evaluation_seconds, team_share
from archwright.search.final import keep_ensemble, train_answer
from archwright.search.method import Method, Options, Stage
from archwright.search.values import StageResult, Trained
from archwright.spaces.base import Architecture, Scale
from archwright.spaces.operations import Cost
from archwright.spaces.supernet_space import SupernetSpace, as_supernet_space
from archwright.spaces.topology import topology_json
from archwright.supernets.base import Supernet
from archwright.supernets.files import FILE_NAME, load_supernet, save_supernet, supernet_of
from archwright.supernets.posterior import Posterior, Sampler, fit_step
from archwright.supernets.train import Draw, SharedTraining, new_supernet
from archwright.training import Position, Stateful, Step
from archwright.training.schedule import make_schedule

SHARE = 0.7
"""Part of the training images that the supernet is trained on; the posterior is fitted to the rest."""
POSTERIOR_EPOCHS, POSTERIOR_STEPS = 20, 500
"""The thesis' 20 epochs are some 2,300 steps on CIFAR-10; few images need more epochs for alpha to move at all."""
SCORED_BATCH = 256
TIMED_CALLS = 20
"""Calls behind a latency."""
REFERENCE = "reference"
"""Where the log of latencies has that of the lightest member."""
Members = tuple[Architecture, ...]
SAMPLED = 500
"""Random architectures among which the lightest is taken to judge a latency limit."""


class NesbsOptions(DrawOptions):
    """Options of NESBS; the defaults are the thesis' unless docs/nesbs.md says why not."""

    mean: Mean = Field("probabilities", description="what is averaged: probabilities or logits")
    posterior: Literal["post-training", "best-response"] = Field(
        "post-training",
        description="when the posterior is fitted: after the supernet's training, or with it (without KL)",
    )
    posterior_epochs: int | None = Field(
        None, ge=1, description="passes over the posterior's images; 20, or as many as make 500 steps"
    )
    posterior_lr: float = Field(0.01, gt=0, description="learning rate of the posterior (Adam)")
    posterior_weight_decay: float = Field(3e-4, ge=0, description="weight decay of the posterior")
    gumbel_temperature: float = Field(1.0, gt=0, description="temperature of the straight-through Gumbel softmax")
    kl_weight: float = Field(1.0, ge=0, description="weight of KL / N beside the mean cross entropy; 1: the bound")
    supernet_epochs: int = Field(50, ge=1, description="passes over the supernet's images")
    supernet_batch: int = Field(128, ge=2, description="images of a step, of supernet and posterior")
    supernet_lr: float = Field(0.1, gt=0, description="learning rate of the supernet; falls to 0 by a cosine")
    supernet_weight_decay: float = Field(3e-4, ge=0, description="weight decay of the supernet")
    supernet_channels: int | None = Field(
        None, ge=2, description="channels of the supernet; by default as the final networks"
    )
    supernet_cells: int | None = Field(
        None, ge=1, description="cells of the supernet; by default as the final networks"
    )
    partial_channels: int = Field(
        1, ge=1, description="number K: an operation of the supernet sees 1/K of the channels"
    )
    supernet: AbsolutePath | None = Field(None, description="run folder of a search whose trained supernet is taken")


class SupernetResult(StageResult):
    """The trained supernet is an artifact; ``logits`` of a posterior that was fitted with it."""

    images: int
    logits: dict[str, list[list[float]]] | None = None


class PosteriorResult(StageResult):
    """Alpha by decision, (rows, allowed operations), and KL(p_alpha || uniform) in nats."""

    logits: dict[str, list[list[float]]]
    divergence: float


class Drawn(StageResult):
    """The chosen ensemble, all that were scored, how many networks that took and how many draws were left out."""

    chosen: ScoredEnsemble
    scored: list[ScoredEnsemble]
    evaluations: int
    left_out: int
    accuracy_on: str


# --- the method ------------------------------------------------------------------------------------------------------


class Nesbs(Method):
    """Neural ensemble search via Bayesian sampling."""

    name = "nesbs"
    Options: ClassVar[type[Options]] = NesbsOptions
    uses = Method.uses - OF_TABLES  # no table knows ensembles
    resources = ("params", "macs", "latency_ms")
    measures_latency = True
    options: NesbsOptions

    def check(self) -> None:
        """Also refuses what an ensemble cannot have."""
        o = self.options
        if o.delta is not None and o.delta_search == "optuna":
            raise InputError("--delta or --delta-search optuna", "both", "Leave one out.")
        super().check()
        if o.size > self.space.size:
            raise InputError(f"at most {self.space.size} members, all different", f"--size {o.size}", "Lower the size.")
        if o.sampler == "nes-rs" and o.size > o.pool:
            raise InputError("a pool at least as large as the ensemble", f"--pool {o.pool} --size {o.size}")
        self._check_sum()
        self.parts()
        self.space.check_partial(self.supernet_scale.channels, o.partial_channels)
        supernet = self.fresh_supernet()
        if o.supernet is not None:
            load_supernet(supernet_of(o.supernet), supernet, self.context.task.data.fingerprint)

    def _check_sum(self) -> None:
        """Limits are on the sum of the members: the least of them must fit ``size`` times."""
        task, rng = self.context.task, self.context.rng("limits")
        each = {name: limit / self.options.size for name, limit in self.context.configuration.single_limits.items()}
        latency = each.pop("latency_ms", None)
        if each:
            try:
                check_reachable(self.space, lambda one: task.costs(one, each), [each], rng)
            except InfeasibleError as error:
                raise InfeasibleError(
                    f"{error} (One of {self.options.size} members; limits are on their sum.)"
                ) from error
        if latency is not None:
            least = middle_round(self._watch((self._lightest,))).median_ms
            if least > latency:
                raise InfeasibleError(
                    f"no ensemble of {self.options.size} meets latency_ms <= {latency * self.options.size:.6g}: the "
                    f"lightest of {SAMPLED} random members alone takes {least:.3g} ms here. Raise the limit, or "
                    "lower --size, --channels or --cells."
                )

    def estimate_seconds(self) -> float:
        """Supernet, posterior (which runs all operations) and members, from a few timed steps of one network."""
        task, o = self.context.task, self.options
        epoch = evaluation_seconds(self.context) / task.recipe.epochs
        trained = 0.0 if o.supernet is not None else SHARE * o.supernet_epochs
        fitted = (1 - SHARE) * self._posterior_epochs() * self._most_columns if self.needs_posterior else 0.0
        return team_share(self.context) * epoch * (trained + fitted + o.size * task.final_recipe.epochs)

    def batch_sizes(self) -> list[int]:
        """Also those of supernet and posterior."""
        return [*super().batch_sizes(), self.options.supernet_batch]

    @property
    def _most_columns(self) -> int:
        return max(columns for _, columns in self.space.decisions.values())

    @property
    def needs_posterior(self) -> bool:
        """Whether the sampler draws from a posterior that a stage of its own fits."""
        return self.options.sampler in ("svgd-rd", "mc") and self.options.posterior == "post-training"

    def stages(self) -> list[Stage]:
        """Supernet, posterior, ensembles, a training a member, answer."""
        n = self.options.size
        first = [Stage("supernet", "train the supernet", self._train_supernet)]
        if self.needs_posterior:
            first.append(Stage("posterior", "fit the posterior of architectures", self._fit_posterior))
        first.append(Stage("ensembles", "draw and score ensembles", self.draw))
        members = [Stage(f"member-{k}", f"train member {k + 1} of {n}", self._training(k)) for k in range(n)]
        beside = self.beside_stage(lambda: self.space.parse(self.result("ensembles", Drawn).chosen.architectures[0]))
        return [*first, *members, beside, Stage("answer", "average and test", self._answer)]

    # --- set-up ---

    @property
    def space(self) -> SupernetSpace[Any]:
        """The space; one without a supernet is refused."""
        return as_supernet_space(self.context.task.space)

    def largest(self) -> Cost | None:
        """The supernet, which has every operation everywhere."""
        return self.space.supernet_cost(self.supernet_scale)

    @property
    def supernet_scale(self) -> Scale:
        """Scale of the supernet, which the final networks' need not be."""
        o = self.options
        final = self.context.task.scale.changed(channels=o.supernet_channels, cells=o.supernet_cells)
        return self.space.supernet_scale(final)

    def parts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Positions in the train part of the supernet's 70 % and the posterior's 30 %."""
        count = len(self.context.task.data.train)
        cut = int(SHARE * count)
        if cut < 2 or count - cut < 2:
            raise InputError("at least 7 training images, to divide 70 to 30", str(count), "Give more images.")
        order = self.context.rng("parts").permutation(count)
        return np.sort(order[:cut]), np.sort(order[cut:])

    def _batches(self, part: int, augmented: bool) -> Batches:
        context, indices = self.context, self.parts()[part]
        data = context.task.data
        return Batches(
            data,
            "train",
            min(self.options.supernet_batch, len(indices)),
            seed=int(context.rng("order of a part", part).integers(2**31)),
            indices=indices,
            device=context.device.torch,
            augment=context.task.augmentation() if augmented else None,
        )

    def fresh_supernet(self) -> Supernet:
        """With the initial weights of the seed."""
        seed, partial = int(self.context.rng("supernet").integers(2**31)), self.options.partial_channels
        device = self.context.device.torch
        return new_supernet(self.space, self.supernet_scale, seed=seed, device=device, partial=partial)

    def trained_supernet(self) -> Supernet:
        """As the first stage left it."""
        path, fingerprint = self.context.run.artifact(FILE_NAME), self.context.task.data.fingerprint
        return load_supernet(path, self.fresh_supernet(), fingerprint).requires_grad_(False)

    def inherited(self, split: Literal["validation", "test"] = "validation", **how: Any) -> Inherited:
        """Predictions with the trained supernet's weights; batches are shuffled, as batch norm sees whole batches.

        Args:
            split: whose images are predicted.
            how: further fields of :class:`Inherited`: ``seen``, ``store``.
        """
        data, device = self.context.task.data, self.context.device.torch
        batches = Batches(data, split, SCORED_BATCH, drop_last=False, device=device)
        return Inherited(self.trained_supernet(), batches, **how)

    def sampler(self, temperature: float | None = None) -> Sampler:
        """Of architectures: from the posterior where one was fitted, else uniform."""
        o = self.options
        logits = None
        if self.needs_posterior:
            logits = self.result("posterior", PosteriorResult).logits
        elif o.sampler in ("svgd-rd", "mc"):
            logits = self.result("supernet", SupernetResult).logits
        return Sampler(self.space, logits, o.temperature if temperature is None else temperature)

    # --- the supernet and its posterior ---

    def _train_supernet(self) -> SupernetResult:
        context, o = self.context, self.options
        network, posterior = self.fresh_supernet(), None
        if o.supernet is not None:
            load_supernet(supernet_of(o.supernet), network, context.task.data.fingerprint)
        elif o.posterior == "best-response":
            posterior = self._train_with_posterior(network)
        else:
            training = self._shared_training(network, self._uniform_paths(network))
            self._drive_supernet(training.step, training.state, len(training.batches))
        save_supernet(network, context.task.data.fingerprint, context.run.artifact(FILE_NAME))
        return SupernetResult(images=len(self.parts()[0]), logits=posterior.logits() if posterior else None)

    def _shared_training(self, network: Supernet, draw: Draw) -> SharedTraining:
        """Of the paths that ``draw`` gives, on the supernet's images."""
        o = self.options
        sgd = torch.optim.SGD(network.parameters(), o.supernet_lr, 0.9, weight_decay=o.supernet_weight_decay)
        rate, team = make_schedule("cosine", o.supernet_lr), self.context.team
        return SharedTraining(network, self._batches(0, augmented=True), draw, sgd, rate, team=team)

    def _drive_supernet(self, step: Step, state: dict[str, Stateful], steps: int) -> None:
        epochs = self.options.supernet_epochs
        drive_stage(self.context, "supernet", step, state, epochs=epochs, steps_per_epoch=steps)

    def _uniform_paths(self, network: Supernet) -> Draw:
        """One uniformly drawn architecture a step."""
        uniform = Sampler(self.space)

        def path(position: Position, _images: int, _shard: Shard) -> dict[str, Tensor]:
            drawn = uniform.monte_carlo(self.context.rng("path", position.index))
            return network.one_hot(drawn, self.context.device.torch)

        return path

    def _train_with_posterior(self, network: Supernet) -> Posterior:
        """The path comes from the posterior, which follows the weights, without KL (Xie et al., 2019)."""
        temperature = self.options.gumbel_temperature
        posterior = Posterior(self.space).to(self.context.device.torch)
        adam, fitted = self._adam(posterior), self._batches(1, augmented=False)

        def path(_position: Position, _images: int, _shard: Shard) -> dict[str, Tensor]:
            with torch.no_grad():
                return posterior.draw(temperature)[0]

        training = self._shared_training(network, path)

        def step(position: Position) -> dict[str, float | Tensor]:
            metrics = training.step(position)
            network.requires_grad_(False)
            where, team = divmod(position.index, len(fitted)), self.context.team
            found = fit_step(posterior, adam, network, partial(taken, fitted, *where), temperature, 0.0, team)
            network.requires_grad_(True)
            return {**metrics, "posterior_loss": found["loss"]}

        state = {**training.state, "posterior": posterior, "posterior_optimizer": adam}
        self._drive_supernet(step, state, len(training.batches))
        return posterior

    def _adam(self, posterior: Posterior) -> torch.optim.Adam:
        o = self.options
        return torch.optim.Adam(posterior.parameters(), lr=o.posterior_lr, weight_decay=o.posterior_weight_decay)

    def _posterior_epochs(self) -> int:
        steps = len(self._batches(1, augmented=False))
        return self.options.posterior_epochs or max(POSTERIOR_EPOCHS, -(-POSTERIOR_STEPS // steps))

    def _fit_posterior(self) -> PosteriorResult:
        o = self.options
        posterior, network = Posterior(self.space).to(self.context.device.torch), self.trained_supernet()
        adam, batches = self._adam(posterior), self._batches(1, augmented=False)
        kl_weight = o.kl_weight / len(batches.indices)

        def step(position: Position) -> dict[str, Tensor]:
            get, team = partial(taken, batches, position.epoch, position.step), self.context.team
            return fit_step(posterior, adam, network, get, o.gumbel_temperature, kl_weight, team)

        state: dict[str, Stateful] = {"posterior": posterior, "optimizer": adam}
        epochs = self._posterior_epochs()
        drive_stage(self.context, "posterior", step, state, epochs=epochs, steps_per_epoch=len(batches))
        return PosteriorResult(logits=posterior.logits(), divergence=float(posterior.divergence().detach()))

    # --- ensembles ---

    def draw(self) -> Drawn:
        """Draw and score ensembles, and choose the best."""
        context, o = self.context, self.options
        with context.progress.task("networks with inherited weights", self._most_networks) as bar:
            inherited = self.inherited(seen=bar.advance, store=context.run.checkpoints("ensembles"))
            search = EnsembleSearch(context, o, self.sampler(), inherited, self.fits)
            found = search.from_pool() if o.sampler in ("nes-rs", "deep") else search.from_sampler()
        return Drawn(
            chosen=self._chosen(found),
            scored=found,
            evaluations=len(inherited.known),
            left_out=search.left_out,
            accuracy_on=f"{context.task.data.name} validation, {len(inherited.labels)} images, the supernet's weights",
        )

    @property
    def _most_networks(self) -> int:
        o = self.options
        deltas = len(DELTAS) if o.sampler == "svgd-rd" and o.delta is None else 1
        return o.pool if o.sampler in ("nes-rs", "deep") else o.candidates * o.size * deltas

    def fits(self, members: Sequence[Architecture]) -> bool:
        """Whether the sum of the members' costs is within the limits; latencies are timed last."""
        limits, task = dict(self.context.configuration.single_limits), self.context.task
        latency = limits.pop("latency_ms", None)
        costs = [task.costs(one, limits) for one in members] if limits else []
        if limits and not met(limits, {name: sum(cost[name] for cost in costs) for name in limits}):
            return False
        return latency is None or sum(self.clock.timed((one,)).median_ms for one in members) <= latency

    def _chosen(self, scored: Sequence[ScoredEnsemble]) -> ScoredEnsemble:
        """The one of least loss; under a latency limit, of those that keep it as one network."""
        limit = self.context.configuration.single_limits.get("latency_ms")
        by_loss = sorted(scored, key=attrgetter("loss"))
        if limit is None:
            return by_loss[0]
        times = []
        for one in by_loss:
            timed = self.clock.timed(tuple(self.space.parse(text) for text in one.architectures), limit)
            if timed.within(limit):
                return one.model_copy(update={"latency_ms": timed.median_ms})
            times.append(timed.median_ms)
        raise InfeasibleError(
            f"none of {len(scored)} scored ensembles meets latency_ms <= {limit:g} as one network; the quickest takes "
            f"{min(times):.3g} ms, more than its members one by one. Raise the limit."
        )

    # --- latency ---

    @property
    def timing(self) -> Timing:
        """How ensembles are timed."""
        return Timing(threads=self.context.device.threads, repeats=TIMED_CALLS, processor=self.context.device.name)

    @cached_property
    def _lightest(self) -> Architecture:
        """Of some random architectures."""
        rng, task = self.context.rng("lightest"), self.context.task
        drawn = [one for one in (self.space.sample(rng) for _ in range(SAMPLED)) if self.space.is_connected(one)]
        lightest: Architecture = min(drawn, key=lambda one: task.costs(one, ("macs",))["macs"])
        return lightest

    def _watch(self, members: Members) -> Stopwatch:
        """Of the members as one network, with untrained weights, whose values do not change the time."""
        scale = self.context.task.scale
        networks: list[nn.Module] = [self.space.build(one, scale) for one in members]
        network = networks[0] if len(networks) == 1 else Averaged(networks, self.options.mean)
        return stopwatch(network, scale, self.timing)

    @cached_property
    def clock(self) -> Clock[Members]:
        """Times members and ensembles; the lightest of some random members is what they are compared by."""
        context, reference = self.context, (self._lightest,)
        log = context.run.items("latency")
        if REFERENCE not in log.done:
            log.record(REFERENCE, middle_round(self._watch(reference)).median_ms)
        reference_ms = float(log.done[REFERENCE])
        return Clock(self._watch, reference, reference_ms, context.progress, context.stop, log, self._key)

    def _key(self, members: Members) -> str:
        return " ".join(str(self.space.canonical(one)) for one in members)

    # --- the members ---

    def _training(self, number: int) -> Callable[[], Trained]:
        """Train a member from scratch, from its own seed."""

        def work() -> Trained:
            architecture = self.space.parse(self.result("ensembles", Drawn).chosen.architectures[number])
            seed = int(self.context.rng("member", number).integers(2**31))
            stage, name = f"member-{number}", f"best/{number}"
            return train_answer(self.context, architecture, name, stage=stage, seed=seed, onnx=False)

        return work

    def _answer(self) -> Found:
        task, o, drawn = self.context.task, self.options, self.result("ensembles", Drawn)
        chosen = drawn.chosen
        trained, report = keep_ensemble(self.context, [f"best/{number}" for number in range(o.size)], o.mean)
        members = []
        for number, text in enumerate(chosen.architectures):
            alone = self.result(f"member-{number}", Trained)
            architecture = self.space.parse(text)
            known = {**alone.model_dump(), **task.costs(architecture)}
            topology, scale = topology_json(architecture) or None, task.scale.to_dict()
            members.append(Candidate(architecture=text, topology=topology, scale=scale, **known))
        best = Candidate(
            architecture=json.dumps(chosen.architectures),
            search_accuracy=100 - chosen.error,
            search_accuracy_on=drawn.accuracy_on,
            params=report.params,
            macs=report.macs,
            latency_ms=chosen.latency_ms,
            limits=self.context.configuration.single_limits or None,
            **trained.model_dump(),
        )
        return Found(
            best=best,
            members=members,
            ensemble=EnsembleErrors(**report.to_dict()),
            evaluations=drawn.evaluations,
            beside=self.simple,
            verdict=verdict(best, self.simple) or None,
            insights=[worth(best, members)],
            scored_ensembles=drawn.scored,
            chosen_ensemble=chosen,
            details={"sampler": o.sampler, "left_out": drawn.left_out},
        )


def worth(ensemble: Candidate, members: Sequence[Candidate]) -> str:
    """What the ensemble gains on the validation images over its best member, and what that costs, in a sentence.

    Args:
        ensemble: with its validation accuracy and multiply-accumulates.
        members: of it, with theirs, in its order.
    """
    assert ensemble.validation_accuracy is not None
    number, alone = max(enumerate(members, 1), key=lambda pair: pair[1].validation_accuracy or 0.0)
    gain = ensemble.validation_accuracy - (alone.validation_accuracy or 0.0)
    cost = (ensemble.macs or 0) / max(1, alone.macs or 0)
    if gain > 0:
        return (
            f"On validation the ensemble is {gain:.2f} points better than its best member, number {number}, "
            f"for {cost:.1f} times the multiply-accumulates."
        )
    return (
        f"The ensemble is not better than member {number} alone on validation ({gain:+.2f} points), which has "
        f"1/{cost:.1f} of its multiply-accumulates: take that one ({alone.model}), more members (--size) or a longer "
        "training."
    )
