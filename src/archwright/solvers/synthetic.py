"""A synthetic staged problem with the size and the units of a real one, for tests, benchmarks and examples.

Blocks have the twelve configurations (expansion 2, 3, 6) x (kernel 3, 5) x (squeeze-excite off, on) of the ``mbconv``
space. Latencies are in milliseconds and grow with expansion, kernel and squeeze-excite; values are in accuracy points
with diminishing returns, larger in later stages and in earlier blocks. Both carry noise from ``seed``.
"""

from __future__ import annotations

import numpy as np

from archwright.solvers.problem import StagedProblem

EXPANSION = np.repeat([2.0, 3.0, 6.0], 4)
KERNEL = np.tile(np.repeat([3.0, 5.0], 2), 3)
SQUEEZE_EXCITE = np.tile([0.0, 1.0], 6)


def synthetic_problem(
    seed: int = 0, stages: int = 5, blocks: int = 4, depths: tuple[int, ...] = (2, 3, 4)
) -> StagedProblem:
    """A problem with 12 configurations a block and the resources latency_ms, params and macs.

    The default has 240 + 15 binary decisions.

    Args:
        seed: of the draws.
        stages: S.
        blocks: D, most blocks of a stage.
        depths: that are allowed, in every stage alike.
    """
    rng = np.random.default_rng(seed)
    shape = (stages, blocks, 12)
    position = np.linspace(0.0, 1.0, stages)[:, None, None]
    first = (np.arange(blocks) == 0)[None, :, None]
    width, pixels = 24.0 * 8.0**position, (56.0 * 8.0**-position) ** 2

    params = width**2 * EXPANSION * (2 + 0.5 * SQUEEZE_EXCITE) + width * EXPANSION * KERNEL**2
    macs = pixels * (2 * width**2 * EXPANSION + width * EXPANSION * KERNEL**2) * (1 + first)
    shape_of_time = (0.3 + EXPANSION / 6) * (1 + 0.35 * (KERNEL == 5)) * (1 + 0.15 * SQUEEZE_EXCITE)
    latency = 0.8 * shape_of_time * (1 + 0.4 * first) * rng.lognormal(0.0, 0.08, shape)

    importance = (0.6 + 0.8 * position) * (1.2 - 0.15 * np.arange(blocks)[None, :, None])
    gain = 0.25 * np.log2(EXPANSION / 2) + 0.10 * (KERNEL == 5) + 0.15 * SQUEEZE_EXCITE
    block_values = importance * (gain - gain.mean()) + rng.normal(0.0, 0.04, shape)
    depth_gain = 1.0 - 0.5 ** np.arange(blocks)
    depth_values = (0.6 + 0.8 * position[..., 0]) * (depth_gain - depth_gain.mean())
    depth_values = depth_values + rng.normal(0.0, 0.03, (stages, blocks))
    return StagedProblem(
        block_values=block_values,
        block_costs={
            "latency_ms": latency,
            "params": np.broadcast_to(params, shape),
            "macs": np.broadcast_to(macs, shape),
        },
        depth_values=depth_values,
        depth_costs={},
        depths=(depths,) * stages,
        fixed_value=74.0,
        fixed_costs={"latency_ms": 4.0, "params": 1.5e6, "macs": 4.0e7},
    )


def synthetic_widths_problem(
    seed: int = 0, stages: int = 5, blocks: int = 4, depths: tuple[int, ...] = (2, 3, 4), widths: int = 3
) -> StagedProblem:
    """The same with several widths a stage, from .75 to 1.25 of its own, with the resources latency_ms and params.

    Latencies and parameters of a first block grow with the product of the width before and the stage's own, of the
    others with the square of its own; values grow with diminishing returns and have noise by pair of widths.

    Args:
        seed: of the draws.
        stages: S.
        blocks: D, most blocks of a stage.
        depths: that are allowed, in every stage alike.
        widths: W of each stage.
    """
    rng, plain = np.random.default_rng((seed, widths)), synthetic_problem(seed, stages, blocks, depths)
    share = np.linspace(0.75, 1.25, widths) if widths > 1 else np.ones(1)
    first = (np.arange(blocks) == 0)[:, None]
    before, own = share[:, None, None, None], share[None, :, None, None]
    area = np.where(first, before * own, own * own)[None]  # (1, V, W, D, 1)
    noise = rng.normal(0.0, 0.02, (stages, widths, widths, blocks, 12))
    noise = np.where(first, noise, noise[:, :1])  # later blocks do not see the width before
    width_gain = 1.5 * (0.6 + 0.8 * np.linspace(0, 1, stages))[:, None, None] * np.log2(share)[None, :, None]
    costs = {name: plain.block_costs[name][:, None, None] * area for name in ("latency_ms", "params")}
    return StagedProblem(
        block_values=plain.block_values[:, None, None] + noise,
        block_costs={name: np.broadcast_to(cost, noise.shape) for name, cost in costs.items()},
        depth_values=plain.depth_values[:, None] + width_gain,
        depth_costs={},
        depths=plain.depths,
        fixed_value=plain.fixed_value,
        fixed_costs={name: plain.fixed_costs[name] for name in costs},
        widths=(widths,) * stages,
    )
