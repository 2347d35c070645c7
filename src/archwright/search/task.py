"""What is searched: the space, the images or the table, the network's scale and the recipe, made when first asked for.

Nothing here knows runs, stages or methods.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from archwright.costs.limits import RESOURCES, check_numbers, check_reachable, met
from archwright.data import ImageData
from archwright.data.request import DataRequest, load_data
from archwright.errors import InputError, unknown_name
from archwright.search.configuration import Configuration
from archwright.spaces.base import Architecture, Scale, Space
from archwright.spaces.registry import spaces
from archwright.tables.base import Benchmark, load_benchmark
from archwright.training import Recipe, get_recipe


@dataclass
class Task:
    """What the configuration names; expensive parts are made when first asked for."""

    configuration: Configuration

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
    def table(self) -> Benchmark | None:
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
        """Network scale with the data's image size, channels and classes; the table's where there are no data."""
        c = self.configuration
        if self.table is not None and c.data is None:
            return self.table.scale(c.dataset)
        space, data = self._registered_space, self.data
        scale = space.named_scale(c.scale, data.classes, data.image_size, data.image_channels)
        scale = scale.changed(channels=c.channels, cells=c.cells)
        space.check_scale(scale)
        return scale

    @cached_property
    def recipe(self) -> Recipe:
        """How one evaluation trains."""
        c = self.configuration
        given = {"epochs": c.epochs, "batch_size": c.batch_size, "lr": c.lr}
        return get_recipe(c.recipe, **{name: value for name, value in given.items() if value is not None})

    @property
    def trains_answer(self) -> bool:
        """Whether the answer is trained on the data: always without a table, with one only on request."""
        c = self.configuration
        return c.data is not None and (c.benchmark is None or c.final_epochs is not None)

    @cached_property
    def final_recipe(self) -> Recipe:
        """How the answer is trained: as one evaluation, for three times its epochs unless ``final_epochs`` says so."""
        return self.recipe.changed(epochs=self.configuration.final_epochs or 3 * self.recipe.epochs)

    # --- costs ---

    @property
    def target_device(self) -> str | None:
        """The table's device that latencies are for, if one was named."""
        known = self.table.devices if self.table is not None else ()
        return self.configuration.device if self.configuration.device in known else None

    def costs(self, architecture: Architecture, names: Collection[str] = tuple(RESOURCES)) -> dict[str, float]:
        """What is known of the resources ``names`` without building a network."""
        in_table = self.table is not None and not self.trains_answer
        scale = self.table.scale(self.configuration.dataset) if in_table and self.table else self.scale
        found: dict[str, float] = {}
        if "params" in names or "macs" in names:
            cost = self.space.cost(architecture, scale)
            found = {"params": cost.params, "macs": cost.macs}
        if "memory_bytes" in names and self.space.counts_memory:
            found["memory_bytes"] = self.space.memory_bytes(architecture, scale)
        if "latency_ms" in names and self.table is not None and self.target_device is not None:
            found["latency_ms"] = self.table.latency_ms(architecture, self.target_device)
        return found

    def feasible(self, architecture: Architecture) -> bool:
        """Whether ``architecture`` meets all limits of a search with one answer."""
        limits = self.configuration.single_limits
        return not limits or met(limits, self.costs(architecture, limits))

    def check_limits(self, rng: np.random.Generator) -> None:
        """Refuse limits on what nobody counts, and limits that no architecture meets; ``rng`` draws some to look at."""
        limits = self.configuration.single_limits
        if limits:
            self._check_limit_names(limits)
            check_reachable(self.space, lambda one: self.costs(one, limits), [limits], rng)

    def _check_limit_names(self, limits: Mapping[str, float]) -> None:
        check_numbers(limits)
        if "memory_bytes" in limits and not self.space.counts_memory:
            raise InputError(
                "limits on params or macs",
                f"memory_bytes with the space {self.space.name!r}, which does not count it",
                "Only mbconv does.",
            )
        if "latency_ms" in limits and self.target_device is None:
            known = self.table.devices if self.table is not None else ()
            raise InputError(
                "a device with known latencies beside a latency limit",
                f"--device {self.configuration.device}",
                f"Known: {', '.join(known)}." if known else "Search on a benchmark that has latencies (nb201).",
            )
