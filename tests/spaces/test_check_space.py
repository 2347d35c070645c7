"""The conformance suite passes on the spaces, and finds what is broken."""

from dataclasses import dataclass

import numpy as np
import pytest

from archwright.spaces.base import Architecture
from archwright.spaces.darts import DARTS
from archwright.spaces.nasbench201 import NASBENCH201, Cell201, NasBench201
from archwright.spaces.operations import Cost
from archwright.testing import check_space


@pytest.mark.parametrize("space", [NASBENCH201, DARTS], ids=lambda space: space.name)
def test_our_spaces_keep_the_contract(space):
    check_space(space)


@dataclass(unsafe_hash=True)
class Mutable(Architecture):
    operations: tuple[int, ...]

    def __str__(self):
        return str(Cell201(self.operations))


class GlobalRandomness(NasBench201):
    def sample(self, rng):
        return super().sample(np.random.default_rng(np.random.randint(9)))  # noqa: NPY002


class Unfrozen(NasBench201):
    def sample(self, rng):
        return Mutable(super().sample(rng).operations)

    def parse(self, text):
        return Mutable(super().parse(text).operations)

    def mutate(self, architecture, rng):
        return architecture

    def crossover(self, first, second, rng):
        return first


class ForgetsAnEdge(NasBench201):
    def decode(self, encoding):
        return Cell201((*super().decode(encoding).operations[:5], 0))


class OwnNeighbour(NasBench201):
    def neighbours(self, architecture):
        return [*super().neighbours(architecture), architecture]


class FarMutation(NasBench201):
    def mutate(self, architecture, rng):
        return self.sample(rng)


class StrangeChild(NasBench201):
    def crossover(self, first, second, rng):
        return first if first == second else self.sample(rng)


class RestlessCanonical(NasBench201):
    def canonical(self, architecture):
        last = architecture.operations[-1]
        return Cell201((*architecture.operations[:5], last % 4 + 1 if last else 0))


class ForgetsTheClassifier(NasBench201):
    def cost(self, architecture, scale):
        return super().cost(architecture, scale) + Cost(-scale.classes, 0)


class HalvesTheWork(NasBench201):
    def cost(self, architecture, scale):
        cost = super().cost(architecture, scale)
        return Cost(cost.params, cost.macs // 2)


class AlwaysConnected(NasBench201):
    def is_connected(self, architecture):
        return True


class TakesAnything(NasBench201):
    def parse(self, text):
        return super().parse(text.rstrip("?"))


class TakesTinyImages(NasBench201):
    def check_scale(self, scale):
        pass


@pytest.mark.parametrize(
    ("broken", "named"),
    [
        (GlobalRandomness, "generator"),
        (Unfrozen, "frozen"),
        (ForgetsAnEdge, "decode inverts encode"),
        (OwnNeighbour, "own neighbours"),
        (FarMutation, "mutate gives a neighbour"),
        (StrangeChild, "parts of neither"),
        (RestlessCanonical, "canonical"),
        (ForgetsTheClassifier, "parameters"),
        (HalvesTheWork, "costs"),
        (AlwaysConnected, "is_connected"),
        (TakesAnything, "parse refuses"),
        (TakesTinyImages, "smaller than the total stride"),
    ],
)
def test_a_broken_promise_is_named(broken, named):
    with pytest.raises(AssertionError, match=named):
        check_space(broken())
