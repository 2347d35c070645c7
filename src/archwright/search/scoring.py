"""What training-free methods share: options of the scores, the pool of architectures, and its scores."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from archwright.data.request import DataRequest, load_data
from archwright.effort import LONGEST_STEP, SCORING, seconds_of
from archwright.errors import InputError
from archwright.execution.base import Executor, make_executor
from archwright.proxies.engine import (
    ScoreRequest,
    chunk_size,
    score_canonical,
    score_chunk,
    scores_key,
    small_scale,
)
from archwright.proxies.score import Scores
from archwright.references import SpaceRef
from archwright.runs.files import share_file
from archwright.runs.run import runs_root
from archwright.search.context import Context
from archwright.search.method import Options
from archwright.search.proposals import feasible_start
from archwright.spaces.base import Architecture
from archwright.spaces.registry import name_space

MOST_POOLED = 20_000
"""Architectures up to which a whole space is the pool."""


CHUNKS_EACH = 4
"""Chunks of work that make it worth to start a process."""
TRIED = 16
"""Architectures that are scored for an estimate."""
NOISE = "Gaussian noise"
"""The images that are scored where a search has none, for people."""


class ScoreOptions(Options):
    """How architectures are scored."""

    pool: int = Field(
        0, ge=0, description="architectures to choose from; 0: the whole space where it is small, else 2000"
    )
    replicates: int = Field(3, ge=1, description="draws of weights and images that a score averages")
    proxy_channels: int = Field(4, ge=2, description="channels of the small network that is scored")
    proxy_cells: int = Field(3, ge=1, description="cells of the small network that is scored (a stage, or in all)")
    proxy_size: int = Field(
        0, ge=0, description="image size that is scored; 0: where the space is ranked best (nasbench201 4 px, else 8)"
    )
    proxy_batch: int = Field(64, ge=2, description="images that a score is computed on")
    initialisation: Literal["lecun", "xavier", "he"] = Field(
        "lecun", description="scale of the initial weights that are scored"
    )
    labels: Literal["true", "random"] = Field("true", description="labels of the images: the data's, or random")


def request_scores(context: Context, options: ScoreOptions, metrics: tuple[str, ...]) -> ScoreRequest:
    """The request of these options; without ``--data`` the images are Gaussian noise (the metrics barely mind).

    Args:
        context: of the search: data, space and seed.
        options: size of the scored networks and of their batches, and how often they are drawn.
        metrics: names of the scores.
    """
    size = options.proxy_size or context.task.space.proxy_size
    noise = DataRequest(f"random:classes=10,size={min(size, 32)},channels=3,count=2048", context.configuration.seed)
    return ScoreRequest(
        metrics=metrics,
        data=context.task.data_request if context.configuration.data is not None else noise,
        channels=options.proxy_channels,
        cells=options.proxy_cells,
        image_size=size,
        batch_size=options.proxy_batch,
        initialisation=options.initialisation,
        labels=options.labels,
        replicates=options.replicates,
        seed=context.configuration.seed,
    )


def check_scoring(context: Context, options: ScoreOptions, metrics: tuple[str, ...]) -> None:
    """Refuse metrics, images and spaces that cannot be scored.

    Args:
        context: of the search.
        options: how architectures are scored.
        metrics: names of the scores.
    """
    request = request_scores(context, options, metrics)
    data = context.task.data if context.configuration.data is not None else load_data(request.data)
    request.check(data)
    context.task.space.check_scale(small_scale(context.task.space, request, data))


def make_pool(context: Context, options: ScoreOptions) -> list[Architecture]:
    """One representative of each canonical class that is connected and meets the limits.

    All of them where the space lists them, unless ``pool`` asks for fewer; elsewhere those of a random sample.

    Args:
        context: of the search, with its space and limits.
        options: ``pool`` is the number of draws; 0 for the whole space, or 2000 draws where that is too large.
    """
    space: Any = context.task.space
    if options.pool == 0 and space.size <= MOST_POOLED and (every := space.enumerated()) is not None:
        classes = dict.fromkeys(space.canonical(one) for one in every)
        found = [one for one in classes if space.is_connected(one) and context.task.feasible(one)]
    else:
        rng = context.rng("pool")
        drawn = (feasible_start(context, rng) for _ in range(options.pool or 2000))
        found = list(dict.fromkeys(map(space.canonical, drawn)))
    if not found:
        raise InputError("architectures that meet the limits", "none")
    return found


def score_pool(
    context: Context, options: ScoreOptions, pool: list[Architecture], metrics: tuple[str, ...], stage: str
) -> Scores:
    """Scores of the pool, recorded chunk by chunk in the run; an earlier run's where they are the same.

    Finished scores are kept for later runs beside the runs, under what they depend on; not those of a space whose code
    is in no file. All runs with the same scores share one file. Without an executor of the user's, all processors share
    the work where there is enough of it.

    Args:
        context: of the search.
        options: how architectures are scored.
        pool: canonical architectures.
        metrics: names of the scores.
        stage: whose item log keeps them.
    """
    request, log = request_scores(context, options, metrics), context.run.items(stage)
    kept = _kept_scores(context, request, pool)
    if kept is not None and kept.is_file() and not log.done:
        share_file(kept, log.path)
        log = context.run.items(stage)
        context.progress.say(f"The scores of {len(pool)} architectures are taken from {kept}.")
    with _scoring_executor(context, request, pool) as executor:
        scores = score_canonical(
            context.task.space,
            pool,
            request,
            executor=executor,
            log=log,
            stop=context.stop,
            progress=context.progress,
        )
    if kept is not None and not kept.is_file():
        share_file(log.path, kept)
    return scores


def scoring_seconds(
    context: Context, options: ScoreOptions, pool: list[Architecture], metrics: tuple[str, ...]
) -> float:
    """How many seconds :func:`score_pool` will take: none where the scores are kept, else by a few that are scored.

    Networks of which a few would take long are neither built nor scored here: they are counted.

    Args:
        context: of the search.
        options: how architectures are scored.
        pool: canonical architectures.
        metrics: names of the scores.
    """
    request, space = request_scores(context, options, metrics), context.task.space
    cost = space.cost(pool[0], small_scale(space, request, load_data(request.data)))
    each = seconds_of(SCORING * request.batch_size * cost.macs)
    if each <= LONGEST_STEP / TRIED:
        kept = _kept_scores(context, request, pool)
        if kept is not None and kept.is_file():
            return 0.0
        each = _tried_seconds(context, request, pool)
    return each * len(pool) * request.replicates / _processes(context, request, pool)


def _tried_seconds(context: Context, request: ScoreRequest, pool: list[Architecture]) -> float:
    """Seconds that an architecture takes, by a few of the pool."""
    some = pool[:: max(1, len(pool) // TRIED)][:TRIED]
    payload = {
        "space": name_space(context.task.space),
        "architectures": [str(one) for one in some],
        "request": request.to_json(),
        "replicate": 0,
    }
    score_chunk({**payload, "architectures": payload["architectures"][:1]}, context.stop)  # what is only slow once
    begin = time.perf_counter()
    score_chunk(payload, context.stop)
    return (time.perf_counter() - begin) / len(some)


def _kept_scores(context: Context, request: ScoreRequest, pool: list[Architecture]) -> Path | None:
    """Where scores are kept for later runs, whether or not they are there yet; None where they cannot be."""
    key = scores_key(context.task.space, pool, request)
    return None if key is None else runs_root() / "scores" / f"{key}.jsonl"


def _processes(context: Context, request: ScoreRequest, pool: list[Architecture]) -> int:
    """Processes that score: the user's, else as many as there are processors and a few chunks for each."""
    c = context.configuration
    if c.executor != "here" or SpaceRef.parse(name_space(context.task.space)).is_local:
        return c.workers
    chunks = request.replicates * len(pool) / chunk_size(pool)
    return max(1, min(len(os.sched_getaffinity(0)), int(chunks // CHUNKS_EACH)))


@contextmanager
def _scoring_executor(context: Context, request: ScoreRequest, pool: list[Architecture]) -> Iterator[Executor]:
    """The run's executor, or processes of this machine where it has none."""
    count = _processes(context, request, pool)
    if context.configuration.executor != "here" or count == 1:
        yield context.executor
        return
    with make_executor("processes", count) as executor:
        yield executor
