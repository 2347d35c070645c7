"""CoNAS: the loss of a one-shot model as a sparse Boolean polynomial, recovered from few measurements and minimised.

1. ``supernet``: a cell supernet is trained by random sub-graphs, each (edge, operation) bit on with probability p; one
   of an earlier run (``--supernet``) is used again as it is.
2. ``measure``: the validation loss of m random sub-graphs, one work item each.
3. ``recover``: Lasso over all parities of degree up to d, the s largest coefficients, their exact minimum
   (:mod:`archwright.solvers.fourier`); where that leaves a place undecided, the bits found are fixed and m more
   sub-graphs measured (restriction). The sub-graph becomes a cell as its space says
   (:meth:`~archwright.spaces.supernet_space.SupernetSpace.of_subgraph`).

``rsps`` is what it is built on and compared with (Li and Talwalkar): the same supernet, and the best of m measured
architectures. A run given by ``--supernet`` lends its measurements, too: the same sub-graphs are not measured again, so
that another lambda, s or d needs no forward pass.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from archwright.data import Batches
from archwright.data.request import DataRequest, load_data
from archwright.data.shards import Shard
from archwright.device import Device, seconds_on
from archwright.errors import InputError
from archwright.execution.base import Item, run_items
from archwright.numerics import Numerics, using
from archwright.runs.files import Json, read_json, save_figure, write_atomic
from archwright.runs.run import ItemLog
from archwright.runs.stop import Stop
from archwright.search.answer import Found, LossRound, Term
from archwright.search.configuration import OF_WORK, AbsolutePath
from archwright.search.driving import drive_stage
from archwright.search.evaluator import evaluation_seconds
from archwright.search.method import Options, SearchMethod, Stage
from archwright.search.values import Choice, StageResult
from archwright.solvers.fourier import ParityFeatures, RecoverySettings, Round, search_by_rounds
from archwright.solvers.polynomial import Polynomial
from archwright.spaces.base import Architecture
from archwright.spaces.operations import Cost
from archwright.spaces.registry import find_space
from archwright.spaces.subgraphs import Signs, Subgraphs, read_bits, write_bits
from archwright.spaces.supernet_space import SupernetSpace, as_supernet_space
from archwright.supernets.base import Supernet
from archwright.supernets.files import FILE_NAME, load_supernet, save_supernet, supernet_of
from archwright.supernets.measure import BATCH, Norms, Outcome, measure_subnetwork, recalibrated
from archwright.supernets.train import SharedTraining, new_supernet
from archwright.training import Position
from archwright.training.schedule import make_schedule

MOMENTUM = 0.9
LARGEST_USUAL = 0.1
"""The paper's lambda belongs to its losses: unless one is given, it is at most this part of the largest useful one."""


PRESETS: Mapping[str, Mapping[str, tuple[Any, Any]]] = {
    "short": {
        "supernet_epochs": (20, 20),
        "supernet_lr": (0.025, 0.1),
        "supernet_weight_decay": (5e-4, 5e-4),
        "images": (512, 512),
        "measure_batch": (256, 256),
    },
    "paper": {
        "supernet_channels": (16, 16),
        "supernet_cells": (8, 5),
        "supernet_epochs": (100, 100),
        "supernet_lr": (0.025, 0.025),
        "supernet_weight_decay": (3e-4, 5e-4),
        "images": (640, 640),
        "measure_batch": (64, 64),
        "threshold": (1.5, 1.8),
    },
}
"""What settings are that nobody gave, in the DARTS spaces and in smaller ones. Half of DARTS' operations on are sums of
a dozen at a node, and diverge at the rate that suits small cells."""


