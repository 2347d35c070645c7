"""Conformance suites: what every space, method and proxy promises, checked by calling it.

They run over everything registered in Archwright's own tests, and a plug-in's tests can call them on its own things::

    from archwright.testing import check_space

    def test_my_space_keeps_the_contract():
        check_space(MySpace())

A broken promise is an ``AssertionError`` that names it. Nothing here depends on a test framework.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from archwright.errors import InfeasibleError, InputError
from archwright.runs.progress import Bar, Progress
from archwright.spaces.base import Architecture, Network, Scale, Space
from archwright.spaces.counting import count_network
from archwright.spaces.operations import Cost
from archwright.spaces.registry import find_space
from archwright.spaces.supernet_space import SupernetSpace

AnySpace = Space[Any]


def _refused(action: Callable[..., Any], *arguments: Any) -> bool:
    """Whether ``action`` ends in an :class:`InputError`; any other error is not what a user should meet."""
    try:
        action(*arguments)
    except InputError:
        return True
    return False


# --- spaces ----------------------------------------------------------------------------------------------------------


def check_space(space: AnySpace, samples: int = 20, seed: int = 0) -> None:
    """Check the contract of :mod:`archwright.spaces.base` on random architectures; an AssertionError says what broke.

    Networks and their costs are checked where the space builds any.

    Args:
        space: to be checked.
        samples: number of architectures.
        seed: of the draws.
    """
    assert space.name, "a space has a name"
    assert space.operations, f"{space.name}: a space names its operations"
    assert "small" in space.scales, f"{space.name}: a space has a scale called 'small'"
    assert space.size > 0, f"{space.name}: size is positive, got {space.size}"
    architectures = _check_randomness(space, samples, seed)
    for architecture in architectures:
        _check_value(space, architecture)
        _check_encoding(space, architecture)
        _check_canonical(space, architecture)
    for first, second in itertools.pairwise(architectures[:6]):
        _check_variation(space, first, second)
    _check_refusals(space, architectures[0])
    if not space.builds_networks:
        refused = _refused(space.build, architectures[0], space.scales["small"])
        assert refused, f"{space.name}: a space without networks refuses to build one by an InputError"
        return
    _check_scale_refusals(space, architectures[0])
    for name, scale in space.scales.items():
        for architecture in architectures[:2]:
            _check_params(space, architecture, name, scale)
    for architecture in architectures[:5]:
        _check_network(space, architecture)
    if isinstance(space, SupernetSpace):
        _check_supernet(space, architectures[:3])
    rng = np.random.default_rng(seed + 1)
    pool = [space.sample(rng) for _ in range(15 * samples)]
    pool.sort(key=lambda architecture: space.cost(architecture, space.scales["small"]).macs)
    for architecture in architectures[:5] + pool[:samples]:  # the cheapest ones are the likeliest to be disconnected
        _check_dependence(space, architecture)


def _check_randomness(space: AnySpace, samples: int, seed: int) -> list[Any]:
    """Sampling, mutation and crossover repeat with the seed and leave every global generator alone."""

    def draw() -> list[Any]:
        rng = np.random.default_rng(seed)
        drawn = [space.sample(rng) for _ in range(samples)]
        children = [space.crossover(drawn[0], drawn[-1], rng) for _ in range(3)]
        return drawn + children + [space.mutate(drawn[0], rng) for _ in range(3)]

    before = (random.getstate(), str(np.random.get_state()), torch.get_rng_state())  # noqa: NPY002 - watched, not used
    drawn = draw()
    after = (random.getstate(), str(np.random.get_state()), torch.get_rng_state())  # noqa: NPY002
    untouched = before[:2] == after[:2] and torch.equal(before[2], after[2])
    assert untouched, f"{space.name}: randomness comes only from the generator passed in, but a global one moved"
    assert draw() == drawn, f"{space.name}: the same generator gives the same architectures"
    assert space.size == 1 or len(set(drawn)) > 1, f"{space.name}: sample gives different architectures"
    return drawn[:samples]


def _check_value(space: AnySpace, architecture: Any) -> None:
    """A frozen, hashable value with one text that parses back."""
    assert isinstance(architecture, Architecture), f"{space.name}: {architecture!r} is not an Architecture"
    text = space.format(architecture)
    assert text == str(architecture), f"{space.name}: format gives str(architecture), got {text!r}"
    parsed = space.parse(text)
    assert parsed == architecture, f"{space.name}: parse inverts format, but {text!r} became {parsed}"
    assert hash(parsed) == hash(architecture), f"{space.name}: equal architectures have equal hashes ({text!r})"
    field = next(iter(getattr(architecture, "__dataclass_fields__", {"name": None})))
    try:
        setattr(architecture, field, None)
    except AttributeError:
        return
    raise AssertionError(f"{space.name}: an architecture is frozen, but {field!r} could be set")


def _check_encoding(space: AnySpace, architecture: Any) -> None:
    """Encode and decode are inverse, and the arrays are 0/1 with the shapes of the decisions."""
    encoding = space.encode(architecture)
    shapes = {name: array.shape for name, array in encoding.items()}
    assert shapes == space.decisions, f"{space.name}: an encoding has the shapes {space.decisions}, got {shapes}"
    for name, array in encoding.items():
        assert np.isin(array, (0, 1)).all(), f"{space.name}: the encoding of {name!r} is 0/1"
    decoded = space.decode(encoding)
    assert decoded == architecture, f"{space.name}: decode inverts encode, but {architecture} became {decoded}"


def _check_canonical(space: AnySpace, architecture: Any) -> None:
    """The canonical form is a member of the space, its own canonical form, and connected when the architecture is."""
    canonical = space.canonical(architecture)
    _check_value(space, canonical)
    assert space.canonical(canonical) == canonical, f"{space.name}: canonical is idempotent, not for {architecture}"
    same = space.is_connected(canonical) == space.is_connected(architecture)
    assert same, (
        f"{space.name}: the canonical form is connected exactly when the architecture is, not for {architecture}"
    )


def _check_variation(space: AnySpace, first: Any, second: Any) -> None:
    """Neighbours, mutation and crossover stay in the space and change what they say."""
    rng = np.random.default_rng(1)
    neighbours = space.neighbours(first)
    assert len(set(neighbours)) == len(neighbours), f"{space.name}: the neighbours of {first} repeat"
    assert first not in neighbours, f"{space.name}: {first} is among its own neighbours"
    for neighbour in neighbours:
        assert space.parse(str(neighbour)) == neighbour, f"{space.name}: the neighbour {neighbour} is not of the space"
    for _ in range(3):
        mutant = space.mutate(first, rng)
        assert mutant in neighbours, f"{space.name}: mutate gives a neighbour, got {mutant} from {first}"
    assert space.crossover(first, first, rng) == first, f"{space.name}: a child of {first} and itself is itself"
    parents = space.encode(first), space.encode(second)
    for _ in range(3):
        child = space.crossover(first, second, rng)
        _check_value(space, child)
        for name, array in space.encode(child).items():
            inherited = (array <= np.maximum(parents[0][name], parents[1][name])).all()
            assert inherited, f"{space.name}: the child {child} has parts of neither {first} nor {second}"


def _check_refusals(space: AnySpace, architecture: Any) -> None:
    """Malformed text and encodings are input errors."""
    for text in ("", "nonsense", f"{architecture}?"):
        assert _refused(space.parse, text), f"{space.name}: parse refuses {text!r} by an InputError"
    name, (slots, choices) = next(iter(space.decisions.items()))
    encoding = space.encode(architecture)
    bad: dict[str, dict[str, Any]] = {
        "a missing decision": {other: array for other, array in encoding.items() if other != name},
        "a wrong shape": {**encoding, name: np.zeros((slots + 1, choices), dtype=np.int8)},
        "values other than 0 and 1": {**encoding, name: 2 * encoding[name]},
    }
    if not space.any_encoding:
        bad["every choice at once"] = {other: np.ones_like(array) for other, array in encoding.items()}
    for what, wrong in bad.items():
        assert _refused(space.decode, wrong), f"{space.name}: decode refuses {what} by an InputError"


def _check_scale_refusals(space: AnySpace, architecture: Any) -> None:
    """Images too small for the network are input errors."""
    scale = space.scales["small"]
    tiny = scale.changed(image_size=space.total_stride(scale) - 1)
    for what, action in (("build", space.build), ("cost", space.cost)):
        refused = _refused(action, architecture, tiny)
        assert refused, f"{space.name}: {what} refuses images smaller than the total stride by an InputError"
    smallest = scale.changed(image_size=space.total_stride(scale))
    assert not _refused(space.build, architecture, smallest), f"{space.name}: build takes {smallest}"


def _check_params(space: AnySpace, architecture: Any, name: str, scale: Scale) -> None:
    """The counted parameters are those of the built network; an auxiliary head does not count."""
    plain = scale.changed(auxiliary=False)
    with torch.device("meta"):
        built = sum(parameter.numel() for parameter in space.build(architecture, plain).parameters())
    for counted in (space.cost(architecture, plain).params, space.cost(architecture, scale).params):
        message = f"{space.name}: {architecture} at scale {name!r} has {built} parameters, cost says {counted}"
        assert counted == built, message


def _check_network(space: AnySpace, architecture: Any) -> None:
    """The network at the small scale: its cost and its outputs."""
    scale = space.scales["small"]
    for variant in (scale, scale.changed(classes=3, image_channels=1)):
        whole = space.canonical(architecture)  # has no operation that nothing reaches, so all it counts also runs
        measured, counted = measured_cost(space, whole, variant), space.cost(whole, variant)
        assert measured == counted, f"{space.name}: {whole} at {variant} costs {measured}, cost says {counted}"
    network = space.build(architecture, scale)
    assert isinstance(network, Network), f"{space.name}: build gives a Network, got {type(network).__name__}"
    with torch.no_grad():
        for mode in (True, False):
            output = network.train(mode)(_images(scale))
            assert output.shape == (2, scale.classes), f"{space.name}: the output is (B, classes), got {output.shape}"
            assert output.isfinite().all(), f"{space.name}: the output of {architecture} is not finite"


def _check_supernet(space: SupernetSpace[Any], architectures: list[Any]) -> None:
    """What supernets and their searches rely on: derivation, sampling and inherited weights."""
    rng = np.random.default_rng(2)
    weights = {name: rng.random(shape) for name, shape in space.decisions.items()}
    scores = {name: rng.random(choice.shape) for name, choice in space.draws.items()}
    for what, derived in (("derive", space.derive(weights)), ("derive_draws", space.derive_draws(scores))):
        assert space.parse(str(derived)) == derived, f"{space.name}: {what} gives an architecture of the space"
    drawn = space.weights_of({name: torch.rand(choice.shape) for name, choice in space.draws.items()})
    shapes = {name: tuple(tensor.shape) for name, tensor in drawn.items()}
    assert shapes == space.decisions, f"{space.name}: weights_of gives the shapes {space.decisions}, got {shapes}"
    small = space.scales["small"]
    scale = space.supernet_scale(small.changed(cells=max(small.cells, space.fewest_cells)))
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        supernet = space.supernet(scale).double().train()
        images = _images(scale).double()
        for architecture in architectures:
            chosen = {name: weight.double() for name, weight in supernet.one_hot(architecture).items()}
            alone_network = supernet.inherit(architecture).double().train()
            torch.manual_seed(1)  # of dropout
            ours = supernet(images, chosen)
            torch.manual_seed(1)
            alone = alone_network(images)
            same = torch.allclose(ours, alone, atol=1e-6)
            assert same, f"{space.name}: {architecture} with the supernet's weights computes what the supernet does"


def _depends(space: AnySpace, architecture: Any, scale: Scale, seed: int) -> bool:
    """Whether two images have different outputs, with weights of a seed."""
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = space.build(architecture, scale).double().eval()  # double: a deep network's signal is faint
        return not torch.equal(network(_images(scale).double()), network(_images(scale, seed=1).double()))


def _check_dependence(space: AnySpace, architecture: Any) -> None:
    """The network's output changes with its input exactly when the space says that they are connected."""
    scale = space.scales["small"]
    scale = scale.changed(image_size=max(8, space.total_stride(scale)))
    depends = any(
        _depends(space, architecture, scale, seed) for seed in range(3)
    )  # with some weights all units are dead
    says = space.is_connected(architecture)
    assert depends == says, (
        f"{space.name}: is_connected({architecture}) says {says}, the output's dependence is {depends}"
    )


