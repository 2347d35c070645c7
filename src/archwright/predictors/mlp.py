"""The accuracy predictor closed forms are compared with: a multi-layer perceptron on one-hot architectures."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from archwright.errors import InputError
from archwright.predictors.staged import checked_rows, split_rows

Floats = NDArray[np.float64]

HIDDEN = (500, 500, 500)
DROPOUT = 0.2
LEARNING_RATE = 1e-3
BATCH = 64


@dataclass(frozen=True, eq=False)
class MlpPredictor:
    """Three hidden layers of 500 ReLU units with dropout .2 (BINAS, section 3.2.3), fitted to standardised targets.

    Args:
        network: from rows (n, N) to standardised predictions (n, 1), in evaluation mode.
        mean, scale: of the targets.
        held_out_errors: the mean squared error on the held-out share after every epoch, in units of the targets'
            variance; its least one set the number of epochs.
    """

    network: nn.Sequential
    mean: float
    scale: float
    held_out_errors: Floats

    @property
    def epochs(self) -> int:
        """How many epochs the network was trained for."""
        return int(self.held_out_errors.argmin()) + 1

    @classmethod
    def fit(
        cls,
        x: ArrayLike,
        y: ArrayLike,
        seed: int = 0,
        held_out: float = 0.2,
        most_epochs: int = 200,
        patience: int = 15,
    ) -> MlpPredictor:
        """Adam on the mean squared error; a function of its arguments, whatever torch's own generator holds.

        A first network tells after how many epochs the error on a random ``held_out`` share is least, giving up
        ``patience`` epochs after the last improvement; a second one is trained on all rows for that long.

        Args:
            x: (n, N) one-hot vectors.
            y: (n,) accuracies, in any unit.
            seed: of the split, the initial weights, the order of rows and dropout.
            held_out: the share.
            most_epochs: the most the first network is trained for.
            patience: see above.
        """
        rows, accuracy = checked_rows(x, y)
        if most_epochs < 1 or patience < 1:
            raise InputError("at least one epoch and a patience of at least 1", f"{most_epochs} and {patience}")
        mean, scale = float(accuracy.mean()), float(accuracy.std()) or 1.0
        inputs = torch.from_numpy(rows).float()
        targets = torch.from_numpy((accuracy - mean) / scale).float()
        train, test = map(torch.from_numpy, split_rows(len(rows), held_out, seed))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            trial, errors = _Training(inputs[train], targets[train]), np.empty(0)
            while len(errors) < most_epochs and (not len(errors) or len(errors) - errors.argmin() <= patience):
                trial.epoch()
                errors = np.append(errors, ((_outputs(trial.network, inputs[test]) - targets[test]) ** 2).mean())
            final = _Training(inputs, targets)
            for _ in range(int(errors.argmin()) + 1):
                final.epoch()
        return cls(final.network.eval(), mean, scale, errors)

    def predict(self, x: ArrayLike) -> Floats:
        """Predictions (...) of rows (..., N), in the unit of the accuracies fitted to."""
        rows = torch.from_numpy(np.asarray(x, float)).float()
        first = self.network[0]
        width = first.in_features if isinstance(first, nn.Linear) else 0
        if rows.shape[-1:] != (width,):
            raise InputError(f"rows of {width} entries", f"shape {tuple(rows.shape)}")
        predictions: Floats = self.mean + self.scale * _outputs(self.network, rows).numpy().astype(float)
        return predictions


class _Training:
    """One network, its optimiser and the rows it learns."""

    def __init__(self, inputs: Tensor, targets: Tensor) -> None:
        self.inputs, self.targets = inputs, targets
        self.network = _network(inputs.shape[1])
        self.optimizer = torch.optim.Adam(self.network.parameters(), LEARNING_RATE)

    def epoch(self) -> None:
        """Every row once, in random order."""
        self.network.train()
        for rows in torch.randperm(len(self.inputs)).split(BATCH):  # type: ignore[no-untyped-call]
            self.optimizer.zero_grad()
            loss = nn.functional.mse_loss(self.network(self.inputs[rows])[:, 0], self.targets[rows])
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()


def _network(width: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for hidden in HIDDEN:
        layers += [nn.Linear(width, hidden), nn.ReLU(), nn.Dropout(DROPOUT)]
        width = hidden
    return nn.Sequential(*layers, nn.Linear(width, 1))


@torch.no_grad()
def _outputs(network: nn.Sequential, rows: Tensor) -> Tensor:
    """Standardised predictions (...) without dropout."""
    outputs: Tensor = network.eval()(rows)[..., 0]
    return outputs
