"""EfficientNet-Lite and MobileNetV2 written again, straight from a published state: no module of the project."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

import torch
import torch.nn.functional as F
from torch import Tensor

State = Mapping[str, Tensor]
LITE0 = ((3, 2, 24, 2), (5, 2, 40, 2), (3, 2, 80, 3), (5, 1, 112, 3), (5, 2, 192, 4), (3, 1, 320, 1))
MOBILENET_V2 = ((3, 2, 24, 2), (3, 2, 32, 3), (3, 2, 64, 4), (3, 1, 96, 3), (3, 2, 160, 3), (3, 1, 320, 1))
"""Kernel, stride, width and depth of each stage."""


def convolution(x: Tensor, weight: Tensor, stride: int, tensorflow: bool) -> Tensor:
    """As TensorFlow pads ("SAME"), or by half the kernel on all sides."""
    kernel, groups = weight.shape[-1], x.shape[1] // weight.shape[1]
    if not tensorflow:
        return F.conv2d(x, weight, None, stride, kernel // 2, 1, groups)
    total = max((ceil(x.shape[-1] / stride) - 1) * stride + kernel - x.shape[-1], 0)
    before, after = total // 2, total - total // 2
    return F.conv2d(F.pad(x, (before, after, before, after)), weight, None, stride, 0, 1, groups)


def logits(
    state: State, x: Tensor, stages: tuple[tuple[int, int, int, int], ...], timm: bool, tensorflow: bool, eps: float
) -> Tensor:
    """Logits (B, 1000) of normalised images (B, 3, H, W), upright."""

    def norm(x: Tensor, name: str) -> Tensor:
        mean, var = state[f"{name}.running_mean"], state[f"{name}.running_var"]
        return F.batch_norm(x, mean, var, state[f"{name}.weight"], state[f"{name}.bias"], False, 0.0, eps)

    def apply(x: Tensor, conv: str, bn: str, stride: int = 1, linear: bool = False) -> Tensor:
        x = norm(convolution(x, state[f"{conv}.weight"], stride, tensorflow), bn)
        return x if linear else x.clamp(0, 6)

    names = ("conv_pw", "bn1", "conv_dw", "bn2", "conv_pwl", "bn3")
    if not timm:
        names = ("_expand_conv", "_bn0", "_depthwise_conv", "_bn1", "_project_conv", "_bn2")
    x = apply(x, "conv_stem", "bn1", 2) if timm else apply(x, "_conv_stem", "_bn0", 2)
    if timm:
        x = apply(apply(x, "blocks.0.0.conv_dw", "blocks.0.0.bn1"), "blocks.0.0.conv_pw", "blocks.0.0.bn2", linear=True)
    else:
        x = apply(x, "_blocks.0._depthwise_conv", "_blocks.0._bn1")
        x = apply(x, "_blocks.0._project_conv", "_blocks.0._bn2", linear=True)
    number = 1
    for stage, (_, stride, _, depth) in enumerate(stages, 1):
        for block in range(depth):
            at = f"blocks.{stage}.{block}." if timm else f"_blocks.{number}."
            expand, bn1, depthwise, bn2, project, bn3 = (at + name for name in names)
            y = apply(apply(x, expand, bn1), depthwise, bn2, stride if block == 0 else 1)
            y = apply(y, project, bn3, linear=True)
            x = x + y if block else y
            number += 1
    x = apply(x, "conv_head", "bn2") if timm else apply(x, "_conv_head", "_bn1")
    head = "classifier" if timm else "_fc"
    return F.linear(x.mean((2, 3)), state[f"{head}.weight"], state[f"{head}.bias"])


def random_state(stages: tuple[tuple[int, int, int, int], ...], timm: bool, seed: int = 0) -> dict[str, Tensor]:
    """Small random weights of the published names and shapes, with norms that are not trivial."""
    rng, state = torch.Generator().manual_seed(seed), dict[str, Tensor]()

    def conv(name: str, out: int, into: int, kernel: int) -> None:
        state[f"{name}.weight"] = torch.randn(out, into, kernel, kernel, generator=rng) / (into * kernel**2) ** 0.5

    def norm(name: str, width: int) -> None:
        for kind in ("weight", "running_var"):
            state[f"{name}.{kind}"] = 0.5 + torch.rand(width, generator=rng)
        for kind in ("bias", "running_mean"):
            state[f"{name}.{kind}"] = 0.2 * torch.randn(width, generator=rng)
        state[f"{name}.num_batches_tracked"] = torch.tensor(1)

    def pair(conv_name: str, norm_name: str, out: int, into: int, kernel: int = 1) -> None:
        conv(conv_name, out, into, kernel)
        norm(norm_name, out)

    pair(*(("conv_stem", "bn1") if timm else ("_conv_stem", "_bn0")), 32, 3, 3)
    if timm:
        pair("blocks.0.0.conv_dw", "blocks.0.0.bn1", 32, 1, 3)
        pair("blocks.0.0.conv_pw", "blocks.0.0.bn2", 16, 32)
    else:
        pair("_blocks.0._depthwise_conv", "_blocks.0._bn1", 32, 1, 3)
        pair("_blocks.0._project_conv", "_blocks.0._bn2", 16, 32)
    before, number = 16, 1
    for stage, (kernel, _, width, depth) in enumerate(stages, 1):
        for block in range(depth):
            at, inner = (f"blocks.{stage}.{block}." if timm else f"_blocks.{number}."), 6 * before
            pair(*((at + "conv_pw", at + "bn1") if timm else (at + "_expand_conv", at + "_bn0")), inner, before)
            pair(*((at + "conv_dw", at + "bn2") if timm else (at + "_depthwise_conv", at + "_bn1")), inner, 1, kernel)
            pair(*((at + "conv_pwl", at + "bn3") if timm else (at + "_project_conv", at + "_bn2")), width, inner)
            before, number = width, number + 1
    pair(*(("conv_head", "bn2") if timm else ("_conv_head", "_bn1")), 1280, 320)
    head = "classifier" if timm else "_fc"
    state[f"{head}.weight"] = torch.randn(1000, 1280, generator=rng) / 1280**0.5
    state[f"{head}.bias"] = torch.randn(1000, generator=rng)
    return state