def _images(scale: Scale, seed: int = 0) -> Tensor:
    """Two Gaussian images, (2, image_channels, image_size, image_size)."""
    shape = (2, scale.image_channels, scale.image_size, scale.image_size)
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def measured_cost(space: AnySpace, architecture: Any, scale: Scale) -> Cost:
    """Parameters and multiply-accumulates (of convolutions and matrix products) of the built network, on meta tensors.

    Multiply-accumulates are counted from the operators that an evaluation pass calls, for one image.

    Args:
        space: that builds it.
        architecture: of the space.
        scale: of the network; its auxiliary head is left out.
    """
    with torch.device("meta"):
        return count_network(space.build(architecture, scale.changed(auxiliary=False)), scale)


# --- methods ---------------------------------------------------------------------------------------------------------


def check_method(name: str, *, kills: int = 3, **settings: Any) -> None:
    """Check the contract of :mod:`archwright.search.method` for the registered method ``name`` by small searches.

    Args:
        name: registered name.
        kills: how many moments, spread over the search, it is killed at and resumed from.
        settings: of the search, beside or instead of a tiny one on the embedded digits; options of the method too.
    """
    from archwright.search.registry import methods

    settings = {"data": "digits", "channels": 4, "cells": 1, "epochs": 1, "final_epochs": 1, "seed": 1} | settings
    if "evaluations" in methods.get(name).Options.model_fields:
        settings = {"evaluations": 3} | settings
    with tempfile.TemporaryDirectory() as folder:
        _check_method_refusals(name, Path(folder) / "refused", settings)
        counter = _KillAt(None)
        expected = _answer(name, Path(folder) / "whole", counter, settings)
        _check_answer(name, expected)
        assert _answer(name, Path(folder) / "again", _KillAt(None), settings) == expected, (
            f"{name}: the same seed gives the same answer, whatever the state of global generators"
        )
        for number in range(kills):
            moment = 1 + number * (counter.count - 1) // max(1, kills - 1)
            killed = _answer(name, Path(folder) / f"killed-{number}", _KillAt(moment), settings)
            assert killed == expected, f"{name}: killed at moment {moment} of {counter.count} and resumed, it differs"


