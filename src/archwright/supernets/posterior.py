"""A distribution over the architectures of a space, learned through a supernet, and samples of it.

Every row of every decision has a categorical distribution p_i(o) = softmax(alpha_i / tau) over its columns (eq. 5.6 of
the thesis), independent of the others (eq. 5.7); ``none`` is not among them. A sample adds Gumbel noise to log p and
takes the space's own derivation (:meth:`~archwright.spaces.supernet_space.SupernetSpace.derive`). Where a node keeps
some of its edges only, the noisy maxima of all edges have the same distribution, so that edges are drawn uniformly: the
thesis' posterior says nothing of them either.

For SVGD-RD a particle holds all rows; the density of each row is :class:`~archwright.solvers.svgd.ArchitectureDensity`,
and the derivation takes the largest entry of each row, which is its nearest operation (eq. 5.9), and, where edges
compete, the edges where that entry is largest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from archwright.data.shards import Shard
from archwright.numerics import autocast
from archwright.solvers.svgd import ArchitectureDensity, Floats, sample, tempered
from archwright.spaces.base import Architecture
from archwright.spaces.supernet_space import SupernetSpace
from archwright.training.team import ALONE, Pass, Team

Active = dict[str, NDArray[np.bool_]]


class Posterior(nn.Module):
    """Logits alpha over the allowed columns of each decision, (rows, columns) each, zero at first: uniform."""

    def __init__(self, space: SupernetSpace[Any]) -> None:
        super().__init__()
        self.space = space
        self.columns = {name: space.candidates(name) for name in space.decisions}
        # torch forbids dots and some names as keys of parameters; numbers serve every space
        self.alpha = nn.ParameterList(torch.zeros(space.decisions[name][0], len(c)) for name, c in self.columns.items())

    def draw(self, temperature: float) -> tuple[dict[str, Tensor], Active]:
        """A straight-through Gumbel-softmax sample as weights of the supernet, and the operations that run.

        The weights are a hard architecture whose derivative is the softmax's at ``temperature``, in the rows that the
        architecture keeps. All operations of those rows run, also where their weight is 0: it has a derivative.
        """
        scores, soft = {}, {}
        for (name, columns), alpha in zip(self.columns.items(), self.alpha, strict=True):
            uniform = torch.rand_like(alpha).clamp_(1e-10, 1 - 1e-7)
            noisy = torch.log_softmax(alpha, dim=1) - torch.log(-torch.log(uniform))
            place = torch.from_numpy(columns).to(alpha.device)
            shape = self.space.decisions[name]
            scores[name] = np.full(shape, -np.inf)
            scores[name][:, columns] = noisy.detach().cpu().numpy()
            soft[name] = torch.zeros(shape, device=alpha.device).index_copy(
                1, place, torch.softmax(noisy / temperature, dim=1)
            )
        encoding = self.space.encode(self.space.derive(scores))
        weights, active = {}, {}
        for name, array in encoding.items():
            hard = torch.from_numpy(array).to(soft[name])
            kept = hard.sum(dim=1, keepdim=True) > 0
            weights[name] = hard + kept * (soft[name] - soft[name].detach())
            active[name] = np.zeros(array.shape, dtype=bool)
            active[name][np.ix_(array.sum(axis=1) > 0, self.columns[name])] = True
        return weights, active

    def divergence(self) -> Tensor:
        """KL(p_alpha || uniform) = sum over rows of log(columns) - entropy, in nats."""
        rows = []
        for alpha in self.alpha:
            log_p = torch.log_softmax(alpha, dim=1)
            rows.append((log_p.exp() * (log_p + float(np.log(alpha.shape[1])))).sum())
        return torch.stack(rows).sum()

    def logits(self) -> dict[str, list[list[float]]]:
        """Alpha by decision, as plain numbers."""
        return {name: alpha.detach().cpu().tolist() for name, alpha in zip(self.columns, self.alpha, strict=True)}


def fit_step(
    posterior: Posterior,
    adam: torch.optim.Optimizer,
    network: Callable[..., Tensor],
    batch: Callable[[Shard], tuple[Tensor, Tensor]],
    temperature: float,
    kl_weight: float,
    team: Team = ALONE,
) -> dict[str, Tensor]:
    """One step of alpha down the mean cross entropy of a sample plus ``kl_weight`` KL(p_alpha || uniform).

    Args:
        posterior: whose alpha moves.
        adam: its optimiser.
        network: the supernet: images, weights and active operations to logits.
        batch: images (B, C, H, W) and labels (B,) of a shard.
        temperature: of the Gumbel-softmax sample.
        kl_weight: of the divergence.
        team: who shares the batch; all shards see the same sample.
    """

    def one(shard: Shard) -> Pass:
        images, labels = batch(shard)
        weights, active = posterior.draw(temperature)
        with autocast(images.device):
            logits = network(images.contiguous(memory_format=torch.channels_last), weights, active)
            entropy = F.cross_entropy(logits, labels)
        divergence = posterior.divergence()
        known = {"entropy": entropy.detach(), "divergence": divergence.detach()}
        return Pass(entropy + kl_weight * divergence, len(labels), known)

    adam.zero_grad()
    found = team.backward([posterior], one, apart=False)
    adam.step()
    return {"loss": found["entropy"], "divergence": found["divergence"]}


# --- samples ---------------------------------------------------------------------------------------------------------


class Sampler:
    """Samples of architectures from logits by decision (rows, allowed columns); without logits, uniform ones.

    Args:
        space: of the architectures.
        logits: alpha by decision.
        temperature: tau of eq. 5.6.
    """

    def __init__(
        self, space: SupernetSpace[Any], logits: Mapping[str, list[list[float]]] | None = None, temperature: float = 1.0
    ) -> None:
        self.space = space
        self.columns = {name: space.candidates(name) for name in space.decisions}
        self.densities: dict[str, ArchitectureDensity] = {}
        for name, columns in self.columns.items():
            rows = np.zeros((space.decisions[name][0], len(columns))) if logits is None else np.array(logits[name])
            self.densities[name] = ArchitectureDensity(tempered(rows, temperature))

    def monte_carlo(self, rng: np.random.Generator) -> Architecture:
        """One independent draw (algorithm 5.2)."""
        with np.errstate(divide="ignore"):
            noisy = {
                name: np.log(density.probabilities) + rng.gumbel(size=density.probabilities.shape)
                for name, density in self.densities.items()
            }
        return self._derived(noisy)

    def most_likely(self) -> Architecture:
        """The architecture of the largest probabilities."""
        return self._derived({name: density.probabilities for name, density in self.densities.items()})

    def particles(self, count: int, rng: np.random.Generator, *, delta: float, steps: int = 1000) -> list[Architecture]:
        """Architectures by SVGD-RD (algorithm 5.3) from standard Gaussian particles.

        Args:
            count: how many.
            rng: draws where the particles start.
            delta: weight of the diversity; 0 is plain SVGD.
            steps: of the particles.
        """
        sizes = [density.size for density in self.densities.values()]
        bounds = np.cumsum(sizes)[:-1]

        def gradient(x: Floats) -> Floats:
            parts = np.split(x, bounds, axis=1)
            found = [density.gradient(part) for density, part in zip(self.densities.values(), parts, strict=True)]
            return np.concatenate(found, axis=1)

        points = sample(gradient, rng.standard_normal((count, sum(sizes))), delta=delta, steps=steps)
        architectures = []
        for point in points:
            parts = np.split(point, bounds)
            shaped = zip(self.densities.items(), parts, strict=True)
            architectures.append(self._derived({n: part.reshape(d.probabilities.shape) for (n, d), part in shaped}))
        return architectures

    def _derived(self, scores: Mapping[str, Floats]) -> Architecture:
        """The architecture of the largest scores, (rows, allowed columns) each."""
        whole = {}
        for name, columns in self.columns.items():
            whole[name] = np.full(self.space.decisions[name], -np.inf)
            whole[name][:, columns] = scores[name]
        found: Architecture = self.space.derive(whole)
        return found
