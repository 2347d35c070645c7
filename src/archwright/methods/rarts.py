"""RARTS: first-order search with two copies of the weights that pull at each other.

Relaxed Lagrangian (5): L(y, w, a) = L_v(y, a) + lam L_t(w, a) + beta/2 |y - w|^2 + weight * <softmax(a), Lat>.
One iteration (7, 8) is three steps, each with the newest values of the others (Gauss-Seidel):

    w by lam grad_w L_t(w, a) + beta (w - y)
    y by grad_y L_v(y, a) + beta (y - w)
    a by lam grad_a L_t(w, a) + grad_a L_v(y, a) + the latency's gradient                          4 passes

**Fused** takes both gradients by alpha from the passes of the two weight steps: grad_a L_t and grad_a L_v at the
weights *before* their steps (Jacobi in alpha, Gauss-Seidel in w and y). Half the passes; the same equilibrium (9).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from archwright.bounds import MOST_NUMBER
from archwright.costs.measure import Timing
from archwright.costs.operations import operation_latencies
from archwright.errors import InputError
from archwright.methods.darts import DifferentiableOptions, DifferentiableSearch
from archwright.paths import read_plain
from archwright.search.configuration import AbsolutePath
from archwright.search.method import Options, Stage
from archwright.search.values import StageResult
from archwright.strict import parse_json
from archwright.training import Position, Step
from archwright.training.bilevel import Alphas, Problem, WeightCopy, losses, sums
from archwright.training.diagnostics import equilibrium
from archwright.training.schedule import ScheduleName


class RartsOptions(DifferentiableOptions):
    """Options of RARTS; ``w_*`` are those of the copy trained on D_t."""

    lam: float = Field(1.0, gt=0, description="weight of the training loss in the Lagrangian")
    beta: float = Field(0.1, ge=0, description="strength of the coupling of the two copies")
    fused: bool = Field(
        False, description="take the architecture's gradient from the passes of the weight steps: half the time"
    )
    y_lr: float | None = Field(None, gt=0, description="learning rate of the second copy of the weights; as --w-lr")
    y_lr_min: float | None = Field(None, ge=0, description="learning rate of the second copy at the end; as --w-lr-min")
    y_schedule: ScheduleName | None = Field(
        None, description="how the learning rate of the second copy falls; as --w-schedule"
    )
    latency_weight: float = Field(0.0, ge=0, description="weight of the expected latency in milliseconds; 0 = off")
    latency_table: AbsolutePath | None = Field(
        None, description="JSON file {operation: milliseconds}; latencies are measured on a search batch if not given"
    )


class LatencyPenalty:
    """``weight * sum over rows of <softmax(a), Lat>``, in the decisions that choose operations.

    Args:
        milliseconds: by decision, the latency of each of its candidates in the order of the columns.
        weight: a positive number.
    """

    def __init__(self, milliseconds: Mapping[str, Tensor], weight: float) -> None:
        self.milliseconds, self.weight = milliseconds, weight

    def value(self, alphas: Alphas) -> Tensor:
        """The penalty, a 0-d tensor."""
        terms = [(alphas[name].softmax(dim=-1) @ ms.to(alphas[name])).sum() for name, ms in self.milliseconds.items()]
        return self.weight * torch.stack(terms).sum()

    def gradients(self, alphas: Alphas) -> list[Tensor]:
        """Of :meth:`value` by each tensor of ``alphas``."""
        value = self.value(alphas)
        return list(torch.autograd.grad(value, list(alphas.values()), allow_unused=True, materialize_grads=True))


def pulled(gradients: list[Tensor], scale: float, own: WeightCopy, other: WeightCopy, beta: float) -> list[Tensor]:
    """``scale * gradients + beta (own - other)``."""
    with torch.no_grad():
        scaled = list(torch._foreach_mul(gradients, scale)) if scale != 1 else gradients
        return sums(scaled, sums(own.weights, other.weights, -1.0), beta)


def rarts_step(
    problem: Problem, w: WeightCopy, y: WeightCopy, lam: float, beta: float, penalty: LatencyPenalty | None = None
) -> Step:
    """Eq. (8) as written, 4 passes: w, then y, then alpha at the new weights.

    Args:
        problem: both halves of the images, and alpha.
        w: the copy that sees the training loss.
        y: the copy that sees the validation loss.
        lam: weight of the training loss.
        beta: of the pull between the copies.
        penalty: expected latency that is added to alpha's loss.
    """

    def step(position: Position) -> dict[str, Tensor]:
        train = problem.gradients(w.network, w.weights, "train", position, "weights")
        w.variable.descend(pulled(train.weights, lam, w, y, beta), position)
        validation = problem.gradients(y.network, y.weights, "validation", position, "weights")
        y.variable.descend(pulled(validation.weights, 1.0, y, w, beta), position)
        by_train = problem.gradients(w.network, w.weights, "train", position, "architecture").architecture
        by_validation = problem.gradients(y.network, y.weights, "validation", position, "architecture").architecture
        _descend_architecture(problem, by_train, by_validation, lam, penalty, position)
        return losses(train.loss, validation.loss)

    return step


def fused_rarts_step(
    problem: Problem, w: WeightCopy, y: WeightCopy, lam: float, beta: float, penalty: LatencyPenalty | None = None
) -> Step:
    """As :func:`rarts_step` in 2 passes: the architecture's gradients come from those of the weight steps.

    Args:
        problem: both halves of the images, and alpha.
        w: the copy that sees the training loss.
        y: the copy that sees the validation loss.
        lam: weight of the training loss.
        beta: of the pull between the copies.
        penalty: expected latency that is added to alpha's loss.
    """

    def step(position: Position) -> dict[str, Tensor]:
        train = problem.gradients(w.network, w.weights, "train", position, "both")
        w.variable.descend(pulled(train.weights, lam, w, y, beta), position)
        validation = problem.gradients(y.network, y.weights, "validation", position, "both")
        y.variable.descend(pulled(validation.weights, 1.0, y, w, beta), position)
        _descend_architecture(problem, train.architecture, validation.architecture, lam, penalty, position)
        return losses(train.loss, validation.loss)

    return step


def _descend_architecture(
    problem: Problem,
    by_train: list[Tensor],
    by_validation: list[Tensor],
    lam: float,
    penalty: LatencyPenalty | None,
    position: Position,
) -> None:
    """The third step of (8)."""
    gradient = sums(by_validation, by_train, lam)
    if penalty is not None:
        gradient = sums(gradient, penalty.gradients(problem.alpha.get(detached=False)))
    problem.architecture.descend(gradient, position)


class Latencies(StageResult):
    """Milliseconds of each operation of the space."""

    milliseconds: dict[str, float]


class Rarts(DifferentiableSearch):
    """Relaxed architecture search with two copies of the weights."""

    name = "rarts"
    Options: ClassVar[type[Options]] = RartsOptions
    options: RartsOptions

    @property
    def passes(self) -> int:  # type: ignore[override]
        """4, or 2 where they are fused."""
        return 2 if self.options.fused else 4

    def check(self) -> None:
        """Also reads the latencies that are given."""
        super().check()
        if self.options.latency_table is None:
            return
        if not self.options.latency_weight:
            raise InputError("a latency table beside --latency-weight", "--latency-weight 0", "Give a weight above 0.")
        self._complete(read_latencies(Path(self.options.latency_table)))

    def search_stages(self) -> list[Stage]:
        """Latencies first, where they count: measured once, a resumed search goes by the same."""
        latencies = [Stage("latencies", "latencies of the operations", self._latencies)]
        return [*(latencies if self.options.latency_weight else []), *super().search_stages()]

    def make_copies(self, network: nn.Module) -> list[WeightCopy]:
        """Both w and y, from the same start."""
        o = self.options
        y_lr = o.w_lr if o.y_lr is None else o.y_lr
        y_lr_min = o.w_lr_min if o.y_lr_min is None else o.y_lr_min
        second = self.copy_of(copy.deepcopy(network), y_lr, y_lr_min, o.y_schedule or o.w_schedule)
        return [*super().make_copies(network), second]

    def make_step(self, problem: Problem, copies: list[WeightCopy]) -> Step:
        """As written, or fused."""
        o = self.options
        make = fused_rarts_step if o.fused else rarts_step
        return make(problem, copies[0], copies[1], o.lam, o.beta, self.penalty)

    def diagnose(self, problem: Problem, copies: list[WeightCopy]) -> dict[str, float]:
        """Of both copies, with the latency term."""
        alphas = problem.alpha.get(detached=False)
        gradients = self.penalty.gradients(alphas) if self.penalty else []
        cost = self.penalty.value(alphas).item() if self.penalty else 0.0
        found = equilibrium(problem, copies[0], copies[1], self.options.lam, self.options.beta, gradients, cost)
        if self.penalty:
            found["expected_latency_ms"] = cost / self.penalty.weight
        return found

    def _latencies(self) -> Latencies:
        o, task = self.options, self.context.task
        if o.latency_table is not None:
            return Latencies(milliseconds=self._complete(read_latencies(Path(o.latency_table))))
        timing = Timing(batch=o.search_batch, processor=self.context.device.name)
        measured = operation_latencies(task.space, task.scale, timing)
        return Latencies(milliseconds=self._complete(measured))

    def _priced(self, decision: str) -> list[str]:
        """Names by which the latencies of the candidates of ``decision`` are kept: its operations, or its options."""
        columns = self.space.columns(decision)
        return list(columns) if columns == self.space.operations else [f"{decision}={one}" for one in columns]

    def _complete(self, table: dict[str, float]) -> dict[str, float]:
        """``table`` for the operations of the space, of which none may be missing."""
        space, known = self.context.task.space, {"none": 0.0, **table}
        wanted = list(dict.fromkeys(one for name in self.space.operation_decisions for one in self._priced(name)))
        missing = [name for name in wanted if name not in known]
        if missing:
            raise InputError(
                f"a latency for every operation of {space.name} ({', '.join(wanted)})",
                f"a table without {', '.join(missing)}",
                "Add them, in milliseconds, or leave latency_table out to measure on this device.",
            )
        return {name: known[name] for name in wanted}

    @cached_property
    def penalty(self) -> LatencyPenalty | None:
        """The latency term, by what the stage ``latencies`` found."""
        if not self.options.latency_weight:
            return None
        found = self.result("latencies", Latencies).milliseconds
        milliseconds = {
            name: torch.tensor([found[one] for one in self._priced(name)]) for name in self.space.operation_decisions
        }
        return LatencyPenalty(milliseconds, self.options.latency_weight)


def read_latencies(path: Path) -> dict[str, float]:
    """The table in a JSON file: operation to milliseconds, each zero or more."""
    expected = 'a JSON file like {"nor_conv_3x3": 0.21, ...} with milliseconds'
    try:
        table = parse_json(read_plain(path))
    except (OSError, ValueError) as error:
        raise InputError(expected, f"{path} ({error})") from error
    if not isinstance(table, dict):
        raise InputError(expected, f"{type(table).__name__} in {path}")
    for name, value in table.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST_NUMBER:
            raise InputError(expected, f"{value!r} for {name!r} in {path}")
    return {name: float(value) for name, value in table.items()}
