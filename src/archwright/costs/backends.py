"""What runs a network on a device, one class each: which numbers it computes in, and how a network is made ready.

A third party adds one by a class with ``name``, ``words``, ``dtypes`` and :meth:`Backend.compile`, under an entry point
of the group ``archwright.backends`` or by ``archwright.costs.registry.backends.register``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import ClassVar

import torch
from torch import Tensor, nn

from archwright.costs.registry import backends
from archwright.device import Device, wait_for
from archwright.errors import InputError, missing_extra
from archwright.quantise import Calibrated, Precision, session, to_onnx

Program = Callable[[], object]
"""One call of a compiled network on its example."""
PRECISIONS: dict[Precision, str] = {"fp32": "float32", "int8": "int8"}
"""Precisions that are searched, and the dtype that a table calls them by."""


class Backend(ABC):
    """What runs networks.

    Attributes:
        name: in options, tables and the registry.
        words: what a latency is of, for people: "as ONNX on this machine".
        dtypes: that it computes in.
        packages: that its times depend on, beside Python; their versions are part of a table.
        extra: of Archwright, that installs it; empty where a user has to.
        any_processor: whether it runs where PyTorch does, as against the CPU or a GPU of its own.
    """

    name: ClassVar[str]
    words: ClassVar[str]
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)
    packages: ClassVar[tuple[str, ...]] = ("torch",)
    extra: ClassVar[str] = ""
    any_processor: ClassVar[bool] = False

    @property
    def precisions(self) -> tuple[Precision, ...]:
        """Those that a search may choose among."""
        return tuple(name for name, dtype in PRECISIONS.items() if dtype in self.dtypes)

    def check(self) -> None:
        """An error that says what to install where it is not here; nothing is imported that takes long."""
        for package in self.packages:
            if find_spec(package) is None:
                raise missing_extra(package, self.extra or package, f"the back end {self.name!r}")

    def versions(self) -> dict[str, str]:
        """Of what its times depend on; a package that is not installed has none."""
        found = {}
        for package in self.packages:
            try:
                found[package] = version(package)
            except PackageNotFoundError:
                continue
        return found

    @abstractmethod
    def compile(self, network: nn.Module, example: Tensor, *, threads: int, dtype: str, processor: str) -> Program:
        """``network`` made ready to be called on ``example``.

        Args:
            network: in evaluation mode; it may be changed.
            example: an input (B, C, H, W) in float32.
            threads: that it may use.
            dtype: one of :attr:`dtypes`; a network that is to be int8 is calibrated on the example, for its time alone.
            processor: ``cpu``, ``cuda`` or ``mps``; what has a processor of its own is given ``cpu``.
        """

    def open(self, content: bytes, example: Tensor, *, threads: int) -> Program:
        """An ONNX file made ready to be called.

        Args:
            content: the file.
            example: what it is called on, (B, C, H, W).
            threads: that it may use.
        """
        raise InputError(
            "a back end that runs ONNX files", repr(self.name), "Time the file with: --backend onnxruntime"
        )


def find_backend(name: str) -> Backend:
    """The back end of that name; whether it is installed is asked by its :meth:`Backend.check`."""
    made: Backend = backends.get(name)()
    return made


class Eager(Backend):
    """PyTorch as it is, with channels last in memory."""

    name = "eager"
    words = "in PyTorch on this machine"
    dtypes = ("float32", "bfloat16", "float16")
    any_processor = True

    def compile(self, network: nn.Module, example: Tensor, *, threads: int, dtype: str, processor: str) -> Program:
        """A forward pass that is waited for; the caller sets the threads, which are PyTorch's own."""
        prepared, placed, device = placed_on(network, example, dtype, processor)

        def call() -> None:
            prepared(placed)
            wait_for(device)

        return call


def placed_on(module: nn.Module, example: Tensor, dtype: str, processor: str) -> tuple[nn.Module, Tensor, torch.device]:
    """Module and example on a processor of PyTorch, of some dtype, channels last; and that processor.

    Args:
        module: moved in place.
        example: (B, C, H, W).
        dtype: by torch's name.
        processor: ``cpu``, ``cuda`` or ``mps``.
    """
    kind, device = getattr(torch, dtype), Device.choose(processor).torch
    placed = module.to(device=device, dtype=kind, memory_format=torch.channels_last)  # type: ignore[call-overload]
    return placed, example.to(device=device, dtype=kind).contiguous(memory_format=torch.channels_last), device


class OnnxFile(Backend):
    """What runs the ONNX file of a network, in float or in int8; a subclass says how a file is opened."""

    dtypes = ("float32", "int8")
    packages: ClassVar[tuple[str, ...]] = ("torch", "onnx", "onnxruntime")
    extra = "onnx"

    def compile(self, network: nn.Module, example: Tensor, *, threads: int, dtype: str, processor: str) -> Program:
        """The file of ``network``, opened."""
        content = to_onnx(network, example)
        if dtype == "int8":
            content = Calibrated(content, example.numpy()).quantised().content
        return self.open(content, example, threads=threads)


class OnnxRuntime(OnnxFile):
    """ONNX Runtime on the CPU."""

    name = "onnxruntime"
    words = "as ONNX on this machine"
    providers: ClassVar[tuple[str, ...]] = ("CPUExecutionProvider",)

    def check(self) -> None:
        """Also whether the installed build has the execution provider."""
        super().check()
        if self.providers[0] == "CPUExecutionProvider":
            return
        import onnxruntime

        there = onnxruntime.get_available_providers()
        if self.providers[0] not in there:
            raise InputError(
                f"an ONNX Runtime with {self.providers[0]} for the back end {self.name!r}",
                f"one with {', '.join(there)}",
                "Install onnxruntime-gpu in the place of onnxruntime, on a machine with an NVIDIA GPU.",
            )

    def open(self, content: bytes, example: Tensor, *, threads: int) -> Program:
        """A run of a session on the example.

        Args:
            content: the file.
            example: (B, C, H, W).
            threads: of the session.
        """
        run = session(content, threads, self.providers)
        feed = {run.get_inputs()[0].name: example.numpy()}
        return lambda: run.run(None, feed)


class OnnxCuda(OnnxRuntime):
    """ONNX Runtime on an NVIDIA GPU; times have the copies of images and answers in them, as those of a caller do."""

    name = "onnxruntime-cuda"
    words = "as ONNX on this machine's GPU"
    extra = ""
    providers: ClassVar[tuple[str, ...]] = ("CUDAExecutionProvider", "CPUExecutionProvider")


class OnnxTensorRT(OnnxCuda):
    """TensorRT by ONNX Runtime; what it does not take runs in CUDA."""

    name = "onnxruntime-tensorrt"
    words = "in TensorRT on this machine's GPU"
    providers = ("TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider")


class OpenVino(OnnxFile):
    """OpenVINO on the CPU, which reads the same files."""

    name = "openvino"
    words = "in OpenVINO on this machine"
    packages = ("torch", "onnx", "onnxruntime", "openvino")
    extra = "openvino"

    def open(self, content: bytes, example: Tensor, *, threads: int) -> Program:
        """A request on the example.

        Args:
            content: the file.
            example: (B, C, H, W).
            threads: of the compiled model.
        """
        try:
            import openvino
        except ImportError as error:
            raise missing_extra("openvino", self.extra, "the back end 'openvino'") from error
        core = openvino.Core()
        settings = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY"}
        settings["INFERENCE_PRECISION_HINT"] = "f32"  # what is float stays float32: else it may become bfloat16
        request = core.compile_model(core.read_model(content), "CPU", settings).create_infer_request()
        given = example.numpy()
        return lambda: request.infer([given])
