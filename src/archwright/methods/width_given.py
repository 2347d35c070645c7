"""The network that a user gives to be thinned: where its weights come from, and how it wants to see images.

- one of ours by name (``resnet20``): without weights, so it is trained from scratch;
- a user's function (``FILE.py:FUNCTION``): with weights where two calls return the same ones, else from scratch;
- a model that Archwright saved (a ``.safetensors`` file or a run): with weights and its preprocessing.

A network says its preprocessing by an attribute ``preprocessing``, a mapping with ``mean``, ``std``, ``image_size``,
``order`` (RGB or BGR) and ``turned``, or some of them; networks of timm say it by ``pretrained_cfg``. What the user
gives as options counts more; where nobody says anything it is the mean and the deviation of the training images.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from archwright.data import Preprocessing
from archwright.errors import InputError, unknown_name
from archwright.models import load_member, load_model
from archwright.paths import user_path
from archwright.pretrained.starts import IMAGENET_MEAN, IMAGENET_STD, STARTS
from archwright.references import ObjectRef, SpaceRef
from archwright.runs.files import load_weights
from archwright.spaces.base import Network
from archwright.spaces.known_networks import NETWORKS
from archwright.spaces.width import WidthSpace

KNOWN = ("mean", "std", "image_size", "order", "turned")
"""What a network may say of its images."""
BY_NAME: Mapping[str, Mapping[str, Any]] = {
    "imagenet": {"mean": IMAGENET_MEAN, "std": IMAGENET_STD},
    **{name: {"mean": one.mean, "std": one.std, "turned": one.turned} for name, one in STARTS.items()},
}
"""Preprocessing by the name of a known network, or of the images that most were trained on."""


@dataclass(frozen=True)
class Given:
    """A network to thin.

    Attributes:
        text: as the user gave it.
    """

    text: str

    @cached_property
    def file(self) -> Path | None:
        """The model file, where it is one of Archwright's."""
        if self.text in NETWORKS or ObjectRef.find(self.text) is not None:
            return None
        path = user_path(self.text)
        if not path.exists():
            known = f"{', '.join(NETWORKS)}, your own as MODULE:FUNCTION or FILE.py:FUNCTION, or a model file or run"
            raise InputError(f"a network among {known}", repr(self.text))
        if path.is_dir():
            load_model(path)  # says what is wrong with the run
            path = path / "artifacts" / "best.safetensors"
        if not path.is_file() or path.suffix != ".safetensors":
            raise InputError("one network in a .safetensors file, or a run with one", str(path))
        return path

    @cached_property
    def space_text(self) -> str:
        """The space of its thinner forms."""
        if self.file is None:
            return str(SpaceRef("width", self.text))
        model = load_member(self.file)
        inside = {"space": model.space, "architecture": str(model.architecture), "scale": model.scale.to_dict()}
        return str(SpaceRef("width", json.dumps(inside)))

    def network(self, space: WidthSpace) -> Network:
        """The network with all its channels and the weights it comes with."""
        network = space.whole()
        if self.file is not None:
            load_weights(network, self.file)
        return network

    def has_weights(self, space: WidthSpace) -> bool:
        """Whether it comes with weights: those of a function that are the same twice, whatever the seed."""
        if self.file is not None or self.text in NETWORKS:
            return self.file is not None
        states = []
        for seed in (1, 2):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                states.append(space.whole().state_dict())
        return all(_same(one, other) for one, other in zip(*map(dict.values, states), strict=True))

    def said(self, network: nn.Module) -> dict[str, Any]:
        """What file or ``network`` say of its images, by the names in :data:`KNOWN`."""
        if self.file is not None:
            how = asdict(load_member(self.file).preprocessing)
            return {name: how[name] for name in KNOWN}
        return said_by(network, self.text)


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and bool(torch.equal(one.nan_to_num(), other.nan_to_num()))


def said_by(network: nn.Module, text: str) -> dict[str, Any]:
    """What a user's module says of its images.

    Args:
        network: as it was made, or inside a module of ours.
        text: the function that made it, for errors.
    """
    own = getattr(network, "body", network)
    told = getattr(own, "preprocessing", None)
    if told is None:
        told = getattr(own, "pretrained_cfg", None) or getattr(own, "default_cfg", None)
        told = _of_timm(told) if told is not None else {}
    if is_dataclass(told) and not isinstance(told, type):
        told = {name: value for name, value in asdict(told).items() if name in KNOWN}
    if not isinstance(told, Mapping):
        raise InputError(f"a mapping as preprocessing of {text}", type(told).__name__)
    for name in told:
        if name not in KNOWN:
            raise unknown_name(f"field of the preprocessing of {text}", str(name), KNOWN)
    return dict(told)


def _of_timm(configuration: Any) -> dict[str, Any]:
    """The same of timm's configuration, a mapping or an object with its fields."""
    names = ("mean", "std", "input_size")
    if not isinstance(configuration, Mapping):
        configuration = {name: getattr(configuration, name, None) for name in names}
    found = {name: configuration[name] for name in names if configuration.get(name)}
    size = found.pop("input_size", None)
    return found if size is None else {**found, "image_size": int(size[-1])}


def shown_as(data: Preprocessing, said: Mapping[str, Any]) -> Preprocessing:
    """The preprocessing of the data with what is said of the network's in its place; the size stays the data's.

    Args:
        data: by the images' own mean and deviation.
        said: fields in :data:`KNOWN`; one number as mean or std is that of every channel.
    """
    changes = {name: value for name, value in said.items() if name != "image_size" and value is not None}
    for name in ("mean", "std"):
        if name in changes:
            try:
                numbers = tuple(float(one) for one in changes[name])
            except (TypeError, ValueError) as error:
                raise InputError(f"numbers as {name} of the images", repr(changes[name])) from error
            changes[name] = numbers * data.image_channels if len(numbers) == 1 else numbers
    if changes.get("order", "RGB") not in ("RGB", "BGR"):
        raise InputError("the order RGB or BGR", repr(changes["order"]))
    if changes.get("order") == "BGR" and data.image_channels != 3:
        raise InputError("colour images with the order BGR", f"{data.image_channels} channel(s)")
    return replace(data, **changes)


def check_weights(network: nn.Module, text: str) -> None:
    """Refuse weights that are not finite.

    Args:
        network: with its weights.
        text: what it is called in an error.
    """
    for name, tensor in network.state_dict().items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise InputError(f"finite weights in {text}", f"NaN or infinite ones in {name}")
