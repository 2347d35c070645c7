"""What is searched: the space, the images or the table, the network's scale and the recipe, made when first asked for.

Nothing here knows runs, stages or methods.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from archwright.costs.limits import RESOURCES, check_numbers, check_reachable, met
from archwright.data import Augmentation, ImageData
from archwright.data.augmentation import Augment, find_augmentation
from archwright.data.request import LOADED, DataRequest, load_data
from archwright.errors import InputError, unknown_name
from archwright.references import DataRef, SpaceRef, resolve
from archwright.search.configuration import ASK_AND_TELL, Configuration, references
from archwright.spaces.base import Architecture, Scale, Space
from archwright.spaces.registry import find_space, spaces
from archwright.tables.base import Benchmark, load_benchmark
from archwright.training import Recipe, get_recipe
from archwright.training.plain import check_network

DATA_FILE = "data.npz"
"""Where a run keeps images that were given in memory."""


@dataclass
class Task:
    """What the configuration names; expensive parts are made when first asked for."""

    configuration: Configuration
    home: Path | None = None
    """Where images that were given in memory are kept."""
    given: ImageData | None = None
    """Those images, in the process that was given them."""

    @cached_property
    def space(self) -> Space[Any]:
        """The search space; at the scale of the networks where its architectures say their own widths."""
        space = self._registered_space
        return space.at_scale(self.scale) if space.widths_in_architecture else space

    @property
    def _registered_space(self) -> Space[Any]:
        return find_space(self.configuration.space)

    @property
    def space_text(self) -> str:
        """How another process finds the space."""
        text = self.configuration.space
        if SpaceRef.parse(text).kind == "model":
            return str(getattr(self.space, "saved_as", text))  # with a digest of what it is now
        return spaces.elsewhere(text) if text in spaces else text

    @cached_property
    def evaluate(self) -> Callable[[Architecture], float] | None:
        """The user's own function of an architecture, if any."""
        text = self.configuration.evaluate
        function = None if text is None else resolve(text, "evaluate")
        if function is not None and not callable(function):
            raise InputError("a function of an architecture as evaluate", f"{type(function).__name__} at {text}")
        return function

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
        """The images of the search, in three parts; loaded once."""
        return self.given or load_data(self.data_request)

    @property
    def data_request(self) -> DataRequest:
        """What to load, in a form that can be sent to a worker."""
        c = self.configuration
        if c.data is None:
            raise InputError("a data set (--data)", "none", "Give one, for example --data digits.")
        if DataRef.parse(c.data).is_local:
            kept = DataRequest(str(DataRef("kept", str((self.home or Path()).absolute() / DATA_FILE))), c.seed)
            if self.given is not None:
                LOADED[kept] = self.given  # before there is a folder, nobody finds them there
            return kept
        return DataRequest(c.data, c.seed, c.image_size, c.skip_bad, c.split)

    def data_at(self, image_size: int) -> ImageData:
        """The same images and parts at another size; those given in memory are resized from the size they have."""
        if self.given is not None or self.data_request.source.kind == "kept":
            return self.data if self.data.image_size == image_size else self.data.resized(image_size)
        return load_data(replace(self.data_request, image_size=image_size))

    @property
    def own_image_size(self) -> int:
        """Of the images as they are given, whatever size was asked for."""
        if self.given is not None or self.data_request.source.kind == "kept":
            return self.data.image_size
        return load_data(replace(self.data_request, image_size=None)).image_size

    def augmentation(self, **changes_to_default: Any) -> Augment | None:
        """What is done to training images; a method may want the default one changed, but not what a user asked for."""
        return self.augmentation_of(self.data, **changes_to_default)

    def augmentation_of(self, data: ImageData, **changes_to_default: Any) -> Augment | None:
        """What is done to training images.

        Args:
            data: the images, at any size.
            changes_to_default: fields of :class:`Augmentation` that are otherwise, unless the user asked for one.
        """
        found = find_augmentation(self.configuration.augment, data)
        if self.configuration.augment == "default" and isinstance(found, Augmentation):
            return replace(found, **changes_to_default)
        return found

    @cached_property
    def scale(self) -> Scale:
        """Network scale with the data's image size, channels and classes; the table's where there are no data."""
        c = self.configuration
        if self.table is not None and c.data is None:
            return self.table.scale(c.dataset)
        space = self._registered_space
        if c.data is None:  # a user's own function judges: the scale only serves to count costs
            return space.named_scale(c.scale, classes=10, image_size=32, image_channels=3)
        data = self.data
        scale = space.named_scale(c.scale, data.classes, data.image_size, data.image_channels)
        scale = scale.changed(channels=c.channels, cells=c.cells)
        space.check_scale(scale)
        return scale

    @cached_property
    def recipe(self) -> Recipe:
        """How one evaluation trains."""
        c = self.configuration
        own = {"epochs": c.epochs, "batch_size": c.batch_size, "lr": c.lr, "sync_norm": c.sync_norm or None}
        known = set(Recipe.model_fields) - set(own) - {"distill_weight", "distill_temperature"}  # no teacher here
        for name in c.training:
            if name not in known:
                raise unknown_name("further field of the recipe", name, known)
        return get_recipe(c.recipe, **c.training, **{name: value for name, value in own.items() if value is not None})

    @property
    def trains_answer(self) -> bool:
        """Whether the answer is trained on the data."""
        return self.configuration.trains_answer

    def check_own(self, sends_away: bool) -> None:
        """Refuse objects of a user that cannot be used, or not where the work items run.

        Args:
            sends_away: whether items run in other processes, which can only use what they can import.
        """
        c = self.configuration
        _ = self.space
        if c.evaluate not in (None, ASK_AND_TELL):
            _ = self.evaluate
        if c.evaluate is None and not self.space.builds_networks:
            raise InputError(
                "a function that evaluates architectures (evaluate)",
                f"none for the space {self.space.name!r}, which builds no networks",
            )
        if c.data is not None:
            _ = self.augmentation()
            if not self.space.builds_networks:
                raise InputError(f"no data beside the space {self.space.name!r}, which builds no networks", c.data)
        named = references({**c.model_dump(include={"evaluate", "augment"}), "space": self.space_text})
        for what, one in named.items():
            if sends_away and one.is_local:
                raise InputError(
                    f"the {what} as MODULE:OBJECT, which other processes can import",
                    "an object that only this program has",
                    "Put it into a module, or let this process do all work: --executor here, no --ranks.",
                )

    def check_recipe(self) -> None:
        """Refuse drop-path and an auxiliary loss where the networks have none."""
        space, recipe = self.space, self.recipe
        if recipe.drop_path == 0 and recipe.auxiliary_weight == 0:
            return
        with torch.device("meta"):
            check_network(space.build(space.sample(np.random.default_rng(0)), self.scale), recipe)

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
        """What is known of ``architecture`` without building a network, of the resources ``names``."""
        in_table = self.table is not None and not self.trains_answer
        scale = self.table.scale(self.configuration.dataset) if in_table and self.table else self.scale
        found: dict[str, float] = {}
        if not self.space.builds_networks:
            return found
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

    def check_limits(self, rng: np.random.Generator, measured: Collection[str] = ()) -> None:
        """Refuse limits on what nobody counts, and limits that no architecture meets; ``rng`` draws some to look at.

        Resources that are ``measured`` on whole networks are the method's own to check.
        """
        limits = {name: limit for name, limit in self.configuration.single_limits.items() if name not in measured}
        if limits:
            self._check_limit_names(limits)
            check_reachable(self.space, lambda one: self.costs(one, limits), [limits], rng)

    def _check_limit_names(self, limits: Mapping[str, float]) -> None:
        check_numbers(limits)
        if not self.space.builds_networks:
            raise InputError("no limits", f"{', '.join(limits)}", f"The space {self.space.name!r} builds no networks.")
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
