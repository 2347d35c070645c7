"""Your own network with choices in it (:mod:`archwright.nn`) as a space that every method searches.

    space = aw.ModelSpace(Net)                    # a class, or a function that makes the network
    aw.search("rarts", space=space, data="folder:photos")
    archwright search rarts --space model:mine.py:Net --data folder:photos

``Net`` is given those of ``classes``, ``image_size``, ``image_channels``, ``channels`` and ``cells`` that it has
parameters for. An architecture names an option for each choice that is reached, as JSON: ``{"stage": "2", "stage.0":
"conv3"}``; choices inside an option that is not taken mean nothing and are not in it, so that it has one text.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from archwright.errors import InputError
from archwright.nn import UNGUIDED, Searched, outermost, take
from archwright.owncode import called
from archwright.references import DIGEST, SpaceRef, refer, resolve, without_digest
from archwright.spaces.base import Encoding, Network, Scale
from archwright.spaces.choice_space import Combination, OwnNetwork, check_own_network
from archwright.spaces.counting import count_network
from archwright.spaces.model_choices import NOTHING, combinations, count, guided, inside, named, without_in_place
from archwright.spaces.model_shapes import AllOptions, Pass, PlaceShape, called_with, recorded, refuse_hidden, text_of
from archwright.spaces.operations import Cost
from archwright.spaces.source import source_digest
from archwright.spaces.supernet_space import SupernetSpace
from archwright.strict import parse_json
from archwright.terminal import say

if TYPE_CHECKING:
    from archwright.supernets.model import ModelSupernet

GIVEN = ("classes", "image_size", "image_channels", "channels", "cells")
"""Parameters of a user's class or function that are given to it where it has them."""
USUAL = {"channels": 16, "cells": 1}
_ENUMERATED = 100_000
"""Spaces up to this many architectures can be listed whole."""


