"""Layer records of any `nn.Module` (A = 1): what it computes decides, not the classes of its layers.

A weight is what a linear layer, a convolution or another product multiplies activations with
(`archwright.proxies.watch`): a parameter, or what a parametrisation makes of one. It is recorded once however often it
is used. Frozen weights are left out; a trained parameter of two or more axes that multiplies nothing (a position
embedding, say) is named in a warning.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils import parametrize
from torch.utils.flop_counter import FlopCounterMode

from archwright.errors import DivergedError, InputError
from archwright.proxies.blocks import folded, random_signs
from archwright.proxies.initialise import NORMS
from archwright.proxies.ntk import weight_jacobian
from archwright.proxies.records import BlockRecord, Geometry, InputRecord, LayerRecord, Need, NtkMode, ReluRecord
from archwright.proxies.watch import Call, Watch, leaves, settle_axes


@dataclass(frozen=True)
class _Weight:
    """One weight and its uses; ``visible`` where each example's share can be read from the uses' outputs."""

    name: str
    tensor: Tensor
    calls: list[Call]
    visible: bool


def record_module(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    needs: Iterable[Need] = ("loss", "logit"),
    ntk: NtkMode = "contracted",
    seed: int = 0,
) -> tuple[list[LayerRecord], list[ReluRecord], InputRecord | None, list[BlockRecord]]:
    """Run one batch through ``model`` in train mode, dropout off, and record its weights, ReLUs, input and blocks.

    Args:
        model: any module mapping images (m, C, H, W) to logits (m, classes); a tuple's last entry counts as logits.
        x: the images.
        y: (m,) integer classes.
        needs: which passes to run; the forward pass is shared by all of them.
        ntk: `contracted` takes the back-propagated gradient of the summed true-class logits (batch norm couples the
            examples); `exact` runs one backward pass per example. Weights whose uses do not show each example's share
            (in a recurrent layer, say) always get the latter.
        seed: of random functions of the network that are no dropout.

    A layer whose output does not reach the logits gets zero gradients.
    """
    needs = set(needs)
    features: list[Tensor] = []
    images = x.detach().requires_grad_(x.is_floating_point())
    with torch.enable_grad(), _as_in_training(model, seed):
        watched = Watch(len(x))
        with parametrize.cached(), _block_outputs(model if "features" in needs else None, features), watched:
            logits = _logits(model(images.clone()))
        settle_axes(watched, lambda: _run_fewer(model, x, seed))
        weights = _weights_of(model, watched, images)
        _check(weights, logits, y)
        _name_the_rest(model, weights, logits, fisher="outputs" in needs)
        if "relu" in needs and not watched.patterns:
            raise InputError(
                "a network with ReLUs for naswot, regions and swap",
                "none (activations of another kind have no pattern)",
            )
        records = _records(weights, logits, y, needs, ntk)
        (slope,) = _gradients(logits.sum(), [images]) if "input" in needs else (None,)
        blocks = _block_records(features, "jumps" in needs, seed) if "features" in needs else []
    zero = torch.zeros(1, dtype=torch.long)
    patterns = [one.active.movedim(one.axis, 0).reshape(len(x), -1) for one in watched.patterns]
    relus = [ReluRecord(zero, pattern[None], torch.ones(1)) for pattern in patterns]
    at_input = InputRecord(zero, (torch.zeros_like(images) if slope is None else slope).detach()[None])
    return records, relus, at_input if "input" in needs else None, blocks


def record_halves(model: nn.Module, x: Tensor, y: Tensor, seed: int = 0) -> list[LayerRecord]:
    """Weights with the loss gradients of each half of the batch; a last odd image is left out.

    Args:
        model: unchanged afterwards.
        x: images (m, C, H, W).
        y: labels (m,).
        seed: of random functions of the network that are no dropout.
    """
    half = len(y) // 2
    parts = [slice(0, half), slice(half, 2 * half)]
    first, second = (record_module(model, x[part], y[part], needs=("loss",), seed=seed)[0] for part in parts)
    found = []
    for one, other in zip(first, second, strict=True):
        assert one.weight_gradient is not None
        assert other.weight_gradient is not None
        found.append(replace(one, half_gradients=torch.stack([one.weight_gradient, other.weight_gradient], 1)))
    return found


def record_synflow(model: nn.Module, x: Tensor) -> list[LayerRecord]:
    """The data-free pass of synflow: gradients of the summed outputs for |weights|, ones in, no norms, float64.

    The network runs with copies of its parameters, on the CPU, because not every accelerator has float64.

    Args:
        model: unchanged afterwards.
        x: images (m, C, H, W), of which only the shape counts.
    """
    state: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        state[name] = parameter.detach().cpu().double().abs().requires_grad_(parameter.requires_grad)
    for name, buffer in model.named_buffers():
        state[name] = buffer.cpu().double() if buffer.is_floating_point() else buffer.cpu()
    ones = torch.ones(1, *x.shape[1:], dtype=torch.float64)
    with torch.enable_grad(), _as_in_training(model, 0):
        model.eval()
        watched = Watch(1, normalise=False)
        with parametrize.cached(), watched:
            total = _logits(functional_call(model, state, (ones,))).sum()
        weights = _weights_of(model, watched, ones, {id(tensor): name for name, tensor in state.items()})
        gradients = _gradients(total, [weight.tensor for weight in weights])
    return [_record(weight, 1, {"weight_gradient": g}) for weight, g in zip(weights, gradients, strict=True)]


def count_macs(model: nn.Module, x: Tensor) -> float:
    """Multiply-accumulates of all products (layers, attention) for one image, frozen layers included.

    Args:
        model: unchanged afterwards.
        x: images (m, C, H, W).
    """
    with torch.no_grad(), _as_in_training(model, 0), FlopCounterMode(display=False) as counter:
        model(x)
    return float(counter.get_total_flops()) / 2 / len(x)


@contextmanager
def _as_in_training(model: nn.Module, seed: int) -> Iterator[None]:
    """Train mode, random numbers of ``seed``, attention that can be differentiated twice; all restored afterwards."""
    modes = {module: module.training for module in model.modules()}
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    model.train()
    try:
        with torch.random.fork_rng(devices=[]), sdpa_kernel(SDPBackend.MATH):
            torch.manual_seed(seed)
            yield
    finally:
        for module, mode in modes.items():
            module.training = mode
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                buffer.copy_(buffers[name])


def _run_fewer(model: nn.Module, x: Tensor, seed: int) -> Watch:
    """The network on one image less, for the shapes alone."""
    watched = Watch(len(x) - 1)
    with torch.no_grad(), _as_in_training(model, seed), watched:
        model(x[:-1].clone())
    return watched


# --- weights ---------------------------------------------------------------------------------------------------------


def _weights_of(model: nn.Module, watched: Watch, images: Tensor, names: dict[int, str] | None = None) -> list[_Weight]:
    """The trained weights that were used, each once, in the order of their first use."""
    names = names or {id(parameter): name for name, parameter in model.named_parameters()}
    used: dict[int, tuple[Tensor, list[Call]]] = {}
    for call in watched.calls:
        if call.weight.requires_grad:
            used.setdefault(id(call.weight), (call.weight, []))[1].append(call)
    hidden = {id(one): one for one in watched.operands}
    for key, operand in hidden.items():
        used.setdefault(key, (operand, []))
    parts = {key: [leaf for leaf in leaves(tensor) if leaf.requires_grad] for key, (tensor, _) in used.items()}
    data = {key for key, found in parts.items() if any(leaf is images or id(leaf) not in names for leaf in found)}
    owners: dict[int, set[int]] = {}
    for key in used.keys() - data:
        for leaf in parts[key]:
            owners.setdefault(id(leaf), set()).add(key)
    found: dict[int, _Weight] = {}
    for key, (tensor, calls) in used.items():
        if key in data or not parts[key]:
            continue
        alone = key not in hidden and all(owners[id(leaf)] == {key} for leaf in parts[key])
        if alone:
            found[key] = _Weight(_short(names[id(parts[key][0])]), tensor, calls, True)
            continue
        for leaf in parts[key]:  # several tensors made of one parameter: the parameter itself is the weight
            if leaf.ndim >= 2:
                known = found.setdefault(id(leaf), _Weight(_short(names[id(leaf)]), leaf, [], False))
                known.calls.extend(calls)
    return list(found.values())


def _short(name: str) -> str:
    """Where the weight sits: ``conv`` for ``conv.weight`` and ``conv.parametrizations.weight.original1``."""
    return name.partition(".parametrizations.")[0].removesuffix(".weight")


def _name_the_rest(model: nn.Module, weights: list[_Weight], logits: Tensor, fisher: bool) -> None:
    """Warn about trained parameters of several axes that are in the logits and in no record."""
    counted = {id(leaf) for weight in weights for leaf in leaves(weight.tensor)}
    scales = {id(p) for module in model.modules() if isinstance(module, NORMS) for p in module.parameters()}
    in_use = {id(leaf) for leaf in leaves(logits)}
    left = [
        name
        for name, parameter in model.named_parameters()
        if parameter.ndim >= 2 and id(parameter) in in_use - counted - scales
    ]
    if left:
        warnings.warn(f"not counted, because no product uses them as weights: {', '.join(left)}", stacklevel=4)
    unseen = [weight.name for weight in weights if not weight.calls]
    if fisher and unseen:
        warnings.warn(f"fisher does not see the outputs of: {', '.join(unseen)}", stacklevel=4)


def _logits(output: Any) -> Tensor:
    tensor = output[-1] if isinstance(output, tuple | list) else output
    if not isinstance(tensor, Tensor) or tensor.ndim != 2:
        got = f"an output of shape {tuple(tensor.shape)}" if isinstance(tensor, Tensor) else type(tensor).__name__
        raise InputError(
            "a network that returns logits (batch, classes)", got, "Score the classifier, not its features."
        )
    return tensor


def _check(weights: list[_Weight], logits: Tensor, y: Tensor) -> None:
    if not weights:
        raise InputError(
            "a network with trained convolution or linear weights",
            "one that used none",
            "Parameter-free and frozen networks have no score.",
        )
    if int(y.max()) >= logits.shape[1] or int(y.min()) < 0:
        raise InputError(f"classes 0 to {logits.shape[1] - 1}", f"{int(y.min())} to {int(y.max())}")


# --- blocks ----------------------------------------------------------------------------------------------------------


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """What the network is a sequence of: what its ``blocks()`` says, else the parts of its longest list of modules."""
    own = getattr(model, "blocks", None)
    if callable(own) and not isinstance(own, nn.Module):
        return list(own())
    chains = [module for module in model.modules() if isinstance(module, nn.Sequential | nn.ModuleList)]
    return list(max(chains, key=len, default=nn.ModuleList()).children())


@contextmanager
def _block_outputs(model: nn.Module | None, features: list[Tensor]) -> Iterator[None]:
    """Collect the blocks' outputs that are maps or tokens while inside; the hooks are gone afterwards."""

    def keep(module: nn.Module, args: Any, output: Any) -> Any:
        if not isinstance(output, Tensor) or output.ndim not in (3, 4):
            return output
        features.append(output)
        return output.clone()  # a following in-place operation must not change what was recorded

    handles = [block.register_forward_hook(keep) for block in blocks_of(model)] if model is not None else []
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _block_records(features: list[Tensor], with_jumps: bool, seed: int) -> list[BlockRecord]:
    """One record a block; random signs go back from each block's output to that of the block before."""
    if len(features) < 2:
        raise InputError(
            "a network of at least two blocks for expressivity, progressivity and trainability",
            f"{len(features)} parts with maps or tokens",
            "Give the network a method blocks() that lists its blocks.",
        )
    found, before = [], features[0]
    for number, output in enumerate(features):
        maps, signs, signals = _innermost(output), None, None
        if number and with_jumps:
            drawn = random_signs(seed, number, tuple(maps.shape)).to(maps)
            (back,) = torch.autograd.grad(
                output, [before], _outermost(drawn, output), retain_graph=True, allow_unused=True
            )
            back = torch.zeros_like(before) if back is None else back
            signs, signals = drawn.flatten(1), folded(_innermost(back)[None], *maps.shape[1:3])
        zero = torch.zeros(1, dtype=torch.long)
        flat = maps.detach().flatten(1)[None]
        found.append(BlockRecord(zero, number, len(features), flat, signs, signals))
        before = output
    return found


