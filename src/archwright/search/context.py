"""Everything a stage may use: what is asked, what is searched, and where and how long to work."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np

from archwright.data import ImageData
from archwright.device import Device
from archwright.execution.base import Executor, make_executor
from archwright.runs.progress import Progress
from archwright.runs.run import Run
from archwright.runs.stop import Stop
from archwright.search.configuration import Configuration
from archwright.search.task import Task
from archwright.training.team import Team


@dataclass
class Context:
    """What a stage works with. What is searched is in :attr:`task`."""

    configuration: Configuration
    run: Run
    device: Device
    stop: Stop = field(default_factory=Stop)
    progress: Progress = field(default_factory=Progress)
    given: ImageData | None = None
    """Images that a user gave in memory."""
    together: Team | None = None
    """Processes that train with this one, where there are any."""

    @cached_property
    def task(self) -> Task:
        """Space, images or table, scale and recipe."""
        return Task(self.configuration, self.run.folder, self.given)

    @property
    def team(self) -> Team:
        """Who trains a network of the search: by default this process, all shards in turn."""
        return self.together or self.alone

    @property
    def alone(self) -> Team:
        """This process, all shards in turn: for steps that are only timed."""
        return Team(self.configuration.shards)

    @cached_property
    def executor(self) -> Executor:
        """Where work items run."""
        return make_executor(self.configuration.executor, self.configuration.workers, self.configuration.address)

    @property
    def item_device(self) -> str:
        """Where a work item computes: here on this device; in other processes on the one that they see; on machines of
        a cluster on what each has, unless the user names a kind.
        """
        c = self.configuration
        if c.executor == "here":
            return self.device.name
        return "auto" if c.executor == "ray" and c.device == "auto" else self.device.torch.type

    @property
    def item_gpu(self) -> Literal["none", "any", "must"]:
        """Whether a work item needs a GPU of its machine."""
        return {"auto": "any", "cuda": "must"}.get(self.item_device, "none")  # type: ignore[return-value]

    def changed(self, configuration: Configuration) -> Context:
        """The same place for another configuration of the same images; nothing is loaded or joined again."""
        context = replace(self, configuration=configuration)
        context.executor = self.executor
        return context

    def rng(self, purpose: str, *numbers: int) -> np.random.Generator:
        """A generator that depends on nothing but the seed of the search, ``purpose`` and ``numbers``."""
        return np.random.default_rng([self.configuration.seed, zlib.crc32(purpose.encode()), *numbers])
