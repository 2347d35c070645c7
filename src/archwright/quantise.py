"""int8 networks as ONNX files: calibrated on images, quantised by ONNX Runtime; layers that cost accuracy stay float.

Static quantisation in QDQ form: activations unsigned per tensor, weights signed per output channel. The range of an
activation is the least and the greatest value that it has on calibration images, which are training images. What a file
was calibrated on, and which of its layers and operators are in float, are its facts. Weights have 127 steps a side, but
64 where this processor would cut sums of products off (:func:`weight_steps`).

A graph is calibrated once and quantised as often as it takes to find out which layers to leave in float. Nothing here
knows models, searches or data sets: a graph is bytes, images are an array, and what a file is worth a function says.
"""

from __future__ import annotations

import hashlib
import io
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from archwright.errors import InputError, missing_extra

Precision = Literal["fp32", "int8"]
"""What the weights and activations of a network are computed in."""
CALIBRATION_IMAGES = 150
"""Training images that ranges are taken from: more of them change next to nothing."""
AT_ONCE = 4
"""Calibration images that go through a graph together: all its activations are kept until their ranges are taken."""
CLEARLY = 2.0
"""Standard errors from which on an accuracy is clearly lower."""
MOST_SINGLE = 3
"""Single layers that are left in float beside the first and the last one, at most."""
WEIGHT_STEPS, FEWER_STEPS = 127, 64
"""Steps of a weight on each side of zero, and those with which the sum of two products stays within 16 bits."""
LAYERS = ("Conv", "Gemm", "MatMul")
"""Operators with weights: what is called a layer here."""
TRANSPARENT = frozenset({"Identity", "Dropout", "Constant", "Cast", "Shape"})
"""Operators that compute nothing on activations, which nobody asks whether they are int8."""

Answers = NDArray[np.bool_]
"""Whether each of some images is classified right, (n,)."""


class CannotQuantise(InputError):  # noqa: N818 - what it says is no mistake of the user: the network stays in float
    """A network that no int8 file can be made of."""


@dataclass(frozen=True)
class Int8:
    """A quantised network.

    Attributes:
        content: the ONNX file.
        float_layers: names of layers that were left in float.
        float_operators: kinds of operators that the quantiser does not take, which are in float, too.
        calibration: ``method``, number of ``images``, the ``sha256`` of their pixels as the network is shown them, and
            ``weight_steps``.
        further: facts that a search knows of it.
    """

    content: bytes
    float_layers: tuple[str, ...]
    float_operators: tuple[str, ...]
    calibration: dict[str, Any]

    further: dict[str, Any] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        """What a model's file says of it."""
        return {
            "precision": "int8",
            "calibration": self.calibration,
            "float_layers": list(self.float_layers),
            "float_operators": list(self.float_operators),
            **self.further,
        }

    @classmethod
    def of(cls, content: bytes, facts: Mapping[str, Any]) -> Int8:
        """From a file and what is known of it; the inverse of :meth:`facts`.

        Args:
            content: the ONNX file.
            facts: as :meth:`facts` gives them, and more.
        """
        own = ("precision", "calibration", "float_layers", "float_operators")
        further = {name: value for name, value in facts.items() if name not in own}
        layers, operators = (tuple(facts[name]) for name in own[2:])
        return cls(content, layers, operators, facts["calibration"], further)


def to_onnx(module: nn.Module, example: Tensor) -> bytes:
    """``module`` as an ONNX graph from ``images`` to ``logits``, for batches of any size.

    Args:
        module: in evaluation mode, on the CPU.
        example: an input (B, C, H, W).
    """
    try:
        import onnx  # noqa: F401 - the exporter needs it
    except ImportError as error:
        raise missing_extra("onnx", "onnx", "ONNX files and their latencies") from error
    buffer = io.BytesIO()
    with warnings.catch_warnings(), torch.no_grad(), _no_fast_path():
        warnings.simplefilter("ignore")  # the tracing exporter is deprecated; it is 30 times faster on single blocks
        torch.onnx.export(
            module,
            (example,),
            buffer,  # type: ignore[arg-type]
            dynamo=False,
            input_names=["images"],
            output_names=["logits"],
            dynamic_axes={"images": {0: "batch"}, "logits": {0: "batch"}},
        )
    return buffer.getvalue()


