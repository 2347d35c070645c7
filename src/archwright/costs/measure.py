"""How long a network or a part of one takes on this machine: warm-up, repeats, median and spread, in milliseconds.

Networks are timed in evaluation mode and without gradients, by a back end (:mod:`archwright.costs.backends`). With
``training`` a whole step is timed instead, in PyTorch: forward, backward, update.
"""

from __future__ import annotations

import copy
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from archwright.bounds import MOST_BATCH, MOST_COUNT, MOST_THREADS
from archwright.costs.backends import find_backend, placed_on
from archwright.costs.registry import EAGER
from archwright.device import processor_name, wait_for
from archwright.errors import InputError

Dtype = Literal["float32", "bfloat16", "float16", "int8"]

MOST_IMAGE_CHANNELS = 4
"""Inputs with more channels than this are not images, so that training needs their gradient too."""


@dataclass(frozen=True)
class Latency:
    """Time of one call: the median, and the tenth and ninetieth percentile as its spread."""

    median_ms: float
    low_ms: float
    high_ms: float

    @classmethod
    def of(cls, times_ms: NDArray[np.float64]) -> Latency:
        """Of the times of single calls, (n,)."""
        low, median, high = np.quantile(times_ms, (0.1, 0.5, 0.9)).tolist()
        return cls(median, low, high)


@dataclass(frozen=True)
class Timing:
    """How to measure.

    Attributes:
        backend: name of what runs the network.
        threads: of the back end.
        batch: images a call.
        dtype: that it is computed in: float32, or what else the back end takes.
        warm_up: calls before the first that counts.
        repeats: calls that count.
        training: whether a call is a training step on the batch instead of a prediction.
        processor: what the eager back end runs on: ``cpu``, ``cuda`` or ``mps``; others have a processor of their own.
    """

    backend: str = EAGER
    threads: int = 1
    batch: int = 1
    dtype: Dtype = "float32"
    warm_up: int = 10
    repeats: int = 50
    training: bool = False
    processor: str = "cpu"

    @property
    def clock(self) -> Callable[[], int]:
        """What tells the time of a call, in nanoseconds.

        For a training step on one thread that is the processor's time, in which other work on the machine does not
        count: plans go by it. A latency is what passes on the wall.
        """
        alone = self.training and self.threads == 1 and self.processor == "cpu"
        return time.process_time_ns if alone else time.perf_counter_ns

    def __post_init__(self) -> None:
        runs = find_backend(self.backend)
        if self.dtype not in get_args(Dtype):
            raise InputError(f"a dtype among {get_args(Dtype)}", repr(self.dtype))
        if self.dtype not in runs.dtypes:
            raise InputError(
                f"dtype {' or '.join(runs.dtypes)} with the back end {self.backend}",
                self.dtype,
                "Measure int8 with onnxruntime, and other dtypes with the eager back end.",
            )
        if self.training and self.backend != EAGER:
            raise InputError("the eager back end for training steps", self.backend)
        if self.processor != "cpu" and not runs.any_processor:
            raise InputError(f"the CPU with {self.backend}", self.processor, "Measure there with the eager back end.")
        bounds = {"threads": (1, MOST_THREADS), "batch": (1, MOST_BATCH), "warm_up": (0, MOST_COUNT)}
        for name, (least, most) in {**bounds, "repeats": (1, MOST_COUNT)}.items():
            if not least <= getattr(self, name) <= most:
                raise InputError(f"{name} from {least} to {most:,}", str(getattr(self, name)))


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """PyTorch with ``count`` threads inside the block, and as before after it."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Stopwatch:
    """A module made ready for timing on inputs of ``shape`` (channels, height, width), as ``timing`` says.

    It holds its own copy of the module, which itself keeps its mode, dtype and memory format. An ONNX file (bytes) is
    timed as it is: its numbers are its own, whatever the dtype of ``timing``.
    """

    def __init__(self, module: nn.Module | bytes, shape: tuple[int, int, int], timing: Timing) -> None:
        self.timing, self.shape = timing, shape
        runs = find_backend(timing.backend)
        runs.check()
        if isinstance(module, bytes):
            self._call = runs.open(module, self._example(), threads=timing.threads)
            return
        self._module = copy.deepcopy(module).train(timing.training)
        if not timing.training:
            self._call = runs.compile(
                self._module,
                self._example(),
                threads=timing.threads,
                dtype=timing.dtype,
                processor=timing.processor,
            )

    def times_ms(self, repeats: int) -> NDArray[np.float64]:
        """Milliseconds of each of ``repeats`` calls after the warm-up, (repeats,)."""
        with torch_threads(self.timing.threads):
            if self.timing.training:
                # Made anew each time: the batches of some hundred parts would not fit into memory together.
                call = _training_call(self._module, self._example(), self.timing)
                return time_calls(call, self.timing.warm_up, repeats, self.timing.clock)
            with torch.inference_mode():
                if self.timing.processor.startswith("cuda"):
                    return time_events(self._call, self.timing.warm_up, repeats)
                return time_calls(self._call, self.timing.warm_up, repeats)

    def _example(self) -> torch.Tensor:
        return torch.randn(self.timing.batch, *self.shape, generator=torch.Generator().manual_seed(0))


def measure(module: nn.Module | bytes, shape: tuple[int, int, int], timing: Timing) -> Latency:
    """Time ``module``, or an ONNX file, on inputs of ``shape`` (channels, height, width) as ``timing`` says."""
    return Latency.of(Stopwatch(module, shape, timing).times_ms(timing.repeats))


def time_calls(
    call: Callable[[], object], warm_up: int, repeats: int, clock: Callable[[], int] = time.perf_counter_ns
) -> NDArray[np.float64]:
    """Milliseconds of each call that counts, (repeats,).

    Args:
        call: what is timed.
        warm_up: calls before the first that counts.
        repeats: calls that count.
        clock: the time in nanoseconds.
    """
    for _ in range(warm_up):
        call()
    times_ms = np.empty(repeats)
    for number in range(repeats):
        start = clock()
        call()
        times_ms[number] = (clock() - start) / 1e6
    return times_ms


def time_events(call: Callable[[], object], warm_up: int, repeats: int) -> NDArray[np.float64]:
    """As :func:`time_calls`, by the GPU's own clock: events that it passes before and after a call, (repeats,).

    Args:
        call: what is timed.
        warm_up: calls before the first that counts.
        repeats: calls that count.
    """
    for _ in range(warm_up):
        call()
    times_ms = np.empty(repeats)
    for number in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        call()
        end.record()
        end.synchronize()
        times_ms[number] = start.elapsed_time(end)
    return times_ms


def _training_call(module: nn.Module, example: torch.Tensor, timing: Timing) -> Callable[[], object]:
    """Forward, backward and an update by nothing, which leaves the weights as they are."""
    prepared, example, device = placed_on(module, example, timing.dtype, timing.processor)
    example.requires_grad_(example.shape[1] > MOST_IMAGE_CHANNELS)
    optimizer = torch.optim.SGD(prepared.parameters(), lr=0.0, momentum=0.9, nesterov=True, weight_decay=1e-4)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        example.grad = None
        prepared(example).square().mean().backward()
        optimizer.step()
        wait_for(device)

    return step


def device_name(processor: str = "cpu") -> str:
    """The name of what a latency is of, as the system gives it; none for a GPU that is not there."""
    if processor.startswith("cuda"):
        return torch.cuda.get_device_name(processor) if torch.cuda.is_available() else ""
    return processor_name()


def versions(backend: str) -> dict[str, str]:
    """Of what a latency depends on."""
    return {"python": platform.python_version(), **find_backend(backend).versions()}
