"""The files that a trained network can be written as, each checked against PyTorch before it counts as written.

A path's ending says the format. Every file has the model's facts in it (preprocessing, class names, what was measured).
:data:`FORMATS` is the one table of what runs where, for the command line and the documentation.
"""

from __future__ import annotations

import io
import json
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from archwright.data.images import resize_arrays
from archwright.ensembles import Ensemble
from archwright.errors import InputError, RunError, missing_extra
from archwright.export import TOLERANCE, export_onnx
from archwright.models import Model, finite
from archwright.paths import check_output
from archwright.quantise import CALIBRATION_IMAGES, quantise, to_onnx
from archwright.runs.files import write_atomic

FACTS = "archwright.json"
"""The file of facts inside a ``.pt2`` or ``.torchscript`` file."""
MARK = FACTS.encode()
MOST_AT_ONCE = 4096
"""Images of one call of an exported program, at most."""

Trained = Model | Ensemble
Write = Callable[[Trained, Path, bool], float]


@dataclass(frozen=True)
class Format:
    """A kind of file.

    Attributes:
        name: for people.
        runs: where it runs, and what it needs there.
        needs: the extra that writing it needs; empty for none.
        write: writes a model to a path (replacing other files or not) and gives the largest difference of a class
            probability from PyTorch's.
    """

    name: str
    runs: str
    needs: str
    write: Write


def export(
    model: Trained, path: Path | str, overwrite: bool = False, calibrate: NDArray[np.uint8] | None = None
) -> float:
    """Write a model in the format that the ending of ``path`` names.

    Args:
        model: one network or an ensemble.
        path: of the file; ``.onnx``, ``.pt2``, ``.torchscript`` or ``.xml`` (OpenVINO, with a ``.bin`` beside it).
        overwrite: whether a file that this did not write may be replaced.
        calibrate: 8-bit training images (n, C, H, W): the file computes in int8, with ranges taken from them. For
            ``.onnx`` and ``.xml``.

    Returns:
        The largest difference of a class probability from PyTorch's on random images, at most 1e-4 of a file in float;
        of one in int8 it is that of quantising, on the calibration images.
    """
    path = Path(path)
    kind = FORMATS.get(path.suffix)
    if kind is None:
        raise InputError(f"a file that ends with {', '.join(FORMATS)}", str(path))
    if calibrate is None:
        return kind.write(model, path, overwrite)
    if path.suffix not in INT8:
        raise InputError(f"a file that ends with {' or '.join(INT8)} for int8", str(path))
    if isinstance(model, Ensemble):
        raise InputError("one network for int8", "an ensemble", "Export a member of it.")
    images = shown_to(model, calibrate)
    int8 = quantise(to_onnx(model.network.eval().cpu(), images[:1]), images.numpy())
    found = replace(model, int8=int8.content, measured={**model.measured, **int8.facts()})
    kind.write(found, path, overwrite)
    return float((found.probabilities(images) - model.probabilities(images)).abs().max())


def shown_to(model: Trained, images: NDArray[np.uint8]) -> Tensor:
    """Some images, evenly taken, as a model is shown them: normalised, at its size.

    Args:
        model: whose preprocessing counts.
        images: 8-bit, (n, C, H, W).
    """
    taken = np.unique(np.linspace(0, len(images) - 1, min(CALIBRATION_IMAGES, len(images))).astype(np.int64))
    how = model.preprocessing
    return how.normalise(torch.from_numpy(resize_arrays(images[taken], how.image_size)))


def _example(model: Trained) -> Tensor:
    """Random images (5, C, H, W) of the size that a model wants."""
    how, random = model.preprocessing, torch.Generator().manual_seed(0)
    return torch.randn(5, how.image_channels, how.image_size, how.image_size, generator=random)


def _checked(model: Trained, run: Callable[[Tensor], Tensor], path: Path) -> float:
    """The largest difference of a class probability between a file and PyTorch; a large one is an error."""
    worst = 0.0
    for count in (5, 1):  # another number of images than the traced one
        images = _example(model)[:count]
        found = finite(torch.softmax(run(images), dim=1))
        worst = max(worst, float((found - model.probabilities(images)).abs().max()))
    if not worst <= TOLERANCE:
        raise RunError(f"expected {path.suffix} to agree with PyTorch within {TOLERANCE}, got {worst:.2g} in {path}.")
    return worst


