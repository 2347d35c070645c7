"""The device a computation runs on, as one object; algorithms never name a back end."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from archwright.bounds import MOST_THREADS
from archwright.errors import InputError

TRIED_STEPS, QUICKER = 9, 0.8
"""Steps that are timed with one thread and with all, and the part of one's time below which all are taken."""


@dataclass(frozen=True)
class Device:
    """A torch device with the number of CPU threads used beside or on it."""

    name: str
    threads: int

    @classmethod
    def choose(cls, name: str = "auto", threads: int | None = None) -> Device:
        """A device of this machine.

        Args:
            name: as torch calls it; ``auto`` takes a GPU where there is one.
            threads: set for the whole process; None leaves torch's number.
        """
        available = ["cpu"]
        if torch.cuda.is_available():
            available.insert(0, "cuda")
        if torch.backends.mps.is_available():
            available.insert(0, "mps")
        chosen = available[0] if name == "auto" else name
        if chosen not in [one for kind in available for one in _names(kind)]:
            raise InputError(f"a device of this machine ({', '.join(available)})", repr(name))
        if chosen.startswith("cuda:"):  # the kind alone is the present one, which differs in the processes of a team
            torch.cuda.set_device(torch.device(chosen))  # whose generator is seeded, and forked
        if threads is not None:
            if not 1 <= threads <= MOST_THREADS:
                raise InputError(f"1 to {MOST_THREADS} threads", str(threads))
            torch.set_num_threads(threads)
        return cls(chosen, torch.get_num_threads())

    @property
    def torch(self) -> torch.device:
        """The device as torch knows it, for ``tensor.to(device.torch)``."""
        return torch.device(self.name)

    def describe(self) -> dict[str, Any]:
        """What a run or a latency table keeps about it."""
        model = torch.cuda.get_device_name(self.torch) if self.name.startswith("cuda") else processor_name()
        return {"device": self.name, "model": model, "threads": self.threads}


def _names(kind: str) -> list[str]:
    """How the devices of one kind can be called: by the kind alone, and by their numbers."""
    count = torch.cuda.device_count() if kind == "cuda" else 1
    return [kind, *(f"{kind}:{number}" for number in range(count))]


def visible_gpus() -> list[str]:
    """The NVIDIA GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    if not torch.cuda.is_available():
        return []
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return [str(number) for number in range(torch.cuda.device_count())] if named is None else named.split(",")


def widest_float(device: torch.device) -> torch.dtype:
    """The widest floating type of a device: float64, except on MPS, which has none wider than float32."""
    return torch.float64 if device.type in ("cpu", "cuda", "xpu") else torch.float32


def wait_for(device: torch.device) -> None:
    """Return when everything queued on ``device`` is done."""
    current = torch.accelerator.current_accelerator()
    if current is not None and current.type == device.type:
        torch.accelerator.synchronize(device)


def seconds_on(device: torch.device) -> float:
    """Seconds on the wall when everything queued on ``device`` is done: the clock of whatever becomes a plan."""
    wait_for(device)
    return time.perf_counter()


def on_device(array: NDArray[Any], device: torch.device) -> torch.Tensor:
    """``array`` on ``device``; a GPU fetches it while this process goes on.

    Args:
        array: small, as row numbers are.
        device: where it is wanted.
    """
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def processor_name() -> str:
    """The CPU's model name."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def processors() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def useful_threads() -> int:
    """The threads that torch would use, or one where a training step is not clearly quicker by them now.

    Several threads wait for each other; where other work wants the processors, too, they can take many times as long
    as one alone.
    """
    most = torch.get_num_threads()
    weight = torch.ones(32, 32, 3, 3, requires_grad=True)
    x = torch.ones(32, 32, 32, 32).contiguous(memory_format=torch.channels_last)

    def seconds(threads: int) -> float:
        torch.set_num_threads(threads)
        times = []
        for _ in range(TRIED_STEPS):
            begin = time.perf_counter()
            torch.autograd.grad(F.conv2d(x, weight, padding=1).sum(), weight)
            times.append(time.perf_counter() - begin)
        return median(times)

    try:
        return most if most > 1 and seconds(most) < QUICKER * seconds(1) else 1
    finally:
        torch.set_num_threads(most)


def load_average() -> float:
    """Processes that wanted to work during the last minute; 0 where the system does not say."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def memory_bytes() -> int:
    """The machine's memory; what claims more cannot be loaded."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
