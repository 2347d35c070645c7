"""ONNX files that say how to use them: size, normalisation and class names are in the metadata, and prediction needs no
PyTorch network. An exported file is run in ONNX Runtime and compared with PyTorch before it counts as written.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from archwright.data import Preprocessing
from archwright.ensembles import Ensemble, Mean
from archwright.errors import InputError, RunError, missing_extra
from archwright.models import Classifier, Facts, Model, finite
from archwright.paths import check_output, read_plain
from archwright.quantise import session, to_onnx
from archwright.runs.files import write_atomic

ALL = 0
"""Threads of a session that is to use all cores."""
TINY = 1e-12
"""Added to a probability before its logarithm is taken."""
TOLERANCE = 1e-4
"""Largest difference of a class probability between ONNX Runtime and PyTorch."""


MARK = b"\n\narchwright\x12"
"""The key of our facts as an ONNX file has it in its metadata."""


def has_onnx() -> bool:
    """Whether the optional packages are installed."""
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
    except ImportError:
        return False
    return True


def export_onnx(model: Model | Ensemble, path: Path, overwrite: bool = False) -> float:
    """Write a model as ONNX: input ``images`` (B, C, H, W), preprocessed, output ``logits`` (B, classes), any B.

    An ensemble is one graph with all its members. Of a model whose answers are those of its int8 file, that is written.

    The metadata has ``archwright`` (all facts of the model as JSON) and, for other programs, how to make an input of an
    image: ``image_size``, ``mean``, ``std``, ``turned`` and ``class_names``, each JSON, and ``preprocessing``, the
    steps in words.

    Args:
        model: one network or an ensemble.
        path: of the file.
        overwrite: whether another file than one that this function wrote may be replaced.

    Returns:
        The largest difference of a class probability between ONNX Runtime and PyTorch on random images.
    """
    if not has_onnx():
        raise missing_extra("onnx", "onnx", "exporting ONNX files")
    import onnx

    check_output(path, MARK, overwrite)
    how = model.preprocessing
    example, network = _example(how), model.network.eval()
    device = next((one.device for one in network.parameters()), torch.device("cpu"))
    written = onnx.load_from_string(graph_of(model))
    del written.metadata_props[:]
    facts = {name: how.to_dict()[name] for name in ("image_size", "mean", "std", "turned", "class_names")}
    facts["preprocessing"] = how.steps()
    for name, value in {"archwright": model.facts(), **facts}.items():
        written.metadata_props.add(key=name, value=json.dumps(value))
    content = written.SerializeToString()
    images = torch.cat([example, example[:1].roll(1, 2)])  # another batch size than the traced one
    difference = float((_run(session(content, threads=ALL), images) - model.probabilities(images)).abs().max())
    network.to(device)
    if not difference <= TOLERANCE:
        raise RunError(
            f"expected ONNX Runtime to agree with PyTorch within {TOLERANCE}, got {difference:.2g} in {path}."
        )
    write_atomic(path, content)
    return difference


def graph_of(model: Model | Ensemble) -> bytes:
    """The ONNX graph of a model: its int8 file where that answers, else its network's."""
    members = model.members if isinstance(model, Ensemble) else (model,)
    if all(member.int8 is None for member in members):
        return to_onnx(model.network.eval().cpu(), _example(model.preprocessing))
    if isinstance(model, Ensemble):
        return side_by_side([graph_of(member) for member in members], model.mean)
    assert model.int8 is not None
    return model.int8


def _example(how: Preprocessing) -> Tensor:
    """Four random images (4, C, H, W)."""
    shape = (4, how.image_channels, how.image_size, how.image_size)
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def side_by_side(graphs: Sequence[bytes], mean: Mean) -> bytes:
    """One graph of several, each from ``images`` to ``logits``, that answers with their mean.

    Args:
        graphs: of the members.
        mean: of their probabilities, whose logarithm is the answer, or of their logits.
    """
    import onnx
    from onnx import TensorProto, compose, helper, numpy_helper

    models = [onnx.load_from_string(content) for content in graphs]
    nodes, weights, answers = [], [], []
    for number, one in enumerate(models):
        graph = compose.add_prefix(one, f"member {number} ").graph
        _renamed(graph, graph.input[0].name, "images")
        nodes += list(graph.node)
        weights += list(graph.initializer)
        answers.append(graph.output[0].name)
    if mean == "logits":
        nodes.append(helper.make_node("Mean", answers, ["logits"]))
    else:
        shares = [f"share {number}" for number in range(len(answers))]
        nodes += [
            helper.make_node("Softmax", [one], [share], axis=1) for one, share in zip(answers, shares, strict=True)
        ]
        nodes += [
            helper.make_node("Mean", shares, ["mean share"]),
            helper.make_node("Add", ["mean share", "tiny"], ["s"]),
        ]
        nodes.append(helper.make_node("Log", ["s"], ["logits"]))
        weights.append(numpy_helper.from_array(np.array(TINY, np.float32), "tiny"))
    first = models[0].graph
    classes = first.output[0].type.tensor_type.shape.dim[1].dim_value
    output = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", classes])
    joined = helper.make_graph(nodes, "ensemble", [first.input[0]], [output], weights)
    versions = {one.domain: one.version for model in models for one in model.opset_import}
    imports = [helper.make_opsetid(domain, version) for domain, version in versions.items()]
    made = helper.make_model(joined, opset_imports=imports, ir_version=max(one.ir_version for one in models))
    content: bytes = made.SerializeToString()
    return content