class ModelSpace(SupernetSpace[Combination]):
    """All networks that the choices in a user's own network allow.

    Args:
        make: the network's class, or a function that makes it; weights that it comes with are where options start.
    """

    operations: ClassVar[tuple[str, ...]] = ("option",)
    scored_whole: ClassVar[bool] = True
    proxy_size: ClassVar[int] = 4096  # more than images have: they are scored as they are

    def __init__(self, make: Callable[..., nn.Module]) -> None:
        if isinstance(make, nn.Module) or not callable(make):
            do = "Give the class, or a function that returns the network."
            raise InputError("a class or a function that makes a network", type(make).__name__, do)
        self.make = make
        self.title = str(getattr(make, "__name__", type(make).__name__))
        self.takes = self._parameters()
        usual = Scale(channels=self._usual("channels"), cells=self._usual("cells"))
        self.scales = {"small": usual, "paper": usual}  # type: ignore[misc]
        self._network = self.unmade(usual)
        self._places = named(self._network)
        self._check_names()
        self.choices = {one.decision: one.options for one in self._places.values()}
        self.digest = self._digest()
        self.name = f"{self.title}@{self.digest}"
        self._shapes: dict[Scale, dict[str, PlaceShape]] = {}
        self._costs: dict[tuple[Combination, Scale], Cost] = {}
        self._connected: dict[Combination, bool] = {}
        self._scale = usual

    def __deepcopy__(self, memo: dict[int, Any]) -> ModelSpace:
        """Itself: nothing changes it."""
        return self

    # --- what it is made of ---

    def _parameters(self) -> set[str]:
        parameters = inspect.signature(self.make).parameters
        everything = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
        several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        unknown = [
            name
            for name, one in parameters.items()
            if one.default is one.empty and one.kind not in several and name not in GIVEN
        ]
        if unknown:
            do = "Give the others defaults, or wrap the class in a function."
            raise InputError(f"parameters among {', '.join(GIVEN)} of {self.title}", ", ".join(unknown), do)
        return {name for name in GIVEN if everything or name in parameters}

    def _usual(self, name: str) -> int:
        one = inspect.signature(self.make).parameters.get(name)
        known = one is not None and isinstance(one.default, int) and one.default > 0
        return int(one.default) if known and one is not None else USUAL[name]

    def unmade(self, scale: Scale) -> nn.Module:
        """The network with all options made, at ``scale``; without memory for weights where it can be made so."""
        try:
            with torch.device("meta"):
                network = self.whole(scale)
                named(network)
        except InputError:
            raise
        except Exception:  # noqa: BLE001 - whatever a user's code raises: it may need numbers
            network = self.whole(scale)
            named(network)
        return network

    def whole(self, scale: Scale) -> nn.Module:
        """The network with all its choices, at ``scale``."""
        known = {name: getattr(scale, name) for name in GIVEN if name in self.takes}
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[], enabled=_on_meta()):
            warnings.simplefilter("ignore")  # of weights that are loaded where there is no memory for them
            network = called(self.make, known, f"your network {self.title}")
        check_own_network(network, f"your network {self.title}", in_memory=not _on_meta())
        return network  # type: ignore[no-any-return]

    def comes_with_weights(self, scale: Scale) -> bool:
        """Whether most weights at ``scale`` are the same whatever the seed, and not constant: then they were loaded."""
        made = []
        for seed in (1, 2):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                made.append(self.whole(scale))
        same, every = 0, 0
        for one, other in zip(*(network.parameters() for network in made), strict=True):
            if one.numel() > 1 and one.min() != one.max():
                every += one.numel()
                same += one.numel() if torch.equal(one, other) else 0
        return 2 * same > every

    def _check_names(self) -> None:
        if not self._places:
            do = "Put archwright.nn.Choice, Optional, Depth or Inputs into it, as an attribute."
            raise InputError(f"a network with choices in it from {self.title}", "none", do)
        known: dict[str, Searched] = {}
        for one in self._places.values():
            other = known.setdefault(one.decision, one)
            if other.options != one.options:
                both = f"{', '.join(other.options)} and {', '.join(one.options)}"
                raise InputError(f"the same options of all choices called {one.decision!r}", both)
        for outer in self._places.values():
            if any(inner.decision == outer.decision for inner in inside(outer)):
                do = "Give one of them another name."
                raise InputError("no choice inside one of the same name", f"{outer.decision!r} in itself", do)

    def _digest(self) -> str:
        """Of layers and source, so that what is kept of one network is not taken for another's."""
        source = source_digest((self.make,))
        if source is None:  # a notebook's, or one typed in
            try:
                source = inspect.getsource(self.make)
            except (OSError, TypeError):
                source = ""
        return hashlib.sha256((repr(self._network) + source).encode()).hexdigest()[:DIGEST]

    @classmethod
    def from_spec(cls, named: SpaceRef) -> ModelSpace:
        """Of the kind ``model``: ``MODULE:OBJECT``, which is imported; a saved one's digest follows ``@``."""
        text, digest = without_digest(named.argument)
        if text not in _known or _known[text].make is not resolve(text, "network"):
            _known[text] = cls(resolve(text, "network"))
        space = _known[text]
        if digest and digest != space.digest:
            say(
                f"Warning: {text} has changed since this was saved: the network may compute something else.",
                stderr=True,
            )
        return space

    @property
    def spec(self) -> str:
        """``model:MODULE:OBJECT``, by which the space is found again."""
        return str(SpaceRef("model", refer(self.make)))

    @property
    def saved_as(self) -> str:
        """The same with the digest of what it was."""
        return f"{self.spec}@{self.digest}"

    @property
    def makers(self) -> tuple[Any, ...]:
        """Also the user's class or function."""
        return (type(self), self.make)

    # --- what a supernet's search asks ---

    def columns(self, decision: str) -> tuple[str, ...]:
        """The options of ``decision``."""
        return self.choices[decision]

    def skips(self, decision: str) -> tuple[int, ...]:
        """Options of ``decision`` that are ``nn.Identity``."""
        one = next(place for place in self._places.values() if place.decision == decision)
        parts = [part for _, part in one.inner()] if len(one.inner()) == len(one.options) else []
        return tuple(column for column, part in enumerate(parts) if isinstance(part, nn.Identity))

    def reported(self) -> dict[str, list[str]]:
        """All choices together: of one row alone a skip share says nothing."""
        return {"network": list(self.choices)}

    def check_partial(self, channels: int, partial: int) -> None:
        """Refuse partial channels: a user's modules see all of them.

        Args:
            channels: of the supernet.
            partial: must be 1.
        """
        if partial != 1:
            raise InputError(f"all channels (--partial-channels 1) in your network {self.title}", str(partial))

    def supernet(self, scale: Scale, **options: Any) -> ModelSupernet:
        """The network itself, its choices weighed.

        Args:
            scale: of the network.
            options: ``statistics`` of batch norms; ``partial`` must be 1, and the network shrinks images its own way.
        """
        from archwright.supernets.model import ModelSupernet  # which is made of model spaces

        self.check_partial(scale.channels, options.pop("partial", 1))
        options.pop("downsample", None)
        return ModelSupernet(self, scale, **options)

    def supernet_cost(self, scale: Scale) -> Cost:
        """All options once; multiply-accumulates as of a sampled network times the most options."""
        self.check_scale(scale)
        params = sum(one.numel() for one in self.unmade(scale).parameters())
        return Cost(params, super().supernet_cost(scale).macs)

    def derive(self, weights: Mapping[str, NDArray[np.floating[Any]]]) -> Combination:
        """The strongest option of every choice, never ``none``; of equals, the first."""
        rows = {name: np.asarray(weights[name]) for name in self.choices}
        return self.of_picks(
            {name: self.choices[name][int(self.strongest_columns(name, row)[0])] for name, row in rows.items()}
        )

    def proxy_scale(self, channels: int, cells: int, classes: int, image_size: int, image_channels: int) -> Scale:
        """The network itself, narrower and shorter where it has parameters for that; at the images' own size."""
        usual = self.scales["small"]
        wide, long = "channels" in self.takes, "cells" in self.takes
        return Scale(
            max(channels, 8) if wide else usual.channels,
            cells if long else usual.cells,
            classes,
            image_size,
            image_channels,
        )

    # --- networks ---

    def check_scale(self, scale: Scale) -> None:
        """Run all options of every choice once, on tensors without memory, and say what does not fit."""
        scale.check_bounds()
        for name in USUAL:
            if name not in self.takes and getattr(scale, name) != getattr(self.scales["small"], name):
                got = str(getattr(scale, name))
                raise InputError(f"no --{name} with your network {self.title}, which has no such parameter", got)
        self.shapes(scale)

    def shapes(self, scale: Scale) -> dict[str, PlaceShape]:
        """By place, what each choice is given and gives at ``scale``; refused where options do not fit."""
        if scale not in self._shapes:
            try:
                found = self._checked(scale, "meta")
            except InputError:
                raise
            except Exception:  # noqa: BLE001 - an operator that has no shapes without numbers
                found = self._checked(scale, "cpu")
            self._shapes[scale] = found
            self._scale = scale
        return self._shapes[scale]

    def _checked(self, scale: Scale, device: str) -> dict[str, PlaceShape]:
        with torch.device(device), torch.random.fork_rng(devices=[]), torch.no_grad():
            network = self.whole(scale).eval()
            places = named(network)
            if {one.decision: one.options for one in places.values()} != self.choices:
                do = "Give choices of repeated parts one name."
                raise InputError(f"the choices {', '.join(self.choices)} at every scale", ", ".join(places), do)
            without_in_place(network)
            passes = [self._passed(network, places, scale, images) for images in (2, 3)]
        self._check_output(passes[0].output, scale.classes)
        missing = [one.decision for place, one in places.items() if place not in passes[0].shapes]
        if missing:
            do = "Call it in forward, or leave it out."
            raise InputError("a network that calls all its choices", f"{', '.join(missing)} never called", do)
        calls = [one.calls for one in passes]
        found = {  # in the order of calls
            place: PlaceShape(output, *(seen[id(places[place])] for seen in calls))
            for place, output in passes[0].shapes.items()
        }
        for place, one in places.items():
            inner = {f"{place} {name}": id(part) for name, part in one.inner()}
            found |= {key: PlaceShape((), *(seen.get(part, []) for seen in calls)) for key, part in inner.items()}
        return found

    def _passed(self, network: nn.Module, places: Mapping[str, Searched], scale: Scale, images: int) -> Pass:
        """One pass with every option on."""
        guide, hidden = AllOptions(places), list[Searched]()
        x = torch.zeros(images, scale.image_channels, scale.image_size, scale.image_size)
        token = UNGUIDED.set(hidden)
        try:
            with guided(places.values(), guide), recorded(places) as seen:
                output = called_with(network, x, self.title)
        finally:
            UNGUIDED.reset(token)
        refuse_hidden(hidden)
        return Pass(output, guide.outputs, seen)

    def outline(self, scale: Scale) -> list[dict[str, Any]]:
        """The choices for pages, which import nothing: in the order of calls, those in others inside these."""
        shapes = self.shapes(scale)
        order = {place: number for number, place in enumerate(shapes)}
        places = {id(one): place for place, one in self._places.items()}

        def listed(module: nn.Module) -> list[dict[str, Any]]:
            found = sorted((one for _, one in outermost(module)), key=lambda one: order[places[id(one)]])
            return [
                {
                    "kind": type(one).__name__,
                    "decision": one.decision,
                    "options": list(one.options),
                    "shape": text_of(shapes[places[id(one)]].output),
                    "inside": {name: listed(part) for name, part in one.inner()},
                }
                for one in found
            ]

        return listed(self._network)

    def _check_output(self, output: Any, classes: int) -> None:
        if not isinstance(output, Tensor) or tuple(output.shape) != (2, classes):
            got = text_of(tuple(output.shape)) if isinstance(output, Tensor) else type(output).__name__
            do = "" if "classes" in self.takes else "A parameter called 'classes' is given their number."
            raise InputError(f"logits (2, {classes}) of two images from your network {self.title}", got, do)

    def build(self, architecture: Combination, scale: Scale) -> Network:
        """The user's network with the chosen modules in place of the choices."""
        self.check_scale(scale)
        network, picks = self.whole(scale), self.picks_of(architecture)
        named(network, picks)
        network = take(network, picks)
        without_in_place(network)
        return OwnNetwork(network)

    def cost(self, architecture: Combination, scale: Scale) -> Cost:
        """Counted on the network, built without memory where it can be."""
        key = (architecture, scale)
        if key not in self._costs:
            try:
                with torch.device("meta"), torch.random.fork_rng(devices=[]):
                    self._costs[key] = count_network(self.build(architecture, scale), scale)
            except InputError:
                raise
            except Exception:  # noqa: BLE001 - as above
                self._costs[key] = count_network(self.build(architecture, scale), scale)
        return self._costs[key]

    def total_stride(self, scale: Scale) -> int:
        """The smallest image that the network takes, if sizes above it are taken, too."""
        low, high = 1, scale.image_size
        while low < high:
            middle = (low + high) // 2
            try:
                self.shapes(scale.changed(image_size=middle))
                high = middle
            except InputError:
                low = middle + 1
        return low

    # --- values ---

    def of_picks(self, picks: Mapping[str, str]) -> Combination:
        """The architecture of options by decision; those that are not reached are left out, missing ones the first."""
        chosen = {name: picks.get(name, options[0]) for name, options in self.choices.items()}
        reached = self._reached(chosen)
        return Combination(json.dumps({name: chosen[name] for name in self.choices if name in reached}))

    def picks_of(self, architecture: Combination) -> dict[str, str]:
        """An option for every choice: the first where it is not reached."""
        return {**{name: options[0] for name, options in self.choices.items()}, **json.loads(architecture.text)}

    def _reached(self, picks: Mapping[str, str]) -> set[str]:
        found: set[str] = set()

        def walk(module: nn.Module) -> None:
            for _, one in outermost(module):
                found.add(one.decision)
                for _, inner in one.inner(picks[one.decision]):
                    walk(inner)

        walk(self._network)
        return found

    @property
    def decisions(self) -> dict[str, tuple[int, int]]:
        """One row a choice, one column an option."""
        return {name: (1, len(options)) for name, options in self.choices.items()}

    @property
    def size(self) -> int:
        """How many different architectures there are."""
        return count([one for _, one in outermost(self._network)], {})

    def enumerated(self) -> Iterator[Combination] | None:
        """All architectures, the first option of everything first."""
        if self.size > _ENUMERATED:
            return None
        return map(self.of_picks, combinations([one for _, one in outermost(self._network)], {}))

    def as_written(self) -> Combination:
        """The first option of every choice."""
        return self.of_picks({})

    def sample(self, rng: np.random.Generator) -> Combination:
        """Every choice that is reached uniformly among its options."""
        return self.of_picks({name: options[int(rng.integers(len(options)))] for name, options in self.choices.items()})

    def parse(self, text: str) -> Combination:
        """The architecture written as a JSON object with an option for each choice that is reached."""
        try:
            values = parse_json(text, unique=True)
        except ValueError as error:
            raise InputError(f"a JSON object with {', '.join(self.choices)}", f"{text[:80]!r} ({error})") from error
        if not isinstance(values, dict) or not set(values) <= set(self.choices):
            got = ", ".join(values) if isinstance(values, dict) else type(values).__name__
            raise InputError(f"options of {', '.join(self.choices)}", got[:200] or "none")
        for name, option in values.items():
            if option not in self.choices[name]:
                raise InputError(f"one of {', '.join(self.choices[name])} for {name!r}", json.dumps(option)[:80])
        missing = self._reached({n: values.get(n, o[0]) for n, o in self.choices.items()}) - set(values)
        if missing:
            raise InputError("an option for each choice that is reached", f"none for {', '.join(sorted(missing))}")
        return self.of_picks(values)

    def encode(self, architecture: Combination) -> Encoding:
        """One row a choice, with a one at the option that is taken; zeros where it is not reached."""
        values, found = json.loads(architecture.text), {}
        for name, options in self.choices.items():
            found[name] = np.zeros((1, len(options)), dtype=np.int8)
            if name in values:
                found[name][0, options.index(values[name])] = 1
        return found

    def decode(self, encoding: Mapping[str, NDArray[Any]]) -> Combination:
        """The architecture of rows with a one for every choice that is reached."""
        rows = self.check_encoding(encoding)
        picks = {name: self.choices[name][int(row[0].argmax())] for name, row in rows.items()}
        reached = self._reached(picks)
        for name, row in rows.items():
            if row.sum() > 1 or (name in reached and row.sum() != 1):
                raise InputError(f"exactly one option for {name!r}", str(int(row.sum())))
        return self.of_picks(picks)

    def neighbours(self, architecture: Combination) -> list[Combination]:
        """Every architecture with another option of one choice; choices that are newly reached take their first."""
        values = json.loads(architecture.text)
        changed = (
            self.of_picks({**values, name: other})
            for name, option in values.items()
            for other in self.choices[name]
            if other != option
        )
        return list(dict.fromkeys(changed))

    def crossover(self, first: Combination, second: Combination, rng: np.random.Generator) -> Combination:
        """Each option from one of the parents that reach the choice."""
        parents = json.loads(first.text), json.loads(second.text)
        picks = {}
        for name in self.choices:
            known = [parent[name] for parent in parents if name in parent]
            if known:
                picks[name] = known[int(rng.integers(len(known)))]
        return self.of_picks(picks)

    def canonical(self, architecture: Combination) -> Combination:
        """Itself: what is not reached is not in it."""
        return architecture

    def is_connected(self, architecture: Combination) -> bool:
        """Always, unless an option gives nothing: then a gradient tells."""
        if not any(isinstance(part, NOTHING) for one in self._places.values() for _, part in one.inner()):
            return True
        if architecture not in self._connected:
            scale = self._scale
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                network = self.build(architecture, scale).double().train()
                x = torch.randn(2, scale.image_channels, scale.image_size, scale.image_size).double().requires_grad_()
                (gradient,) = torch.autograd.grad(network(x).square().sum(), x, allow_unused=True)
            self._connected[architecture] = gradient is not None and bool((gradient != 0).any())
        return self._connected[architecture]


def _on_meta() -> bool:
    return torch.empty(0).device.type == "meta"


_known: dict[str, ModelSpace] = {}
"""Spaces by reference: the shapes of one are found once."""
