"""What can be asked without a search: scores of architectures that nobody trained, and latencies of this machine."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from archwright.costs.measure import Timing
from archwright.costs.tables import FEWEST_NETWORKS, ROUNDS, LatencyTable, measure_table, parts
from archwright.data import from_object
from archwright.data.detail import sufficient_size
from archwright.data.kept import keep
from archwright.data.request import DataRequest, load_data
from archwright.device import Device
from archwright.effort import SCORING, refuse_large, seconds_of, training_bytes
from archwright.errors import InputError
from archwright.execution.base import make_executor
from archwright.owncode import called, own_code
from archwright.paths import check_output
from archwright.proxies.engine import ScoreRequest, draw_batch, score_architectures, score_networks
from archwright.proxies.score import Scores
from archwright.references import DataRef, resolve
from archwright.runs import disk
from archwright.runs.progress import Progress, logged
from archwright.runs.run import ItemLog, runs_root
from archwright.spaces.base import Architecture, Scale, Space
from archwright.spaces.choice_space import check_logits, check_own_network
from archwright.spaces.model_space import ModelSpace
from archwright.spaces.model_stages import ModelStages
from archwright.spaces.registry import find_space
from archwright.spaces.staged import StagedSpace

TABLE_MARK = b'"provenance"'
"""In every latency table, and in what an interrupted measurement leaves."""
METRICS = ("grad", "snip", "trace", "kappa")


def score(
    architectures: str | Architecture | nn.Module | Sequence[str | Architecture | nn.Module],
    data: Any = "digits",
    metrics: Sequence[str] = METRICS,
    *,
    space: str | Space[Any] = "nasbench201",
    seed: int = 0,
    executor: str = "here",
    workers: int = 1,
    address: str = "",
    yes: bool = False,
    progress: Progress | None = None,
    **request: Any,
) -> Scores:
    """Score architectures, or networks of your own, by training-free metrics.

    Args:
        architectures: one or several, as values or as text; or any module(s) from images (m, C, H, W) to logits.
        data: images of the mini-batch: a text, or what you have in memory (:func:`archwright.data.from_object`).
        metrics: names (``archwright proxies`` lists them).
        space: of the architectures: name, text or object. Modules have none.
        seed: of the draws.
        executor: here, processes or ray; modules are scored here.
        workers: processes of the executor.
        address: of a Ray cluster.
        yes: begin also what takes days (see :mod:`archwright.effort`).
        progress: where to show what happens.
        request: further fields of :class:`~archwright.proxies.engine.ScoreRequest`: channels, cells (of architectures),
            image_size (of modules the data's own by default), batch_size, initialisation, ntk, labels, replicates.

    Example:
        >>> scores = score(archwright.spaces["nasbench201"].sample(rng), metrics=["grad"])  # doctest: +SKIP
        >>> scores["grad"]  # doctest: +SKIP
        >>> score([my_network, my_other_network], "cifar10").best_first("trace")  # doctest: +SKIP
    """
    single = isinstance(architectures, str | Architecture | nn.Module)
    several: list[Any] = [architectures] if single else list(architectures)  # type: ignore[arg-type]
    if not several:
        raise InputError("architectures or modules to score", "none")
    networks = [one for one in several if isinstance(one, nn.Module)]
    if networks and len(networks) < len(several):
        raise InputError("architectures or modules", "both", "Score them in two calls.")
    with tempfile.TemporaryDirectory() as folder, make_executor(executor, workers, address) as where:
        wanted = DataRequest(data, seed) if isinstance(data, str) else _kept(data, seed, Path(folder))
        if networks:
            size = load_data(wanted).image_size
            own = ScoreRequest(metrics=tuple(metrics), data=wanted, seed=seed, **{"image_size": size, **request})
            _check_modules(networks, own, yes)
            with own_code("your network to be scored"):
                return score_networks(networks, own, logged(progress))
        chosen = find_space(space) if isinstance(space, str) else space
        values = [chosen.parse(one) if isinstance(one, str) else one for one in several]
        settings = {"channels": 4, "cells": 3, "image_size": 8, "batch_size": 64, **request}
        asked = ScoreRequest(metrics=tuple(metrics), data=wanted, seed=seed, **settings)
        _check_effort(chosen, values, asked, yes)
        log = ItemLog(Path(folder) / "scores.jsonl")
        return score_architectures(chosen, values, asked, executor=where, log=log, progress=logged(progress))


def _check_modules(networks: Sequence[nn.Module], asked: ScoreRequest, yes: bool) -> None:
    """Refuse modules that cannot be scored, by a pass of two images forward and back, and scores that take days."""
    data = load_data(asked.data)
    images, labels = draw_batch(replace(asked, batch_size=2), data, 0)
    for one in networks:
        name = f"the {type(one).__name__} to score"
        check_own_network(one, name)
        weights = list(one.parameters())
        count = sum(weight.numel() for weight in weights)
        seconds = len(networks) * seconds_of(SCORING * asked.batch_size * count, asked.replicates)
        refuse_large("scoring", seconds, training_bytes(count), yes)
        with own_code(name), _in_evaluation(one):
            logits = one(images)
        check_logits(logits, data.classes, name)
        if not logits.requires_grad:
            raise InputError(
                f"logits with a gradient from {name}", "none", "Do not detach them, or freeze the weights."
            )
        with own_code(f"the gradient of {name}"):
            torch.autograd.grad(cross_entropy(logits, labels), weights, allow_unused=True)


@contextmanager
def _in_evaluation(network: nn.Module) -> Iterator[None]:
    """``network`` in evaluation mode inside the block, in which it keeps no statistics, and as before after it."""
    before = {module: module.training for module in network.modules()}
    network.eval()
    try:
        yield
    finally:
        for module, training in before.items():
            module.training = training


def _check_effort(space: Space[Any], architectures: Sequence[Architecture], asked: ScoreRequest, yes: bool) -> None:
    """Refuse scores that take days, by what the first network costs."""
    data = load_data(asked.data)
    size = min(asked.image_size, data.image_size)
    scale = space.proxy_scale(asked.channels, asked.cells, data.classes, size, data.image_channels)
    cost = space.at_scale(scale).cost(architectures[0], scale)
    seconds = len(architectures) * seconds_of(SCORING * asked.batch_size * cost.macs, asked.replicates)
    refuse_large("scoring", seconds, training_bytes(cost.params), yes)


def build_networks(reference: str, data: Any = "digits") -> dict[str, nn.Module]:
    """The candidates that a function of yours makes: a module, or several by name.

    Args:
        reference: ``MODULE:FUNCTION`` or ``FILE.py:FUNCTION``. The function is given those of ``classes``,
            ``image_size`` and ``image_channels`` that it has parameters for.
        data: images that decide these numbers.
    """
    function = resolve(reference, "network")
    if not callable(function):
        raise InputError("a function that makes a network", f"{reference}, a {type(function).__name__}")
    images = load_data(DataRequest(data, 0)) if isinstance(data, str) else from_object(data)
    given = {"classes": images.classes, "image_size": images.image_size, "image_channels": images.image_channels}
    made = called(function, given, f"your function {reference}")
    found = {reference: made} if isinstance(made, nn.Module) else made
    if not isinstance(found, Mapping) or not found or not all(isinstance(one, nn.Module) for one in found.values()):
        raise InputError(
            "a function that returns a module, or modules by name", f"{type(made).__name__} of {reference}"
        )
    return {str(name): network for name, network in found.items()}


def _kept(data: Any, seed: int, folder: Path) -> DataRequest:
    """Images in memory as a file that workers read."""
    keep(from_object(data, seed=seed), folder / "data.npz")
    return DataRequest(str(DataRef("kept", str(folder / "data.npz"))), seed)


@dataclass(frozen=True)
class Latencies:
    """A latency table, where it was written, and the space at the scale it is of."""

    table: LatencyTable
    path: Path
    space: StagedSpace[Any]


def latency(
    space: str = "compact",
    *,
    data: Any = None,
    classes: int | None = None,
    image_size: int | None = None,
    image_channels: int | None = None,
    scale: str = "small",
    width: float | None = None,
    timing: Timing | None = None,
    networks: int = FEWEST_NETWORKS,
    validation_networks: int = 0,
    out: Path | str | None = None,
    overwrite: bool = False,
    yes: bool = False,
    progress: Progress | None = None,
) -> Latencies:
    """Measure every block of a space on this machine, for searches under a latency limit.

    Args:
        space: name of a space made of blocks: compact (binas), mbconv (binas with the paper's plan), or a network
            of yours with choices (``model:FILE.py:OBJECT``).
        data: takes image size, channels and classes from these data, which may be a text or in memory; for named data
            and compact the size is the one that a search chooses.
        classes: without ``data``; 10 by default.
        image_size: without ``data``, side in pixels; 32 by default.
        image_channels: without ``data``; 3 by default.
        scale: preset, as in a search.
        width: multiplies all widths, instead of the preset's.
        timing: back end, device, threads, batch, repeats.
        networks: random ones that the correction for whole networks is fitted on.
        validation_networks: others it is tried on.
        out: where to write the table; in the runs folder by default. An interrupted measurement goes on there.
        overwrite: whether another file than a latency table may be replaced there.
        yes: begin also what takes days or most of the memory (see :mod:`archwright.effort`).
        progress: where to show what happens.

    Example:
        >>> measured = latency(data="digits")  # doctest: +SKIP
        >>> archwright.search("binas", data="digits", latency_table=str(measured.path))  # doctest: +SKIP
    """
    timing = timing or Timing()
    Device.choose(timing.processor)
    measured = find_space(space)
    if not isinstance(measured, StagedSpace | ModelSpace):
        known = "mbconv, compact, or your own network, model:FILE.py:OBJECT"
        raise InputError(f"a space made of blocks ({known})", repr(space))
    given = {"classes": classes, "image_size": image_size, "image_channels": image_channels}
    own = {name: value for name, value in given.items() if value is not None}
    if data is not None:
        if own:
            raise InputError(f"no {', '.join(own)} beside data, which have their own", "both")
        images = load_data(DataRequest(data, 0)) if isinstance(data, str) else from_object(data)
        chosen_by_search = isinstance(data, str) and space == "compact"
        own = {"image_size": sufficient_size(images) if chosen_by_search else images.image_size}
        own |= {"classes": images.classes, "image_channels": images.image_channels}
    named = measured.named_scale(scale, **{"classes": 10, "image_size": 32, "image_channels": 3, **own})
    chosen = _staged(measured, named, width)
    refuse_large("measuring", *_timing_effort(chosen, timing, networks + validation_networks), yes)
    path = Path(out) if out is not None else runs_root() / "latency" / _file_name(chosen, scale, width, timing)
    log = path.with_name(f"{path.name}.part.jsonl")
    read = [] if not isinstance(data, str) else DataRequest(data, 0).needs
    check_output(path, TABLE_MARK, overwrite, map(Path, read))
    check_output(log, TABLE_MARK, overwrite)
    with logged(progress).task("measuring", 0) as bar:
        table = measure_table(
            chosen,
            timing,
            log=log,
            networks=networks,
            validation_networks=validation_networks,
            progress=lambda done, total: bar.note(f"{done} of {total}"),
        )
    table.save(path)
    disk.remove(log)
    return Latencies(table, path, chosen)


def _timing_effort(space: StagedSpace[Any], timing: Timing, networks: int) -> tuple[float, float]:
    """Seconds and bytes of timing every part of ``space`` and so many whole networks, roughly."""
    heaviest, calls = space.heaviest(), timing.repeats + ROUNDS * timing.warm_up
    whole = seconds_of(timing.batch * space.cost(heaviest, space.scale).macs)
    part = seconds_of(timing.batch * space.cost(heaviest, space.scale).macs / (sum(space.depths) + 2))
    seconds = calls * (len(parts(space)) * part + (networks + 2) * whole)
    return seconds, float(timing.batch * space.memory_bytes(heaviest, space.scale))


def _staged(space: StagedSpace[Any] | ModelSpace, scale: Scale, width: float | None) -> StagedSpace[Any]:
    """The blocks of ``space`` at a scale, all widths times ``width``."""
    if isinstance(space, ModelSpace):
        if width is not None:
            raise InputError("no --width with your own network", f"{width:g}", "Give it a parameter 'channels'.")
        return ModelStages(space, scale)
    return space.at_scale(scale if width is None else scale.changed(width=width))


def _file_name(space: StagedSpace[Any], preset: str, width: float | None, timing: Timing) -> str:
    """What the table is of, so that tables of other things lie beside it."""
    scale = space.scale
    images = f"{scale.image_channels}x{scale.image_size}px-{scale.classes}classes"
    images += f"-width{width}" * (width is not None)
    where = timing.backend if timing.processor == "cpu" else f"{timing.backend}-{timing.processor}"
    name = space.space.name if isinstance(space, ModelStages) else space.name
    return f"{name}-{preset}-{images}-{where}-{timing.threads}threads-batch{timing.batch}-{timing.dtype}.json"
