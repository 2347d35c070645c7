"""Sees every weight that any network uses, at the function that uses it, and not at modules of known classes.

`F.linear`, the convolutions and the projections inside attention are recorded whoever calls them, so that tied,
parametrised and functionally used weights, tokens and other people's layers are all the same to a metric. Dropout does
nothing inside; other random functions depend on the seed that the caller sets.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from archwright.errors import InputError
from archwright.proxies.records import Geometry

_DROPOUTS = frozenset(
    {F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout, torch.dropout,
     torch.dropout_, torch.feature_dropout, torch.feature_dropout_, torch.alpha_dropout, torch.alpha_dropout_}
)  # fmt: skip
_NORMS = frozenset(
    {F.batch_norm, F.layer_norm, F.group_norm, F.instance_norm, F.rms_norm, torch.batch_norm, torch.layer_norm,
     torch.group_norm, torch.instance_norm}
)  # fmt: skip
_RELUS = frozenset(
    {F.relu, F.relu_, torch.relu, torch.relu_, Tensor.relu, Tensor.relu_, F.relu6, F.leaky_relu, F.leaky_relu_, F.prelu,
     torch.prelu}
)  # fmt: skip
_PRODUCTS = frozenset(
    {torch.matmul, torch.mm, torch.bmm, torch.addmm, torch.baddbmm, torch.einsum, torch.tensordot, torch.inner,
     Tensor.matmul, Tensor.__matmul__, Tensor.__rmatmul__, Tensor.mm, Tensor.bmm, Tensor.addmm, Tensor.inner,
     F.bilinear, torch.bilinear, F.conv3d, F.conv_transpose1d, F.conv_transpose3d, torch.lstm, torch.gru,
     torch.rnn_tanh, torch.rnn_relu}
)  # fmt: skip
"""Products whose weight has gradients but no output of its own that an example's share could be read from."""


@dataclass
class Call:
    """One use of a weight during the forward pass.

    Attributes:
        weight: as it was used: a parameter, or what a parametrisation made of one.
        inputs, output: as they were.
        geometry: of a convolution; None for a linear layer on (..., features).
        transposed: a transposed convolution, whose weight is (C, C'/groups, k, k).
        axis: where the batch is.
        ambiguous: another axis has the length of the batch, too.
    """

    weight: Tensor
    inputs: Tensor
    output: Tensor
    geometry: Geometry | None
    transposed: bool = False
    axis: int = 0
    ambiguous: bool = False

    @property
    def tensor(self) -> Tensor:
        """What has the batch in ``axis``."""
        return self.inputs

    def maps(self, tensor: Tensor, examples: int) -> Tensor:
        """Inputs, outputs or their gradients as (n, C, H, W): n = m for linear layers, a multiple for convolutions.

        Args:
            tensor: as the function saw it.
            examples: m, images of the batch.
        """
        if self.geometry is not None:
            return tensor.unsqueeze(2) if tensor.ndim == 3 else tensor
        return tensor.movedim(self.axis, 0).reshape(examples, -1, tensor.shape[-1]).transpose(1, 2)[..., None]

    def kernel(self) -> Tensor:
        """The weight as (C', C/groups, k, k)."""
        if self.geometry is None:
            return self.weight[..., None, None]
        return self.weight.unsqueeze(2) if self.weight.ndim == 3 else self.weight


@dataclass
class Pattern:
    """One ReLU: which of its units are on, (..., batch, ...) boolean."""

    active: Tensor
    axis: int
    ambiguous: bool

    @property
    def tensor(self) -> Tensor:
        """What has the batch in ``axis``."""
        return self.active


