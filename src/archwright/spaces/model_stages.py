"""A user's network with choices as stages of blocks, so that tables, exact solvers and limits serve it unchanged.

A :class:`~archwright.nn.Depth` is a stage with its blocks; another choice that stands alone is a stage of one block.
A block's configurations are all combinations of the choices inside it. Choices of one name in several places, or that
are otherwise entangled, are one stage of one block together. A part is a block as it is with some configuration, on
inputs of the shapes that it is given in the network; what is not searched is the end, known by what is left of counts.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from archwright.errors import InputError
from archwright.nn import Depth, Searched, outermost, take
from archwright.solvers.problem import ABSENT, StagedChoice
from archwright.spaces.base import Network, Scale
from archwright.spaces.choice_space import Combination
from archwright.spaces.model_choices import combinations, groups, inside, named, without_in_place
from archwright.spaces.model_space import ModelSpace
from archwright.spaces.operations import Cost
from archwright.spaces.staged import Part, StagedSpace

MOST_CONFIGURATIONS = 256
"""Combinations of the choices of one block; each is timed."""
Picks = dict[str, str]
PLAIN = (bool, int, float, str, tuple)
"""Types of attributes that say what a module is."""


@dataclass
class Block:
    """A block: the modules it stands for, one in each place, and its configurations."""

    modules: list[nn.Module]
    inputs: list[str]
    configurations: list[Picks]


@dataclass
class Stage:
    """Blocks one after another; ``depth`` names the decision on how many there are, None for one that is fixed."""

    depth: str | None
    depths: tuple[int, ...]
    blocks: list[Block] = field(default_factory=list)
    empty: int = 0
    """1 where the first block is nothing, as the stage may have no blocks."""


class ModelStages(StagedSpace[Any]):
    """The stages of a model space at a scale.

    Args:
        space: of the network.
        scale: of it.
    """

    def __init__(self, space: ModelSpace, scale: Scale) -> None:
        self.space, self.name = space, space.saved_as
        self.scale = scale  # type: ignore[assignment]
        self._shapes = space.shapes(scale)
        self.network = space.unmade(scale).eval()
        self._places = named(self.network)
        without_in_place(self.network)
        self._by_id = {id(one): place for place, one in self._places.items()}
        top = [one for _, one in outermost(self.network)]
        self.parts_in_order = [self._stage(group) for group in groups(top, {})]

    def _stage(self, group: list[Searched]) -> Stage:
        first = group[0]
        if len(group) == 1 and isinstance(first, Depth):
            inner = [{one.decision for _, top in outermost(b) for one in (top, *inside(top))} for b in first.blocks]
            apart = sum(map(len, inner)) == len(set().union(*inner)) and first.decision not in set().union(*inner)
            if apart:
                empty = int(first.least == 0)
                depths = tuple(range(first.least + empty, len(first.blocks) + empty + 1))
                place = self._by_id[id(first)]
                blocks = [Block([], [], [{}])] * empty + [
                    Block([one], [f"{place} {n}"], _configurations([one])) for n, one in enumerate(first.blocks)
                ]
                return Stage(first.decision, depths, blocks, empty)
        found = _limited(combinations(group, {}), ", ".join(one.decision for one in group))
        return Stage(None, (1,), [Block(list(group), [self._by_id[id(one)] for one in group], found)])

    # --- the form of a staged space ---

    @property
    def widths(self) -> tuple[tuple[int, ...], ...]:
        """One a stage: nothing here changes shapes."""
        return ((1,),) * len(self.parts_in_order)

    @property
    def depths(self) -> tuple[int, ...]:
        """All that any stage may have."""
        return tuple(range(1, max(stage.depths[-1] for stage in self.parts_in_order) + 1))

    @property
    def stage_depths(self) -> tuple[tuple[int, ...], ...]:
        """Per stage the depths that it may have."""
        return tuple(stage.depths for stage in self.parts_in_order)

    @cached_property
    def configurations(self) -> tuple[tuple[str, ...], ...]:
        """Rows of options by the name of the choice in its block, empty for one that is not in it: for a predictor."""
        labels = [self._label(b, picks) for s in self.parts_in_order for b in s.blocks for picks in b.configurations]
        names = list(dict.fromkeys(name for label in labels for name in label))
        return tuple(dict.fromkeys(tuple(label.get(name, "") for name in names) for label in labels))

    def _label(self, block: Block, picks: Picks) -> Picks:
        """Options by names that are the same in equal blocks: without what the names of a block's choices share."""
        names = sorted({name for one in block.configurations for name in one})
        cut = 0
        if len(block.modules) == 1 and block.inputs and " " in block.inputs[0]:
            place, _, number = block.inputs[0].rpartition(" ")
            cut = len(f"{place}.{number}") if all(name.startswith(f"{place}.{number}") for name in names) else 0
        return {(name[cut:] or "."): option for name, option in picks.items()}

    @cached_property
    def _numbers(self) -> list[list[dict[int, Picks]]]:
        """By stage and block, options by the number of their configuration."""
        names = list(
            dict.fromkeys(
                name
                for s in self.parts_in_order
                for b in s.blocks
                for picks in b.configurations
                for name in self._label(b, picks)
            )
        )
        rows = {row: number for number, row in enumerate(self.configurations)}

        def number(block: Block, picks: Picks) -> int:
            label = self._label(block, picks)
            return rows[tuple(label.get(name, "") for name in names)]

        return [
            [{number(block, picks): picks for picks in block.configurations} for block in stage.blocks]
            for stage in self.parts_in_order
        ]

    def _allowed(self) -> NDArray[np.bool_]:
        allowed = np.zeros((self.stages, self.most_blocks, len(self.configurations)), dtype=bool)
        for s, blocks in enumerate(self._numbers):
            for b, known in enumerate(blocks):
                allowed[s, b, list(known)] = True
        return allowed

    def to_choice(self, architecture: Combination) -> StagedChoice:
        """Depths (S,) and configuration numbers (S, D), -1 beyond the depth."""
        picks: Picks = json.loads(architecture.text)
        depths = np.ones(self.stages, np.int64)
        chosen = np.full((self.stages, self.most_blocks), ABSENT, dtype=np.int64)
        for s, stage in enumerate(self.parts_in_order):
            if stage.depth is not None:
                depths[s] = int(picks[stage.depth]) + stage.empty
            for b in range(int(depths[s])):
                known = self._numbers[s][b].items()
                chosen[s, b] = next(c for c, own in known if all(picks.get(n) == o for n, o in own.items()))
        return StagedChoice(depths, chosen)

    def from_choice(self, choice: StagedChoice) -> Combination:
        """The architecture of depths (S,) and configuration numbers (S, D)."""
        picks: Picks = {}
        for s, stage in enumerate(self.parts_in_order):
            depth = int(choice.depths[s])
            if stage.depth is not None:
                picks[stage.depth] = str(depth - stage.empty)
            for b in range(depth):
                picks |= self._numbers[s][b][int(choice.configurations[s, b])]
        return self.space.of_picks(picks)

    # --- values are those of the space ---

    def parse(self, text: str) -> Combination:
        """As the space reads ``text``."""
        return self.space.parse(text)

    def sample(self, rng: np.random.Generator) -> Combination:
        """As the space draws it by ``rng``."""
        return self.space.sample(rng)

    def check(self, architecture: Combination) -> None:
        """Refuse an ``architecture`` that is not of the space."""
        self.space.parse(str(architecture))

    def check_scale(self, scale: Scale) -> None:
        """As the space does with ``scale``."""
        self.space.check_scale(scale)

    @property
    def size(self) -> int:
        """How many architectures the space has."""
        return self.space.size

    def build(self, architecture: Combination, scale: Scale) -> Network:
        """The user's network, chosen.

        Args:
            architecture: of the space.
            scale: of the network.
        """
        return self.space.build(architecture, scale)

    def cost(self, architecture: Combination, scale: Scale) -> Cost:
        """As the space counts it.

        Args:
            architecture: of the space.
            scale: of the network.
        """
        return self.space.cost(architecture, scale)

    # --- parts ---

    def part(self, stage: int, block: int, configuration: int, width_before: int = 0, width: int = 0) -> Part:
        """A block as it is with a configuration.

        Args:
            stage: its number.
            block: its number in the stage.
            configuration: its number.
            width_before: not looked at; ``width`` neither.
            width: not looked at.
        """
        return self._parts[stage, block, configuration]

    @cached_property
    def _parts(self) -> dict[tuple[int, int, int], ModelPart]:
        found, firsts = {}, {name: options[0] for name, options in self.space.choices.items()}
        for s, stage in enumerate(self.parts_in_order):
            for b, block in enumerate(stage.blocks):
                for c, picks in self._numbers[s][b].items():
                    made = [take(copy.deepcopy(one), {**firsts, **picks}) for one in block.modules]
                    calls = [
                        (one, call)
                        for one, key in zip(made, block.inputs, strict=True)
                        for call in self._shapes[key].calls
                    ]
                    found[s, b, c] = ModelPart(
                        [one for one, _ in calls], [call for _, call in calls], self.space.digest
                    )
        return found

    def start(self) -> None:
        """Nothing: what is not searched is in :meth:`end`."""

    def end(self, width: int = 0) -> Part:
        """What is not searched, by what is left of counts of whole networks; its time is the table's constant."""
        written = self.space.as_written()
        choice, whole = self.to_choice(written), self.space.cost(written, self.scale)
        own = Cost()
        for s, b in np.argwhere(choice.configurations >= 0).tolist():
            own += self._parts[s, b, int(choice.configurations[s, b])].cost()
        left = Cost(max(0, whole.params - own.params), max(0, whole.macs - own.macs))
        return RestPart(left, self.scale.image_channels, self.scale.image_size)

    def parts_of(self, architecture: Combination, scale: Scale) -> list[Part]:
        """Blocks and end of an architecture.

        Args:
            architecture: of the space.
            scale: that of this space.
        """
        choice = self.to_choice(architecture)
        places = np.argwhere(choice.configurations >= 0).tolist()
        return [*(self._parts[s, b, int(choice.configurations[s, b])] for s, b in places), self.end()]

    def lightest(self) -> Combination:
        """Shallowest, of the configurations with least multiply-accumulates."""
        return self._extreme(1)

    def heaviest(self) -> Combination:
        """Deepest, of the configurations with most multiply-accumulates."""
        return self._extreme(-1)

    def _extreme(self, sign: int) -> Combination:
        chosen = np.full((self.stages, self.most_blocks), ABSENT, dtype=np.int64)
        depths = np.array([stage.depths[0 if sign > 0 else -1] for stage in self.parts_in_order])
        for s, b in np.argwhere(np.arange(self.most_blocks) < depths[:, None]).tolist():
            costs = {c: self._parts[s, b, c].cost() for c in self._numbers[s][b]}
            chosen[s, b] = min(costs, key=lambda c: (sign * costs[c].macs, sign * costs[c].params))
        return self.from_choice(StagedChoice(depths, chosen))

    # What words of blocks would need, which these architectures have none of.

    def _parse_block(self, word: str, stage: int) -> Any:
        raise NotImplementedError

    def _block(self, configuration: int, stride: int, channels: int) -> Any:
        raise NotImplementedError

    def _allowed_text(self, stage: int, block: int) -> str:
        raise NotImplementedError


