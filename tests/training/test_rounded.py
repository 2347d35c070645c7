"""Training with the rounding of int8 in it: rounding by hand, gradients, and a network that is as before after it."""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import nn

from archwright.training.rounded import Rounded, input_bounds, rounded_inputs, rounding


def test_weights_are_rounded_channel_by_channel() -> None:
    weight = torch.tensor([[1.27, -0.634, 0.001], [0.0, 0.0, 0.0], [-12.7, 6.36, 0.04]])
    wanted = torch.tensor([[1.27, -0.63, 0.0], [0.0, 0.0, 0.0], [-12.7, 6.4, 0.0]])
    assert torch.allclose(Rounded(127)(weight), wanted, atol=1e-6)


def test_inputs_have_255_steps_with_zero_among_them_and_gradients_inside() -> None:
    x = torch.tensor([-1.0, 0.0, 0.102, 0.502, 2.0], requires_grad=True)
    found = rounded_inputs(x, 0.0, 1.0)
    assert torch.allclose(found, torch.tensor([0.0, 0.0, 26 / 255, 128 / 255, 1.0]), atol=1e-6)
    found.sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    assert x.grad.tolist() == [0.0, 1.0, 1.0, 1.0, 0.0]
    shifted = rounded_inputs(torch.tensor([0.0, -0.2]), -0.3, 0.7)
    assert shifted[0] == 0.0


def test_a_network_rounds_inside_and_is_itself_again_after() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3)).eval()
    images = torch.randn(8, 1, 8, 8)
    names, before, answers = set(network.state_dict()), network[0].weight, network(images)
    bounds = input_bounds(network, images)
    assert bounds["0"] == (min(0.0, float(images.min())), max(0.0, float(images.max())))
    assert set(bounds) == {"0", "3"}
    with rounding(network, bounds, 127):
        rounded = network(images)
        assert not torch.equal(rounded, answers)
        assert torch.allclose(rounded, answers, atol=0.05)
    assert set(network.state_dict()) == names
    assert torch.equal(network(images), answers)
    assert torch.equal(before, network[0].weight)


def test_training_inside_learns_what_rounding_spoils() -> None:
    """With three values a weight digits are hardly read; tuned with that rounding most of them are again."""
    pixels, targets = load_digits(return_X_y=True)
    x, y = torch.from_numpy(pixels).float() / 16, torch.from_numpy(targets)
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))

    def tuned() -> None:
        optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
        for _ in range(100):
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(x), y).backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    def right() -> float:
        return float((network(x).argmax(1) == y).float().mean())

    tuned()
    bounds = input_bounds(network, x)
    assert right() > 0.95
    with rounding(network, bounds, 1):
        before = right()
        tuned()
        after = right()
    assert before < 0.8
    assert after > 0.9