def _innermost(output: Tensor) -> Tensor:
    """Maps (m, C, H, W) or tokens (m, T, C) as (C, H, W, m)."""
    return output.permute(1, 2, 3, 0) if output.ndim == 4 else output.permute(2, 1, 0)[:, :, None]


def _outermost(maps: Tensor, like: Tensor) -> Tensor:
    return maps.permute(3, 0, 1, 2) if like.ndim == 4 else maps[:, :, 0].permute(2, 1, 0)


# --- passes ----------------------------------------------------------------------------------------------------------


def _records(weights: list[_Weight], logits: Tensor, y: Tensor, needs: set[Need], ntk: NtkMode) -> list[LayerRecord]:
    """Every requested backward pass on the graph of one forward pass, as records."""
    tensors = [weight.tensor for weight in weights]
    calls = [call for weight in weights for call in weight.calls]
    outputs = [call.output for call in calls]
    fields: list[dict[str, Tensor | None]] = [{} for _ in weights]
    at_loss: dict[int, Tensor | None] = {}
    at_logits: dict[int, Tensor | None] = {}
    if needs & {"loss", "hessian"}:
        loss = F.cross_entropy(logits, y)
        if not torch.isfinite(loss):
            raise DivergedError(
                f"expected a finite loss at initialisation, got {loss.item()}. Check the scale of the images."
            )
        both = _gradients(loss, outputs + tensors, create_graph="hessian" in needs)
        at_loss = {id(call): g for call, g in zip(calls, both, strict=False)}
        products = _hessian_products(both[len(calls) :], tensors) if "hessian" in needs else None
        for number, field in enumerate(fields):
            field["weight_gradient"] = both[len(calls) + number]
            if products is not None:
                field["hessian_weight"] = products[number]
    if "logit" in needs:
        true_logits = logits.gather(1, y[:, None])
        hidden = [n for n, weight in enumerate(weights) if ntk == "exact" or not weight.visible]
        for number, jacobian in zip(hidden, _jacobians(true_logits, [tensors[n] for n in hidden]), strict=True):
            fields[number]["jacobian"] = jacobian
        if ntk == "contracted":
            found = _gradients(true_logits.sum(), outputs)
            at_logits = {id(call): g for call, g in zip(calls, found, strict=True)}
    return [_record(weight, len(y), field, at_loss, at_logits) for weight, field in zip(weights, fields, strict=True)]


