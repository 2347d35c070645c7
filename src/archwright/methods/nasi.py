"""NASI (thesis, chapter 6): one step of architecture search at initialisation, without training.

With tr = || 1/b sum_x grad_theta L_x ||^2 (eq. 6.7) of a sampled sub-network on a fresh batch, the reward is

    R = tr - mu * max(0, tr - nu)                                                                        (eq. 6.8)

alpha stays at alpha_0 = 0; each of K steps draws a straight-through Gumbel sample and takes G_k = grad_alpha R (a
derivative of a squared gradient: double backward). Then (eq. 6.13)

    Delta = xi / K * sum_k G_k / max(|G_1|, ..., |G_k|),   xi = 1,

and the architecture with the largest alpha_0 + Delta is the answer. nu is the mean trace of 50 random architectures
(``fixed``, eq. 6.14) or the running mean from a large start (``adaptive``, eq. 6.15), both at the scale used.

``none`` is not a candidate, as in the thesis' own DARTS space: a trace says little of an edge that carries nothing, and
small runs that may choose it end at disconnected cells. In the DARTS space inputs and operations of a node are chosen
independently, the two strongest of each, paired in order, and a max-pool after reduction cells halves the image.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from archwright.data import Batches
from archwright.data.request import DataRequest, load_data
from archwright.data.shards import WHOLE, Shard
from archwright.numerics import autocast, loss_scale
from archwright.proxies.initialise import initialise
from archwright.search.driving import drive_stage
from archwright.search.method import Options, SearchMethod, Stage
from archwright.search.values import Choice, StageResult
from archwright.spaces.base import Scale
from archwright.spaces.supernet_space import SupernetSpace, as_supernet_space
from archwright.supernets.base import Active, Supernet
from archwright.supernets.train import new_supernet
from archwright.training import Position

Logits = dict[str, Tensor]


class NasiOptions(Options):
    """Options of NASI: samples, penalty, estimator and batch."""

    steps: int = Field(60, ge=1, description="Gumbel samples K, one gradient each")
    mu: float = Field(1.0, ge=0, description="penalty coefficient: 1 flattens the reward above nu, 2 turns it")
    nu: Literal["fixed", "adaptive"] = Field(
        "fixed", description="how nu is set: fixed (eq. 6.14) or adaptive (eq. 6.15)"
    )
    nu_samples: int = Field(50, ge=1, description="random architectures behind nu (eq. 6.14), and its start (eq. 6.15)")
    nu_start: float = Field(3.0, gt=0, description="multiple of the mean trace that nu starts at (--nu adaptive)")
    estimator: Literal["straight-through", "selected"] = Field(
        "straight-through", description="operations that get a gradient: all, or the selected ones only (GDAS)"
    )
    temperature: float = Field(1.0, gt=0, description="temperature of the Gumbel softmax")
    reinitialise: bool = Field(True, description="draw new weights every step")
    labels: Literal["true", "random"] = Field("true", description="labels of the images: the data's, or random")
    images: Literal["true", "random"] = Field("true", description="images of the search: the data's, or Gaussian noise")
    proxy_channels: int = Field(8, ge=2, description="channels of the supernet")
    proxy_cells: int = Field(1, ge=1, description="cells of the supernet (a stage; in all for darts, at least 3)")
    proxy_size: int = Field(8, ge=4, description="image size of the supernet")
    proxy_batch: int = Field(64, ge=2, description="images of a step")


# --- sampling --------------------------------------------------------------------------------------------------------


def sample(logits: Tensor, picks: int, temperature: float) -> Tensor:
    """Straight-through Gumbel sample: hard forward, the softmax's derivative (eq. 6.16).

    Args:
        logits: (rows, choices).
        picks: ones a row.
        temperature: of the softmax.
    """
    gumbel = -torch.log(-torch.log(torch.rand_like(logits).clamp_(1e-10, 1 - 1e-7)))
    soft = torch.softmax((logits + gumbel) / temperature, dim=-1)
    hard = torch.zeros_like(soft).scatter_(-1, soft.topk(picks, dim=-1).indices, 1.0)
    return hard - soft.detach() + soft


def sample_weights(space: SupernetSpace[Any], logits: Logits, temperature: float) -> dict[str, Tensor]:
    """One random sub-network as the supernet's weights, differentiable in the logits; ``none`` is never drawn.

    Args:
        space: of the supernet.
        logits: in the shapes of the space's draws.
        temperature: of the Gumbel softmax.
    """
    drawn = {}
    for name, choice in space.draws.items():
        allowed = logits[name]
        barred = sorted(set(range(choice.columns)) - set(choice.allowed))
        if barred:
            allowed = allowed.index_fill(1, torch.tensor(barred, device=allowed.device), -torch.inf)
        drawn[name] = sample(allowed, choice.picks, temperature)
    return space.weights_of(drawn)


# --- the trace and its gradient --------------------------------------------------------------------------------------


def trace(
    supernet: nn.Module,
    weights: dict[str, Tensor],
    batch: tuple[Tensor, Tensor],
    active: Active | None = None,
    create_graph: bool = False,
) -> Tensor:
    """Eq. 6.7: the squared norm of the batch-mean loss' gradient by all convolution and linear weights.

    Args:
        supernet: as initialised.
        weights: of the operations, by decision.
        batch: images (B, C, H, W) and labels (B,).
        active: which operations run; None for all.
        create_graph: so that the trace itself can be differentiated.
    """
    images, labels = batch
    parameters = [p for p in supernet.parameters() if p.ndim >= 2]
    with sdpa_kernel(SDPBackend.MATH), autocast(images.device):  # the only attention that can be differentiated twice
        loss = F.cross_entropy(supernet(images, weights, active), labels)
    scale = loss_scale(images.device)
    whole = loss if scale == 1 else scale * loss
    found = [
        g for g in torch.autograd.grad(whole, parameters, create_graph=create_graph, allow_unused=True) if g is not None
    ]
    return torch.stack([(g * g).sum() for g in (found if scale == 1 else [g / scale for g in found])]).sum()


class Accumulator:
    """Delta of eq. 6.13 and the traces seen, as a checkpointable state."""

    def __init__(self, shapes: dict[str, tuple[int, int]]) -> None:
        self.total = {name: torch.zeros(shape) for name, shape in shapes.items()}
        self.largest = 0.0
        self.traces: list[float] = []

    def add(self, gradients: dict[str, Tensor]) -> None:
        """One G_k; a zero gradient (reward flat above nu) adds nothing and sets no scale."""
        norm = float(torch.stack([(g * g).sum() for g in gradients.values()]).sum().sqrt())
        self.largest = max(self.largest, norm)
        if self.largest > 0:
            for name, gradient in gradients.items():
                self.total[name] += gradient.cpu() / self.largest

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps of it."""
        return {"total": self.total, "largest": self.largest, "traces": list(self.traces)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what :meth:`state_dict` gave."""
        self.total, self.largest, self.traces = state["total"], state["largest"], list(state["traces"])


class MeanTrace(StageResult):
    """Mean and deviation of the trace over random sub-networks."""

    mean: float
    deviation: float


class AtInitialisation(Choice):
    """The choice and the mean gradients (slots, choices) of each decision that it was made by."""

    alpha: dict[str, list[list[float]]]
    mean_trace: float


class Nasi(SearchMethod):
    """Search at initialisation: one step by gradients of the reward, without training."""

    name = "nasi"
    resources = ()
    Options: ClassVar[type[Options]] = NasiOptions
    options: NasiOptions

    def check(self) -> None:
        """Also refuses a scale that the space has not."""
        super().check()
        self.space.check_scale(self.proxy_scale)

    def search_stages(self) -> list[Stage]:
        """nu, then the K steps."""
        return [Stage("nu", "mean trace of random cells", self._nu), Stage("search", "NASI", self._search)]

    # --- set-up ---

    @property
    def space(self) -> SupernetSpace[Any]:
        """The space; one without a supernet is refused."""
        return as_supernet_space(self.context.task.space)

    @property
    def request(self) -> DataRequest:
        """The images the search sees."""
        context = self.context
        if self.options.images == "true" and context.configuration.data is not None:
            return context.task.data_request
        spec = f"random:classes=10,size={self.options.proxy_size},channels=3,count=4096"
        return DataRequest(spec, context.configuration.seed)

    def batch_sizes(self) -> list[int]:
        """Also those of the search."""
        return [*super().batch_sizes(), self.options.proxy_batch]

    @property
    def proxy_scale(self) -> Scale:
        """Scale of the supernet."""
        data, o = load_data(self.request), self.options
        cells = max(o.proxy_cells, self.space.fewest_cells)
        size = data.image_size if self.space.scored_whole else min(o.proxy_size, data.image_size)
        return self.space.proxy_scale(o.proxy_channels, cells, data.classes, size, data.image_channels)

    def _batches(self) -> Batches:
        return Batches(load_data(self.request), "train", self.options.proxy_batch, seed=self.context.configuration.seed)

    def _batch(self, batches: Batches, number: int, shard: Shard = WHOLE) -> tuple[Tensor, Tensor]:
        """A shard of a fresh batch for step ``number``, averaged down to the supernet's image size."""
        images, labels = batches.get(*divmod(number, len(batches)), shard)
        size = self.proxy_scale.image_size
        images = F.adaptive_avg_pool2d(images, size) if images.shape[-1] != size else images
        if self.options.labels == "random":
            labels = torch.randint_like(labels, self.proxy_scale.classes)
        device = self.context.device.torch
        return images.to(device, memory_format=torch.channels_last), labels.to(device)

    def _supernet(self) -> Supernet:
        seed, device = self.context.configuration.seed, self.context.device.torch
        supernet = new_supernet(self.space, self.proxy_scale, seed=seed, device=device, downsample="pooled")
        initialise(supernet, torch.Generator().manual_seed(seed))
        return supernet.train()

    def _fresh_weights(self, supernet: Supernet, number: int) -> None:
        if self.options.reinitialise:
            seed = self.context.rng("weights", number).integers(2**62)
            initialise(supernet, torch.Generator().manual_seed(int(seed)))

    # --- stages ---

    def _nu(self) -> MeanTrace:
        """Mean trace over random sub-networks, eq. 6.14."""
        context, space = self.context, self.space
        supernet, batches = self._supernet(), self._batches()
        zeros = {name: torch.zeros(choice.shape, device=context.device.torch) for name, choice in space.draws.items()}
        found = []
        with context.progress.task("nu", self.options.nu_samples) as bar, torch.random.fork_rng(devices=[]):
            for number in range(self.options.nu_samples):
                context.stop.check()
                torch.manual_seed(int(context.rng("nu", number).integers(2**62)))
                self._fresh_weights(supernet, number)
                weights = {name: w.detach() for name, w in sample_weights(space, zeros, 1.0).items()}
                found.append(float(trace(supernet, weights, self._batch(batches, number)).detach()))
                bar.advance()
        return MeanTrace(mean=float(np.mean(found)), deviation=float(np.std(found)))

    def _search(self) -> AtInitialisation:
        context, options, space = self.context, self.options, self.space
        supernet, batches = self._supernet(), self._batches()
        shapes = {name: choice.shape for name, choice in space.draws.items()}
        state = Accumulator(shapes)
        mean = self.result("nu", MeanTrace).mean

        def step(position: Position) -> dict[str, float]:
            number = position.index
            self._fresh_weights(supernet, options.nu_samples + number)
            device = context.device.torch
            logits = {name: torch.zeros(shape, device=device, requires_grad=True) for name, shape in shapes.items()}

            def one(shard: Shard) -> tuple[int, list[Tensor]]:
                weights = sample_weights(space, logits, options.temperature)
                selected = options.estimator == "selected"
                active = {name: w.detach().cpu().numpy() > 0.5 for name, w in weights.items()} if selected else None
                batch = self._batch(batches, options.nu_samples + number, shard)
                value = trace(supernet, weights, batch, active, create_graph=True)
                asked = list(logits.values())
                found = torch.autograd.grad(value, asked, allow_unused=True, materialize_grads=True)
                return len(batch[1]), [value.detach(), *found]

            value, *gradients = context.team.mean([supernet], one, apart=False)
            seen = float(value)
            nu = mean if options.nu == "fixed" else (options.nu_start * mean + sum(state.traces)) / (number + 1)
            slope = 1.0 if seen <= nu else 1.0 - options.mu
            state.traces.append(seen)
            if slope != 0.0:
                state.add({name: slope * g for name, g in zip(logits, gradients, strict=True)})
            return {"trace": seen, "loss": seen}

        drive_stage(context, "search", step, {"delta": state}, epochs=1, steps_per_epoch=options.steps, title="NASI")
        delta = {name: (total / options.steps).numpy() for name, total in state.total.items()}
        return AtInitialisation(
            architecture=str(space.derive_draws(delta)),
            accuracy=None,
            accuracy_on="nothing: the search trains no network",
            evaluations=0,
            alpha={name: array.tolist() for name, array in delta.items()},
            mean_trace=float(np.mean(state.traces)),
        )
