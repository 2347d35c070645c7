"""Which channels go: by rising score, until the share, the zeros and the limits that were asked for are met.

Counts are by formula; latencies are timed by :mod:`archwright.costs.clock`, beside the whole network.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from archwright.costs.clock import MARGIN, Clock, Timed, middle_round, stopwatch
from archwright.costs.limits import Reachable, check_numbers, met
from archwright.costs.measure import Stopwatch, Timing
from archwright.device import Device
from archwright.errors import InfeasibleError, InputError
from archwright.methods.gradients import GradientOptions
from archwright.search.answer import Spread
from archwright.search.configuration import Own
from archwright.search.context import Context
from archwright.search.values import Choice, StageResult
from archwright.spaces.width import Width, WidthSpace
from archwright.supernets.scored import Scores


class RemovalOptions(GradientOptions):
    """What may go, and how much of it."""

    network: Own = Field(
        "resnet20", description="network to thin: resnet20, resnet56, resnet164, mobilenetv2, vgg16 or MODULE:FUNCTION"
    )
    ratio: float | None = Field(None, gt=0, lt=1, description="share of all prunable channels that is removed")
    l1: float | None = Field(
        None, ge=0, description="pull of the scores to 0; without a ratio, channels of score 0 are removed"
    )
    keep: float = Field(0.1, gt=0, le=1, description="least share of a layer's channels that stays, one at least")
    layers: str | None = Field(None, description="only channels of these layers, as conv1,conv2; all by default")
    timing: bool = Field(True, description="time the network on this machine, before and after")


class TimeResult(StageResult):
    """Milliseconds of the whole and of the thinnest network."""

    whole: Spread
    thinnest: Spread


class Scored(StageResult):
    """The score of every channel, group after group, and what orders the removal."""

    scores: list[float]
    importance: list[float]


class Removed(Choice):
    """What is left, what it costs, and what there is to say of it."""

    removed: int
    costs: dict[str, int]
    latency: Timed | None
    sentences: list[str]


def removal_order(importance: NDArray[Any], group_of: NDArray[Any], least: NDArray[Any]) -> list[int]:
    """Channels (positions in ``importance``) by rising importance, as many of each group as may go.

    Args:
        importance: of each channel, (total,).
        group_of: the group of each channel, (total,).
        least: how many channels of each group stay, (groups,).
    """
    left, order = np.bincount(group_of, minlength=len(least)), []
    for channel in np.argsort(importance, kind="stable").tolist():
        group = group_of[channel]
        if left[group] > least[group]:
            left[group] -= 1
            order.append(channel)
    return order


def least_count(least: int, most: int, good: Callable[[int], bool]) -> int:
    """The least number from ``least`` to ``most`` that is ``good``, which larger ones stay; ``most`` if none is.

    Args:
        least: the first that counts.
        most: the last.
        good: whether a number will do.
    """
    if good(least):
        return least
    low, high = least, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if good(middle) else (middle, high)
    return high


def timing_on(device: Device) -> Timing:
    """How latencies of whole and thinned networks are measured: on the device that trains them."""
    return Timing(threads=device.threads, processor=device.name)


@dataclass
class Removal:
    """Removes channels of the network of ``space`` that have ``scores``."""

    context: Context
    options: RemovalOptions
    space: WidthSpace
    scores: Scores

    @property
    def limits(self) -> dict[str, float]:
        """Upper limits on the thinned network."""
        return self.context.configuration.single_limits if self.context.configuration.limits else {}

    @cached_property
    def least(self) -> NDArray[np.int64]:
        """How many channels of each scored group stay at least."""
        return np.array([max(1, int(np.ceil(self.options.keep * g.channels - 1e-9))) for g in self.scores.groups])

    def relative(self, scores: NDArray[Any]) -> NDArray[Any]:
        """Scores in units of their group's mean.

        A layer that is followed by a batch norm does not see a factor common to all its inputs, so the level of a
        group's scores says nothing; within a group they compete.
        """
        totals = np.bincount(self.group_of, weights=scores)
        means = totals / np.bincount(self.group_of)
        return scores / np.maximum(means[self.group_of], 1e-12)

    def check(self) -> None:
        """Refuse a share or limits beyond what may go."""
        o, total = self.options, self.scores.total
        most = (total - int(self.least.sum())) / total
        if o.ratio is not None and round(o.ratio * total) > total - int(self.least.sum()):
            raise InputError(
                f"a ratio of at most {most:.3g}: {o.keep:.0%} of each layer's channels stay", f"{o.ratio:g}",
                "Lower --ratio or --keep.",
            )  # fmt: skip
        limits = self.limits
        if not limits:
            return
        check_numbers(limits)
        if "latency_ms" in limits and not o.timing:
            raise InputError("--timing beside a limit on latency_ms", "--no-timing")
        least, whole = self.costs(self.thinnest()), self.costs(self.space.full)
        ranges = {name: (least[name], whole[name]) for name in limits if name in least}
        Reachable(ranges, f"{o.network} with {o.keep:.0%} of each layer's channels, to all of it").check([limits])

    def thinnest(self) -> Width:
        """As few channels as may stay."""
        order = removal_order(np.zeros(self.scores.total), self.group_of, self.least)
        return self.without(order)

    @cached_property
    def group_of(self) -> NDArray[np.int64]:
        """The group of each scored channel, (total,)."""
        return np.repeat(np.arange(len(self.scores.groups)), [group.channels for group in self.scores.groups])

    def without(self, removed: list[int]) -> Width:
        """What is left without some of the scored channels."""
        mask = np.ones(self.scores.total, dtype=np.int8)
        mask[removed] = 0
        return self.scores.kept(mask)

    def costs(self, width: Width) -> dict[str, int]:
        """What can be counted."""
        cost = self.space.cost(width, self.space.scale)
        return {"params": cost.params, "macs": cost.macs, "channels": width.count}

    def remove(self, scored: Scored) -> Removed:
        """As many channels as the share, the zeros and the limits ask for, the least important first."""
        limits = self.limits
        importance = np.array(scored.importance)
        order = removal_order(importance, self.group_of, self.least)
        count, sentences = self._first_count(scored, importance, order)
        counted = {name: limit for name, limit in limits.items() if name != "latency_ms"}
        count = least_count(count, len(order), lambda n: met(counted, self.costs(self.without(order[:n]))))
        timed = None
        if "latency_ms" in limits:
            count = least_count(count, len(order), lambda n: self.timed(order[:n]).within(limits["latency_ms"]))
        if self.options.timing:
            timed = self.timed(order[:count])
        width = self.without(order[:count])
        costs = self.costs(width)
        missed = [name for name in counted if costs[name] > counted[name]]
        missed += ["latency_ms"] if timed and timed.median_ms > limits.get("latency_ms", np.inf) else []
        if missed:
            raise InfeasibleError(
                f"{', '.join(missed)} cannot be met after removing all {len(order)} channels that may go "
                f"({self.options.keep:.0%} of each layer's stay). Raise the limit, or lower --keep."
            )
        for sentence in sentences:
            self.context.progress.say(sentence)
        return Removed(
            architecture=str(width),
            accuracy=None,
            accuracy_on="nothing: the search sees losses of the scored network",
            evaluations=0,
            removed=count,
            costs=costs,
            latency=timed,
            sentences=sentences,
        )

    def _first_count(
        self, scored: Scored, importance: NDArray[Any], order: list[int]
    ) -> tuple[int, list[str]]:  # fmt: skip
        """How many channels the share or the zeros ask for, and what became of layers that would have been emptied."""
        o = self.options
        if o.ratio is not None:
            asked = round(o.ratio * self.scores.total)
        elif o.l1 is not None:
            asked = int((np.array(scored.scores) == 0).sum())
        else:
            return 0, []
        weakest = np.argsort(importance, kind="stable")[:asked]
        left = np.bincount(np.delete(self.group_of, weakest), minlength=len(self.least))
        short = [
            f"{group.name} ({least})"
            for group, n, least in zip(self.scores.groups, left, self.least, strict=True)
            if n < least
        ]
        sentences = []
        if short:
            sentences.append(
                f"Layers that would have kept fewer than {o.keep:.0%} of their channels keep the strongest: "
                f"{', '.join(short)}."
            )
        if o.ratio is None:  # what the floors keep is not made up for: the share is learned
            zeros = set(np.flatnonzero(np.array(scored.scores) == 0).tolist())
            asked = sum(channel in zeros for channel in order)
            sentences.append(f"{asked} of {self.scores.total} channels have score 0 and go.")
        return asked, sentences

    # --- latency ---

    def _watch(self, width: Width) -> Stopwatch:
        whole = width == self.space.full
        network = self.space.whole() if whole else self.space.build(width, self.space.scale)
        return stopwatch(network, self.space.scale, timing_on(self.context.device))

    def time(self) -> TimeResult:
        """The whole network and the thinnest; a limit below the latter is refused."""
        whole, thinnest = (middle_round(self._watch(width)) for width in (self.space.full, self.thinnest()))
        limit = self.limits.get("latency_ms", np.inf)
        if thinnest.median_ms > MARGIN * limit:
            raise InfeasibleError(
                f"no architecture meets latency_ms <= {limit:.6g}. Reachable: latency_ms from {thinnest.median_ms:.6g} "
                f"to {whole.median_ms:.6g} (timed here). Raise the limit, or lower --keep."
            )
        return TimeResult(whole=Spread(**asdict(whole)), thinnest=Spread(**asdict(thinnest)))

    @cached_property
    def clock(self) -> Clock[Width]:
        """Times thinned networks; the whole one is what they are compared by."""
        context = self.context
        whole_ms = TimeResult.model_validate(context.run.stage_result("time")).whole.median_ms
        log = context.run.items("timed")
        return Clock(
            self._watch, self.space.full, whole_ms, context.progress, context.stop, log, lambda one: str(one.count)
        )

    def timed(self, removed: list[int]) -> Timed:
        """Latency of the network without these channels."""
        return self.clock.timed(self.without(removed), self.limits.get("latency_ms", np.inf))
