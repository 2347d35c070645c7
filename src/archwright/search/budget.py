"""From timed training steps to steps that fit the minutes a user has.

Steps are timed in the processor's time, in which other work on the machine does not count; on a busy machine only a
share of the seconds on the wall is that. What is counted here is kept by the run, as the result of its stage ``plan``:
a resumed or repeated run reads no clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from torch import nn

from archwright.costs.measure import Timing, measure
from archwright.data import Batches, Steps
from archwright.device import Device, seconds_on
from archwright.runs.run import ItemLog
from archwright.search.values import StageResult
from archwright.training import Recipe, train
from archwright.training.team import ALONE, Team

REVIEWED = 20
"""A training that ends by the clock counts its steps anew so many times, and after the first few steps."""
FIRST_REVIEW = 8
"""Steps after which the length of such a training is counted for the first time from real steps."""


class Review(StageResult):
    """What was decided about the length of a training.

    Attributes:
        index: after so many steps.
        total: steps that it is to have in all.
        spent: seconds it had taken by then.
    """

    index: int
    total: int
    spent: float


@dataclass
class ByTheClock:
    """The length of a training that ends when its seconds are over: a :data:`~archwright.training.loop.Length`.

    Steps are counted from the time that steps have taken so far, again and again, so that other work on the machine
    costs steps and not minutes. Every decision is kept when it is taken: a resumed or repeated training goes by them.

    Attributes:
        log: of the run, that keeps the decisions under ``name``.
        name: of the training.
        seconds: that it may take, by ``clock``.
        guess: steps to begin with.
        clock: seconds that pass.
    """

    log: ItemLog
    name: str
    seconds: float
    guess: int
    clock: Callable[[], float] = time.perf_counter
    _since: tuple[int, float] | None = field(default=None, init=False)

    def __call__(self, index: int) -> int:
        """Steps in all, as they are thought after ``index`` of them."""
        reviews = self.reviews
        past = [one for one in reviews if one.index <= index]
        if not past:
            return self._decide(Review(index=index, total=max(FIRST_REVIEW + 1, self.guess), spent=0.0))
        if self._since is None:
            self._since = index, self.clock()
        last = past[-1]
        due = FIRST_REVIEW if last.index == 0 else last.index + max(1, last.total // REVIEWED)
        if index < due or index >= last.total or len(past) < len(reviews):
            return last.total
        return self._decide(self._review(index, last))

    @property
    def reviews(self) -> list[Review]:
        """All decisions so far."""
        return [Review.model_validate(one) for one in self.log.done.get(self.name, [])]

    def _review(self, index: int, last: Review) -> Review:
        assert self._since is not None
        begun, then = self._since
        passed = self.clock() - then
        self._since = index, self.clock()
        each = max(passed, 1e-9) / max(1, index - begun)
        spent = last.spent + each * (index - last.index)
        return Review(index=index, total=index + max(1, round((self.seconds - spent) / each)), spent=round(spent, 3))

    def _decide(self, review: Review) -> int:
        self.log.record(self.name, [*(one.model_dump() for one in self.reviews), review.model_dump()])
        self._since = self._since or (review.index, self.clock())
        return review.total


def steps_within(seconds: float, step_ms: float) -> int:
    """Steps of ``step_ms`` milliseconds that fit into ``seconds``, at least one."""
    return max(1, round(1000 * seconds / step_ms))


def step_fit(summed: NDArray[np.float64], timed: NDArray[np.float64], least: float) -> tuple[float, float]:
    """The line from sums of blocks to whole steps (both (n,), in ms) with the least relative errors: factor and offset.

    Args:
        summed: milliseconds by a table of single blocks, (n,).
        timed: of the whole networks, (n,).
        least: sum of the quickest network of the space; where it would cost nothing by the line, or the line falls,
            one factor serves for all.
    """
    factor, offset = np.polyfit(summed, timed, 1, w=1 / timed)
    if factor <= 0 or factor * least + offset <= 0:
        return float(np.median(timed / summed)), 0.0
    return float(factor), float(offset)


@dataclass
class Pace:
    """How quickly this process works: times training steps, and what share of the wall's seconds the processor gives.

    Attributes:
        device: that trains.
        batch: images a step.
        team: who trains with this process.
        streamed: whether images are decoded in threads beside the steps, which only the wall's clock tells.
    """

    device: Device
    batch: int
    team: Team = ALONE
    streamed: bool = False
    _share: float = field(default=1.0, init=False)

    def clock(self) -> float:
        """Seconds of this process; on the wall where several threads or another device share the work."""
        alone = self.device.threads == 1 and self.device.name == "cpu" and self.team.size == 1 and not self.streamed
        return time.process_time() if alone else seconds_on(self.device.torch)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Notes how much of the time inside the block the processor worked for this process: :attr:`share`."""
        begin, worked = time.perf_counter(), self.clock()
        yield
        self._share = min(1.0, (self.clock() - worked) / (time.perf_counter() - begin))

    @property
    def share(self) -> float:
        """Of a second on the wall that this process gets, as last watched; 1 on a quiet machine."""
        return self._share

    def step_ms(self, network: nn.Module, shape: tuple[int, int, int], warm_up: int = 2, repeats: int = 9) -> float:
        """Median milliseconds of a training step of ``network`` on images of ``shape`` (channels, height, width).

        Args:
            network: as it is trained.
            shape: of one image.
            warm_up: steps before the first that counts.
            repeats: steps that count.
        """
        timing = Timing(
            threads=self.device.threads,
            batch=max(2, self.batch // self.team.size),
            warm_up=warm_up,
            repeats=repeats,
            training=True,
            processor=self.device.name,
        )
        return measure(network, shape, timing).median_ms

    def real_step_ms(self, network: nn.Module, batches: Batches, recipe: Recipe, steps: int) -> float:
        """Median milliseconds of a step of a short real training: with its images, augmentation and bookkeeping.

        Args:
            network: trained in place.
            batches: of training images, augmented as they will be.
            recipe: of one pass over the steps.
            steps: that are taken, at least 2: the first has no time of its own.
        """
        ends: list[float] = []
        counted = Steps(batches, steps)
        device = self.device.name
        train(
            network,
            counted,
            recipe,
            seed=0,
            device=device,
            on_step=lambda _: ends.append(self.clock()),
            team=self.team,
        )
        return 1000 * float(np.median(np.diff(ends)))
