"""A trained supernet as one file that says what it is and what it was trained on, so that another search can use it.

Both kinds have ``identity()``: the space, the scale and every option that decides what the weights mean. A file is
loaded into a supernet of the same identity; another space or scale, or other images and splits, are refused.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Protocol, TypeVar

from torch import nn

from archwright.errors import InputError
from archwright.runs.files import load_weights, read_metadata, save_weights
from archwright.strict import parse_json

FILE_NAME = "supernet.safetensors"
"""Name of a run's trained supernet among its artifacts."""


class Supernet(Protocol):
    """What :class:`~archwright.supernets.cell.CellSupernet` and the elastic supernet have in common here."""

    def identity(self) -> dict[str, Any]:
        """Plain JSON that two supernets share exactly when they can share weights; ``space`` is its name."""

    def state_dict(self) -> dict[str, Any]:
        """Weights and statistics by name."""


S = TypeVar("S", bound=nn.Module)


def save_supernet(supernet: Supernet, fingerprint: str, path: Path) -> None:
    """Write weights and statistics, and what they are.

    Args:
        supernet: whose identity is kept, too.
        fingerprint: of the images and splits it was trained on.
        path: of the file.
    """
    state = {name: tensor.detach().cpu().contiguous() for name, tensor in supernet.state_dict().items()}
    facts = {**supernet.identity(), "data": fingerprint}
    save_weights(path, state, {"supernet": json.dumps(facts)})


def load_supernet(path: Path, supernet: S, fingerprint: str) -> S:
    """``supernet`` with the weights in a file; those of another supernet, or of other images, are refused.

    Args:
        path: of the file.
        supernet: changed in place.
        fingerprint: of the images and splits that it is to be trained on.
    """
    if not path.is_file():
        raise InputError(
            "a run with a trained supernet", f"no file {path}", "Finish that run, or leave out --supernet."
        )
    facts = _facts(path)
    trained_on = facts.pop("data", None)
    found, wanted = _flat(facts), _flat(json.loads(json.dumps(supernet.identity())))  # type: ignore[operator]
    differing = [name for name in {**wanted, **found} if found.get(name) != wanted.get(name)]
    if differing:
        raise InputError(
            f"a supernet with {', '.join(f'{name}={wanted.get(name)}' for name in differing)}",
            f"one with {', '.join(f'{name}={found.get(name)}' for name in differing)} in {path}",
            "Search in the space and at the scale it was trained at, or train it anew.",
        )
    if trained_on != fingerprint:
        raise InputError(
            "a supernet trained on the same images with the same seed",
            f"one of other images or splits in {path}",
            "Its validation images could be your training images; train it anew.",
        )
    load_weights(supernet, path)
    return supernet


def _facts(path: Path) -> dict[str, Any]:
    """What the file says of itself."""
    try:
        facts = parse_json(read_metadata(path).get("supernet", ""))
    except ValueError as error:
        raise InputError("a supernet saved by archwright", f"{path} ({error})") from error
    if not isinstance(facts, dict) or not isinstance(facts.get("scale"), dict):
        raise InputError("a supernet saved by archwright", f"{path}, which says nothing of its scale")
    return facts


def _flat(identity: dict[str, Any]) -> dict[str, Any]:
    """The fields of the scale beside the others."""
    return {**{name: value for name, value in identity.items() if name != "scale"}, **identity["scale"]}


def supernet_of(run: str | Path) -> Path:
    """The file of the trained supernet of the run in folder ``run``."""
    return Path(run) / "artifacts" / FILE_NAME
