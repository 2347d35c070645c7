"""What many limits cost, and what their answers are worth: BINAS' supernet beside one training a limit.

The paper's plan pays for its supernet once, and every further limit costs a solution and a fine-tuning: one run is
asked for 1, 3, 10 and 30 limits in turn, and its working time is read after each. Two benches: ``mbconv``, the paper's
space at 16 px, and ``compact``, a supernet over plain and fused blocks. Beside, at some of the limits, each from
scratch: the same networks, as somebody without a supernet would train them; the slowest uniform network within the
limit, with one block and one depth everywhere; and of mbconv the slowest published network, its blocks at the small
scale. The fast plan gets as many seconds as the supernet took for as many limits.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from archwright import nn as choices
from archwright.errors import unknown_name
from archwright.methods.binas import Binas
from archwright.reproduce.base import Outcome, Row, Settings, needs
from archwright.reproduce.searches import finished, name_of
from archwright.runs.progress import Progress
from archwright.runs.run import ItemLog, Run
from archwright.runs.stop import Stop
from archwright.search.answer import Answer
from archwright.search.engine import reopened, resume
from archwright.solvers.problem import ABSENT, StagedChoice
from archwright.spaces.compact_network import BlockGeometry
from archwright.spaces.compact_scale import Configuration
from archwright.spaces.gallery import NETWORKS
from archwright.spaces.mbconv import MbConv
from archwright.spaces.staged import StagedSpace

COUNTS = (1, 3, 10, 30)
"""Limits that are asked for in all."""
FAST_COUNTS = (3, 30)
"""Of these, numbers that the fast plan is asked for."""
COMPARED = 5
"""Limits at which networks are trained from scratch, evenly spread."""
LOOSE_MS = 1000.0
"""The first limit: met by every network."""
EXPANSIONS = (3, 4, 6)
"""Of the published networks: they become those of the scale, by rank."""


class ChoiceNet(nn.Module):
    """Three stages of one to three blocks, each a convolution or a fused inverted residual; the first is plain."""

    def __init__(self, classes: int, image_channels: int = 3, image_size: int = 16, channels: int = 16) -> None:
        super().__init__()
        self.stem = BlockGeometry(image_channels, channels, KINDS[0], 2 if image_size > 16 else 1, image_size, True)
        size, stages = self.stem.out_size, []
        for before, own, stride in ((1, 1, 2), (1, 2, 1), (2, 4, 2)):
            rows = [(before, stride, size)] + [(own, 1, -(-size // stride))] * 2
            stages.append(choices.Depth([self.block(channels * i, channels * own, s, px) for i, s, px in rows]))
            size = rows[-1][-1]
        self.body = nn.Sequential(self.stem.build(), *stages)
        self.head = nn.Linear(4 * channels, classes)

    @staticmethod
    def block(before: int, own: int, stride: int, size: int) -> nn.Module:
        """A choice of its kind.

        Args:
            before: channels of its input.
            own: channels of its output.
            stride: of its convolution.
            size: of its input, in pixels a side.
        """
        first = stride > 1 or before != own
        return choices.Choice(
            {str(kind): BlockGeometry(before, own, kind, stride, size, first).build for kind in KINDS}
        )

    def forward(self, x: Tensor) -> Tensor:
        """Images (B, image_channels, H, W) to logits (B, classes)."""
        logits: Tensor = self.head(self.body(x).mean((2, 3)))
        return logits


KINDS = (Configuration("cn", 3), Configuration("er", 3, 2), Configuration("cn", 5))
"""Blocks of :class:`ChoiceNet`: plain ones and a fused one."""


@dataclass(frozen=True)
class Bench:
    """One space whose supernet is asked.

    Attributes:
        name: of the rows.
        search: settings of the search.
        scratch_epochs: of a network from scratch.
        scale: whether trainings name the search's scale.
    """

    name: str
    search: Mapping[str, Any]
    scratch_epochs: int
    scale: bool


SHARED: Mapping[str, Any] = {"image_size": 16, "threads": 1, "beside": False, "onnx": False, "backend": "eager"}
PAPER = {"plan": "paper", "epochs": 12, "supernet_epochs": 16, "final_epochs": 3, "rank_networks": 0, "rows": 100_000}
BENCHES = (
    Bench("mbconv", {**SHARED, **PAPER, "rounds": 0}, 12, True),
    Bench(
        "compact",
        {**SHARED, "space": f"model:{__name__}:{ChoiceNet.__name__}", "epochs": 28, "final_epochs": 3, "rounds": 0},
        12,
        False,
    ),
)
"""Trainings from scratch have as many epochs as the heaviest network of mbconv's supernet."""


