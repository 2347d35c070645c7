"""An accelerator that is not there: tensors that say they are on torch's ``meta`` device, but hold real numbers.

Within :class:`FakeAccelerator`, ``.to("meta")`` and ``device="meta"`` give such tensors. They refuse what MPS refuses:
to be mixed with a CPU tensor of one or more dimensions, to be float64, and to be read by ``numpy()``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

DEVICE = torch.device("meta")
NO_FLOAT64 = "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64."


_TAKES_CPU_INDICES = (torch.ops.aten.index.Tensor, torch.ops.aten.index_put_.default, torch.ops.aten.index_put.default)
"""Every back end takes indices from the CPU."""


class OnAccelerator(torch.Tensor):
    """A wrapped CPU tensor."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> OnAccelerator:
        if inner.dtype == torch.float64:
            raise TypeError(
                "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64."
            )
        wrapped = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=DEVICE,
            requires_grad=False,
        )
        wrapped.inner = inner
        return wrapped

    @property
    def is_meta(self) -> bool:  # type: ignore[override]
        """It holds numbers: modules load weights into it."""
        return False

    def numpy(self, *_: Any, **__: Any) -> Any:
        raise TypeError("can't convert this device type tensor to numpy. Use Tensor.cpu() first.")

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"OnAccelerator({self.inner})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})


class FakeAccelerator(TorchDispatchMode):
    """Catches what would make a tensor on the device."""

    def __enter__(self) -> FakeAccelerator:
        super().__enter__()
        self._constructors = _Constructors()
        self._constructors.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._constructors.__exit__(*error)
        super().__exit__(*error)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})


class _Constructors(TorchFunctionMode):
    """``torch.tensor`` never reaches the dispatcher: fill a CPU tensor and move it."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        target = kwargs.get("device")
        if func in (torch.tensor, torch.as_tensor) and target is not None and torch.device(target) == DEVICE:
            return func(*args, **{**kwargs, "device": "cpu"}).to(DEVICE)
        if func in (torch.Tensor.__getitem__, torch.Tensor.__setitem__):  # lists of indices, too, are filled elsewhere
            tensor, index, *rest = args
            parts = index if isinstance(index, tuple) else (index,)
            whole = tuple(torch.tensor(part) if isinstance(part, list) else part for part in parts)
            return func(tensor, whole if isinstance(index, tuple) else whole[0], *rest)
        return func(*args, **kwargs)


def run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run ``func`` on what the tensors hold, and wrap what belongs on the device."""
    given, _ = tree_flatten((args, kwargs))
    wrapped = [one for one in given if isinstance(one, OnAccelerator)]
    if any(isinstance(one, torch.Tensor) and one.is_meta and not isinstance(one, OnAccelerator) for one in given):
        raise RuntimeError(f"{func}: a tensor without numbers; teach this file how it was made")
    target = kwargs.get("device")
    moves = func in (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)
    if wrapped and not moves and func not in _TAKES_CPU_INDICES:
        for one in given:
            if isinstance(one, torch.Tensor) and not isinstance(one, OnAccelerator) and one.dim() > 0:
                raise RuntimeError(
                    f"{func}: expected all tensors on the accelerator, got one of shape {tuple(one.shape)} on cpu"
                )
    to_device = torch.device(target).type == DEVICE.type if target is not None else bool(wrapped)
    if func is torch.ops.aten.copy_.default:
        to_device = isinstance(args[0], OnAccelerator)
    if target is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    if func is torch.ops.aten._to_copy.default and to_device and kwargs.get("dtype") is torch.float64:
        raise TypeError(NO_FLOAT64)
    plain_args, plain_kwargs = tree_map(_inner, (args, kwargs))
    out = func(*plain_args, **plain_kwargs)
    if not to_device:
        return out
    known = {id(one.inner): one for one in wrapped}  # an operation in place gives its own argument back
    flat, spec = tree_flatten(out)
    return tree_unflatten([_wrap(one, known) for one in flat], spec)


def _inner(value: Any) -> Any:
    return value.inner if isinstance(value, OnAccelerator) else value


def _wrap(value: Any, known: dict[int, OnAccelerator]) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return known[id(value)] if id(value) in known else OnAccelerator(value)


def on_accelerator(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` run with the device there."""

    def inside(*arguments: Any, **named: Any) -> Any:
        with FakeAccelerator():
            return function(*arguments, **named)

    return inside
