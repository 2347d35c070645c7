"""What can be asked without a search: scores of architectures that nobody trained, and latencies of this machine."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from archwright.costs.measure import Timing
from archwright.costs.tables import FEWEST_NETWORKS, LatencyTable, measure_table
from archwright.data import from_object
from archwright.data.detail import sufficient_size
from archwright.data.kept import keep
from archwright.data.request import DataRequest, load_data
from archwright.device import Device
from archwright.errors import InputError
from archwright.execution.base import make_executor
from archwright.proxies.engine import ScoreRequest, score_architectures, score_networks
from archwright.proxies.score import Scores
from archwright.references import DataRef, resolve
from archwright.runs import disk
from archwright.runs.files import check_writable
from archwright.runs.progress import Progress, logged
from archwright.runs.run import ItemLog, runs_root
from archwright.spaces.base import Architecture, Space
from archwright.spaces.registry import find_space
from archwright.spaces.staged import StagedSpace

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
            return score_networks(networks, own, logged(progress))
        chosen = find_space(space) if isinstance(space, str) else space
        values = [chosen.parse(one) if isinstance(one, str) else one for one in several]
        settings = {"channels": 4, "cells": 3, "image_size": 8, "batch_size": 64, **request}
        asked = ScoreRequest(metrics=tuple(metrics), data=wanted, seed=seed, **settings)
        log = ItemLog(Path(folder) / "scores.jsonl")
        return score_architectures(chosen, values, asked, executor=where, log=log, progress=logged(progress))


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
    accepted = inspect.signature(function).parameters
    everything = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in accepted.values())
    made = function(**{name: value for name, value in given.items() if everything or name in accepted})
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
    classes: int = 10,
    image_size: int = 32,
    image_channels: int = 3,
    scale: str = "small",
    width: float | None = None,
    timing: Timing | None = None,
    networks: int = FEWEST_NETWORKS,
    validation_networks: int = 0,
    out: Path | str | None = None,
    progress: Progress | None = None,
) -> Latencies:
    """Measure every block of a space on this machine, for searches under a latency limit.

    Args:
        space: name of a space made of blocks: compact (binas), mbconv (binas with the paper's plan).
        data: takes image size, channels and classes from these data, which may be a text or in memory; for named data
            and compact the size is the one that a search chooses.
        classes: without ``data``.
        image_size: without ``data``.
        image_channels: without ``data``.
        scale: preset, as in a search.
        width: multiplies all widths, instead of the preset's.
        timing: back end, device, threads, batch, repeats.
        networks: random ones that the correction for whole networks is fitted on.
        validation_networks: others it is tried on.
        out: where to write the table; in the runs folder by default. An interrupted measurement goes on there.
        progress: where to show what happens.

    Example:
        >>> measured = latency(data="digits")  # doctest: +SKIP
        >>> archwright.search("binas", data="digits", latency_table=str(measured.path))  # doctest: +SKIP
    """
    timing = timing or Timing()
    Device.choose(timing.processor)
    measured = find_space(space)
    if not isinstance(measured, StagedSpace):
        raise InputError("a space made of blocks (mbconv, compact)", repr(space))
    if data is not None:
        images = load_data(DataRequest(data, 0)) if isinstance(data, str) else from_object(data)
        chosen_by_search = isinstance(data, str) and space == "compact"
        image_size = sufficient_size(images) if chosen_by_search else images.image_size
        classes, image_channels = images.classes, images.image_channels
    named = measured.named_scale(scale, classes, image_size, image_channels)
    chosen = measured.at_scale(named if width is None else named.changed(width=width))
    path = Path(out) if out is not None else runs_root() / "latency" / _file_name(chosen, scale, width, timing)
    check_writable(path)
    log = path.with_suffix(".jsonl")
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


def _file_name(space: StagedSpace[Any], preset: str, width: float | None, timing: Timing) -> str:
    """What the table is of, so that tables of other things lie beside it."""
    scale = space.scale
    images = f"{scale.image_channels}x{scale.image_size}px-{scale.classes}classes"
    images += f"-width{width}" * (width is not None)
    where = timing.backend if timing.processor == "cpu" else f"{timing.backend}-{timing.processor}"
    return f"{space.name}-{preset}-{images}-{where}-{timing.threads}threads-batch{timing.batch}-{timing.dtype}.json"
