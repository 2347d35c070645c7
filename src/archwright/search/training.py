"""``archwright train``: an architecture found elsewhere, published, or by a run, trained on any images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from archwright.errors import InputError
from archwright.runs.progress import Progress
from archwright.runs.run import find_run, resume_command
from archwright.search.answer import Answer
from archwright.search.engine import search
from archwright.spaces.gallery import GALLERY, NETWORKS
from archwright.spaces.published import published_cell
from archwright.spaces.registry import find_space

TAKEN = ("space", "scale", "channels", "cells", "recipe", "batch_size", "lr", "training", "augment")
"""Settings that are as in another run where they are not given."""
GUESSED = ("nasbench201", "darts", "darts-free", "published")
"""Spaces that an architecture without a space is tried in."""


def train(
    architecture: str | None = None,
    *,
    source: Path | str | None = None,
    space: Any = None,
    data: Any = None,
    run: Path | str | None = None,
    progress: Progress | None = None,
    ranks: int = 1,
    yes: bool = False,
    **settings: Any,
) -> Answer:
    """Train one architecture and test it once; the answer is that of a search whose choice was given.

    Args:
        architecture: as its space writes it, or the name of something published (``darts-v2``, ``hardcore-a``); by
            default what the run ``source`` found.
        source: a run (a folder, a name or ``last``). Space, scale and recipe are its own where they are not given.
        space: of the architecture; by default of the run, or the first that knows the text.
        data: images, as of :func:`archwright.search`.
        run: folder of this training; a new one by default.
        progress: where to show what happens; silent by default.
        ranks: processes on this machine that share the training, a divisor of the setting ``shards``.
        yes: begin also what takes days.
        settings: further fields of a :class:`~archwright.search.configuration.Configuration`, as ``scale`` or
            ``epochs``.

    Example:
        >>> train("darts-v2", data="cifar100", scale="paper", recipe="darts")  # doctest: +SKIP
        >>> train(source="last", data="folder:photos", epochs=50)  # doctest: +SKIP
    """
    given = {name: value for name, value in settings.items() if value is not None}
    if source is not None:
        found, taken = _of_run(source)
        architecture = architecture or found
        taken_space = taken.pop("space", None)
        space = space or taken_space
        given = {**taken, **given}
    if not architecture:
        raise InputError("an architecture, or a run whose answer it is (--from)", "neither")
    text, own = _published(architecture)
    given = {**own, **given}
    return search(
        "train",
        space=space or given.pop("space", None) or _space_of(text),
        data=data,
        run=run,
        progress=progress,
        ranks=ranks,
        yes=yes,
        options={"architecture": text},
        **given,
    )


def _published(name: str) -> tuple[str, dict[str, Any]]:
    """The text of an architecture that is named, with its space and scale; a text that is no name stays as it is."""
    cells, network = published_cell(name), name.strip().lower().replace("_", "-")
    if cells is not None:
        return str(GALLERY[cells]), {}
    if network in NETWORKS:
        return str(NETWORKS[network]), {"space": "mbconv", "scale": "mbconv-224-published"}
    return name, {}


def _of_run(source: Path | str) -> tuple[str, dict[str, Any]]:
    """What a run found, and its settings that a training takes over."""
    run = find_run(str(source))
    answer = run.stage_result("answer")
    if answer is None:
        raise InputError("a finished run (--from)", f"{run.folder} ({run.status()})", resume_command(run.folder))
    best = answer.get("best") or {}
    if not isinstance(best.get("architecture"), str):
        raise InputError("a run that found one architecture (--from)", str(run.folder))
    return best["architecture"], {name: run.configuration[name] for name in TAKEN if run.configuration.get(name)}


def _space_of(text: str) -> str:
    """The first space that knows an architecture."""
    for name in GUESSED:
        try:
            find_space(name).parse(text)
        except InputError:
            continue
        return name
    known = ", ".join(sorted({*GALLERY, *NETWORKS}))
    raise InputError(
        f"the name of something published ({known}) or the text of an architecture",
        repr(text[:200]),
        "Say which space it is of (--space).",
    )
