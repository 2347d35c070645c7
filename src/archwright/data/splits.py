"""Stratified splits: which image belongs to train, validation and test. Pure functions of labels, shares and seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from archwright.data.raw import Labels, RawImages
from archwright.errors import InputError

Indices = NDArray[np.int64]
Shares = tuple[float, ...] | None
"""Relative sizes of train and the drawn parts, as (70, 15, 15); None for the usual ones."""


LEAST_SHARE = 1e-4
"""Of a part: a smaller one is a slip of the keyboard."""


@dataclass(frozen=True, eq=False)
class Parts:
    """Disjoint sorted indices that together are the whole data set."""

    train: Indices
    validation: Indices
    test: Indices


def split(raw: RawImages, shares: Shares, seed: int) -> Parts:
    """Cut the data set in three: its own validation and test parts are kept as they are, the others are drawn.

    Args:
        raw: the data set.
        shares: relative sizes of train and of each part that is drawn, in the order train, validation, test; a fifth
            of the images outside the data set's own parts for each drawn part by default.
        seed: of the draw.
    """
    pool = np.arange(len(raw.labels) - raw.official_validation - raw.official_test)
    own_validation = np.arange(len(pool), len(pool) + raw.official_validation)
    own_test = np.arange(len(pool) + raw.official_validation, len(raw.labels))
    _check_classes(raw.labels[pool], raw.class_names)
    drawn = _shares(raw, shares)
    sizes = np.bincount(raw.labels[pool], minlength=len(raw.class_names))
    rng = np.random.default_rng([seed, 0x5B117])  # the second word keeps this stream apart from the batches' streams
    rest, test = (pool, own_test) if len(own_test) else _draw(pool, raw.labels, sizes * drawn["test"], rng)
    if len(own_validation):
        train, validation = rest, own_validation
    else:
        train, validation = _draw(rest, raw.labels, sizes * drawn["validation"], rng)
    for name, part in (("validation", validation), ("test", test)):
        if len(part) == 0:
            raise InputError(
                f"at least one image in the {name} part",
                f"none out of {len(pool)} images",
                "Give more images or a larger share of them (--split 60,20,20).",
            )
    return Parts(train, validation, test)


def _shares(raw: RawImages, shares: Shares) -> dict[str, float]:
    """The share of the pool for each part that is drawn."""
    official = {"validation": raw.official_validation, "test": raw.official_test}
    drawn = [name for name, count in official.items() if not count]
    if shares is None:
        return dict.fromkeys(drawn, 0.2)
    if not drawn:
        raise InputError("no shares", _text(shares), f"All three parts of {raw.name} are its own.")
    names = ", ".join(["train", *drawn])
    if len(shares) != 1 + len(drawn):
        kept = " and ".join(name for name, count in official.items() if count)
        why = f", as {raw.name} has its own {kept} part" if kept else ""
        raise InputError(f"{1 + len(drawn)} shares ({names}){why}", f"{len(shares)}: {_text(shares)}")
    whole = sum(shares)
    if not np.isfinite(whole) or not all(share >= LEAST_SHARE * whole for share in shares) or whole <= 0:
        least = f"shares of at least {LEAST_SHARE:g} of the whole for {names}"
        raise InputError(least, _text(shares), "Write them as in 70,15,15.")
    return dict(zip(drawn, (share / sum(shares) for share in shares[1:]), strict=True))


def _text(shares: Sequence[float]) -> str:
    return ",".join(f"{share:g}" for share in shares)


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