class RspsOptions(Options):
    """Options of both methods: the supernet and how its sub-graphs are measured."""

    preset: Literal["short", "paper"] = Field(
        "short", description="what settings that are not given are: short ones, or the paper's (Tables 3 and 4)"
    )
    supernet_channels: int | None = Field(
        None, ge=2, description="channels of the supernet; by default as the final network, 16 in the paper"
    )
    supernet_cells: int | None = Field(
        None, ge=1, description="cells of the supernet; by default as the final network, 8 (DARTS) or 5 in the paper"
    )
    supernet_epochs: int | None = Field(
        None, ge=1, description="passes of the supernet over the training images; 20, 100 in the paper"
    )
    supernet_batch: int = Field(64, ge=2, description="images of a step of the supernet")
    supernet_lr: float | None = Field(
        None,
        gt=0,
        description="learning rate of the supernet at the start; 0.025 for DARTS and in the paper, 0.1 else",
    )
    supernet_lr_min: float = Field(0.001, ge=0, description="learning rate of the supernet at the end")
    supernet_weight_decay: float | None = Field(
        None, ge=0, description="weight decay of the supernet; 5e-4, 3e-4 for DARTS in the paper"
    )
    supernet_clip: float = Field(5.0, ge=0, description="largest norm of the supernet's gradient; 0 = off")
    probability: float = Field(
        0.5, gt=0, lt=1, description="probability that a bit is on while the supernet is trained"
    )
    measurements: int | None = Field(
        None, ge=2, description="sub-graphs to measure; as in the paper 3000 for DARTS, 300 else"
    )
    subgraphs: Literal["bits", "cells"] = Field(
        "cells", description="sub-graphs that are measured: random bits, or architectures"
    )
    images: int | None = Field(
        None, ge=2, description="validation images of a measurement, in whole batches; 512, 640 in the authors' code"
    )
    measure_batch: int | None = Field(
        None, ge=2, description="images of a forward pass of a measurement; 256, 64 in the authors' code"
    )
    norms: Literal["batch", "recalibrated"] = Field(
        "batch", description="batch-norm statistics of a measurement: its batches' own, or of training images"
    )
    supernet: AbsolutePath | None = Field(None, description="run folder whose supernet and measurements are used again")


class ConasOptions(RspsOptions):
    """Options of CoNAS, beside those that it shares with ``rsps``."""

    subgraphs: Literal["bits", "cells"] = Field(
        "bits", description="sub-graphs that are measured: random bits, or architectures"
    )
    degree: int = Field(2, ge=1, le=4, description="largest degree d of the parities")
    sparsity: int | None = Field(None, ge=1, description="coefficients to keep; as in the paper 12 for DARTS, 14 else")
    lam: float | None = Field(
        None, gt=0, description="weight lambda of eq. 2.3; 10 for 3000 measurements of DARTS, 5 for 300 else"
    )
    cross_validate: bool = Field(False, description="choose lambda by five-fold cross-validation")
    refit: bool = Field(True, description="fit the kept coefficients again by least squares")
    choice: Literal["uniform", "strongest"] = Field(
        "uniform",
        description="which operation stays on an edge of nasbench201: any that is on, or the one missed most",
    )
    threshold: float | None = Field(
        None, gt=0, description="largest loss that counts; that of guessing, 1.5 (DARTS) or 1.8 in the paper"
    )
    rounds: int = Field(2, ge=1, description="recoveries at most; after the first, found bits are fixed (restriction)")


class SupernetTrained(StageResult):
    """The trained supernet: number of bits, and the mean training loss of every epoch."""

    bits: int
    losses: list[float]


class Measured(StageResult):
    """The first round's measurements: how many, how many were not finite, the lowest and the mean loss."""

    measurements: int
    not_finite: int
    lowest: float | None
    mean: float | None


class SubgraphChoice(Choice):
    """The architecture and the sub-graph it was made from, with its loss; for CoNAS what each round recovered."""

    subgraph: str
    subgraph_loss: float | None
    rounds: list[LossRound] = Field(default_factory=list)


# --- one measurement -------------------------------------------------------------------------------------------------


