"""Score networks at initialisation: the public entry to the training-free metrics.

`score` works on any `nn.Module`; `archwright.proxies.stacked` gives the same numbers for NAS-Bench-201 far faster.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from archwright.errors import InputError
from archwright.proxies.batches import check_batch
from archwright.proxies.initialise import Initialisation, initialise
from archwright.proxies.metrics import Proxy, Tally
from archwright.proxies.modules import count_macs, record_halves, record_module, record_synflow
from archwright.proxies.records import NtkMode
from archwright.proxies.registry import PROXIES

TINY = 1e-300
"""Stands for a score of zero where logarithms are averaged."""


@dataclass(frozen=True)
class Scores:
    """Scores of A networks by M metrics.

    Attributes:
        metrics: their names.
        directions: (M,) +1 where higher predicts better, -1 where lower does.
        values: (A, M); over replicates the geometric mean of positive scales, the plain mean of the others.
        standard_errors: (A, M) of that mean (of the logarithm for positive scales); NaN for one replicate.
    """

    metrics: tuple[str, ...]
    directions: NDArray[np.int64]
    values: NDArray[np.float64]
    standard_errors: NDArray[np.float64]

    def __getitem__(self, metric: str) -> NDArray[np.float64]:
        """(A,) scores by one metric."""
        if metric not in self.metrics:
            raise InputError(f"one of the scored metrics ({', '.join(self.metrics)})", repr(metric))
        return self.values[:, self.metrics.index(metric)]

    def direction(self, metric: str) -> int:
        """+1 where a higher score predicts better, -1 where a lower one does."""
        return int(self.directions[self.metrics.index(metric)])

    def of(self, rows: Sequence[int]) -> Scores:
        """The scores of the networks of these numbers, in that order; one may come several times."""
        chosen = list(rows)
        return Scores(self.metrics, self.directions, self.values[chosen], self.standard_errors[chosen])

    def best_first(self, metric: str) -> NDArray[np.int64]:
        """Indices of the networks from the best predicted to the worst."""
        return np.argsort(-self.direction(metric) * self[metric], kind="stable")


def find_proxies(metrics: Iterable[str]) -> list[Proxy]:
    """The metrics by name, in order; an unknown name is an error that suggests the nearest."""
    names = list(dict.fromkeys(metrics))
    if not names:
        raise InputError("at least one metric", "none", f"Choose from {', '.join(entry.name for entry in PROXIES)}.")
    return [PROXIES.get(name) for name in names]


def score(
    networks: nn.Module | Iterable[nn.Module],
    batch: tuple[Tensor, Tensor],
    metrics: Sequence[str] = ("grad", "snip", "trace", "kappa"),
    *,
    ntk: NtkMode = "contracted",
    initialisation: Initialisation | None = "lecun",
    replicates: int = 1,
    seed: int = 0,
) -> Scores:
    """Score one network or several on one batch, in train mode, without training.

    Args:
        networks: a module, or any iterable of modules; an iterable is consumed one network at a time, so a generator
            keeps only one in memory. Weights are drawn anew and put back afterwards.
        batch: images (m, C, H, W) and integer labels (m,).
        metrics: registered names (`archwright.proxies.registry.PROXIES`); passes are shared between them.
        ntk: kernel behind trace, kappa and knas: `contracted` or `exact`.
        initialisation: scale of the weights of each replicate; None scores the weights as they are.
        replicates: draws of the weights that are averaged.
        seed: the draws depend on it and the replicate's number, not on the place in ``networks``.

    Example:
        >>> scores = score(model, (images, labels), ["grad", "kappa"], replicates=3)
        >>> scores["grad"], scores.best_first("grad")
    """
    proxies = find_proxies(metrics)
    x, y = batch
    check_batch(x, y, proxies)
    if replicates < 1 or (initialisation is None and replicates > 1):
        raise InputError("one or more replicates, more than one only with an initialisation", f"{replicates}")
    draws = []
    for network in [networks] if isinstance(networks, nn.Module) else networks:
        if not any(True for _ in network.parameters()):
            raise InputError("a network with parameters", f"a {type(network).__name__} without any")
        with _own_weights_back(network):
            rows = []
            for replicate in range(replicates):
                if initialisation is not None:
                    initialise(network, _generator(seed, replicate), initialisation)
                rows.append(_one(network, x, y, proxies, ntk, seed))
            draws.append(rows)
    return combine(proxies, np.array(draws, dtype=np.float64).reshape(-1, replicates, len(proxies)))


def combine(proxies: Sequence[Proxy], draws: NDArray[np.float64]) -> Scores:
    """Scores from replicates: mean of the logarithm where the metric is a positive scale.

    Args:
        proxies: M metrics.
        draws: (A, R, M): architectures, replicates, metrics.
    """
    positive = np.array([proxy.positive for proxy in proxies])
    scaled = np.where(positive, np.log(np.maximum(draws, TINY, where=positive, out=np.ones_like(draws))), draws)
    mean = scaled.mean(1)
    replicates = draws.shape[1]
    if replicates == 1:  # as it is: a count must not come back rounded by exp(log)
        values, error = draws[:, 0], np.full(mean.shape, np.nan)
    else:
        values = np.where(positive, np.exp(np.where(positive, mean, 0.0)), mean)
        error = scaled.std(1, ddof=1) / np.sqrt(replicates)
    directions = np.array([proxy.direction for proxy in proxies])
    return Scores(tuple(proxy.name for proxy in proxies), directions, values, error)


@contextmanager
def _own_weights_back(network: nn.Module) -> Iterator[None]:
    """Whatever happens to the parameters inside, they are as before afterwards."""
    own = {name: parameter.detach().clone() for name, parameter in network.named_parameters()}
    try:
        yield
    finally:
        with torch.no_grad():
            for name, parameter in network.named_parameters():
                parameter.copy_(own[name])


def _generator(seed: int, replicate: int) -> torch.Generator:
    words = np.random.SeedSequence([seed, replicate]).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(words[0]) >> 1)


def _one(network: nn.Module, x: Tensor, y: Tensor, proxies: Sequence[Proxy], ntk: NtkMode, seed: int) -> list[float]:
    """All metrics of one network with its present weights."""
    tally = Tally(proxies, 1)
    needs = tally.needs()
    if needs - {"synflow", "macs", "halves"} or not needs:
        layers, relus, at_input, blocks = record_module(network, x, y, needs=needs, ntk=ntk, seed=seed)
        for layer in layers:
            tally.add(layer, "data")
            if "hessian" in needs:
                tally.add(layer, "hessian")
        for relu in relus:
            tally.add_pattern(relu)
        if at_input is not None:
            tally.add_input(at_input)
        for block in blocks:
            tally.add_block(block)
    if "halves" in needs:
        for layer in record_halves(network, x, y, seed):
            tally.add(layer, "halves")
    if "synflow" in needs:
        for layer in record_synflow(network, x):
            tally.add(layer, "synflow")
    found = tally.scores(len(y))
    if "macs" in needs:  # of every product, not of the recorded weights alone
        found["macs"] = torch.tensor(count_macs(network, x))
    return [float(found[proxy.name]) for proxy in proxies]
