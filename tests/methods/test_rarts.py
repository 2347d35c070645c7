import itertools
import json

import numpy as np
import pytest
import torch

import archwright as aw
from archwright.errors import InputError
from archwright.methods import rarts
from archwright.methods.rarts import LatencyPenalty, fused_rarts_step, rarts_step
from archwright.spaces.nasbench201 import NAMES
from archwright.training.bilevel import ArchitectureParameters, Problem
from archwright.training.diagnostics import equilibrium
from helpers.two_layer import descent, loss_of, make_copy, make_problem, position

TINY = {
    "data": "digits",
    "channels": 4,
    "search_epochs": 1,
    "search_batch": 128,
    "epochs": 1,
    "final_epochs": 1,
    "threads": 1,
}


def gradient(loss, leaf):
    return torch.autograd.grad(loss, leaf)


def leaves(tensors):
    return [tensor.detach().clone().requires_grad_() for tensor in tensors]


@pytest.mark.parametrize("fused", [False, True])
def test_the_iteration_is_equation_8(fused):
    lam, beta, latency = 1.7, 0.6, torch.tensor([3.0, 1.0], dtype=torch.float64)
    problem, w, y = make_problem(lr=0.1), make_copy(seed=0, lr=0.2), make_copy(seed=5, lr=0.3)
    penalty = LatencyPenalty({"cell": latency}, 0.05)
    hand_w, hand_y = leaves(w.weights), leaves(y.weights)
    (a,) = leaves(problem.alpha.get(detached=True).values())
    step = (fused_rarts_step if fused else rarts_step)(problem, w, y, lam, beta, penalty)
    train, validation = problem.train.batch, problem.validation.batch
    for index in range(4):
        step(position(index))
        old_w, old_y = hand_w, hand_y
        pull = [beta * (p - q) for p, q in zip(hand_w, hand_y, strict=True)]
        by = gradient(loss_of(*hand_w, a, train), hand_w)
        hand_w = leaves([p - 0.2 * (lam * g + c) for p, g, c in zip(hand_w, by, pull, strict=True)])
        pull = [beta * (q - p) for p, q in zip(hand_w, hand_y, strict=True)]
        by = gradient(loss_of(*hand_y, a, validation), hand_y)
        hand_y = leaves([q - 0.3 * (g + c) for q, g, c in zip(hand_y, by, pull, strict=True)])
        at_w, at_y = (old_w, old_y) if fused else (hand_w, hand_y)
        value = lam * loss_of(*at_w, a, train) + loss_of(*at_y, a, validation) + 0.05 * (a.softmax(-1) @ latency).sum()
        (a,) = leaves([a - 0.1 * gradient(value, [a])[0]])
        for ours, hand in zip([*w.weights, *y.weights], [*hand_w, *hand_y], strict=True):
            assert torch.allclose(ours, hand, rtol=1e-12, atol=1e-14)
        assert torch.allclose(problem.alpha.get(detached=True)["cell"], a, rtol=1e-12, atol=1e-14)
    assert problem.passes == 4 * (2 if fused else 4)


@pytest.mark.parametrize("fused", [False, True])
def test_small_steps_lower_the_lagrangian_and_settle_the_weights(fused):
    lam, beta = 1.0, 2.0
    problem, w, y = make_problem(lr=0.1), make_copy(seed=0, lr=0.1), make_copy(seed=5, lr=0.1)
    step = (fused_rarts_step if fused else rarts_step)(problem, w, y, lam, beta)

    def state():
        return equilibrium(problem, w, y, lam, beta, [], 0.0)

    before, last = state(), None
    for index in range(400):
        step(position(index, steps=400))
        if index % 10 == 0:
            now = state()
            assert last is None or now["lagrangian"] <= last + 1e-9
            last = now["lagrangian"]
    after = state()
    for name in ("residual_w", "residual_y"):  # alpha of this toy has no finite minimum
        assert after[name] < 0.1 * before[name]


def test_the_lagrangian_is_equation_5():
    lam, beta = 1.3, 0.4
    problem, w, y = make_problem(), make_copy(seed=0), make_copy(seed=5)
    found = equilibrium(problem, w, y, lam, beta, [], 0.25)
    (a,) = problem.alpha.get(detached=True).values()
    apart = sum(float(((p - q) ** 2).sum().detach()) for p, q in zip(w.weights, y.weights, strict=True))
    value = loss_of(*y.weights, a, problem.validation.batch) + lam * loss_of(*w.weights, a, problem.train.batch)
    assert np.isclose(found["lagrangian"], value.item() + beta / 2 * apart + 0.25)
    assert np.isclose(found["distance"], apart**0.5)