def measure_subgraph(payload: Json, stop: Stop) -> Json:
    """Work item: loss and accuracy in percent of one sub-graph of a trained supernet; loss None where it is not finite.

    Args:
        payload: ``of``, what all measurements of a run share, and ``bits``, the sub-graph as text.
        stop: asked once, before the measurement.
    """
    stop.check()
    outcome = _outcome(json.dumps(payload["of"]), payload["bits"])
    return {"loss": outcome.loss if math.isfinite(outcome.loss) else None, "accuracy": outcome.accuracy}


def _outcome(of: str, bits: str) -> Outcome:
    supernet, subgraphs, images, norms = _instruments(of)
    device = next(supernet.parameters()).device
    with using(Numerics(**json.loads(of).get("numerics", {})), device):
        return measure_subnetwork(supernet, subgraphs.weights(read_bits(bits), device), images, norms)


@lru_cache(maxsize=2)
def _instruments(of: str) -> tuple[Supernet, Subgraphs, list[tuple[Tensor, Tensor]], Norms]:
    """What all measurements of a run have in common, made once a process."""
    fields = json.loads(of)
    data = load_data(DataRequest(**fields["data"]))
    space = as_supernet_space(find_space(fields["space_text"]))
    device = Device.choose("auto").name if fields["device"] == "auto" else fields["device"]
    supernet = new_supernet(space, space.scale_from(fields["scale"]), seed=0, device=device)
    load_supernet(Path(fields["supernet"]), supernet, data.fingerprint)
    seed, size, count = fields["seed"], fields["batch"], fields["images"]

    def some(split: Literal["train", "validation"], number: int) -> list[tuple[Tensor, Tensor]]:
        available = len(getattr(data, split))
        chosen = np.random.default_rng([seed, number]).permutation(available)[:count]
        return list(Batches(data, split, size, seed=seed, indices=np.sort(chosen), device=device))

    norms = recalibrated(some("train", 1), count) if fields["norms"] == "recalibrated" else BATCH
    return supernet, Subgraphs(space), some("validation", 0), norms


# --- the methods -----------------------------------------------------------------------------------------------------


