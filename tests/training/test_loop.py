import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from archwright.errors import DivergedError, InputError, Interrupted, RunError
from archwright.runs.checkpoints import Checkpoints
from archwright.training.loop import drive, step_seed
from archwright.training.plain import train
from archwright.training.recipe import Recipe
from helpers.training_fakes import FakeBatches, ListBatches, StopAfter, assert_same_network, small_network

RECIPES = {
    "sgd": Recipe(epochs=3, batch_size=6, lr=0.05, nesterov=True, weight_decay=1e-3, clip=1.0, warmup_epochs=0.5),
    "adam": Recipe(epochs=3, batch_size=6, lr=0.01, optimizer="adam", schedule="linear"),
    "ema": Recipe(epochs=3, batch_size=6, lr=0.05, ema_decay=0.9, label_smoothing=0.1),
    "contiguous": Recipe(epochs=3, batch_size=6, lr=0.05, channels_last=False),
}
STEPS = 4


def uninterrupted(recipe):
    network = small_network()
    return network, train(network, FakeBatches(STEPS), recipe, seed=5)


def resume(folder, recipe, **options):
    """Train from whatever lies in ``folder``, with another start that the checkpoint must replace."""
    fresh = not any(folder.glob("*.safetensors"))
    network = small_network(seed=0 if fresh else 99)
    history = train(network, FakeBatches(STEPS), recipe, seed=5, checkpoints=Checkpoints(folder), **options)
    return network, history


def run_in_pieces(folder, recipe, steps_each):
    for _ in range(50):
        try:
            return resume(folder, recipe, stop=StopAfter(steps_each))
        except Interrupted:
            continue
    raise AssertionError("no progress")


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("steps_each", [1, 3, 4])
def test_stopped_every_few_steps_equals_uninterrupted(tmp_path, name, steps_each):
    expected, expected_history = uninterrupted(RECIPES[name])
    network, history = run_in_pieces(tmp_path, RECIPES[name], steps_each)
    assert_same_network(network, expected)
    assert history == expected_history


def test_restored_momenta_have_the_layout_of_their_weights(tmp_path):
    def run():
        network = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)

        def step(position):
            network(torch.ones(1, 3, 5, 5)).sum().backward()
            optimizer.step()
            return {}

        state = {"network": network, "optimizer": optimizer}
        drive(step, state, epochs=1, steps_per_epoch=1, seed=0, checkpoints=Checkpoints(tmp_path))
        return optimizer.state[network.weight]["momentum_buffer"], network.weight

    (momentum, _), (restored, weight) = run(), run()
    assert torch.equal(restored, momentum)
    assert restored.stride() == weight.stride() == (27, 1, 9, 3)


def test_finished_training_is_not_repeated(tmp_path):
    _, history = resume(tmp_path, RECIPES["ema"])
    expected, _ = uninterrupted(RECIPES["ema"])
    seen = []
    network, again = resume(tmp_path, RECIPES["ema"], on_step=seen.append)
    assert seen == []
    assert again == history
    assert_same_network(network, expected)


@pytest.mark.parametrize("length", [0, 7, 5000])
def test_truncated_newest_checkpoint_falls_back(tmp_path, length):
    recipe = RECIPES["sgd"]
    with pytest.raises(Interrupted):
        resume(tmp_path, recipe, stop=StopAfter(7), checkpoint_seconds=0)
    newest = sorted(tmp_path.glob("*.safetensors"))[-1]
    newest.write_bytes(newest.read_bytes()[:length])
    seen = []
    network, history = resume(tmp_path, recipe, on_step=seen.append)
    assert seen[0].index == 6
    expected, expected_history = uninterrupted(recipe)
    assert_same_network(network, expected)
    assert history == expected_history


@pytest.mark.parametrize("function", ["replace", "fsync"])
def test_failure_at_every_write_and_rename_loses_nothing(tmp_path, monkeypatch, function):
    recipe = RECIPES["sgd"]
    expected, expected_history = uninterrupted(recipe)
    original = getattr(os, function)
    saves, calls_a_save = 3 * STEPS, {"replace": 1, "fsync": 2}[function]  # the file, then its folder
    for failing_call in range(1, 100):
        calls = 0

        def fail_once(*arguments, failing_call=failing_call):
            nonlocal calls
            calls += 1
            if calls == failing_call:
                raise OSError(errno.ENOSPC, "no space left (injected)")
            return original(*arguments)

        folder = tmp_path / str(failing_call)
        with monkeypatch.context() as patch:
            patch.setattr(os, function, fail_once)
            if failing_call > saves * calls_a_save:
                resume(folder, recipe, checkpoint_seconds=0)
                assert calls == saves * calls_a_save  # every call has had its failure
                break
            with pytest.raises(OSError, match="injected"):
                resume(folder, recipe, checkpoint_seconds=0)
        assert not [path for path in folder.iterdir() if path.suffix != ".safetensors"]
        seen = []
        network, history = resume(folder, recipe, on_step=seen.append)
        assert_same_network(network, expected)
        assert history == expected_history
        assert len(seen) <= saves - (failing_call - 1) // calls_a_save  # checkpoints before the failure still count