@contextmanager
def _no_fast_path() -> Iterator[None]:
    """Inside, attention runs as the plain operators that it is made of: ONNX has none for the fused one."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def session(content: bytes, threads: int = 1, providers: Sequence[str] = ("CPUExecutionProvider",)) -> Any:
    """A session of ONNX Runtime that runs a graph.

    Args:
        content: the graph.
        threads: of its operators; 0 for all cores.
        providers: what runs them, the preferred one first.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise missing_extra("onnxruntime", "onnx", "running ONNX files") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # idle sessions must not slow others
    # A second try with other processors, which there are none of, would print what went wrong with the first.
    return onnxruntime.InferenceSession(content, options, providers=list(providers), enable_fallback=0)


@cache
def weight_steps() -> int:
    """Steps of int8 weights on each side of zero that ONNX Runtime computes rightly with on this processor.

    x86 processors without VNNI add products of 8 bits in pairs, in 16 bits: two large ones are cut off, and a network
    answers wrongly. It is tried: 255 times 127, four times.
    """
    from onnx import TensorProto, helper, numpy_helper

    count, most = 4, 255
    weights = numpy_helper.from_array(np.full((count, 1), WEIGHT_STEPS, np.int8), "weights")
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["images", "weights"], ["sums"])],
        "one sum",
        [helper.make_tensor_value_info("images", TensorProto.UINT8, [1, count])],
        [helper.make_tensor_value_info("sums", TensorProto.INT32, [1, 1])],
        [weights],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    (sums,) = session(model.SerializeToString()).run(None, {"images": np.full((1, count), most, np.uint8)})
    return WEIGHT_STEPS if int(sums[0, 0]) == count * most * WEIGHT_STEPS else FEWER_STEPS


