"""Small problems and a brute force over them that shares no code with the solvers."""

from __future__ import annotations

from itertools import product

import numpy as np

from archwright.solvers.problem import StagedChoice, StagedProblem


def small_problem(seed: int, stages: int, blocks: int, configurations: int, integers: bool = False) -> StagedProblem:
    """Random tables (small integers on request, to force ties), random allowed depths, two resources."""
    rng = np.random.default_rng(seed)

    def table(low: float, *shape: int) -> np.ndarray:
        drawn = rng.uniform(low, 4.0, shape)
        return np.floor(drawn) if integers else drawn

    depths = [tuple(np.flatnonzero(rng.random(blocks) < 0.6) + 1) or (blocks,) for _ in range(stages)]
    return StagedProblem(
        block_values=table(-2, stages, blocks, configurations),
        block_costs={name: table(0, stages, blocks, configurations) for name in ("latency_ms", "params")},
        depth_values=table(-2, stages, blocks),
        depth_costs={"latency_ms": table(0, stages, blocks)},
        depths=tuple(depths),
        fixed_value=float(table(0)),
        fixed_costs={"latency_ms": float(table(0)), "params": 1.0},
    )


def width_problem(
    seed: int, stages: int, blocks: int, configurations: int, widths: int, integers: bool = False
) -> StagedProblem:
    """The same by pairs of widths, up to ``widths`` a stage, with some configurations forbidden."""
    rng = np.random.default_rng(seed)
    plain = small_problem(seed, stages, blocks, configurations, integers)
    counts = tuple(int(count) for count in rng.integers(1, widths + 1, stages))
    widest = max(counts)

    def table(low: float) -> np.ndarray:
        drawn = rng.uniform(low, 4.0, (stages, widest, widest, blocks, configurations))
        drawn[:, :, :, 1:] = drawn[:, :1, :, 1:]  # later blocks do not see the width before
        return np.floor(drawn) if integers else drawn

    if widest == 1:
        return plain
    allowed = rng.random((stages, blocks, configurations)) < 0.7
    allowed[..., 0] |= ~allowed.any(-1)
    return StagedProblem(
        block_values=table(-2),
        block_costs={name: table(0) for name in ("latency_ms", "params")},
        depth_values=rng.uniform(-2, 2, (stages, widest, blocks)),
        depth_costs={"latency_ms": rng.uniform(0, 2, (stages, widest, blocks))},
        depths=plain.depths,
        fixed_value=plain.fixed_value,
        fixed_costs=plain.fixed_costs,
        widths=counts,
        allowed_configurations=allowed,
    )


def brute_force_widths(problem: StagedProblem) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Value and costs of every architecture of a problem with widths, term by term."""
    configurations, names = problem.shape[2], problem.resources
    rows = []
    for widths in product(*(range(count) for count in problem.widths)):
        stages = []
        for stage, width in enumerate(widths):
            before = widths[stage - 1] if stage else 0
            options = []
            for depth in problem.depths[stage]:
                for chosen in product(range(configurations), repeat=depth):
                    if not all(problem.allowed_configurations[stage, b, c] for b, c in enumerate(chosen)):
                        continue
                    terms = [problem.depth_values[stage, width, depth - 1]]
                    terms += [problem.depth_costs[name][stage, width, depth - 1] for name in names]
                    for block, c in enumerate(chosen):
                        place = stage, before, width, block, c
                        terms[0] += problem.block_values[place]
                        for number, name in enumerate(names, 1):
                            terms[number] += problem.block_costs[name][place]
                    options.append(terms)
            stages.append(np.array(options))
        total = np.array([[problem.fixed_value, *(problem.fixed_costs[name] for name in names)]])
        for options in stages:
            total = (total[:, None] + options).reshape(-1, 1 + len(names))
        rows.append(total)
    everything = np.concatenate(rows)
    return everything[:, 0], {name: everything[:, number] for number, name in enumerate(names, 1)}


def every_choice(problem: StagedProblem) -> StagedChoice:
    """All architectures of a small problem."""
    _, blocks, configurations = problem.shape
    per_stage = [
        [
            (depth, chosen + (-1,) * (blocks - depth))
            for depth in allowed
            for chosen in product(range(configurations), repeat=depth)
        ]
        for allowed in problem.depths
    ]
    rows = list(product(*per_stage))
    depths = np.array([[depth for depth, _ in row] for row in rows])
    return StagedChoice(depths, np.array([[chosen for _, chosen in row] for row in rows]))


def hand_evaluate(problem: StagedProblem, choice: StagedChoice) -> tuple[float, dict[str, float]]:
    """Value and costs of one choice, term by term."""
    value, costs = problem.fixed_value, dict(problem.fixed_costs)
    for stage, depth in enumerate(choice.depths):
        value += problem.depth_values[stage, depth - 1]
        for name in costs:
            costs[name] += problem.depth_costs[name][stage, depth - 1]
        for block in range(depth):
            chosen = choice.configurations[stage, block]
            value += problem.block_values[stage, block, chosen]
            for name in costs:
                costs[name] += problem.block_costs[name][stage, block, chosen]
    return float(value), {name: float(cost) for name, cost in costs.items()}


def brute_force_table(problem: StagedProblem, resource: str) -> tuple[np.ndarray, np.ndarray]:
    """Value and cost of every architecture, as sums over all combinations of stage options, listed by hand."""
    values, costs = np.array([problem.fixed_value]), np.array([problem.fixed_costs[resource]])
    for stage, allowed in enumerate(problem.depths):
        options = []
        for depth in allowed:
            for chosen in product(range(problem.shape[2]), repeat=depth):
                value = problem.depth_values[stage, depth - 1]
                cost = problem.depth_costs[resource][stage, depth - 1]
                for block, configuration in enumerate(chosen):
                    value += problem.block_values[stage, block, configuration]
                    cost += problem.block_costs[resource][stage, block, configuration]
                options.append((value, cost))
        own = np.array(options)
        values = np.add.outer(values, own[:, 0]).ravel()
        costs = np.add.outer(costs, own[:, 1]).ravel()
    return values, costs