class _Killed(BaseException):
    """Not an Exception, so that nothing on the way handles it: the nearest thing to a kill inside one process."""


class _KillAt(Progress):
    """Counts the moments at which a run under way shows something; raises at one of them."""

    def __init__(self, moment: int | None) -> None:
        self.moment, self.count = moment, 0

    def tick(self) -> None:
        """One more moment has come."""
        self.count += 1
        if self.count == self.moment:
            raise _Killed

    @contextmanager
    def task(self, title: str, total: int, done: int = 0) -> Iterator[Bar]:
        """A bar that ticks."""
        self.tick()
        yield _TickingBar(self)


class _TickingBar(Bar):
    def __init__(self, clock: _KillAt) -> None:
        self._clock = clock

    def advance(self, count: int = 1) -> None:
        self._clock.tick()


def _answer(name: str, folder: Path, progress: _KillAt, settings: dict[str, Any]) -> dict[str, Any]:
    """The answer of a search, resumed if ``progress`` kills it, without times and places, and with its weights."""
    from archwright.runs.run import Run
    from archwright.search.engine import resume, search

    states = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002 - put back below
    shift = zlib.crc32(folder.name.encode())
    random.seed(shift)
    np.random.seed(shift)  # noqa: NPY002
    torch.manual_seed(shift)
    try:
        result = search(name, run=folder, progress=progress, **settings)
    except _Killed:
        result = resume(folder)
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        torch.set_rng_state(states[2])
    plan = Run.open(folder).header["plan"]
    assert [stage["name"] for stage in plan][-1] == "answer", f"{name}: the last stage is the answer"
    assert all(stage["title"] for stage in plan), f"{name}: every stage has a title for people"
    assert resume(folder) == result, f"{name}: resuming a finished run returns its answer"
    stored = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert stored == result.to_json(), f"{name}: the answer is plain, strict JSON"
    files = [folder / "artifacts" / "best.safetensors", *sorted((folder / "artifacts" / "best").glob("*.safetensors"))]
    digest = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files if file.exists()]
    return {key: value for key, value in stored.items() if key not in ("seconds", "run")} | {"weights": digest}


