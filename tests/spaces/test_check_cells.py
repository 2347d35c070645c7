"""The conformance suite notices a cell space whose derivation, sampling or inherited weights are wrong."""

import pytest

from archwright.testing import check_space
from helpers.triangle_space import Triangle, TriangleSpace


class Shown(Triangle):
    """No architecture, though it reads like one."""

    def __str__(self):
        return "none-none-none"


class DerivesOutside(TriangleSpace):
    def derive(self, weights):
        return Shown(())


class SamplesOtherShapes(TriangleSpace):
    def weights_of(self, drawn):
        return {"edges": drawn["edges"][:2]}


class KeepsOtherEdges(TriangleSpace):
    def kept(self, architecture):
        return {"edges": [(1, name) for _, name in super().kept(architecture)["edges"]]}


@pytest.mark.parametrize(
    ("broken", "words"),
    [(DerivesOutside, "derive"), (SamplesOtherShapes, "weights_of"), (KeepsOtherEdges, "supernet's weights")],
)
def test_a_broken_promise_is_named(broken, words):
    with pytest.raises(AssertionError, match=words):
        check_space(broken(), samples=6)