@dataclass
class Calibrated:
    """A float graph and the ranges that its activations have on some images.

    Attributes:
        content: the graph, from :func:`to_onnx`.
        images: (n, C, H, W), as the network is shown them.
    """

    content: bytes
    images: NDArray[np.float32]
    ranges: dict[str, tuple[float, float]] = field(init=False)

    def __post_init__(self) -> None:
        if not len(self.images):
            raise InputError("calibration images", "none")
        self.ranges = self._ranges()

    @cached_property
    def _graph(self) -> Any:
        import onnx

        model = onnx.load_from_string(self.content)
        _with_own_weights(model.graph)
        return onnx.shape_inference.infer_shapes(model)

    @cached_property
    def layers(self) -> tuple[str, ...]:
        """Names of the operators with weights, from the images to the classes."""
        weights = {one.name for one in self._graph.graph.initializer}
        return tuple(
            node.name for node in self._graph.graph.node if node.op_type in LAYERS and node.input[1] in weights
        )

    @cached_property
    def float_operators(self) -> tuple[str, ...]:
        """Kinds of operators on activations that the quantiser leaves in float, in the order of their names."""
        from onnxruntime.quantization.registry import QDQRegistry, QLinearOpsRegistry

        taken = {*QDQRegistry, *QLinearOpsRegistry} | TRANSPARENT
        return tuple(sorted({node.op_type for node in self._graph.graph.node if node.op_type not in taken}))

    def calibration(self) -> dict[str, Any]:
        """How many images there were, and which; and the steps of weights."""
        digest = hashlib.sha256(np.ascontiguousarray(self.images).tobytes()).hexdigest()
        return {"method": "minmax", "images": len(self.images), "sha256": digest, "weight_steps": weight_steps()}

    def quantised(self, in_float: Sequence[str] = ()) -> Int8:
        """The graph in int8, but for the layers named in ``in_float``."""
        from onnxruntime.quantization import QDQQuantizer, QuantType
        from onnxruntime.quantization.registry import QDQRegistry, QLinearOpsRegistry

        unknown = set(in_float) - set(self.layers)
        if unknown:
            raise InputError(f"layers of the network ({', '.join(self.layers)})", ", ".join(sorted(unknown)))
        import onnx

        model = onnx.ModelProto()
        model.CopyFrom(self._graph)
        try:
            with _quiet():
                quantiser = QDQQuantizer(
                    model,
                    per_channel=True,
                    reduce_range=weight_steps() == FEWER_STEPS,
                    weight_qType=QuantType.QInt8,
                    activation_qType=QuantType.QUInt8,
                    tensors_range=self._as_given(),
                    nodes_to_quantize=[],
                    nodes_to_exclude=list(in_float),
                    op_types_to_quantize=sorted({*QDQRegistry, *QLinearOpsRegistry}),
                    extra_options={},
                )
                quantiser.quantize_model()
                quantiser.model.clean_initializers()
        except (ValueError, KeyError, RuntimeError, NotImplementedError, IndexError) as error:
            raise CannotQuantise("operators that can be quantised", f"an error of the quantiser: {error}") from error
        content = quantiser.model.model.SerializeToString()
        return Int8(content, tuple(in_float), self.float_operators, self.calibration())

    def _as_given(self) -> Any:
        """The ranges as ONNX Runtime's quantiser takes them."""
        from onnxruntime.quantization import CalibrationMethod, TensorData, TensorsData

        known = {
            name: TensorData(lowest=np.float32(low), highest=np.float32(high))
            for name, (low, high) in self.ranges.items()
        }
        return TensorsData(CalibrationMethod.MinMax, known)

    def _ranges(self) -> dict[str, tuple[float, float]]:
        """The least and the greatest value of every activation; one that is not finite is an error that names it."""
        import onnx

        floats = {
            one.name: one
            for one in (*self._graph.graph.value_info, *self._graph.graph.output)
            if one.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
        }
        computed = [node for node in self._graph.graph.node if node.op_type != "Constant"]
        made = [name for node in computed for name in node.output if name in floats]
        watched = onnx.ModelProto()
        watched.CopyFrom(self._graph)
        del watched.graph.output[:]
        watched.graph.output.extend(floats[name] for name in made)
        run, name = session(watched.SerializeToString()), self._graph.graph.input[0].name
        found = {name: (float(self.images.min()), float(self.images.max()))}
        for start in range(0, len(self.images), AT_ONCE):
            values = run.run(made, {name: self.images[start : start + AT_ONCE]})
            for tensor, value in zip(made, values, strict=True):
                low, high = found.get(tensor, (np.inf, -np.inf))
                found[tensor] = min(low, float(value.min())), max(high, float(value.max()))
        broken = [tensor for tensor, both in found.items() if not np.isfinite(both).all()]
        if broken:
            raise CannotQuantise("finite activations on the calibration images", f"NaN or infinite ones in {broken[0]}")
        return found


