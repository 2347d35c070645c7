"""How long a network or a part of one takes on this machine: warm-up, repeats, median and spread, in milliseconds.

Networks are timed in evaluation mode and without gradients, in PyTorch (eager, channels_last) or in ONNX Runtime. With
``training`` a whole step is timed instead: forward, backward, update.
"""

from __future__ import annotations

import copy
import io
import platform
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from archwright.bounds import MOST_BATCH, MOST_COUNT, MOST_THREADS
from archwright.device import Device, processor_name, wait_for
from archwright.errors import InputError, missing_extra

Backend = Literal["eager", "onnxruntime"]
Dtype = Literal["float32", "bfloat16", "float16"]

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
        backend: what runs the network.
        threads: of the back end.
        batch: images a call.
        dtype: of weights and images; ONNX Runtime takes float32 only.
        warm_up: calls before the first that counts.
        repeats: calls that count.
        training: whether a call is a training step on the batch instead of a prediction.
        processor: what the eager back end runs on: ``cpu``, ``cuda`` or ``mps``; ONNX Runtime runs on the CPU.
    """

    backend: Backend = "eager"
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
        if self.backend not in get_args(Backend):
            raise InputError(f"a back end among {get_args(Backend)}", repr(self.backend))
        if self.dtype not in get_args(Dtype):
            raise InputError(f"a dtype among {get_args(Dtype)}", repr(self.dtype))
        if self.backend == "onnxruntime" and self.dtype != "float32":
            raise InputError(
                "dtype float32 with ONNX Runtime", self.dtype, "Measure other dtypes with the eager back end."
            )
        if self.training and self.backend != "eager":
            raise InputError("the eager back end for training steps", self.backend)
        if self.backend == "onnxruntime" and self.processor != "cpu":
            raise InputError("the CPU with ONNX Runtime", self.processor, "Measure there with the eager back end.")
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

    It holds its own copy of the module, which itself keeps its mode, dtype and memory format.
    """

    def __init__(self, module: nn.Module, shape: tuple[int, int, int], timing: Timing) -> None:
        self.timing, self.shape = timing, shape
        self._module = copy.deepcopy(module).train(timing.training)
        if not timing.training:
            make = _onnx_call if timing.backend == "onnxruntime" else _eager_call
            self._call = make(self._module, self._example(), timing)

    def times_ms(self, repeats: int) -> NDArray[np.float64]:
        """Milliseconds of each of ``repeats`` calls after the warm-up, (repeats,)."""
        with torch_threads(self.timing.threads):
            if self.timing.training:
                # Made anew each time: the batches of some hundred parts would not fit into memory together.
                call = _training_call(self._module, self._example(), self.timing)
                return time_calls(call, self.timing.warm_up, repeats, self.timing.clock)
            with torch.inference_mode():
                return time_calls(self._call, self.timing.warm_up, repeats)

    def _example(self) -> torch.Tensor:
        return torch.randn(self.timing.batch, *self.shape, generator=torch.Generator().manual_seed(0))


def measure(module: nn.Module, shape: tuple[int, int, int], timing: Timing) -> Latency:
    """Time ``module`` on inputs of ``shape`` (channels, height, width) as ``timing`` says."""
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


def _placed(module: nn.Module, example: torch.Tensor, timing: Timing) -> tuple[nn.Module, torch.Tensor, torch.device]:
    """Module and example where, and of the type that, ``timing`` says."""
    dtype, device = getattr(torch, timing.dtype), Device.choose(timing.processor).torch
    placed = module.to(device=device, dtype=dtype, memory_format=torch.channels_last)  # type: ignore[call-overload]
    return placed, example.to(device=device, dtype=dtype).contiguous(memory_format=torch.channels_last), device


def _eager_call(module: nn.Module, example: torch.Tensor, timing: Timing) -> Callable[[], object]:
    prepared, example, device = _placed(module, example, timing)

    def call() -> None:
        prepared(example)
        wait_for(device)

    return call


def _training_call(module: nn.Module, example: torch.Tensor, timing: Timing) -> Callable[[], object]:
    """Forward, backward and an update by nothing, which leaves the weights as they are."""
    prepared, example, device = _placed(module, example, timing)
    example.requires_grad_(example.shape[1] > MOST_IMAGE_CHANNELS)
    optimizer = torch.optim.SGD(prepared.parameters(), lr=0.0, momentum=0.9, nesterov=True, weight_decay=1e-4)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        example.grad = None
        prepared(example).square().mean().backward()
        optimizer.step()
        wait_for(device)

    return step


def _onnx_call(module: nn.Module, example: torch.Tensor, timing: Timing) -> Callable[[], object]:
    """One run of an ONNX Runtime session of ``module`` on ``example``."""
    try:
        import onnx  # noqa: F401 - the export needs it
        import onnxruntime
    except ImportError as error:
        raise missing_extra("onnxruntime", "onnx", "measuring latencies with ONNX Runtime") from error
    buffer = io.BytesIO()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # the tracing exporter is deprecated; on single blocks it is 30 times faster
        torch.onnx.export(module, (example,), buffer, dynamo=False)  # type: ignore[arg-type]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = timing.threads, 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # idle sessions must not slow others
    session = onnxruntime.InferenceSession(buffer.getvalue(), options, providers=["CPUExecutionProvider"])
    feed: dict[str, Any] = {session.get_inputs()[0].name: example.numpy()}
    return lambda: session.run(None, feed)


def device_name(processor: str = "cpu") -> str:
    """The name of what a latency is of, as the system gives it; none for a GPU that is not there."""
    if processor.startswith("cuda"):
        return torch.cuda.get_device_name(processor) if torch.cuda.is_available() else ""
    return processor_name()


def versions(backend: Backend) -> dict[str, str]:
    """Of what a latency depends on."""
    names = ["torch"] if backend == "eager" else ["torch", "onnxruntime"]
    return {"python": platform.python_version(), **{name: version(name) for name in names}}
