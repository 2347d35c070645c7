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