def _renamed(graph: Any, old: str, new: str) -> None:
    """Give what the nodes of ``graph`` read as ``old`` the name ``new``."""
    for node in graph.node:
        for place, name in enumerate(node.input):
            if name == old:
                node.input[place] = new


class OnnxClassifier(Classifier):
    """A file written by :func:`export_onnx`, run by ONNX Runtime."""

    def __init__(self, path: Path) -> None:
        if not has_onnx():
            raise missing_extra("onnxruntime", "onnx", "running ONNX files")
        if not path.is_file():
            raise InputError("an ONNX file", str(path))
        self._failures, self._path = _runtime_failures(), path
        content = read_graph(path)
        try:
            self.session = session(content, threads=ALL)
            metadata: dict[str, str] = self.session.get_modelmeta().custom_metadata_map
        except self._failures as error:
            raise InputError("an ONNX file", f"{path} ({str(error)[:100]})") from error
        if "archwright" not in metadata:
            raise InputError("an ONNX file written by archwright", f"{path} without its metadata")
        try:
            facts = Facts.read(metadata["archwright"])
        except InputError as error:
            raise RunError(f"expected the facts of a model in {path}, got others: {error}") from error
        self.preprocessing = facts.preprocessing_of(path)
        self._check_shapes()

    def _check_shapes(self) -> None:
        """The graph must take the images and give the classes that the facts say."""
        how = self.preprocessing
        wanted = {
            "images": [how.image_channels, how.image_size, how.image_size],
            "logits": [len(how.class_names)],
        }
        found = {one.name: list(one.shape[1:]) for one in (*self.session.get_inputs(), *self.session.get_outputs())}
        if found != wanted:
            raise InputError(f"an ONNX graph from images to logits of shapes {wanted}", f"{found} in {self._path}")

    def probabilities(self, images: Tensor) -> Tensor:
        """Preprocessed images (B, C, H, W) to class probabilities (B, classes)."""
        try:
            return _run(self.session, images)
        except self._failures as error:
            raise InputError("an ONNX graph that runs", f"{self._path} ({str(error)[:100]})") from error


def _runtime_failures() -> tuple[type[Exception], ...]:
    """Everything that ONNX Runtime raises of its own, whose classes have no base in common, and for names no UTF-8."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    own = [one for one in vars(state).values() if isinstance(one, type) and issubclass(one, Exception)]
    return (*own, UnicodeDecodeError)


def read_graph(path: Path) -> bytes:
    """An ONNX file that has nothing which our files never have."""
    content = read_plain(path)
    _check_graph(content, path)
    return content


def _check_graph(content: bytes, path: Path) -> None:
    """Refuse what our files never have: loops, which may not end, and weights in other files."""
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        model = onnx.load_from_string(content)
    except (DecodeError, ValueError) as error:
        raise InputError("an ONNX file", f"{path} ({str(error)[:100]})") from error
    used = {node.op_type for node in model.graph.node}
    if used & {"Loop", "Scan", "If"} or model.functions:
        raise InputError("an ONNX graph without loops and functions of its own", str(path))
    if any(one.data_location == onnx.TensorProto.EXTERNAL for one in model.graph.initializer):
        raise InputError("an ONNX file with all its weights in it", f"{path}, which names other files")


def _run(session: Any, images: Tensor) -> Tensor:
    logits: np.ndarray[Any, Any] = session.run(None, {"images": images.numpy()})[0]
    return finite(torch.softmax(torch.from_numpy(logits), dim=1))