def _check_answer(name: str, answer: dict[str, Any]) -> None:
    """What scripts rely on."""
    for key in ("method", "space", "data", "seed", "best", "front", "evaluations"):
        assert key in answer, f"{name}: the answer has {key!r}"
    best = answer["best"]
    space: AnySpace = find_space(answer["space"])
    if space.widths_in_architecture:
        space = space.at_scale(space.scale_from(best["scale"]))
    texts = [one["architecture"] for one in answer.get("members", ())]
    listed = json.loads(best["architecture"]) if texts else [best["architecture"]]
    assert not texts or listed == texts, f"{name}: the architecture of an ensemble is the list of its members'"
    for text in listed:
        assert str(space.parse(text)) == text, f"{name}: best.architecture parses back"
    assert 0 <= best["accuracy"] <= 100, f"{name}: best.accuracy is in percent, got {best['accuracy']}"
    assert best["accuracy_on"], f"{name}: the answer says what the accuracy was measured on"
    assert best["params"] > 0, f"{name}: best.params is positive"
    assert best["macs"] > 0, f"{name}: best.macs is positive"


def _check_method_refusals(name: str, folder: Path, settings: dict[str, Any]) -> None:
    """What cannot work is refused before anything is written."""
    from archwright.search.engine import search

    bad: dict[str, dict[str, Any]] = {
        "an unknown option": {"no_such_option": 1},
        "an unknown space": {"space": "no_such_space"},
        "unknown data": {"data": "no_such_data"},
        "an unknown limit": {"limits": {"colour": 1.0}},
        "a negative seed": {"seed": -1},
        "images smaller than the network's stride": {"image_size": 1},
    }
    for what, wrong in bad.items():
        refused = _refused(lambda wrong=wrong: search(name, run=folder, **{**settings, **wrong}))
        assert refused, f"{name}: {what} is refused by an InputError"
    try:
        search(name, run=folder, **{**settings, "limits": {"params": 1.0}})
        message = ""
    except (InfeasibleError, InputError) as error:  # an InputError where the method keeps no limits at all
        message = str(error)
    assert "from" in message or "limits" in message, f"{name}: a limit that nothing meets is refused with the range"
    assert not folder.exists(), f"{name}: refused settings leave no run folder behind"
