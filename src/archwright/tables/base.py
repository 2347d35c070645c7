"""One interface to tabular benchmarks: what somebody else measured, asked by architecture."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal

from archwright.references import DataRef
from archwright.spaces.base import Architecture, Scale
from archwright.tables.registry import benchmarks

Split = Literal["validation", "test"]


class Benchmark(ABC):
    """A table of measured architectures.

    Accuracies are in percent, latencies in milliseconds. An unknown data set, epoch number, split or device is an
    :class:`~archwright.errors.InputError` that lists the known ones.
    """

    name: ClassVar[str]
    spaces: ClassVar[tuple[str, ...]]
    """Names of the spaces whose architectures are in the table."""
    datasets: ClassVar[tuple[str, ...]]
    search_protocol: ClassVar[tuple[Split, int]]
    """(split, epochs) that a search may look at; the test split at the full epochs is only reported."""
    report_protocol: ClassVar[tuple[Split, int]]

    @abstractmethod
    def accuracy(self, architecture: Architecture, dataset: str, epochs: int, split: Split) -> float:
        """Percent of a split classified correctly, mean over seeds.

        Args:
            architecture: of the benchmark's space.
            dataset: name of a data set of the benchmark.
            epochs: of training.
            split: validation or test.
        """

    @abstractmethod
    def scale(self, dataset: str) -> Scale:
        """The scale of the networks that were measured."""

    @property
    def devices(self) -> tuple[str, ...]:
        """Devices with measured latencies."""
        return ()

    def latency_ms(self, architecture: Architecture, device: str) -> float:
        """Measured latency of ``architecture`` on ``device``, in milliseconds."""
        from archwright.errors import unknown_name

        raise unknown_name("device", device, self.devices)


def load_benchmark(spec: str) -> Benchmark:
    """The benchmark named ``NAME`` or ``NAME:PATH``; ours are read once a process."""
    named = DataRef.parse(spec)
    loader: Any = benchmarks.get(named.kind)
    table: Benchmark = loader(named.argument)
    return table
