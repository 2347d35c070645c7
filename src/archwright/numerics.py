"""How this process computes: mixed precision, TF32, cuDNN's choice of kernels, compiled networks.

Set once a process, as its threads are; docs/gpus.md says what each costs in repeatability. The one helper for mixed
precision is :func:`autocast`, around every step and evaluation, and around no latency and no solver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from archwright.errors import InputError

LOSS_SCALE = 4096.0
"""What losses are multiplied by before they are differentiated in float16, whose smallest numbers are 6e-8."""


@dataclass(frozen=True)
class Numerics:
    """Settings of a process.

    Attributes:
        amp: compute networks in bfloat16, or in float16 on GPUs without it; weights stay float32.
        tf32: multiply float32 numbers with 10 bits of their fractions on GPUs that can.
        cudnn_benchmark: let cuDNN time its kernels for each shape and take the quickest.
        compile: compile networks that are trained one at a time (``torch.compile``).
    """

    amp: bool = False
    tf32: bool = False
    cudnn_benchmark: bool = False
    compile: bool = False

    def to_json(self) -> dict[str, bool]:
        """The settings by name."""
        return asdict(self)


PLAIN = Numerics()
"""Everything in float32, the same kernels every time."""
_now = PLAIN


def current() -> Numerics:
    """The settings of this process."""
    return _now


def use(numerics: Numerics, device: torch.device) -> None:
    """Compute by ``numerics`` from now on, on ``device``; refused where a setting would do nothing there."""
    global _now
    idle = [name for name in ("tf32", "cudnn_benchmark") if getattr(numerics, name) and device.type != "cuda"]
    if idle:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in idle)
        raise InputError("only options that do something", f"{flags} on {device.type}", "They are for NVIDIA GPUs.")
    _now = numerics
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = numerics.tf32
    torch.backends.cudnn.benchmark = numerics.cudnn_benchmark


@contextmanager
def using(numerics: Numerics, device: torch.device) -> Iterator[None]:
    """:func:`use` inside the block, and as before after it.

    Args:
        numerics: inside.
        device: that computes.
    """
    before = _now
    use(numerics, device)
    try:
        yield
    finally:
        use(before, torch.device("cuda") if before.tf32 or before.cudnn_benchmark else device)


def mixed_type(device: torch.device) -> torch.dtype:
    """What mixed precision computes in: bfloat16, or float16 on NVIDIA GPUs that have no bfloat16 in hardware."""
    lacking = device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.float16 if lacking else torch.bfloat16


def autocast(device: torch.device, precision: str = "float32") -> AbstractContextManager[Any]:
    """Around the forward pass of a network: mixed precision where this process or a recipe asks for it.

    Args:
        device: that computes.
        precision: of a recipe: ``float32`` leaves it to the process, ``bfloat16`` is that, and ``auto`` is bfloat16 on
            GPUs that have it.
    """
    kind = _type_of(device, precision)
    return nullcontext() if kind is None else torch.autocast(device.type, dtype=kind)


def _type_of(device: torch.device, precision: str = "float32") -> torch.dtype | None:
    """The type that :func:`autocast` computes in; None for float32. Devices that autocast does not know have none."""
    if precision == "bfloat16":
        return torch.bfloat16
    if _now.amp and device.type in ("cpu", "cuda", "mps", "xpu"):
        return mixed_type(device)
    quick = precision == "auto" and device.type == "cuda" and mixed_type(device) is torch.bfloat16
    return torch.bfloat16 if quick else None


def loss_scale(device: torch.device) -> float:
    """What losses on ``device`` are multiplied by before they are differentiated; 1 but for float16.

    It is a constant, so that a step is a function of its place; a step whose gradient overflows is left out.
    """
    return LOSS_SCALE if _type_of(device) is torch.float16 else 1.0


def backward(loss: Tensor, parameters: Callable[[], Iterable[nn.Parameter]]) -> None:
    """``loss.backward()``; in float16 of the scaled loss, and no gradient at all where one is not finite.

    Args:
        loss: a 0-d tensor.
        parameters: of all networks that get gradients.
    """
    scale = loss_scale(loss.device)
    if scale == 1.0:
        loss.backward()  # type: ignore[no-untyped-call]
        return
    (scale * loss).backward()  # type: ignore[no-untyped-call]
    weights = [weight for weight in parameters() if weight.grad is not None]
    found = [weight.grad for weight in weights if weight.grad is not None]
    torch._foreach_mul_(found, 1 / scale)
    if not _finite(found):
        for weight in weights:
            weight.grad = None


def gradients(loss: Tensor, wrt: Sequence[Tensor], **options: Any) -> list[Tensor]:
    """``torch.autograd.grad`` with zeros for what is unused; in float16 of the scaled loss, zeros where it overflows.

    Args:
        loss: a 0-d tensor.
        wrt: what it is differentiated by.
        options: further ones of ``torch.autograd.grad``.
    """
    scale = loss_scale(loss.device)
    options = {"allow_unused": True, "materialize_grads": True, **options}
    if scale == 1.0:
        return list(torch.autograd.grad(loss, list(wrt), **options))
    found = [one / scale for one in torch.autograd.grad(scale * loss, list(wrt), **options)]
    return found if _finite(found) else [torch.zeros_like(one) for one in found]


def _finite(tensors: Sequence[Tensor]) -> bool:
    return not tensors or bool(torch.stack([one.isfinite().all() for one in tensors]).all())


def compiled(network: nn.Module) -> Callable[..., Any]:
    """What runs ``network`` in training: itself, or its compiled form, which shares its weights."""
    return torch.compile(network) if _now.compile else network
