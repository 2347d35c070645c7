"""Stratified splits: which image belongs to train, validation and test. Pure functions of labels, shares and seed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from archwright.data.raw import Labels, RawImages
from archwright.errors import InputError

Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Parts:
    """Disjoint sorted indices that together are the whole data set."""

    train: Indices
    validation: Indices
    test: Indices


def split(raw: RawImages, validation: float, test: float, seed: int) -> Parts:
    """Cut the data set in three.

    ``validation`` and ``test`` are shares of the images outside an official test part; where there is one it is the
    test part, whatever the seed, and ``test`` is not used.
    """
    pool = np.arange(len(raw.labels) - raw.official_test)
    _check_classes(raw.labels[pool], raw.class_names)
    sizes = np.bincount(raw.labels[pool], minlength=len(raw.class_names))
    rng = np.random.default_rng([seed, 0x5B117])  # the second word keeps this stream apart from the batches' streams
    if raw.official_test:
        rest, test_part = pool, np.arange(len(pool), len(raw.labels))
    else:
        rest, test_part = _draw(pool, raw.labels, sizes * test, rng)
    train, validation_part = _draw(rest, raw.labels, sizes * validation, rng)
    for name, part in (("validation", validation_part), ("test", test_part)):
        if len(part) == 0:
            raise InputError(
                f"at least one image in the {name} part",
                f"none out of {len(pool)} images",
                f"Give more images or a larger share with {name}=.",
            )
    return Parts(train, validation_part, test_part)


def _draw(
    pool: Indices, labels: Labels, exact: NDArray[np.floating], rng: np.random.Generator
) -> tuple[Indices, Indices]:
    """(kept, drawn): about ``exact[c]`` images of each class c of ``pool`` drawn, never a class' last one.

    Each class gives the whole part of ``exact``; the images still owed to the rounded sum come one each from the
    classes with the largest remainders, equal remainders in random order. So no class is off by more than one image.
    """
    spare = np.bincount(labels[pool], minlength=len(exact)) - 1
    quota = np.minimum(np.floor(exact + 1e-9).astype(np.int64), spare)
    by_remainder = np.lexsort((rng.random(len(exact)), -np.round(exact - quota, 9)))
    able = by_remainder[(quota < spare)[by_remainder]]
    quota[able[: max(round(exact.sum()) - int(quota.sum()), 0)]] += 1
    drawn = np.concatenate([rng.permutation(pool[labels[pool] == c])[:n] for c, n in enumerate(quota)])
    return np.setdiff1d(pool, drawn), np.sort(drawn)


def _check_classes(labels: Labels, class_names: tuple[str, ...]) -> None:
    """Two classes at least, each with two images at least."""
    if len(class_names) < 2:
        raise InputError("at least two classes", f"{len(class_names)} ({', '.join(class_names)})")
    counts = np.bincount(labels, minlength=len(class_names))
    poor = [f"{class_names[i]!r} has {counts[i]}" for i in np.flatnonzero(counts < 2)]
    if poor:
        shown = ", ".join(poor[:5]) + (f" and {len(poor) - 5} more" if len(poor) > 5 else "")
        raise InputError(
            "at least two images in every class, to have one to train on and one to check with",
            shown,
            "Add images or leave the class out.",
        )