def spread_limits(latencies: Sequence[float], count: int) -> list[float]:
    """``count`` limits between the quickest and the slowest network of a front, the slowest left out.

    Args:
        latencies: of the front's networks, in milliseconds.
        count: how many.
    """
    low, high = 1.02 * min(latencies), max(latencies)
    return [float(one) for one in np.geomspace(low, max(low, high), count + 1)[:-1]]


def pays_from(totals: Mapping[int, float], each: float) -> float | None:
    """Number of limits from which one supernet takes less than a training a limit; None where it never does.

    Args:
        totals: seconds of the supernet's run by number of limits.
        each: seconds of one training.
    """
    counts = np.array(list(totals))
    slope, start = np.polyfit(counts, list(totals.values()), 1)
    return float(max(1.0, start / (each - slope))) if each > slope else None


def uniform_choices(space: StagedSpace[Any]) -> Iterator[StagedChoice]:
    """All networks of ``space`` with one configuration and one depth, where every stage has them."""
    stages, most, count = space.shape
    present = [depth for depth in space.depths if all(depth in own for own in space.stage_depths)]
    for depth, configuration in itertools.product(present, range(count)):
        if space.allowed[:, :depth, configuration].all():
            chosen = np.full((stages, most), ABSENT, dtype=np.int64)
            chosen[:, :depth] = configuration
            yield StagedChoice(np.full(stages, depth), chosen)


def published_choices(space: MbConv) -> dict[str, StagedChoice]:
    """The published networks by name, their blocks at the scale of ``space``, expansions by rank."""
    found = {}
    ranks = dict(zip(EXPANSIONS, space.scale.expansions, strict=True))
    for name, network in NETWORKS.items():
        chosen = np.full(space.shape[:2], ABSENT, dtype=np.int64)
        for row, blocks in zip(chosen, network.stages, strict=True):
            own = [(ranks[block.expansion], block.kernel, block.squeeze_excite) for block in blocks]
            row[: len(blocks)] = [space.scale.configurations.index(one) for one in own]
        found[name] = StagedChoice((chosen != ABSENT).sum(1), chosen)
    return found