def _configurations(modules: Sequence[nn.Module]) -> list[Picks]:
    tops = [one for module in modules for _, one in outermost(module)]
    return _limited(combinations(tops, {}), ", ".join(one.decision for one in tops))


def _limited(found: Any, names: str) -> list[Picks]:
    kept: list[Picks] = []
    for one in found:
        kept.append(one)
        if len(kept) > MOST_CONFIGURATIONS:
            do = "Put fewer choices into one block or under one name, or search with another method."
            raise InputError(f"at most {MOST_CONFIGURATIONS} combinations of the choices {names}", "more", do)
    return kept


# --- parts ------------------------------------------------------------------------------------------------------------


class RestPart:
    """What is not searched: counted, and timed as nothing."""

    def __init__(self, counted: Cost, in_channels: int, size: int) -> None:
        self.counted, self.in_channels, self.size = counted, in_channels, size

    def __str__(self) -> str:
        return f"rest_i{self.in_channels}_{self.size}_{self.counted.params}_{self.counted.macs}"

    def cost(self) -> Cost:
        """What is left of whole networks."""
        return self.counted

    def activation_elements(self) -> int:
        """The numbers of the image."""
        return int(self.in_channels * self.size**2)

    def build(self) -> nn.Module:
        """A module that does nothing."""
        return nn.Identity()