class Rsps(SearchMethod):
    """Random search with parameter sharing: the best of the measured architectures."""

    name = "rsps"
    uses = SearchMethod.uses | OF_WORK
    resources = ()
    Options: ClassVar[type[Options]] = RspsOptions
    options: RspsOptions

    @property
    def space(self) -> SupernetSpace[Any]:
        """The space; one without a supernet is refused."""
        return as_supernet_space(self.context.task.space)

    @cached_property
    def bits(self) -> Subgraphs:
        """The bits of the space."""
        return Subgraphs(self.space)

    @property
    def paper_setting(self) -> int:
        """Column of the paper's settings: 0 for DARTS (Table 3), 1 for all smaller spaces (Table 4)."""
        return 0 if self.bits.n > 100 else 1

    def setting(self, name: str) -> Any:
        """The option ``name``: as given, else the preset's; None where neither says anything."""
        given = getattr(self.options, name)
        return PRESETS[self.options.preset].get(name, (None, None))[self.paper_setting] if given is None else given

    @property
    def measurements(self) -> int:
        """How many sub-graphs are measured (in each round)."""
        return self.options.measurements or (3000, 300)[self.paper_setting]

    def check(self) -> None:
        """Also refuses what a supernet's search cannot have."""
        if self.context.configuration.data is None:
            raise InputError(f"images (--data) for the method {self.name!r}", "none")
        super().check()
        self.space.check_scale(self._scale)
        if self.options.supernet is not None:
            load_supernet(supernet_of(self.options.supernet), self._new_supernet(), self.context.task.data.fingerprint)

    def largest(self) -> Cost | None:
        """The supernet, which has every operation everywhere."""
        return self.space.supernet_cost(self._scale)

    @property
    def _scale(self) -> Any:
        """Scale of the supernet, which the final network's need not be."""
        channels, cells = self.setting("supernet_channels"), self.setting("supernet_cells")
        return self.space.supernet_scale(self.context.task.scale.changed(channels=channels, cells=cells))

    def estimate_seconds(self) -> float:
        """From one timed step of the supernet; a measurement is a third of a step for each batch of its images."""
        o, task = self.options, self.context.task
        shared, times = replace(self._training(self._new_supernet()), team=self.context.alone), []
        for _ in range(2):
            begin = seconds_on(self.context.device.torch)
            shared.step(Position.at(0, 1, 1))
            times.append(seconds_on(self.context.device.torch) - begin)
        step = min(times)
        training = 0.0 if o.supernet else self.team_share * step * len(shared.batches) * self.setting("supernet_epochs")
        images = min(self.setting("images"), len(task.data.validation))
        measuring = step / 3 * self.measurements * images / o.supernet_batch
        return float(training + measuring + self.final_rounds * evaluation_seconds(self.context))

    def batch_sizes(self) -> list[int]:
        """Also those of the supernet's training."""
        return [*super().batch_sizes(), *([] if self.options.supernet else [self.options.supernet_batch])]

    def search_stages(self) -> list[Stage]:
        """Train, measure, choose; a supernet that is given is not trained again."""
        training = Stage("supernet", "train the supernet by random sub-graphs", self._train_supernet)
        return [
            *([] if self.options.supernet else [training]),
            Stage("measure", "measure sub-graphs", self._measure_stage),
            Stage("search", "choose", self._search),
        ]

    # 1. the supernet

    def _new_supernet(self) -> Supernet:
        seed = int(self.context.rng("supernet").integers(2**31))
        return new_supernet(self.space, self._scale, seed=seed, device=self.context.device.torch)

    def _train_batches(self) -> Batches:
        data = self.context.task.data
        seed = int(self.context.rng("order").integers(2**31))
        augment = self.context.task.augmentation(cutout=0)
        size = min(self.options.supernet_batch, len(data.train))
        return Batches(data, "train", size, seed=seed, augment=augment, device=self.context.device.torch)

    def _training(self, supernet: Supernet) -> SharedTraining:
        """RSPS: every step trains one random sub-graph."""
        o = self.options
        lr, decay = self.setting("supernet_lr"), self.setting("supernet_weight_decay")
        sgd = torch.optim.SGD(supernet.parameters(), lr, MOMENTUM, weight_decay=decay, nesterov=True)
        rate = make_schedule("cosine", lr, min(lr, o.supernet_lr_min))
        return SharedTraining(
            supernet, self._train_batches(), self._drawn, sgd, rate, clip=o.supernet_clip, team=self.context.team
        )

    def _drawn(self, position: Position, _images: int, _shard: Shard) -> dict[str, Tensor]:
        """The sub-graph of a step, as weights of the supernet."""
        rng = self.context.rng("trained sub-graph", position.index)
        return self.bits.weights(self.bits.draw(rng, 1, self.options.probability)[0], self.context.device.torch)

    def _train_supernet(self) -> SupernetTrained:
        context, network = self.context, self._new_supernet()
        training = self._training(network)
        history = drive_stage(
            context,
            "supernet",
            training.step,
            training.state,
            epochs=self.setting("supernet_epochs"),
            steps_per_epoch=len(training.batches),
            seed=int(context.rng("steps").integers(2**31)),
            title="training the supernet",
        )
        save_supernet(network, context.task.data.fingerprint, context.run.artifact(FILE_NAME))
        return SupernetTrained(bits=self.bits.n, losses=[round(one["loss"], 4) for one in history])

    # 2. measurements

    @property
    def _supernet_file(self) -> Path:
        if self.options.supernet is not None:
            return supernet_of(self.options.supernet).resolve()
        return (self.context.run.folder / "artifacts" / FILE_NAME).resolve()

    @property
    def _measured_by(self) -> dict[str, Json]:
        """What decides a measurement beside the sub-graph and where things are."""
        batch = self.setting("measure_batch")
        images = min(self.setting("images"), len(self.context.task.data.validation))
        if images > batch:  # a smaller last batch would be normalised by statistics of its own quality
            images -= images % batch
        return {
            "space": self.space.supernet_name,
            "scale": self._scale.to_dict(),
            "seed": self.context.configuration.seed,
            "images": images,
            "batch": batch,
            "norms": self.options.norms,
        }

    @cached_property
    def _lent(self) -> dict[str, Json]:
        """Measurements of the run whose supernet is used, where they were made in the same way."""
        if self.options.supernet is None:
            return {}
        folder = Path(self.options.supernet)
        made = folder / "artifacts" / "measured_by.json"
        if not made.is_file() or read_json(made) != self._measured_by:
            return {}
        return ItemLog(folder / "items" / "measure.jsonl").done

    def measured(self, strings: NDArray[Any]) -> list[Json]:
        """The result of :func:`measure_subgraph` for every row of ``strings`` (m, n); nothing is measured twice."""
        context, task = self.context, self.context.task
        write_atomic(context.run.artifact("measured_by.json"), json.dumps(self._measured_by).encode())
        log = context.run.items("measure")
        keys = [write_bits(x) for x in strings]
        for key in keys:
            if key in self._lent and key not in log.done:
                log.record(key, self._lent[key])
        request = task.data_request
        of = {
            **self._measured_by,
            "space_text": task.space_text,
            "data": asdict(request),
            "supernet": str(self._supernet_file),
            "device": context.item_device,
            "numerics": context.configuration.numerics.to_json(),
        }
        needs = (*request.needs, str(self._supernet_file))
        items = {key: Item(key, {"of": of, "bits": key}, needs, context.item_gpu) for key in keys}
        with context.progress.task("measuring sub-graphs", len(items)) as bar:
            found = run_items(context.executor, measure_subgraph, list(items.values()), log, context.stop, bar)
        return [found[key] for key in keys]

    def losses(self, strings: NDArray[Any]) -> NDArray[np.float64]:
        """Losses (m,) of the sub-graphs; NaN where there is none."""
        return np.array([np.nan if one["loss"] is None else one["loss"] for one in self.measured(strings)])

    def strings(self, number: int, fixed: Mapping[int, int]) -> Signs:
        """The sub-graphs of one round, (m, n) of 1 and -1.

        Args:
            number: of the round.
            fixed: values of some bits by their number.
        """
        rng, count = self.context.rng("measured sub-graphs", number), self.measurements
        if self.options.subgraphs == "bits":
            return self.bits.draw(rng, count, 0.5, fixed)
        x = np.stack([self.bits.of(self.space.sample(rng)) for _ in range(count)])
        for bit, value in fixed.items():
            x[:, bit] = value
        return x

    def _measure_stage(self) -> Measured:
        losses = self.losses(self.strings(0, {}))
        finite = losses[np.isfinite(losses)]
        return Measured(
            measurements=len(losses),
            not_finite=len(losses) - len(finite),
            lowest=float(finite.min()) if len(finite) else None,
            mean=float(finite.mean()) if len(finite) else None,
        )

    # 3. the choice

    def _search(self) -> SubgraphChoice:
        strings = self.strings(0, {})
        losses = self.losses(strings)
        if not np.isfinite(losses).any():
            raise InputError(
                "finite losses", f"{len(losses)} NaN or infinite ones", "Train the supernet at a lower rate."
            )
        x = strings[int(np.nanargmin(losses))]
        architecture = self.bits.architecture(x, np.zeros(self.bits.n), self.context.rng("uniform choice"))
        return self._found(architecture, x, len(strings), [])

    def _found(self, architecture: Architecture, x: Signs, evaluations: int, rounds: list[LossRound]) -> SubgraphChoice:
        """What every search stage returns; the accuracy is that of the sub-graph x (n,) with shared weights."""
        result = self.measured(x[None])[0]
        images = self._measured_by["images"]
        return SubgraphChoice(
            architecture=str(architecture),
            accuracy=result["accuracy"],
            accuracy_on=f"{images} validation images with shared weights",
            evaluations=evaluations,
            subgraph=write_bits(x),
            subgraph_loss=result["loss"],
            rounds=rounds,
        )