class Watch(TorchFunctionMode):
    """While active, collects the uses of weights, the patterns of ReLUs and the operands of other products.

    Args:
        examples: m, the images of the batch.
        normalise: False leaves every normalisation layer out, as synflow does.
    """

    def __init__(self, examples: int, normalise: bool = True) -> None:
        super().__init__()
        self.examples, self.normalise = examples, normalise
        self.calls: list[Call] = []
        self.patterns: list[Pattern] = []
        self.operands: list[Tensor] = []
        self._handlers: Mapping[Any, Callable[..., Any]] = {
            F.linear: self._linear,
            F.conv1d: self._conv1d,
            F.conv2d: self._conv2d,
            F.conv_transpose2d: self._conv_transpose2d,
            F.multi_head_attention_forward: self._attention,
            F.scaled_dot_product_attention: self._dot_product,
            F.hardtanh: self._hardtanh,
        }

    def __torch_function__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        """Called instead of every torch function; the mode is off inside."""
        kwargs = kwargs or {}
        if func in self._handlers:
            return self._handlers[func](*args, **kwargs)
        if func in _DROPOUTS or (not self.normalise and func in _NORMS):
            return args[0] if args else kwargs["input"]
        out = func(*args, **kwargs)
        if func in _RELUS:
            self._relu(out)
        elif func in _PRODUCTS:
            self.operands += [one for one in _tensors((args, kwargs)) if one.requires_grad and one.ndim >= 2]
        return out

    # --- the functions ---

    def _linear(
        self,
        input: Tensor,  # noqa: A002 - torch calls it so
        weight: Tensor,
        bias: Tensor | None = None,
        axis: int | None = None,
    ) -> Tensor:
        out = F.linear(input, weight, bias)
        if weight.ndim != 2:  # a vector for a weight: no layer
            self.operands.append(weight)
            return out
        where, ambiguous = (axis, False) if axis is not None else self._batch_axis(input.shape[:-1])
        return self._seen(Call(weight, input, out, None, axis=where, ambiguous=ambiguous))

    def _conv1d(
        self, input: Tensor,  # noqa: A002
        weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0,
        dilation: Any = 1, groups: int = 1,
    ) -> Tensor:  # fmt: skip
        stride, dilation = _several(stride, 1), _several(dilation, 1)
        seen, padding = _padded(input, padding, weight.shape[2:], dilation)
        out = F.conv1d(seen, weight, bias, stride, padding, dilation, groups)
        geometry = Geometry((1, stride[0]), (0, padding[0]), (1, dilation[0]), groups)
        return self._seen(Call(weight, seen, out, geometry))

    def _conv2d(
        self, input: Tensor,  # noqa: A002
        weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0,
        dilation: Any = 1, groups: int = 1,
    ) -> Tensor:  # fmt: skip
        stride, dilation = _several(stride, 2), _several(dilation, 2)
        seen, padding = _padded(input, padding, weight.shape[2:], dilation)
        out = F.conv2d(seen, weight, bias, stride, padding, dilation, groups)
        geometry = Geometry(stride, padding, dilation, groups)
        return self._seen(Call(weight, seen, out, geometry))

    def _conv_transpose2d(
        self, input: Tensor,  # noqa: A002
        weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0,
        output_padding: Any = 0, groups: int = 1, dilation: Any = 1,
    ) -> Tensor:  # fmt: skip
        stride, padding, dilation = _several(stride, 2), _several(padding, 2), _several(dilation, 2)
        out = F.conv_transpose2d(input, weight, bias, stride, padding, output_padding, groups, dilation)
        geometry = Geometry(stride, padding, dilation, groups)
        return self._seen(Call(weight, input, out, geometry, transposed=True))

    def _attention(self, *args: Any, **kwargs: Any) -> Any:
        """Attention as its projections, recorded like any linear layer, around attention with identity projections."""
        bound = inspect.signature(F.multi_head_attention_forward).bind(*args, **kwargs)
        bound.apply_defaults()
        given = dict(bound.arguments)
        queries, keys, values = self._projected(given)
        width, last = queries.shape[-1], (given["out_proj_weight"], given["out_proj_bias"])
        identity = torch.eye(width, dtype=queries.dtype, device=queries.device)
        plain = {
            "query": queries, "key": keys, "value": values, "embed_dim_to_check": width, "dropout_p": 0.0,
            "in_proj_weight": identity.repeat(3, 1), "in_proj_bias": None, "out_proj_weight": identity,
            "out_proj_bias": None, "use_separate_proj_weight": False, "q_proj_weight": None, "k_proj_weight": None,
            "v_proj_weight": None,
        }  # fmt: skip
        out, weights = F.multi_head_attention_forward(**{**given, **plain})
        return self._linear(out, *last, axis=1), weights

    def _projected(self, given: Mapping[str, Any]) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values (tokens, m, width). The packed weight stays one weight, whatever it is used on."""
        inputs = [given["query"], given["key"], given["value"]]
        bias = given["in_proj_bias"]
        if given["use_separate_proj_weight"]:
            biases = [None] * 3 if bias is None else bias.chunk(3)
            weights = [given["q_proj_weight"], given["k_proj_weight"], given["v_proj_weight"]]
            found = [self._linear(*three, axis=1) for three in zip(inputs, weights, biases, strict=True)]
        elif inputs[0] is inputs[1] and inputs[1] is inputs[2]:
            found = list(self._linear(inputs[0], given["in_proj_weight"], bias, axis=1).chunk(3, -1))
        else:
            whole = [self._linear(one, given["in_proj_weight"], bias, axis=1) for one in inputs]
            found = [one.chunk(3, -1)[place] for place, one in enumerate(whole)]
        return found[0], found[1], found[2]

    def _dot_product(self, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        mask = args[0] if args else kwargs.pop("attn_mask", None)
        kwargs["dropout_p"] = 0.0
        kwargs |= {"is_causal": args[2]} if len(args) > 2 else {}
        return F.scaled_dot_product_attention(query, key, value, mask, **kwargs)

    def _hardtanh(
        self,
        input: Tensor,  # noqa: A002
        min_val: float = -1.0,
        max_val: float = 1.0,
        inplace: bool = False,
    ) -> Tensor:
        out = F.hardtanh(input, min_val, max_val, inplace)
        if min_val == 0:  # this is how ReLU6 is called
            self._relu(out)
        return out

    # --- what is kept ---

    def _seen(self, call: Call) -> Tensor:
        if call.geometry is not None and call.inputs.shape[0] % self.examples:
            raise InputError(f"convolutions on a batch of {self.examples}", f"an input {tuple(call.inputs.shape)}")
        self.calls.append(call)
        return call.output.clone()  # a following in-place operation must not change what was recorded

    def _relu(self, out: Tensor) -> None:
        axis, ambiguous = self._batch_axis(out.shape)
        self.patterns.append(Pattern(out.detach() > 0, axis, ambiguous))

    def _batch_axis(self, shape: Sequence[int]) -> tuple[int, bool]:
        """Which of the first two axes is the batch (the first may be a multiple of it), and whether both may be."""
        first = shape[0] % self.examples == 0
        second = len(shape) > 1 and shape[1] == self.examples and len(shape) != 4
        if not (first or second):
            raise InputError(
                f"layers on a batch of {self.examples} in the first or second axis", f"a shape {tuple(shape)}"
            )
        return (0 if first else 1), first and second and self.examples > 1


def settle_axes(watched: Watch, shapes: Callable[[], Watch]) -> None:
    """Where a sequence is as long as the batch, look at a run with one image less: the axis that shrank is the batch.

    Args:
        watched: what was seen, changed in place.
        shapes: runs the network on one image less.
    """
    found: list[Call | Pattern] = [*watched.calls, *watched.patterns]
    if not any(one.ambiguous for one in found):
        return
    fewer = shapes()
    others: list[Call | Pattern] = [*fewer.calls, *fewer.patterns]
    for one, other in zip(found, others, strict=True):
        if one.ambiguous:
            one.axis = 0 if one.tensor.shape[0] != other.tensor.shape[0] else 1


def leaves(tensor: Tensor) -> list[Tensor]:
    """The leaf tensors with gradients that ``tensor`` is made of, itself if it is one."""
    if tensor.grad_fn is None:
        return [tensor]
    found: list[Tensor] = []
    seen: set[Any] = set()
    open_: list[Any] = [tensor.grad_fn]
    while open_:
        node = open_.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.append(node.variable)
        open_ += [after for after, _ in node.next_functions]
    return found


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _tensors(one)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


def _several(value: Any, count: int) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, list | tuple) and len(value) == count else (_one(value),) * count


def _one(value: Any) -> int:
    return int(value[0] if isinstance(value, list | tuple) else value)


def _padded(x: Tensor, padding: Any, kernel: Sequence[int], dilation: Sequence[int]) -> tuple[Tensor, tuple[int, ...]]:
    """The input and its padding in pixels; ``same`` padding, which may be uneven, is put on the input."""
    if padding == "valid":
        return x, (0,) * len(kernel)
    if padding != "same":
        return x, _several(padding, len(kernel))
    sides: list[int] = []
    for size, step in zip(reversed(kernel), reversed(dilation), strict=True):
        total = step * (size - 1)
        sides += [total // 2, total - total // 2]
    return F.pad(x, sides), (0,) * len(kernel)