def _with_own_weights(graph: Any) -> None:
    """Give every layer weights and bias of its own.

    The exporter writes equal tensors once, and an Identity for each further use: such a bias is no constant to the
    quantiser, which then leaves its layer in float.

    Args:
        graph: changed in place.
    """
    import onnx

    known = {one.name: one for one in graph.initializer}
    alike = {node.output[0]: node.input[0] for node in graph.node if node.op_type == "Identity"}
    alike = {name: source for name, source in alike.items() if source in known}
    used = set[str]()
    for node in graph.node:
        for place, name in enumerate(node.input if node.op_type in LAYERS else ()):
            source = alike.get(name, name)
            if source in known and (name in alike or source in used):
                own = onnx.TensorProto()
                own.CopyFrom(known[source])
                own.name = f"{node.name} input {place}"
                graph.initializer.append(own)
                node.input[place] = own.name
            used.add(source)
    left = {name for node in graph.node for name in node.input} | {one.name for one in graph.output}
    for node in [one for one in graph.node if one.op_type == "Identity" and one.output[0] not in left]:
        graph.node.remove(node)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what the quantiser logs for its own users: shapes that it guesses, layers that it passes over."""
    import logging

    root, before = logging.getLogger(), logging.root.manager.disable
    handlers = list(root.handlers)
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
        root.handlers[:] = handlers


def clearly_lower(right: Answers, other: Answers) -> bool:
    """Whether ``other`` is right on fewer of the same images by more than chance explains.

    Images on which both agree say nothing; of the n on which they differ the difference has a standard error of the
    square root of n.

    Args:
        right: of one network, (n,).
        other: of the other one, (n,).
    """
    lost, gained = int((right & ~other).sum()), int((other & ~right).sum())
    return bool(lost - gained > CLEARLY * np.sqrt(lost + gained))


def quantise(
    content: bytes,
    images: NDArray[np.float32],
    judge: Callable[[bytes], Answers] | None = None,
    losses: Callable[[bytes], float] | None = None,
) -> Int8:
    """An int8 file of a float graph, with as few layers in float as its accuracy allows.

    Where the whole network in int8 is clearly less often right than in float, the first layer, the last one and both
    are tried in float; then further single ones, those first without which the loss falls most.

    Args:
        content: the graph, from :func:`to_onnx`.
        images: to calibrate on, (n, C, H, W), as the network is shown them.
        judge: which validation images a file gets right, (m,); without it everything is in int8.
        losses: the mean cross entropy of a file on validation, by which single layers are compared; without it only
            the first and the last layer may stay in float.
    """
    graph = Calibrated(content, images)
    if not graph.layers:
        raise CannotQuantise("layers with weights", "a graph without any")
    found = graph.quantised()
    if judge is None:
        return found
    wanted = judge(content)
    best = judge(found.content)
    if not clearly_lower(wanted, best):
        return found
    for in_float in _tries(graph, losses):
        tried = graph.quantised(in_float)
        right = judge(tried.content)
        if right.sum() > best.sum():
            found, best = tried, right
        if not clearly_lower(wanted, right):
            return tried
    return found


def _tries(graph: Calibrated, losses: Callable[[bytes], float] | None) -> Iterator[tuple[str, ...]]:
    """Layers to leave in float, the fewest first; which single ones help is found out when it is asked for."""
    first, last = graph.layers[0], graph.layers[-1]
    yield (first,)
    if first == last:
        return
    yield (last,)
    both = (first, last)
    yield both
    if losses is None:
        return
    others = [name for name in graph.layers if name not in both]
    loss = {name: losses(graph.quantised((*both, name)).content) for name in others}
    for count in range(1, min(MOST_SINGLE, len(others)) + 1):
        yield (*both, *sorted(others, key=lambda name: loss[name])[:count])


class OnnxNetwork(nn.Module):
    """An ONNX file that answers like a module: what measures networks measures it, too."""

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self.content, self._session = content, session(content)

    def __deepcopy__(self, memo: dict[int, Any]) -> OnnxNetwork:
        """Another session of the same file."""
        return OnnxNetwork(self.content)

    def forward(self, images: Tensor) -> Tensor:
        """Logits (B, classes) of images (B, C, H, W) on the CPU."""
        return run_logits(self._session, images)


def run_logits(run: Any, images: Tensor) -> Tensor:
    """Logits (B, classes) of some images.

    Args:
        run: a :func:`session` of a graph from images to logits.
        images: (B, C, H, W), as the network is shown them.
    """
    logits: NDArray[np.float32] = run.run(None, {run.get_inputs()[0].name: images.cpu().numpy()})[0]
    return torch.from_numpy(logits)
