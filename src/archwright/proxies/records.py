"""Layer records: all that a training-free metric may see of a network, whoever ran it.

A record describes one convolution or linear layer of ``A`` architectures at once: every tensor has a leading axis over
architectures, then (for activations) one over the m examples of the batch. `record_module` fills records from any
`nn.Module` with ``A = 1``; `archwright.proxies.stacked` fills them from many networks run in one tensor program.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from archwright.errors import DivergedError, InputError

Need = Literal["loss", "logit", "hessian", "synflow", "relu"]
NtkMode = Literal["contracted", "exact"]


@dataclass(frozen=True)
class Geometry:
    """How a convolution slides; a linear layer is a 1x1 convolution of one position."""

    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1


@dataclass(frozen=True)
class LayerRecord:
    """One layer of A architectures, m examples each.

    Attributes:
        name: where the layer sits in the network.
        rows: (A,) which of the scored architectures each entry belongs to.
        geometry: stride, padding, dilation and groups.
        inputs: (A, m, C, H, W) what the layer saw; a linear layer has H = W = 1.
        weight: (A, C', C/groups, k, k).
        output_shape: spatial size (H', W') of the output.
        loss_gradients: (A, m, C', H', W') of the batch-mean loss with respect to the layer's output.
        weight_gradient: like ``weight``, of the batch-mean loss.
        logit_gradients: (A, m, C', H', W') of the sum over the batch of the true-class logits.
        jacobian: (A, m, C', C/groups, k, k) true per-example gradients of the true-class logit (`exact` mode only).
        hessian_weight: like ``weight``, this layer's part of H @ theta for the batch-mean loss.
    """

    name: str
    rows: Tensor
    geometry: Geometry
    inputs: Tensor
    weight: Tensor
    output_shape: tuple[int, int]
    loss_gradients: Tensor | None = None
    weight_gradient: Tensor | None = None
    logit_gradients: Tensor | None = None
    jacobian: Tensor | None = None
    hessian_weight: Tensor | None = None


@dataclass(frozen=True)
class ReluRecord:
    """The pattern of one ReLU of A architectures: ``active`` (A, m, units) boolean, counted ``times`` (A,) times."""

    rows: Tensor
    active: Tensor
    times: Tensor


@dataclass
class _Call:
    """One use of a layer during the forward pass."""

    name: str
    layer: nn.Conv2d | nn.Linear
    inputs: Tensor
    output: Tensor


@contextmanager
def _hooked(model: nn.Module, calls: list[_Call], patterns: list[Tensor]) -> Iterator[None]:
    """Collect layer uses and ReLU patterns while inside; the hooks are gone afterwards whatever happens."""

    def on_layer(name: str) -> Callable[[nn.Module, Any, Any], Tensor]:
        def hook(module: nn.Module, args: Any, output: Tensor) -> Tensor:
            assert isinstance(module, nn.Conv2d | nn.Linear)
            calls.append(_Call(name, module, args[0], output))
            return output.clone()  # a following in-place operation must not change what was recorded

        return hook

    def on_relu(module: nn.Module, args: Any, output: Tensor) -> None:
        patterns.append((output.detach() > 0).flatten(1))

    handles = []
    try:
        for name, module in model.named_modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                handles.append(module.register_forward_hook(on_layer(name)))
            elif isinstance(module, nn.ReLU | nn.ReLU6):
                handles.append(module.register_forward_hook(on_relu))
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _train_mode(model: nn.Module) -> Iterator[None]:
    """Train mode with every mode and buffer (running statistics) restored afterwards."""
    modes = {module: module.training for module in model.modules()}
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    model.train()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                buffer.copy_(buffers[name])


def record_module(
    model: nn.Module, x: Tensor, y: Tensor, *, needs: Iterable[Need] = ("loss", "logit"), ntk: NtkMode = "contracted"
) -> tuple[list[LayerRecord], list[ReluRecord]]:
    """Run one batch through ``model`` in train mode and record its convolution and linear layers (A = 1).

    Args:
        model: any module mapping images (m, C, H, W) to logits (m, classes); a tuple's last entry counts as logits.
        x: the images.
        y: (m,) integer classes.
        needs: which passes to run; the forward pass is shared by all of them.
        ntk: `contracted` takes the back-propagated gradient of the summed true-class logits (batch norm couples the
            examples); `exact` runs one backward pass per example.

    A layer whose output does not reach the logits gets zero gradients.
    """
    needs = set(needs)
    calls: list[_Call] = []
    patterns: list[Tensor] = []
    with torch.enable_grad(), _train_mode(model):
        with _hooked(model, calls, patterns):
            logits = _logits(model(x))
        _check(calls, logits, y)
        passes = _passes(calls, logits, y, needs, ntk)
    zero = torch.zeros(1, dtype=torch.long)
    relus = [ReluRecord(zero, pattern[None], torch.ones(1)) for pattern in patterns]
    return [_record(call, **{k: v[i] for k, v in passes.items()}) for i, call in enumerate(calls)], relus


def record_synflow(model: nn.Module, x: Tensor) -> list[LayerRecord]:
    """The data-free pass of synflow: gradients of the summed outputs for |weights|, ones in, no batch norm, float64.

    A copy of the network runs, because batch norm is taken out of it and its weights change sign and type; on the CPU,
    because not every accelerator has float64.
    """
    linear = copy.deepcopy(model).cpu().double().eval()
    _drop_batch_norm(linear)
    calls: list[_Call] = []
    with torch.enable_grad():
        for parameter in linear.parameters():
            parameter.data.abs_()
            parameter.requires_grad_(True)
        with _hooked(linear, calls, []):
            total = _logits(linear(torch.ones(1, *x.shape[1:], dtype=torch.float64))).sum()
        gradients = _gradients(total, [call.layer.weight for call in calls])
    return [_record(call, weight_gradient=g) for call, g in zip(calls, gradients, strict=True)]


def _drop_batch_norm(module: nn.Module) -> None:
    for name, child in module.named_children():
        if isinstance(child, nn.BatchNorm1d | nn.BatchNorm2d):
            setattr(module, name, nn.Identity())
        else:
            _drop_batch_norm(child)


def _logits(output: Any) -> Tensor:
    tensor = output[-1] if isinstance(output, tuple | list) else output
    if not isinstance(tensor, Tensor) or tensor.ndim != 2:
        got = f"an output of shape {tuple(tensor.shape)}" if isinstance(tensor, Tensor) else type(tensor).__name__
        raise InputError(
            "a network that returns logits (batch, classes)", got, "Score the classifier, not its features."
        )
    return tensor


def _check(calls: list[_Call], logits: Tensor, y: Tensor) -> None:
    if not calls:
        raise InputError(
            "a network with convolution or linear weights",
            "one that used none",
            "Parameter-free networks have no score.",
        )
    names = [call.name for call in calls]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(
            "a network that runs each layer once", f"{twice[0]!r} run repeatedly", "Give each use its own layer."
        )
    if int(y.max()) >= logits.shape[1] or int(y.min()) < 0:
        raise InputError(f"classes 0 to {logits.shape[1] - 1}", f"{int(y.min())} to {int(y.max())}")


def _passes(
    calls: list[_Call], logits: Tensor, y: Tensor, needs: set[Need], ntk: NtkMode
) -> dict[str, list[Tensor | None]]:
    """Every requested backward pass on the graph of one forward pass; a list over layers for each field."""
    outputs, weights = [call.output for call in calls], [call.layer.weight for call in calls]
    found: dict[str, list[Tensor | None]] = {}
    if "loss" in needs or "hessian" in needs:
        loss = F.cross_entropy(logits, y)
        if not torch.isfinite(loss):
            raise DivergedError(
                f"expected a finite loss at initialisation, got {loss.item()}. Check the scale of the images."
            )
        both = _gradients(loss, outputs + weights, create_graph="hessian" in needs)
        found["loss_gradients"], found["weight_gradient"] = list(both[: len(calls)]), list(both[len(calls) :])
        if "hessian" in needs:
            used = [(g, w) for g, w in zip(found["weight_gradient"], weights, strict=True) if g is not None]
            along = sum(((g * w.detach()).sum() for g, w in used if g.requires_grad), start=torch.zeros(()))
            found["hessian_weight"] = list(_gradients(along, weights)) if along.requires_grad else [None] * len(calls)
    true_logits = logits.gather(1, y[:, None])
    if "logit" in needs and ntk == "exact":
        rows = [_gradients(logit.sum(), weights) for logit in true_logits]
        found["jacobian"] = [
            torch.stack([torch.zeros_like(w) if row[i] is None else row[i] for row in rows])  # type: ignore[misc]
            for i, w in enumerate(weights)
        ]
    elif "logit" in needs:
        found["logit_gradients"] = list(_gradients(true_logits.sum(), outputs))
    return found


def _gradients(value: Tensor, targets: list[Tensor], create_graph: bool = False) -> tuple[Tensor | None, ...]:
    return torch.autograd.grad(value, targets, retain_graph=True, create_graph=create_graph, allow_unused=True)


def _record(call: _Call, **fields: Tensor | None) -> LayerRecord:
    """Bring a layer's tensors into the common shapes; a missing gradient (unused layer) is zero."""
    layer, inputs, output, weight = call.layer, call.inputs.detach(), call.output.detach(), call.layer.weight.detach()
    like = {"loss_gradients": output, "logit_gradients": output, "weight_gradient": weight, "hessian_weight": weight}
    full = {k: (torch.zeros_like(like[k]) if v is None else v.detach()) for k, v in fields.items() if k != "jacobian"}
    jacobian = fields.get("jacobian")
    if isinstance(layer, nn.Linear):
        if inputs.ndim != 2:
            raise InputError(
                "linear layers on (batch, features)", f"{call.name!r} on {tuple(inputs.shape)}", "Flatten its input."
            )
        inputs, weight, output = inputs[..., None, None], weight[..., None, None], output[..., None, None]
        full = {k: v[..., None, None] for k, v in full.items()}
        jacobian = None if jacobian is None else jacobian[..., None, None]
        geometry = Geometry()
    else:
        geometry = _geometry(call.name, layer)
    return LayerRecord(
        call.name,
        torch.zeros(1, dtype=torch.long),
        geometry,
        inputs[None],
        weight[None],
        (output.shape[-2], output.shape[-1]),
        jacobian=None if jacobian is None else jacobian[None],
        **{k: v[None] for k, v in full.items()},
    )


def _geometry(name: str, layer: nn.Conv2d) -> Geometry:
    if layer.padding_mode != "zeros" or layer.padding == "same":
        raise InputError(
            "convolutions with zero padding given in pixels",
            f"{name!r} with padding={layer.padding!r}, padding_mode={layer.padding_mode!r}",
            "Write padding=kernel // 2 for 'same'." if layer.padding == "same" else "",
        )
    padding = (0, 0) if isinstance(layer.padding, str) else layer.padding
    stride, dilation = layer.stride, layer.dilation
    return Geometry((stride[0], stride[1]), (padding[0], padding[1]), (dilation[0], dilation[1]), layer.groups)