class Conas(Rsps):
    """The minimum of the sparse polynomial behind the measured losses."""

    name = "conas"
    Options: ClassVar[type[Options]] = ConasOptions
    options: ConasOptions

    @property
    def settings(self) -> RecoverySettings:
        """With the paper's numbers where none are given."""
        o, paper = self.options, self.paper_setting
        usual = (10.0 / 3000, 5.0 / 300)[paper] * self.measurements
        lam = None if o.cross_validate else o.lam or usual
        cap = 1.0 if o.lam else LARGEST_USUAL
        return RecoverySettings(o.degree, o.sparsity or (12, 14)[paper], lam, o.refit, cap)

    @property
    def threshold(self) -> float:
        """Losses above it say nothing: by default those worse than guessing, ln(classes)."""
        return float(self.setting("threshold") or math.log(self.context.task.data.classes))

    def _search(self) -> SubgraphChoice:
        strings: list[Signs] = []

        def measure_round(number: int, fixed: Mapping[int, int]) -> tuple[Signs, NDArray[np.float64]]:
            strings.append(self.strings(number, fixed))
            return strings[-1], self.losses(strings[-1])

        rounds = search_by_rounds(
            measure_round, self.bits.n, self.settings, self.options.rounds, self._every_place_on, self.threshold
        )
        for number, one in enumerate(rounds):
            self._say(number, one)
        self._show(rounds)
        x = rounds[-1].minimum.x
        rng = self.context.rng("uniform choice") if self.options.choice == "uniform" else None
        architecture = self.bits.architecture(x, self._worth(rounds), rng)
        return self._found(architecture, x, sum(map(len, strings)), [self._round(one) for one in rounds])

    def _answer(self, stage: str) -> Found:
        """Also says what was recovered."""
        choice = self.result(stage, SubgraphChoice)
        sentences = [
            f"The loss is lower with {' and '.join(term.bits)} {meaning(term.bits, term.coefficient)} "
            f"(coefficient {term.coefficient:+.4f})."
            for term in choice.rounds[0].terms[:8]
        ]
        known = {"insights": sentences, "loss_rounds": choice.rounds}
        details = choice.model_dump(include={"subgraph", "subgraph_loss"})
        return super()._answer(stage).model_copy(update={**known, "details": details})

    def _every_place_on(self, x: Signs) -> bool:
        """Whether every edge, vertex or link has something on: then no round is missing."""
        return all(mask.any(axis=1).all() for mask in self.bits.masks(x).values())

    def _worth(self, rounds: Sequence[Round]) -> NDArray[np.float64]:
        """What each bit is worth when architectures must choose, (n,).

        Of a bit that is on, how much the polynomial rises without it; of others, how much lower the measured losses are
        with it (minus the Fourier coefficient of the bit, from the first round's measurements).
        """
        first = rounds[0].measurements
        worth = -ParityFeatures(first.x, 1).correlate(first.y - first.y.mean())[1:] / len(first.y)
        for one in rounds:
            x = one.minimum.x
            for bit in one.recovery.polynomial.bits:
                if x[bit] > 0:
                    without = x.copy()
                    without[bit] = -1
                    worth[bit] = float(one.recovery.polynomial(without) - one.recovery.polynomial(x))
        return worth

    def _say(self, number: int, one: Round) -> None:
        """Warnings go to the user and into the run's events."""
        dropped = ", ".join(
            f"{count} {what.replace('_', ' ')}" for what, count in one.measurements.dropped.items() if count
        )
        texts = [one.recovery.diagnostics.warning, f"Dropped measurements: {dropped}." if dropped else ""]
        if one.minimum.solver != "enumeration":
            texts.append(f"The support has too many bits to enumerate: solved as an {one.minimum.solver}.")
        for text in filter(None, texts):
            self.context.progress.warn(text)
            self.context.run.event("warning", round=number, text=text)

    def _round(self, one: Round) -> LossRound:
        """For the run's files."""
        terms = [
            Term(bits=self._names(monomial), coefficient=value)
            for monomial, value in strongest_terms(one.recovery.polynomial)
        ]
        more = {
            "fixed": len(one.fixed),
            "dropped": one.measurements.dropped,
            "diagnostics": one.recovery.diagnostics.as_dict(),
            "minimum": {"value": one.minimum.value, "solver": one.minimum.solver, "gap": one.minimum.gap},
        }
        return LossRound(terms=terms, **more)

    def _show(self, rounds: Sequence[Round]) -> None:
        """The recovered polynomials as ``polynomial.csv`` and ``polynomial.png``, and the first one to the user."""
        text = io.StringIO()
        table = csv.writer(text)
        table.writerow(["round", "coefficient", "lowers the loss", "bits"])
        for number, one in enumerate(rounds):
            for monomial, value in strongest_terms(one.recovery.polynomial):
                table.writerow([number, f"{value:.6f}", meaning(monomial, value), " * ".join(self._names(monomial))])
        write_atomic(self.context.run.artifact("polynomial.csv"), text.getvalue().encode())
        plot_polynomial(rounds[0].recovery.polynomial, self.bits.names, self.context.run.artifact("polynomial.png"))
        lines = [
            f"{value:+.4f}  {meaning(monomial, value):<9} {' * '.join(self._names(monomial))}"
            for monomial, value in strongest_terms(rounds[0].recovery.polynomial)
        ]
        for line in ("What the loss depends on (coefficient, what lowers it, bits):", *lines):
            self.context.progress.say(line)

    def _names(self, monomial: Sequence[int]) -> list[str]:
        return [self.bits.names[bit] for bit in monomial]


