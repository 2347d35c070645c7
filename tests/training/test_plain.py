import pytest
import torch
import torch.nn.functional as F
from torch import nn

from archwright.errors import InputError
from archwright.training.evaluation import evaluate
from archwright.training.loop import Position
from archwright.training.plain import make_optimizer, plain_step, train
from archwright.training.recipe import Recipe, get_recipe
from helpers.training_fakes import DigitBatches, FakeBatches, ListBatches, assert_same_network, small_network

BATCH = (torch.tensor([[1.0, 2.0], [-1.0, 0.5]]), torch.tensor([0, 1]))


class TwoHeads(nn.Module):
    """A linear network with an auxiliary head and a drop-path setting it only records."""

    has_auxiliary = has_drop_path = True

    def __init__(self) -> None:
        super().__init__()
        self.main, self.side, self.drop_path, self.seen = nn.Linear(2, 2), nn.Linear(2, 2), 0.0, []

    def forward(self, x):
        return self.main(x)

    def with_auxiliary(self, x):
        self.seen.append(self.drop_path)
        return self.main(x), self.side(x)


def gradients(weight, bias, images, labels):
    """Of the mean cross entropy of a linear layer: (softmax - one hot)^T x / B."""
    error = (torch.softmax(images @ weight.T + bias, 1) - F.one_hot(labels, weight.shape[0])) / len(labels)
    return error.T @ images, error.sum(0)


def test_two_sgd_steps_by_hand():
    recipe = Recipe(epochs=2, batch_size=2, lr=0.5, momentum=0.9, weight_decay=0.1, schedule="linear")
    network = nn.Linear(2, 2)
    values = [network.weight.detach().clone(), network.bias.detach().clone()]
    momenta = [torch.zeros(2, 2), torch.zeros(2)]
    for lr in (0.5, 0.25):
        for i, gradient in enumerate(gradients(*values, *BATCH)):
            momenta[i] = 0.9 * momenta[i] + gradient + 0.1 * values[i]
        values = [value - lr * momentum for value, momentum in zip(values, momenta, strict=True)]
    history = train(network, ListBatches(BATCH), recipe, seed=0)
    assert torch.allclose(network.weight, values[0], atol=1e-6)
    assert torch.allclose(network.bias, values[1], atol=1e-6)
    assert [set(metrics) for metrics in history] == [{"loss", "accuracy"}] * 2


def test_clip_limits_the_norm_of_the_whole_gradient():
    network = nn.Linear(2, 2)
    before = [parameter.detach().clone() for parameter in network.parameters()]
    expected = gradients(*before, *BATCH)
    norm = torch.sqrt(sum((gradient**2).sum() for gradient in expected))
    train(network, ListBatches(BATCH), Recipe(epochs=1, batch_size=2, lr=1, momentum=0, clip=0.01), seed=0)
    for old, new, gradient in zip(before, network.parameters(), expected, strict=True):
        assert torch.allclose(old - new, gradient * 0.01 / norm, atol=1e-6)


@pytest.mark.parametrize(("name", "kind"), [("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)])
def test_adam_settings(name, kind):
    frozen = nn.Parameter(torch.zeros(1), requires_grad=False)
    recipe = Recipe(epochs=1, batch_size=1, lr=0.1, optimizer=name, momentum=0.5, weight_decay=0.2)
    optimizer = make_optimizer([nn.Parameter(torch.zeros(1)), frozen], recipe)
    (group,) = optimizer.param_groups
    assert type(optimizer) is kind
    assert (group["betas"], group["weight_decay"], len(group["params"])) == ((0.5, 0.999), 0.2, 1)


def test_the_last_linear_layer_may_learn_faster():
    network = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2))
    before = [parameter.detach().clone() for parameter in network.parameters()]
    loss = F.cross_entropy(network(BATCH[0]), BATCH[1])
    expected = torch.autograd.grad(loss, list(network.parameters()))
    recipe = Recipe(epochs=1, batch_size=2, lr=0.1, momentum=0, head_lr=7.0, channels_last=False)
    train(network, ListBatches(BATCH), recipe, seed=0)
    for old, new, gradient, times in zip(before, network.parameters(), expected, (1, 1, 7, 7), strict=True):
        assert torch.allclose(old - new, 0.1 * times * gradient, atol=1e-6)


def test_frozen_norms_keep_their_statistics_and_learn_their_weights():
    for frozen in (True, False):
        network = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2))
        before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
        recipe = Recipe(epochs=1, batch_size=2, lr=0.1, frozen_norms=frozen, channels_last=False)
        train(network, ListBatches(BATCH), recipe, seed=0)
        after = network.state_dict()
        assert torch.equal(before["0.running_mean"], after["0.running_mean"]) is frozen
        assert torch.equal(before["0.running_var"], after["0.running_var"]) is frozen
        assert not torch.equal(before["0.weight"], after["0.weight"])


