"""A method of somebody else that answers limits: two networks a limit, trained for a few steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch

from archwright.costs.device_table import DeviceTable
from archwright.errors import InputError
from archwright.runs.files import Json
from archwright.runs.run import Run
from archwright.search.answer import Beside
from archwright.search.context import Context
from archwright.search.limited import LimitedSearch, PlainSteps, Summary, front_of, tightest_first
from archwright.search.method import BY_LIMITS, Stage
from archwright.search.trained import TrainedNetwork, Trainer, networks_of, order, short_name
from archwright.search.values import StageResult
from archwright.solvers import milp
from archwright.solvers.problem import Solution
from archwright.spaces.compact import Compact, CompactScale
from archwright.training import Recipe

STEPS = 4


class TwoResult(StageResult):
    """Names of the networks."""

    networks: list[str]


@dataclass
class Two:
    """The strategy: the lightest network, and for every limit the slowest one within it."""

    context: Context
    table: DeviceTable = field(init=False)
    facts: Mapping[str, Json] = field(default_factory=dict)

    repeated = ()

    @cached_property
    def space(self) -> Compact:
        """Few networks, so that a table is made in no time."""
        data = self.context.task.data
        return Compact(
            CompactScale(
                image_size=data.image_size,
                image_channels=data.image_channels,
                classes=data.classes,
                channels=8,
                stage_factors=(1, 2),
                stage_strides=(1, 2),
                width_choices=(1.0, 2.0),
                depths=(1, 2),
                configurations=("cn_k3", "bb_k3"),
            )
        )

    @property
    def _size(self) -> int:
        return self.space.scale.image_size

    @property
    def spaces(self) -> dict[int, Compact]:
        """One."""
        return {self._size: self.space}

    @cached_property
    def trainer(self) -> Trainer:
        """By a plain recipe."""
        task = self.context.task
        return Trainer(self.context, Recipe(epochs=1, batch_size=32, lr=0.05), lambda _: task.data, lambda _: None)

    def check(self) -> None:
        """Images must be large enough for two stages."""
        if self._size < 2:
            raise InputError("images of at least 2 px", f"{self._size} px")

    def check_source(self, source: Run) -> None:
        """Any plan will do."""

    def estimate_seconds(self) -> float:
        """Not long."""
        return 1.0

    def limits_without(self) -> list[float]:
        """In the middle of what can be reached."""
        least, most = self.table.problem(self._size).cost_range("latency_ms")
        return [round((least + most) / 2, 4)]

    def before_table(self) -> list[Stage]:
        """Nothing."""
        return []

    def training_stages(self) -> list[Stage]:
        """One."""
        return [Stage("train", "train two networks a limit", self._train, redone=BY_LIMITS)]

    def _train(self) -> TwoResult:
        chosen = [str(self.space.lightest())]
        for limits in tightest_first(self.table.limit_sets):
            found = self.table.fitting(self._size, self._slowest, limits)
            chosen.append(str(self.space.from_choice(found.choice)))
        return TwoResult(networks=[self._trained(text) for text in dict.fromkeys(chosen)])

    def _slowest(self, within: dict[str, float]) -> Solution:
        problem = self.table.problem(self._size)
        values = {"block_values": problem.block_costs["latency_ms"], "depth_values": problem.depth_costs["latency_ms"]}
        return milp.solve(replace(problem, **values), within)

    def _trained(self, text: str) -> str:
        name, architecture = short_name(text, "two"), self.space.parse(text)
        if name not in networks_of(self.context.run):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(self.context.configuration.seed)
                network = self.space.build(architecture, self.space.scale)
            self.trainer.train(name, network, self._size, STEPS)
            self.trainer.keep(name, network, architecture, self.space, STEPS, known={"from": "somebody else"})
        return name

    def pool(self) -> list[TrainedNetwork]:
        """All."""
        return list(networks_of(self.context.run).values())

    def preferred(self, within: Sequence[TrainedNetwork]) -> TrainedNetwork:
        """The best on validation."""
        return max(within, key=order)

    def plain(self) -> PlainSteps:
        """As long."""
        return PlainSteps(self.trainer.recipe, STEPS, None)

    def beside(self) -> dict[str, Beside]:
        """Nothing more."""
        return {}

    def summary(self) -> Summary:
        """The front of all."""
        pool = self.pool()
        return Summary(front_of(pool, self._latency_ms), len(pool), ["Two networks a limit."])

    def _latency_ms(self, one: TrainedNetwork) -> float:
        return self.table.known(self._size, self.space.parse(one.architecture))["latency_ms"]


class TwoSearch(LimitedSearch):
    """The method: nothing but its strategy."""

    name = "two"
    default_space = "compact"

    def make_strategy(self) -> Two:
        """The only one."""
        return Two(self.context)
