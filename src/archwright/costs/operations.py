"""Latencies of the candidate operations of a cell space, for methods that penalise slow operations."""

from __future__ import annotations

from typing import Any

from archwright.costs.measure import Timing, measure
from archwright.errors import InputError
from archwright.spaces.base import Scale, Space
from archwright.spaces.operations import OPERATIONS


def operation_latencies(
    space: Space[Any],
    scale: Scale,
    timing: Timing | None = None,
    *,
    channels: int | None = None,
    size: int | None = None,
    stride: int = 1,
) -> dict[str, float]:
    """Median milliseconds of each of the space's operations, by name; ``none`` costs nothing.

    Args:
        space: a cell space, such as nasbench201 or darts.
        scale: gives channels and image size where they are not given.
        timing: back end, threads, batch and repeats.
        channels: in and out of the operation.
        size: height and width of its input.
        stride: 2 for the reduction cell's outer edges.
    """
    unknown = [name for name in space.operations if name not in OPERATIONS]
    if unknown:
        raise InputError("a space whose candidates are cell operations", f"{space.name} with {', '.join(unknown)}")
    channels, size = channels or scale.channels, size or scale.image_size
    latencies = {}
    for name in space.operations:
        operation = OPERATIONS[name]
        module = operation.build(channels, channels, stride, affine=True, pool_norm=scale.pool_norm)
        shape = (channels, size, size)
        latencies[name] = 0.0 if operation.kind == "none" else measure(module, shape, timing or Timing()).median_ms
    return latencies