def test_auxiliary_head_and_drop_path_schedule():
    network = TwoHeads()
    recipe = Recipe(
        epochs=2, batch_size=2, lr=0.5, momentum=0, drop_path=0.4, auxiliary_weight=0.3, schedule="constant"
    )
    before = [parameter.detach().clone() for parameter in network.side.parameters()]
    main, side = (F.cross_entropy(head(BATCH[0]), BATCH[1]).item() for head in (network.main, network.side))
    batches = ListBatches(BATCH, BATCH)
    optimizer = make_optimizer(network.parameters(), recipe)
    step = plain_step(network, optimizer, batches, recipe, device="cpu", schedule=recipe.learning_rate())
    metrics = step(Position.at(0, 2, 2))
    assert float(metrics["loss"]) == pytest.approx(main + 0.3 * side, rel=1e-5)
    for old, new, gradient in zip(before, network.side.parameters(), gradients(*before, *BATCH), strict=True):
        assert torch.allclose(old - new, 0.5 * 0.3 * gradient, atol=1e-6)
    network.seen.clear()
    train(network, batches, recipe, seed=0)
    assert network.seen == pytest.approx([0.0, 0.1, 0.2, 0.3])


def test_distillation_pulls_towards_the_teacher_and_leaves_it_alone():
    teacher, student = small_network(seed=1), small_network(seed=2)
    teacher[-1].weight.data.mul_(20)  # an untrained network says nothing worth learning
    before = {name: tensor.clone() for name, tensor in teacher.state_dict().items()}
    batches = FakeBatches(steps=10, size=16)
    recipe = Recipe(epochs=6, batch_size=16, lr=0.05, distill_weight=1.0, distill_temperature=2.0)
    history = train(student, batches, recipe, seed=0, teacher=teacher)
    assert history[-1]["loss"] < 0.5 * history[0]["loss"]
    assert all(torch.equal(tensor, before[name]) for name, tensor in teacher.state_dict().items())
    assert all(parameter.grad is None for parameter in teacher.parameters())


def test_network_ends_with_the_average_of_its_weights():
    recipe = Recipe(epochs=1, batch_size=2, lr=0.5, momentum=0, ema_decay=0.99, schedule="constant")
    network = nn.Linear(2, 2)
    start = [parameter.detach().clone() for parameter in network.parameters()]
    train(network, ListBatches(BATCH), recipe, seed=0)  # one update, decay 2 / 11
    for old, new, gradient in zip(start, network.parameters(), gradients(*start, *BATCH), strict=True):
        assert torch.allclose(new, old - 9 / 11 * 0.5 * gradient, atol=1e-6)


def test_channels_last_changes_layout_not_result():
    networks = []
    for channels_last in (True, False):
        network = small_network()
        network[7].p = 0.0  # dropout draws in the order of memory
        train(network, FakeBatches(), Recipe(epochs=1, batch_size=6, lr=0.05, channels_last=channels_last), seed=0)
        networks.append(network)
    assert networks[0][0].weight.is_contiguous(memory_format=torch.channels_last)
    for one, other in zip(networks[0].parameters(), networks[1].parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-4)


def test_auto_precision_is_float32_on_the_cpu():
    networks = []
    for precision in ("auto", "float32"):
        networks.append(small_network())
        train(networks[-1], FakeBatches(), Recipe(epochs=1, batch_size=6, lr=0.05, precision=precision), seed=0)
    assert_same_network(*networks)


@pytest.mark.parametrize("setting", ["drop_path", "auxiliary_weight", "distill_weight"])
def test_settings_that_cannot_be_obeyed_are_refused(setting):
    recipe = Recipe(epochs=1, batch_size=6, lr=0.05, **{setting: 0.5})
    with pytest.raises(InputError, match=setting):
        train(small_network(), FakeBatches(), recipe, seed=0)


def test_teacher_without_weight_is_refused():
    with pytest.raises(InputError, match="Give both or neither"):
        train(small_network(), FakeBatches(), Recipe(epochs=1, batch_size=6, lr=0.05), seed=0, teacher=small_network())


def test_learns_digits():
    batches = DigitBatches()
    network = small_network(channels=1, classes=10)
    history = train(network, batches, Recipe(epochs=6, batch_size=32, lr=0.1, nesterov=True, warmup_epochs=0.5), seed=0)
    assert history[-1]["loss"] < history[0]["loss"]
    assert evaluate(network, batches).percent > 90


def test_learns_digits_of_the_data_package():
    data = pytest.importorskip("archwright.data")
    digits, recipe = data.load("digits"), get_recipe("short")
    network = small_network(channels=1, classes=10)
    train(network, data.Batches(digits, "train", recipe.batch_size, seed=0), recipe, seed=0)
    accuracy = evaluate(network, data.Batches(digits, "validation", 64, shuffle=False, drop_last=False))
    assert accuracy.low < accuracy.percent < accuracy.high
    assert accuracy.percent > 90
