"""What a batch must be before networks are scored on it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from archwright.errors import InputError
from archwright.proxies.metrics import Proxy

_LABEL_FREE = {"synflow", "naswot", "regions", "swap", "jacob_cov", "meco", "params", "macs", "expressivity"}
_LABEL_FREE |= {"progressivity", "trainability"}


def check_batch(x: Tensor, y: Tensor, proxies: Sequence[Proxy]) -> None:
    """Refuse a batch that cannot be scored; warn about one that says little.

    Args:
        x: images (m, C, H, W).
        y: labels (m,).
        proxies: metrics that are to be measured on it.
    """
    if x.ndim != 4 or y.shape != x.shape[:1] or len(y) == 0:
        raise InputError("images (m, C, H, W) and labels (m,)", f"shapes {tuple(x.shape)} and {tuple(y.shape)}")
    if not torch.isfinite(x).all():
        raise InputError("finite images", "NaN or infinity among the pixels")
    names = {proxy.name for proxy in proxies}
    if len(y) < 2:
        pairwise = sorted(names & {"kappa", "naswot", "jacob_cov", "zico"})
        if pairwise:
            raise InputError(f"a batch of at least two images for {pairwise[0]}", "one", "Use 32 or 64.")
    if len(y) > 1 and bool((y == y[0]).all()) and names - _LABEL_FREE:
        warnings.warn("all labels of the batch are one class: gradients say little", UserWarning, stacklevel=3)
