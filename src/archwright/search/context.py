"""Everything a stage may use: what the configuration names, made when first asked for."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from archwright.data import ImageData
from archwright.data.request import DataRequest, load_data
from archwright.device import Device
from archwright.errors import InfeasibleError, InputError, unknown_name
from archwright.execution.base import Executor, make_executor
from archwright.runs.progress import Progress
from archwright.runs.run import Run
from archwright.runs.stop import Stop
from archwright.search.configuration import Configuration
from archwright.spaces.base import Architecture, Scale, Space
from archwright.spaces.registry import spaces
from archwright.tables.base import Benchmark, load_benchmark
from archwright.training import Recipe, get_recipe

RESOURCES = ("params", "macs", "latency_ms")


@dataclass
class Context:
    """Everything a stage may use; expensive parts are made when first asked for."""

    configuration: Configuration
    run: Run
    device: Device
    stop: Stop = field(default_factory=Stop)
    progress: Progress = field(default_factory=Progress)

    @cached_property
    def space(self) -> Space[Any]:
        """The search space; at the scale of the networks where its architectures say their own widths."""
        space = self._registered_space
        return space.at_scale(self.scale) if space.widths_in_architecture else space

    @property
    def _registered_space(self) -> Space[Any]:
        space: Space[Any] = spaces.get(self.configuration.space)
        return space

    @cached_property
    def benchmark(self) -> Benchmark | None:
        """The table accuracies come from, if any."""
        if self.configuration.benchmark is None:
            return None
        table = load_benchmark(self.configuration.benchmark)
        if self.configuration.space not in table.spaces:
            known = ", ".join(table.spaces)
            raise InputError(f"a space of the benchmark {table.name!r} ({known})", repr(self.configuration.space))
        if self.configuration.dataset not in table.datasets:
            raise unknown_name("data set of the benchmark", self.configuration.dataset, table.datasets)
        return table

    @cached_property
    def data(self) -> ImageData:
        """The images."""
        return load_data(self.data_request)

    @property
    def data_request(self) -> DataRequest:
        """What to load, in a form that can be sent to a worker."""
        c = self.configuration
        if c.data is None:
            raise InputError("a data set (--data)", "none", "Give one, for example --data digits.")
        return DataRequest(c.data, c.seed, c.image_size, c.skip_bad)

    @cached_property
    def scale(self) -> Scale:
        """Network scale with the data's image size, channels and classes; the benchmark's where there are no data."""
        c = self.configuration
        if self.benchmark is not None and c.data is None:
            return self.benchmark.scale(c.dataset)
        space, data = self._registered_space, self.data
        scale = space.named_scale(c.scale, data.classes, data.image_size, data.image_channels)
        scale = scale.changed(channels=c.channels, cells=c.cells)
        space.check_scale(scale)
        return scale

    @property
    def trains_answer(self) -> bool:
        """Whether the answer is trained on the data: always without a table, with one only on request."""
        c = self.configuration
        return c.data is not None and (c.benchmark is None or c.final_epochs is not None)

    @cached_property
    def recipe(self) -> Recipe:
        """How one evaluation trains."""
        c = self.configuration
        given = {"epochs": c.epochs, "batch_size": c.batch_size, "lr": c.lr}
        changes = {name: value for name, value in given.items() if value is not None}
        if c.epochs is not None:
            changes["warmup_epochs"] = min(1.0, c.epochs / 4)
        return get_recipe(c.recipe, **changes)

    @cached_property
    def executor(self) -> Executor:
        """Where work items run."""
        return make_executor(self.configuration.executor, self.configuration.workers, self.configuration.address)

    def rng(self, purpose: str, *numbers: int) -> np.random.Generator:
        """A generator that depends only on the seed, the purpose and the numbers."""
        return np.random.default_rng([self.configuration.seed, zlib.crc32(purpose.encode()), *numbers])

    # --- costs and limits ---

    @property
    def target_device(self) -> str | None:
        """The benchmark's device that latencies are for, if one was named."""
        known = self.benchmark.devices if self.benchmark is not None else ()
        return self.configuration.device if self.configuration.device in known else None

    def costs(self, architecture: Architecture) -> dict[str, float]:
        """Parameters, multiply-accumulates and, where a device of the table is named, latency."""
        in_table = self.benchmark is not None and not self.trains_answer
        scale = self.benchmark.scale(self.configuration.dataset) if in_table and self.benchmark else self.scale
        cost = self.space.cost(architecture, scale)
        found: dict[str, float] = {"params": cost.params, "macs": cost.macs}
        if self.benchmark is not None and self.target_device is not None:
            found["latency_ms"] = self.benchmark.latency_ms(architecture, self.target_device)
        return found

    def feasible(self, architecture: Architecture) -> bool:
        """Whether ``architecture`` meets all limits."""
        limits = self.configuration.single_limits
        if not limits:
            return True
        costs = self.costs(architecture)
        return all(costs[name] <= limit for name, limit in limits.items())

    def check_limits(self) -> None:
        """Refuse unknown limits, and limits that nothing meets, with the reachable range."""
        limits = self.configuration.single_limits
        for name in limits:
            if name not in RESOURCES:
                raise unknown_name("limit", name, RESOURCES)
        if "latency_ms" in limits and self.target_device is None:
            known = self.benchmark.devices if self.benchmark is not None else ()
            raise InputError(
                "a device with known latencies beside a latency limit",
                f"--device {self.configuration.device}",
                f"Known: {', '.join(known)}." if known else "Search on a benchmark that has latencies (nb201).",
            )
        if not limits:
            return
        rng = self.rng("limits")
        drawn = [self.space.sample(rng) for _ in range(2000)]
        sample = [architecture for architecture in drawn if self.space.is_connected(architecture)]
        table = [self.costs(architecture) for architecture in sample]
        if not any(all(costs[name] <= limit for name, limit in limits.items()) for costs in table):
            ranges = ", ".join(
                f"{name} from {min(c[name] for c in table):.6g} to {max(c[name] for c in table):.6g}" for name in limits
            )
            asked = ", ".join(f"{name} <= {limit:g}" for name, limit in limits.items())
            raise InfeasibleError(
                f"no architecture meets {asked}. Reachable ({len(sample):,} random ones): {ranges}. Raise the limit."
            )
