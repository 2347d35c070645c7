"""The back ends by name: what runs a network that is timed. Nothing here imports torch, so listing them is instant."""

from __future__ import annotations

from importlib.util import find_spec

from archwright.registry import Entry, Registry

EAGER, ONNXRUNTIME = "eager", "onnxruntime"

backends = Registry(
    "backend",
    Entry(EAGER, "archwright.costs.backends:Eager", "PyTorch as it is, on the CPU or a GPU"),
    Entry(ONNXRUNTIME, "archwright.costs.backends:OnnxRuntime", "the ONNX file in ONNX Runtime, on the CPU"),
    Entry("onnxruntime-cuda", "archwright.costs.backends:OnnxCuda", "the ONNX file in ONNX Runtime, on an NVIDIA GPU"),
    Entry("onnxruntime-tensorrt", "archwright.costs.backends:OnnxTensorRT", "the ONNX file in TensorRT"),
    Entry("openvino", "archwright.costs.backends:OpenVino", "the ONNX file in OpenVINO, on the CPU"),
)


def default_backend(processor: str = "cpu") -> str:
    """What people deploy with: ONNX Runtime where it is installed and networks run on the CPU, else PyTorch.

    Args:
        processor: that networks run on: ``cpu``, ``cuda`` or ``mps``.
    """
    installed = all(find_spec(name) is not None for name in ("onnx", "onnxruntime"))
    return ONNXRUNTIME if installed and processor == "cpu" else EAGER
