"""Train digits in a child process that is killed (-9) again and again; the end must equal the uninterrupted training.

Usage: python -m helpers.killed_training FOLDER KILLS, in the folder of the tests.
The children are forked, so that torch is imported once.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

from archwright.runs.checkpoints import Checkpoints
from archwright.runs.files import load_tree, save_tree
from archwright.training.plain import train
from archwright.training.recipe import Recipe
from helpers.training_fakes import DigitBatches, assert_same_network, small_network

torch.set_num_threads(1)


def train_digits(folder: Path, epochs: int, batches: DigitBatches, checkpoint_seconds: float) -> None:
    recipe = Recipe(epochs=epochs, batch_size=32, lr=0.05, nesterov=True, ema_decay=0.99)
    network = small_network(channels=1, classes=10)
    history = train(
        network, batches, recipe, seed=1, checkpoints=Checkpoints(folder), checkpoint_seconds=checkpoint_seconds
    )
    save_tree(folder / "result.safetensors", {"network": network.state_dict(), "history": history})


def start(folder: Path, epochs: int, batches: DigitBatches, checkpoint_seconds: float) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            train_digits(folder, epochs, batches, checkpoint_seconds)
            code = 0
        finally:
            os._exit(code)
    return child


def newest(folder: Path) -> int:
    return max((int(path.stem) for path in folder.glob("[0-9]*.safetensors")), default=0)


def main(folder: Path, kills: int) -> None:
    draw, batches = random.Random(0), DigitBatches()
    epochs = 1 + kills  # about 44 steps for each kill, of which it needs up to 12
    torch.optim.SGD(small_network().parameters()).step()  # what torch imports at the first step, imported once
    killed_at = []
    for _ in range(kills):
        goal = newest(folder / "killed") + draw.randint(1, 10)
        child = start(folder / "killed", epochs, batches, checkpoint_seconds=0.002)
        while newest(folder / "killed") < goal:
            time.sleep(0.001)
        time.sleep(draw.uniform(0, 0.01))  # anywhere inside a step or a write
        os.kill(child, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL, "it ended before the kill"
        killed_at.append(newest(folder / "killed"))
    for name in ("killed", "whole"):
        assert os.waitpid(start(folder / name, epochs, batches, checkpoint_seconds=30), 0)[1] == 0
    one, other = (load_tree(folder / name / "result.safetensors") for name in ("killed", "whole"))
    assert one["history"] == other["history"]
    networks = [small_network(channels=1, classes=10, seed=seed) for seed in (2, 3)]
    for network, tree in zip(networks, (one, other), strict=True):
        network.load_state_dict(tree["network"])
    assert_same_network(*networks)
    print(json.dumps({"killed_at": killed_at, "accuracy": one["history"][-1]["accuracy"]}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