def test_a_larger_latency_weight_gives_a_faster_minimiser():
    """One row of three operations, losses that prefer the slow one: the minimiser is known in closed form."""
    merit, latency = torch.tensor([1.0, 0.6, 0.0]).double(), torch.tensor([5.0, 2.0, 0.5]).double()
    expected = []
    for weight in (0.0, 2e-4, 2e-3, 2e-2, 0.2):
        alpha = ArchitectureParameters({"cell": torch.zeros(1, 3, dtype=torch.float64)})

        def objective(network, alphas, batch, position):
            share = alphas["cell"].softmax(-1)
            entropy = torch.special.entr(share).sum()  # keeps the minimiser inside
            return 0.3 * -entropy - (share @ merit).sum() + 0 * network.first.sum()

        problem = Problem(
            objective, make_problem().train, make_problem().validation, alpha, descent(alpha.parameters(), 1.0)
        )
        penalty = LatencyPenalty({"cell": latency}, weight)
        step = rarts_step(problem, make_copy(), make_copy(), 1.0, 0.0, penalty)
        for index in range(300):
            step(position(index, steps=300))
        share = problem.alpha.get(detached=True)["cell"].softmax(-1)[0]
        exact = ((2 * merit - weight * latency) / 0.6).softmax(-1)  # minimiser of -2<p, m> - 0.6 H(p) + weight <p, l>
        assert torch.allclose(share, exact, atol=1e-4)
        expected.append(float(share @ latency))
    assert all(later < earlier for earlier, later in itertools.pairwise(expected))


# --- whole searches ---


def diagnostics(folder):
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    return [event for event in events if event["kind"] == "epoch" and event["stage"] == "search"]


@pytest.mark.parametrize("fused", [False, True])
def test_a_search_keeps_two_copies_apart_but_close(tmp_path, fused):
    result = aw.search("rarts", run=tmp_path / "run", **TINY, fused=fused)
    assert result.best.accuracy > 10
    (event,) = diagnostics(tmp_path / "run")
    assert 0 < event["distance"] < 50
    assert event["lagrangian"] > 0


def test_latencies_from_a_file_enter_the_lagrangian(tmp_path):
    table = tmp_path / "latencies.json"
    table.write_text(json.dumps({name: 0.5 for name in NAMES if name != "none"}))
    aw.search("rarts", run=tmp_path / "run", **TINY, latency_weight=1e-3, latency_table=str(table))
    (event,) = diagnostics(tmp_path / "run")
    assert 0 < event["expected_latency_ms"] < 6 * 0.5


def test_measured_latencies_are_kept_for_a_resumed_search(tmp_path, monkeypatch):
    """Measured again they would differ, and so would the answer."""
    asked = []

    def measured(space, scale, timing):
        asked.append(timing)
        return {name: 0.1 * len(asked) for name in space.operations}

    def die(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(rarts, "operation_latencies", measured)
    with monkeypatch.context() as patch:
        patch.setattr("archwright.search.final.measure", die)
        with pytest.raises(KeyboardInterrupt):
            aw.search("rarts", run=tmp_path / "run", **TINY, latency_weight=1e-3)
    (tmp_path / "run" / "stages" / "search.json").unlink()
    aw.resume(tmp_path / "run")
    assert len(asked) == 1
    kept = json.loads((tmp_path / "run" / "stages" / "latencies.json").read_text())
    assert set(kept.get("value", kept)["milliseconds"].values()) == {0.1}


@pytest.mark.parametrize(
    "text",
    ['{"skip_connect": 0.1, "nor_conv_1x1": 0.2, "nor_conv_3x3": 0.4}', "[1, 2]", "nonsense", '{"skip_connect": -1}'],
)
def test_a_table_without_an_operation_or_with_bad_numbers_is_refused(tmp_path, text):
    table = tmp_path / "latencies.json"
    table.write_text(text)
    with pytest.raises(InputError):
        aw.search("rarts", run=tmp_path / "run", **TINY, latency_weight=1e-3, latency_table=str(table))
    assert not (tmp_path / "run").exists()


def test_the_missing_operation_is_named(tmp_path):
    table = tmp_path / "latencies.json"
    table.write_text('{"skip_connect": 0.1, "nor_conv_1x1": 0.2, "nor_conv_3x3": 0.4}')
    with pytest.raises(InputError, match="without avg_pool_3x3"):
        aw.search("rarts", run=tmp_path / "run", **TINY, latency_weight=1e-3, latency_table=str(table))


def test_with_a_table_of_accuracies_the_cell_is_looked_up_not_trained(tmp_path):
    from archwright.tables.locate import shared_data

    if shared_data("nb201.npz") is None:
        pytest.skip("the NAS-Bench-201 table is not here")
    tiny = {name: value for name, value in TINY.items() if name not in ("epochs", "final_epochs")}
    result = aw.search("rarts", run=tmp_path / "run", **tiny, benchmark="nb201")
    assert "nb201 table" in result.best.accuracy_on
    assert set(result.best.tests) == {"cifar10", "cifar100", "imagenet16-120"}
    assert not (tmp_path / "run" / "artifacts" / "best.safetensors").exists()