class ModelPart:
    """A block with its choices made, in its place.

    Args:
        modules: one for each call of each place that it stands in, without memory.
        shapes: by call, its arguments for 2 and for 3 images, shapes in place of tensors.
        digest: of the network, for the key.
    """

    def __init__(self, modules: list[nn.Module], shapes: list[tuple[Any, Any]], digest: str) -> None:
        self.fed = FedBlock(modules, [_pattern(*pair) for pair in shapes])
        square = self.fed.square
        self.in_channels, self.size = square if square is not None else (max(1, self.fed.total), 1)
        text = json.dumps([[_signature(one) for one in modules], str(shapes)])
        self.key = f"{digest}:{hashlib.sha256(text.encode()).hexdigest()[:16]}_i{self.in_channels}_{self.size}"

    def __str__(self) -> str:
        return self.key

    def build(self) -> nn.Module:
        """The block with random weights, fed by one tensor."""
        made = copy.deepcopy(self.fed)
        if any(one.is_meta for one in (*made.parameters(), *made.buffers())):
            made = made.to_empty(device="cpu")
            with torch.no_grad():
                for one in made.parameters():
                    one.normal_(0, 0.05, generator=torch.Generator().manual_seed(0))
                for buffer in made.buffers():
                    buffer.fill_(1)
        return made

    @cached_property
    def _counted(self) -> tuple[Cost, int]:
        elements, device = [0], next(iter(self.fed.parameters()), torch.empty(0, device="meta")).device

        def note(_module: nn.Module, _inputs: Any, output: Any) -> None:
            elements[0] += output.numel() if isinstance(output, Tensor) else 0

        fed = copy.deepcopy(self.fed).eval()
        hooks = [one.register_forward_hook(note) for one in fed.modules() if not list(one.children())]
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            fed(torch.zeros(1, self.in_channels, self.size, self.size, device=device))
        for hook in hooks:
            hook.remove()
        params = sum(one.numel() for one in self.fed.parameters())
        return Cost(params, counter.get_total_flops() // 2), elements[0]

    def cost(self) -> Cost:
        """Parameters and multiply-accumulates of one image."""
        return self._counted[0]

    def activation_elements(self) -> int:
        """Numbers in the outputs of its layers for one image."""
        return self._counted[1]


class FedBlock(nn.Module):
    """Modules fed by one tensor (B, C, H, W), of which their inputs are made."""

    def __init__(self, modules: list[nn.Module], patterns: list[Any]) -> None:
        super().__init__()
        self.parts, self.patterns = nn.ModuleList(modules), patterns
        leaves = [leaf for pattern in patterns for leaf in _leaves(pattern)]
        self.total = sum(prod(abs(n) for n in leaf) for leaf in leaves)
        alone = len(leaves) == 1 and len(leaves[0]) == 4 and leaves[0][2] == leaves[0][3] and leaves[0][0] == -1
        self.square = (leaves[0][1], leaves[0][2]) if alone else None

    def forward(self, x: Tensor) -> Any:
        """The outputs of all modules; the sum of single ones, so that none is left out."""
        found, at, flat = [], 0, x if self.square is not None else x.flatten(1)

        def fill(pattern: Any) -> Any:
            nonlocal at
            if isinstance(pattern, tuple):
                if self.square is not None:
                    return x
                size = prod(abs(n) for n in pattern)
                piece, at = flat[:, at : at + size], at + size
                batch = next((axis for axis, n in enumerate(pattern) if n < 0), 0)
                rest = [abs(n) if axis != batch else -1 for axis, n in enumerate(pattern)]
                return piece.reshape(rest)
            if isinstance(pattern, list):
                return [fill(one) for one in pattern]
            return {name: fill(one) for name, one in pattern.items()} if isinstance(pattern, dict) else pattern

        for module, pattern in zip(self.parts, self.patterns, strict=True):
            arguments = fill(pattern)
            named = arguments.pop() if arguments and isinstance(arguments[-1], dict) else {}
            found.append(module(*arguments, **named))
        return found[0] if len(found) == 1 else (x if not found else tuple(found))


def _pattern(two: Any, three: Any) -> Any:
    """Arguments with tuples in place of tensors: lengths of one image, negative where they grow with the images."""
    if isinstance(two, torch.Size):
        return tuple(-(b - a) if a != b else a for a, b in zip(two, three, strict=True))
    if isinstance(two, list):
        return [_pattern(a, b) for a, b in zip(two, three, strict=True)]
    return {name: _pattern(one, three[name]) for name, one in two.items()} if isinstance(two, dict) else two


def _leaves(pattern: Any) -> list[tuple[int, ...]]:
    if isinstance(pattern, tuple):
        return [pattern]
    inner = pattern.values() if isinstance(pattern, Mapping) else pattern if isinstance(pattern, list) else []
    return [leaf for one in inner for leaf in _leaves(one)]


def _signature(module: nn.Module) -> list[Any]:
    """What two modules that take as long have in common: classes, plain attributes and shapes of weights."""
    return [
        [
            name,
            f"{type(one).__module__}.{type(one).__qualname__}",
            sorted(
                (k, str(v))
                for k, v in vars(one).items()
                if isinstance(v, bool | int | float | str | tuple) and k != "training"
            ),
            [list(weight.shape) for weight in one.parameters(recurse=False)],
        ]
        for name, one in module.named_modules()
    ]