@dataclass
class Asked:
    """One search of a bench that is asked for more and more limits.

    Attributes:
        settings: folder, images and progress.
        bench: what is searched.
        seed: of everything.
    """

    settings: Settings
    bench: Bench
    seed: int

    @cached_property
    def folder(self) -> Path:
        """Of everything of this seed, by the settings of the search."""
        images = self.settings.images().spec
        own = name_of({**self.bench.search, "data": images, "scratch": self.bench.scratch_epochs})[:8]
        return self.settings.folder / f"{self.bench.name}-{self.seed}-{own}"

    @property
    def log(self) -> ItemLog:
        """Limits, and by their number working seconds and the mean test accuracy of the answers then."""
        return ItemLog(self.folder / "spent.jsonl")

    @cached_property
    def answer(self) -> Answer:
        """Of all limits, the loosest alone first."""
        given = {**self.bench.search, "data": self.settings.images().spec, "seed": self.seed}
        answer = finished(
            self.folder / "search", "binas", self.settings.progress, **given, limits={"latency_ms": [LOOSE_MS]}
        )
        log = self.log
        if "1" not in log.done:
            latencies = [float(one.latency_ms) for one in answer.front if one.latency_ms is not None]
            limits = spread_limits(latencies, max(COUNTS) - 1)
            log.record("limits", np.random.default_rng(self.seed).permutation(limits).tolist())
            log.record("1", [answer.seconds, mean_accuracy(answer)])
        for before, count in itertools.pairwise(COUNTS):
            if str(count) not in log.done:
                further = self.limits(count)[before:]
                answer = resume(self.folder / "search", latency_ms=further, progress=self.settings.progress)
                log.record(str(count), [answer.seconds, mean_accuracy(answer)])
        return answer

    def spent(self, count: int) -> tuple[float, float]:
        """Working seconds when ``count`` limits had been answered, and the mean test accuracy of these answers."""
        _ = self.answer
        seconds, accuracy = self.log.done[str(count)]
        return float(seconds), float(accuracy)

    @property
    def seconds(self) -> dict[int, float]:
        """Working seconds by the number of limits."""
        return {count: self.spent(count)[0] for count in COUNTS}

    def limits(self, count: int) -> list[float]:
        """The first ``count`` limits, in milliseconds."""
        return [LOOSE_MS, *map(float, self.log.done["limits"][: count - 1])]

    def at(self, answer: Answer) -> dict[float, Any]:
        """The models of ``answer`` by their limit."""
        return {float(model.limits["latency_ms"]): model for model in answer.models if model.limits}

    @property
    def compared(self) -> list[float]:
        """Some of the limits, rising."""
        every = sorted(self.limits(max(COUNTS))[1:])
        return [every[round(place)] for place in np.linspace(0, len(every) - 1, min(COMPARED, len(every)))]

    # --- from scratch ---

    @cached_property
    def _method(self) -> Binas:
        method = reopened(Run.open(self.folder / "search"), Stop(), Progress())
        assert isinstance(method, Binas)
        return method

    @property
    def space(self) -> StagedSpace[Any]:
        """That is searched, as stages."""
        return self._method.strategy.spaces[self._size]

    @property
    def _size(self) -> int:
        return int(self.bench.search["image_size"])

    def slowest(self, known: Sequence[StagedChoice], limit: float) -> str | None:
        """The slowest of ``known`` within ``limit`` milliseconds by the table, if any."""
        space, table = self.space, self._method.strategy.table
        texts = [space.from_choice(choice) for choice in known]
        times = {str(one): table.predicted(self._size, one)["latency_ms"] for one in texts}
        within = {text: ms for text, ms in times.items() if ms <= limit}
        return max(within, key=lambda text: within[text]) if within else None

    def scratch(self, architecture: str | None) -> tuple[float, float]:
        """Test accuracy of a network from scratch, and its seconds; NaN for none."""
        if architecture is None:
            return float("nan"), float("nan")
        own: dict[str, Any] = {"space": self.bench.search.get("space", "mbconv"), "image_size": self._size}
        if self.bench.scale:
            own["scale"] = Run.open(self.folder / "search").configuration.get("scale")
        how: dict[str, Any] = {"seed": self.seed, "epochs": self.bench.scratch_epochs, "threads": 1}
        how |= {"onnx": False, "beside": False, "options": {"architecture": architecture}}
        folder = self.folder / "scratch" / name_of({"architecture": architecture})
        alone = finished(folder, "train", self.settings.progress, data=self.settings.images().spec, **own, **how)
        return float(alone.best.accuracy or 0), alone.seconds

    def arms(self) -> dict[str, list[float]]:
        """Test accuracies by arm at each of the compared limits, and the ``seconds`` of trainings of the first arm."""
        models, found = self.at(self.answer), dict[str, list[float]]()
        chosen = [models[limit] for limit in self.compared]
        found["supernet's weights, fine-tuned"] = [float(one.accuracy or 0) for one in chosen]
        alone = [self.scratch(one.architecture) for one in chosen]
        found["the same from scratch"] = [accuracy for accuracy, _ in alone]
        found["seconds"] = [seconds for _, seconds in alone]
        known = {"uniform, from scratch": list(uniform_choices(self.space))}
        if isinstance(self.space, MbConv):
            known["published, from scratch"] = list(published_choices(self.space).values())
        for arm, networks in known.items():
            found[arm] = [self.scratch(self.slowest(networks, limit))[0] for limit in self.compared]
        return found

    def fast(self, count: int) -> Answer:
        """The fast plan at the same limits, in the seconds of the supernet's run for as many."""
        own = {"image_size": self._size, "threads": 1, "beside": False, "onnx": False, "backend": "eager"}
        minutes, data = self.seconds[count] / 60, self.settings.images().spec
        limits = {"latency_ms": sorted(self.limits(count))}
        folder = self.folder / f"fast-{count}"
        return finished(
            folder, "binas", self.settings.progress, data=data, seed=self.seed, minutes=minutes, limits=limits, **own
        )