def kill_and_resume(folder: Path, kills: int) -> None:
    subprocess.run(
        [sys.executable, "-m", "helpers.killed_training", str(folder), str(kills)],
        check=True, timeout=500, cwd=Path(__file__).parents[1], env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def test_five_real_kills(tmp_path):
    kill_and_resume(tmp_path, 5)


@pytest.mark.slow
def test_twenty_real_kills(tmp_path):
    kill_and_resume(tmp_path, 20)


class Counter:
    """The smallest state: a number."""

    def __init__(self) -> None:
        self.value = 0

    def state_dict(self):
        return {"value": self.value}

    def load_state_dict(self, state):
        self.value = state["value"]


def test_metrics_are_means_over_the_epoch_and_survive_an_interruption(tmp_path):
    counter, epochs = Counter(), []

    def step(position):
        counter.value += 1
        metrics = {"index": position.index, "tensor": torch.tensor(2.0 * position.index)}
        return {**metrics, "rare": 5.0} if position.step == 1 else metrics

    def run(stop):
        return drive(
            step, {"counter": counter}, epochs=2, steps_per_epoch=4, seed=0, checkpoints=Checkpoints(tmp_path),
            stop=stop, on_epoch=lambda epoch, metrics: epochs.append((epoch, metrics)),
        )  # fmt: skip

    with pytest.raises(Interrupted):
        run(StopAfter(6))
    counter = Counter()
    history = run(None)
    assert history == [{"index": 1.5, "tensor": 3.0, "rare": 5.0}, {"index": 5.5, "tensor": 11.0, "rare": 5.0}]
    assert epochs == [(0, history[0]), (1, history[1])]
    assert counter.value == 8


def test_draws_depend_on_seed_and_step_only_and_the_callers_generator_is_kept():
    draws: dict[int, list[float]] = {1: [], 2: []}
    torch.manual_seed(3)
    before = torch.get_rng_state()
    for seed, kept in draws.items():
        for noise in (0, 5):

            def step(position, noise=noise, kept=kept):
                kept.append(torch.rand(()).item())
                torch.rand(noise)
                return {}

            drive(step, {}, epochs=1, steps_per_epoch=3, seed=seed)
    assert torch.equal(before, torch.get_rng_state())
    assert draws[1][:3] == draws[1][3:]
    assert len(set(draws[1] + draws[2])) == 6
    assert len({step_seed(seed, index) for seed in range(30) for index in range(30)}) == 900


def test_generator_is_kept_when_a_step_fails():
    before = torch.get_rng_state()

    def step(position):
        raise KeyError("broken")

    with pytest.raises(KeyError):
        drive(step, {}, epochs=1, steps_per_epoch=1, seed=0)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("kind", [float, torch.tensor])
def test_non_finite_loss_names_the_step_and_keeps_the_checkpoint(tmp_path, bad, kind):
    counter, store = Counter(), Checkpoints(tmp_path)

    def step(position):
        counter.value += 1
        return {"loss": kind(bad if position.index == 5 else 1.0)}

    with pytest.raises(DivergedError, match="step 5 "):
        drive(step, {"counter": counter}, epochs=2, steps_per_epoch=4, seed=0, checkpoints=store, checkpoint_seconds=0)
    index, tree = store.latest()
    assert (index, tree["state"]["counter"]["value"]) == (5, 5)


def test_weights_that_diverge_behind_a_finite_loss_are_never_saved(tmp_path):
    network, store = nn.Linear(1, 1), Checkpoints(tmp_path)

    def step(position):
        if position.index == 2:
            nn.init.constant_(network.weight, float("nan"))
        return {"loss": 1.0}

    with pytest.raises(DivergedError, match="'weight' of 'network'"):
        drive(step, {"network": network}, epochs=1, steps_per_epoch=9, seed=0, checkpoints=store, checkpoint_seconds=0)
    assert store.latest()[0] == 2


def test_real_divergence():
    batch = (torch.full((2, 3), 1e20), torch.tensor([0, 1]))
    with pytest.raises(DivergedError, match="learning rate"):
        train(nn.Linear(3, 2), ListBatches(batch), Recipe(epochs=9, batch_size=2, lr=1e18), seed=0)


def test_checkpoint_of_other_settings_is_refused(tmp_path):
    resume(tmp_path, RECIPES["sgd"])
    with pytest.raises(RunError, match="'epochs': 5"):
        resume(tmp_path, RECIPES["sgd"].model_copy(update={"epochs": 5}))
    with pytest.raises(RunError, match="ema"):
        resume(tmp_path, RECIPES["ema"])


def test_nothing_to_do_is_an_error():
    with pytest.raises(InputError, match="0 steps"):
        drive(lambda position: {}, {}, epochs=1, steps_per_epoch=0, seed=0)


def test_no_checkpoint_before_its_time(tmp_path):
    store, positions = Checkpoints(tmp_path, keep=100), []
    save = store.save
    store.save = lambda position, tree: (positions.append(position), save(position, tree))
    train(small_network(), FakeBatches(STEPS), RECIPES["sgd"], seed=0, checkpoints=store, checkpoint_seconds=1e6)
    assert positions == [3 * STEPS]


def test_seeding_a_step_writes_down_no_stack_trace(monkeypatch):
    """torch does that for each accelerator that is not there, and it takes longer than a small network's update."""
    if torch.accelerator.is_available():
        pytest.skip("an accelerator is there")
    monkeypatch.setattr("traceback.format_stack", lambda *_: pytest.fail("a stack trace"))
    drawn = []
    drive(lambda _: {"loss": drawn.append(torch.rand(())) or 0.0}, {}, epochs=1, steps_per_epoch=2, seed=5)
    expected = [torch.rand((), generator=torch.Generator().manual_seed(step_seed(5, index))) for index in range(2)]
    assert drawn == expected
