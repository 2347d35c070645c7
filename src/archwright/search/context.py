"""Everything a stage may use: what is asked, what is searched, and where and how long to work."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from archwright.data import ImageData
from archwright.device import Device
from archwright.execution.base import Executor, make_executor
from archwright.runs.progress import Progress
from archwright.runs.run import Run
from archwright.runs.stop import Stop
from archwright.search.configuration import Configuration
from archwright.search.task import Task


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

    @cached_property
    def task(self) -> Task:
        """Space, images or table, scale and recipe."""
        return Task(self.configuration, self.run.folder, self.given)

    @cached_property
    def executor(self) -> Executor:
        """Where work items run."""
        return make_executor(self.configuration.executor, self.configuration.workers, self.configuration.address)

    def changed(self, configuration: Configuration) -> Context:
        """The same place for another configuration of the same images; nothing is loaded or joined again."""
        context = replace(self, configuration=configuration)
        context.executor = self.executor
        return context

    def rng(self, purpose: str, *numbers: int) -> np.random.Generator:
        """A generator that depends on nothing but the seed of the search, ``purpose`` and ``numbers``."""
        return np.random.default_rng([self.configuration.seed, zlib.crc32(purpose.encode()), *numbers])