# --- the polynomial, shown -------------------------------------------------------------------------------------------


def strongest_terms(polynomial: Polynomial) -> list[tuple[tuple[int, ...], float]]:
    """The terms by falling size of their coefficients, the constant left out."""
    terms = [(monomial, value) for monomial, value in polynomial.terms.items() if monomial]
    return sorted(terms, key=lambda term: -abs(term[1]))


def meaning(monomial: Sequence[object], value: float) -> str:
    """What lowers the loss: a single bit on or off, a pair alike (both on or both off) or unlike.

    Args:
        monomial: the bits of a term.
        value: its coefficient.
    """
    if len(monomial) == 1:
        return "on" if value < 0 else "off"
    if len(monomial) == 2:
        return "alike" if value < 0 else "unlike"
    return "even off" if value < 0 else "odd off"


def plot_polynomial(polynomial: Polynomial, names: Sequence[str], path: Path) -> None:
    """Bars of the coefficients: what lowers the loss when it is on (or alike) to the left.

    Args:
        polynomial: of the loss.
        names: what every bit means, by its number.
        path: of the PNG image.
    """
    from matplotlib.figure import Figure

    terms = strongest_terms(polynomial)[::-1]
    figure = Figure(figsize=(8, 1.2 + 0.28 * len(terms)), layout="constrained")
    axes = figure.subplots()
    values = [value for _, value in terms]
    axes.barh(range(len(terms)), values, color=["tab:blue" if value < 0 else "tab:red" for value in values])
    labels = [" x ".join(names[bit] for bit in monomial) for monomial, _ in terms]
    axes.set_yticks(range(len(terms)), labels, fontsize=7)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_xlabel("Fourier coefficient of the loss (blue: lower loss when on, or when both are alike)", fontsize=8)
    save_figure(figure, path)