def _hessian_products(gradients: tuple[Tensor | None, ...], weights: list[Tensor]) -> tuple[Tensor | None, ...]:
    """H @ theta by a second backward pass, theta taken as constant."""
    used = [(g, w) for g, w in zip(gradients, weights, strict=True) if g is not None and g.requires_grad]
    if not used:
        return (None,) * len(weights)
    return _gradients(torch.stack([(g * w.detach()).sum() for g, w in used]).sum(), weights)


def _jacobians(true_logits: Tensor, weights: list[Tensor]) -> list[Tensor]:
    """Per-example gradients (m, *weight) of the true-class logits (m, 1), one backward pass an example."""
    if not weights:
        return []
    rows = [_gradients(logit.sum(), weights) for logit in true_logits]
    return [
        torch.stack([torch.zeros_like(w) if row[i] is None else row[i] for row in rows])  # type: ignore[misc]
        for i, w in enumerate(weights)
    ]


def _gradients(value: Tensor, targets: list[Tensor], create_graph: bool = False) -> tuple[Tensor | None, ...]:
    if not targets:
        return ()
    return torch.autograd.grad(value, targets, retain_graph=True, create_graph=create_graph, allow_unused=True)


def _record(
    weight: _Weight,
    examples: int,
    fields: dict[str, Tensor | None],
    at_loss: dict[int, Tensor | None] | None = None,
    at_logits: dict[int, Tensor | None] | None = None,
) -> LayerRecord:
    """Bring a weight's tensors into the common shapes; a missing gradient (unused layer) is zero."""
    value, calls = weight.tensor.detach(), weight.calls
    plain = weight.visible and len(calls) == 1 and not calls[0].transposed
    plain = plain and calls[0].maps(calls[0].inputs, examples).shape[0] == examples
    kernel = calls[0].kernel().detach() if plain else value
    full = {name: torch.zeros_like(value) if g is None else g.detach() for name, g in fields.items()}
    jacobian = full.pop("jacobian", None)
    if jacobian is None and at_logits and not plain:
        jacobian = torch.stack([_share(call, at_logits[id(call)], examples) for call in calls]).sum(0)
    maps = [_maps_of(call, at_loss or {}, examples) for call in calls]
    first = calls[0] if calls else None
    logit_gradients = None
    if plain and jacobian is None and at_logits and first is not None:
        logit_gradients = _mapped(first, at_logits[id(first)], examples)[None]
    inputs = value.new_zeros(examples, 1, 1, 1) if first is None else first.maps(first.inputs.detach(), examples)
    outputs = None if first is None else first.maps(first.output.detach(), examples)
    return LayerRecord(
        weight.name,
        torch.zeros(1, dtype=torch.long),
        (None if first is None else first.geometry) or Geometry(),
        inputs[None],
        kernel[None],
        (1, 1) if outputs is None else (outputs.shape[-2], outputs.shape[-1]),
        loss_gradients=maps[0][1] if at_loss and maps else None,
        logit_gradients=logit_gradients,
        jacobian=None if jacobian is None else jacobian[None],
        outputs=None if outputs is None else outputs[None],
        uses=tuple(maps[1:]) if at_loss else (),
        **{name: g.reshape(kernel.shape)[None] for name, g in full.items()},
    )


def _mapped(call: Call, gradient: Tensor | None, examples: int) -> Tensor:
    return call.maps(torch.zeros_like(call.output) if gradient is None else gradient.detach(), examples)


def _maps_of(call: Call, at_loss: dict[int, Tensor | None], examples: int) -> tuple[Tensor, Tensor]:
    """A use's output and its loss gradient, each (1, n, C', H', W')."""
    return call.maps(call.output.detach(), examples)[None], _mapped(call, at_loss.get(id(call)), examples)[None]


def _share(call: Call, gradient: Tensor | None, examples: int) -> Tensor:
    """What one use adds to each example's gradient of its weight, (m, *weight).

    A transposed convolution is the adjoint of a convolution: its input and its output's gradient change places.
    """
    seen, signal = call.maps(call.inputs.detach(), examples), _mapped(call, gradient, examples)
    if call.transposed:
        seen, signal = signal, seen
    kernel, shape = call.kernel().detach(), (signal.shape[-2], signal.shape[-1])
    record = LayerRecord("", torch.zeros(1), call.geometry or Geometry(), seen[None], kernel[None], shape)
    found = weight_jacobian(record, signal[None])[0]
    return found.reshape(examples, -1, *call.weight.shape).sum(1)