def _float_network(model: Trained, path: Path) -> nn.Module:
    if isinstance(model, Model) and model.int8 is not None:
        raise InputError(f"a file that ends with {' or '.join(INT8)} for a network in int8", str(path))
    return model.network.eval().cpu()


@torch.no_grad()
def export_program(model: Trained, path: Path, overwrite: bool = False) -> float:
    """Write a program of ``torch.export``, for batches of up to 4,096 images; the difference from PyTorch.

    Args:
        model: one network or an ensemble.
        path: of the file.
        overwrite: whether another file than one that this wrote may be replaced.
    """
    check_output(path, MARK, overwrite)
    network, content = _float_network(model, path), io.BytesIO()
    batch = {0: torch.export.Dim("batch", min=1, max=MOST_AT_ONCE)}
    program = torch.export.export(network, (_example(model),), dynamic_shapes=(batch,))
    torch.export.save(program, content, extra_files={FACTS: json.dumps(model.facts())})
    content.seek(0)
    difference = _checked(model, torch.export.load(content).module(), path)
    write_atomic(path, content.getvalue())
    return difference


@torch.no_grad()
def export_script(model: Trained, path: Path, overwrite: bool = False) -> float:
    """Write TorchScript, which PyTorch no longer develops; the difference from PyTorch.

    Args:
        model: one network or an ensemble.
        path: of the file.
        overwrite: whether another file than one that this wrote may be replaced.
    """
    check_output(path, MARK, overwrite)
    network, content = _float_network(model, path), io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is deprecated: whoever asks for it has a program that reads it
        script = torch.jit.trace(network, _example(model))  # type: ignore[no-untyped-call]
        torch.jit.save(script, content, _extra_files={FACTS: json.dumps(model.facts())})
        content.seek(0)
        difference = _checked(model, torch.jit.load(content), path)  # type: ignore[no-untyped-call]
    write_atomic(path, content.getvalue())
    return difference


def export_openvino(model: Trained, path: Path, overwrite: bool = False) -> float:
    """Write OpenVINO's form, ``.xml`` with the weights in ``.bin`` beside it; the difference from PyTorch.

    Args:
        model: one network or an ensemble; of one in int8 its int8 graph.
        path: of the ``.xml`` file.
        overwrite: whether other files than those that this wrote may be replaced.
    """
    try:
        import openvino
    except ImportError as error:
        raise missing_extra("openvino", "openvino", "OpenVINO's files") from error
    check_output(path, b"archwright", overwrite)
    weights = path.with_suffix(".bin")
    if weights.exists() and not path.exists() and not overwrite:
        raise InputError("no other file in the place of the weights", str(weights), "Choose another name.")
    int8 = model.int8 if isinstance(model, Model) else None
    core = openvino.Core()
    graph = core.read_model(to_onnx(model.network.eval().cpu(), _example(model)) if int8 is None else int8)
    graph.set_rt_info(json.dumps(model.facts()), ["archwright"])
    compiled = core.compile_model(graph, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    run: Callable[[Tensor], Tensor] = lambda images: torch.from_numpy(compiled([images.numpy()])[0])  # noqa: E731
    if int8 is None:
        difference = _checked(model, run, path)
    else:  # two runtimes round int8 differently
        images = _example(model)
        difference = float((torch.softmax(run(images), dim=1) - model.probabilities(images)).abs().max())
    with tempfile.TemporaryDirectory() as folder:
        openvino.save_model(graph, Path(folder) / "model.xml", compress_to_fp16=False)
        write_atomic(weights, (Path(folder) / "model.bin").read_bytes())
        write_atomic(path, (Path(folder) / "model.xml").read_bytes())
    return difference


FORMATS = {
    ".onnx": Format(
        "ONNX",
        "ONNX Runtime on servers, desktops, phones and in browsers; TensorRT; `archwright predict`",
        "onnx",
        export_onnx,
    ),
    ".xml": Format("OpenVINO IR", "OpenVINO on Intel processors, graphics and NPUs", "openvino", export_openvino),
    ".pt2": Format("torch.export", "PyTorch in Python without Archwright; C++ by AOTInductor", "", export_program),
    ".torchscript": Format("TorchScript", "LibTorch in C++ programs of before torch.export", "", export_script),
}
"""By the ending of a file, what is recommended first."""
INT8 = (".onnx", ".xml")
"""Formats that hold int8."""