def mean_accuracy(answer: Answer) -> float:
    """Mean test accuracy of an answer's models, one a limit, in percent."""
    return float(np.mean([float(one.accuracy or 0) for one in answer.models]))


def bench_rows(bench: Bench, asked: Sequence[Asked]) -> list[Row]:
    """Rows of one bench.

    Args:
        bench: what was searched.
        asked: its searches, a seed each.
    """
    arms = [one.arms() for one in asked]
    each = [float(np.mean(own.pop("seconds"))) for own in arms]
    name = bench.name
    rows = [Row.of(f"{name}: supernet, {n} limits", "s", None, [one.seconds[n] for one in asked]) for n in COUNTS]
    rows += [Row.of(f"{name}: one training a limit, {n} limits", "s", None, [n * one for one in each]) for n in COUNTS]
    begins = [pays_from(one.seconds, own) for one, own in zip(asked, each, strict=True)]
    known = [one for one in begins if one is not None]
    label = f"{name}: limits from which the supernet takes less time"
    rows.append(Row.of(label, "limits", None, known) if len(known) == len(asked) else Row(label, "limits", None, None))
    for arm, number in itertools.product(arms[0], range(len(arms[0]["the same from scratch"]))):
        values = [own[arm][number] for own in arms]
        label = f"{name}: {arm}, limit {number + 1}"
        rows.append(
            Row(label, "% on test", None, None) if np.isnan(values).any() else Row.of(label, "% on test", None, values)
        )
    for count in FAST_COUNTS:
        supernet = [one.spent(count)[1] for one in asked]
        rows.append(Row.of(f"{name}: supernet, mean over {count} limits", "% on test", None, supernet))
        fast = [mean_accuracy(one.fast(count)) for one in asked]
        rows.append(Row.of(f"{name}: fast plan in the same time, mean over {count} limits", "% on test", None, fast))
    return rows


@needs()
def binas_limits(settings: Settings) -> Outcome:
    """Total seconds by number of limits, where the supernet begins to pay, and accuracies beside plain things."""
    known = {bench.name: bench for bench in BENCHES}
    if settings.only is not None and settings.only not in known:
        raise unknown_name("bench", settings.only, known)
    seeds, rows, notes = settings.seeds or 1, list[Row](), [settings.images_note()]
    for bench in known.values() if settings.only is None else [known[settings.only]]:
        asked = [Asked(settings, bench, seed) for seed in range(seeds)]
        rows += bench_rows(bench, asked)
        limits = ", ".join(f"{limit:.3g}" for limit in asked[0].compared)
        notes.append(f"{bench.name}: limits 1 to {len(asked[0].compared)} are {limits} ms (seed 0), eager, one thread")
    notes += [
        "seconds are working time of one thread, so that a busy machine makes all of them longer",
        "one training a limit: the mean over the compared limits, times their number",
        "a row without a number: nothing of the kind keeps the limit; or a training takes less than a further limit",
        "the paper: 435 GPU hours once, and 8 more for each network",
    ]
    return Outcome(f"16 px, {max(COUNTS)} latency limits, {seeds} seed(s)", rows, notes)
