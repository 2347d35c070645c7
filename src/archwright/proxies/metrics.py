"""The training-free metrics: each a sum over records and a last step.

A metric names the *term* it sums (one tensor per architecture and record) and how the total becomes a score. Metrics
that share a term (trace, kappa and knas all need the kernel) pay for it once. A metric never returns NaN: what cannot
be computed gets the metric's worst value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from archwright.proxies.blocks import entropies, jumps, least_rise, mean_jump
from archwright.proxies.ntk import condition_number, layer_kernel, layer_outputs, trace_norm
from archwright.proxies.records import BlockRecord, InputRecord, LayerRecord, Need, ReluRecord

Pass = Literal["data", "hessian", "synflow", "halves"]
"""Which run of the network a record comes from: with data, with second derivatives, synflow's own, on half batches."""

Term = Callable[[LayerRecord], Tensor]
Pattern = Callable[[ReluRecord], Tensor]
AtInput = Callable[[InputRecord], Tensor]
Block = Callable[[BlockRecord], Tensor]


def gradient_norm(record: LayerRecord) -> Tensor:
    """Norm of the layer's gradient of the batch-mean loss: (A,)."""
    assert record.weight_gradient is not None
    return record.weight_gradient.flatten(1).square().sum(1).sqrt()


def squared_gradient(record: LayerRecord) -> Tensor:
    """Squared norm of the layer's gradient of the batch-mean loss: (A,)."""
    assert record.weight_gradient is not None
    return record.weight_gradient.flatten(1).square().sum(1)


def signed_saliency(record: LayerRecord) -> Tensor:
    """Sum of theta * g, signs kept: (A,)."""
    assert record.weight_gradient is not None
    return (record.weight * record.weight_gradient).flatten(1).sum(1)


def saliency(record: LayerRecord) -> Tensor:
    """Sum of |theta * g|: (A,)."""
    assert record.weight_gradient is not None
    return (record.weight * record.weight_gradient).abs().flatten(1).sum(1)


def hessian_product(record: LayerRecord) -> Tensor:
    """Product g . (H theta), which equals theta . (H g) summed over all layers because H is symmetric: (A,)."""
    assert record.weight_gradient is not None
    assert record.hessian_weight is not None
    return (record.weight_gradient * record.hessian_weight).flatten(1).sum(1)


def channel_saliency(record: LayerRecord) -> Tensor:
    """Half the batch mean of (activation . loss gradient)^2, summed over channels and uses: (A,)."""
    if record.loss_gradients is None:  # a weight whose outputs nobody saw
        return record.weight.new_zeros(len(record.rows))
    outputs = layer_outputs(record) if record.outputs is None else record.outputs
    uses = [(outputs, record.loss_gradients), *record.uses]
    products = [(activation * gradient).sum((3, 4)) for activation, gradient in uses]
    return torch.stack([product.square().mean(1).sum(1) / 2 for product in products]).sum(0)


def fan_in_saliency(record: LayerRecord) -> Tensor:
    """As :func:`channel_saliency`, each channel times its fan-in, as public code sums it over weights: (A,)."""
    channels = 1 if record.loss_gradients is None else record.loss_gradients.shape[2]
    return channel_saliency(record) * (record.weight[0].numel() / channels)


def input_correlations(record: InputRecord) -> Tensor:
    """Correlation of the input gradients of each pair of examples, (A, m, m), float64; zero for a constant one."""
    flat = record.gradients.flatten(2).cpu().double()
    centred = flat - flat.mean(2, keepdim=True)
    length = centred.norm(dim=2, keepdim=True)
    unit = centred / torch.where(length > 0, length, 1.0)
    return unit @ unit.transpose(1, 2)


def jacobian_covariance(correlations: Tensor) -> Tensor:
    """Minus the sum over eigenvalues v of log(v + k) + 1 / (v + k), k = 1e-5, of (A, m, m): (A,).

    Minus infinity for a network whose output does not depend on some image.
    """
    values = torch.linalg.eigvalsh(correlations).clamp(min=0) + 1e-5
    connected = (correlations.diagonal(dim1=1, dim2=2) > 0).all(1)
    return torch.where(connected, -(values.log() + 1 / values).sum(1), -torch.inf)


def signal_to_noise(record: LayerRecord) -> Tensor:
    """ZiCo's term of a layer, (A,): log of the sum over weights of mean |g| / deviation of |g| over the half batches.

    Weights without deviation are passed over, and so are layers that nothing flows through.
    """
    assert record.half_gradients is not None
    first, second = record.half_gradients.abs().flatten(2).unbind(1)
    mean, deviation = (first + second) / 2, (first - second).abs() / 2
    total = torch.where(deviation > 0, mean / torch.where(deviation > 0, deviation, 1.0), 0.0).double().sum(1)
    return torch.where(total > 0, total.log(), 0.0)


def least_correlation(record: LayerRecord) -> Tensor:
    """MeCo's term of a layer, (A,): least eigenvalue of the correlations of its output's channels, first image."""
    if record.outputs is None:
        outputs = layer_outputs(replace(record, inputs=record.inputs[:, :1]))
    else:
        outputs = record.outputs[:, :1]
    maps = outputs[:, 0].flatten(2).double()
    centred = maps - maps.mean(2, keepdim=True)
    length = centred.norm(dim=2, keepdim=True)
    unit = centred / torch.where(length > 0, length, 1.0)
    values: Tensor = torch.linalg.eigvalsh(unit @ unit.transpose(1, 2))
    return values[:, 0].clamp(min=0)


def path_strength(record: LayerRecord) -> Tensor:
    """Sum of theta * dR/dtheta of the linearised network with |theta|: (A,), float64."""
    assert record.weight_gradient is not None
    return (record.weight * record.weight_gradient).flatten(1).sum(1)


def weight_count(record: LayerRecord) -> Tensor:
    """Weights of the layer: (A,)."""
    return torch.full((len(record.rows),), float(record.weight[0].numel()), dtype=torch.float64)


def multiply_accumulates(record: LayerRecord) -> Tensor:
    """Multiply-accumulates of the layer for one image: (A,)."""
    return weight_count(record) * record.output_shape[0] * record.output_shape[1]


def agreements(record: ReluRecord) -> Tensor:
    """Number of units on which two examples agree, (A, m, m): units minus Hamming distance."""
    on = record.active.float()
    off = 1 - on
    same = torch.bmm(on, on.transpose(1, 2)) + torch.bmm(off, off.transpose(1, 2))
    return same.cpu().double() * record.times.cpu()[:, None, None]


def pattern_codes(record: ReluRecord) -> Tensor:
    """One number for the pattern of each unit over the examples, (A, units) int64; 0 for units that no ReLU reads.

    Patterns of up to 63 examples are their own number; longer ones are hashed word by word.
    """
    bits = record.active.transpose(1, 2)
    pad = -bits.shape[2] % 63
    padded = torch.nn.functional.pad(bits, (0, pad))
    words = padded.view(*bits.shape[:2], -1, 63).long()
    codes = (words << torch.arange(63, device=words.device)).sum(3)
    mixed = torch.zeros_like(codes[:, :, 0])
    for word in codes.unbind(2):
        mixed = (mixed * 6364136223846793005) ^ word
    mixed = mixed * 2 + 1  # odd: 0 stays free
    return torch.where(record.times.to(mixed.device)[:, None] > 0, mixed, 0)


def distinct_codes(rows: Tensor, codes: Tensor, architectures: int) -> Tensor:
    """How many different codes but 0 each architecture has, (A,).

    Args:
        rows: architecture of each code, (n,).
        codes: all of them, (n,).
        architectures: A.
    """
    order = codes.argsort(stable=True)
    order = order[rows[order].argsort(stable=True)]
    rows, codes = rows[order], codes[order]
    new = torch.ones_like(codes, dtype=torch.bool)
    new[1:] = (codes[1:] != codes[:-1]) | (rows[1:] != rows[:-1])
    found = torch.zeros(architectures, dtype=torch.float64)
    return found.index_add_(0, rows, (new & (codes != 0)).double())


def log_determinant(kernel: Tensor) -> Tensor:
    """Logarithm of |det K| of (A, m, m); minus infinity where K is singular."""
    logarithm: Tensor = torch.linalg.slogdet(kernel)[1]
    return logarithm


def linear_regions(kernel: Tensor) -> Tensor:
    """How many linear regions the batch falls into (TE-NAS), (A,), from the agreement kernel (A, m, m).

    Two images share a region when all their ReLUs agree, that is when their entry equals the diagonal.
    """
    same = kernel >= kernel.diagonal(dim1=1, dim2=2)[:, :, None]
    return (1.0 / same.sum(dim=2)).sum(dim=1)


@dataclass(frozen=True)
class Proxy:
    """One metric.

    Attributes:
        name: its registered name.
        direction: +1 where a higher score predicts a better network, -1 where a lower one does.
        needs: the passes it is computed from.
        term: what is summed over layers (``pattern`` over ReLUs, ``block`` over blocks; ``at_input`` has one record).
        distinct: the records' numbers (A, n) are gathered and the different ones counted, not summed.
        finish: from the total over records and the batch size m to one score per architecture.
        worst: the score of a network for which the metric is undefined.
        positive: the score is a positive scale, so replicates are averaged in the logarithm.
    """

    name: str
    direction: int
    needs: frozenset[Need]
    term: Term | None = None
    pattern: Pattern | None = None
    at_input: AtInput | None = None
    block: Block | None = None
    distinct: bool = False
    finish: Callable[[Tensor, int], Tensor] = field(default=lambda total, m: total)
    worst: float = 0.0
    positive: bool = True

    @property
    def reads(self) -> Pass:
        """The pass whose records this metric sums."""
        if "synflow" in self.needs:
            return "synflow"
        if "halves" in self.needs:
            return "halves"
        return "hessian" if "hessian" in self.needs else "data"

    @property
    def part(self) -> Callable[..., Tensor]:
        """What the metric makes of a record."""
        found = self.term or self.pattern or self.at_input or self.block
        assert found is not None
        return found

    def value(self, total: Tensor, examples: int) -> Tensor:
        """The scores (A,) in float64, with the metric's worst value in place of NaN and infinity.

        Args:
            total: sum of the terms over layers or blocks.
            examples: images of the batch.
        """
        score = self.finish(total, examples).double()
        return torch.where(torch.isfinite(score), score, self.worst)


def _needs(*names: Need) -> frozenset[Need]:
    return frozenset(names)


LOWEST = -1e30
"""Worst value of a score without a lower end; finite, so that means and ranks stay defined."""

GRAD = Proxy("grad", +1, _needs("loss"), gradient_norm)
SNIP = Proxy("snip", +1, _needs("loss"), saliency)
GRAD_WHOLE = Proxy("grad-whole", +1, _needs("loss"), squared_gradient, finish=lambda t, m: t.sqrt())
SNIP_WHOLE = Proxy("snip-whole", +1, _needs("loss"), signed_saliency, finish=lambda t, m: t.abs())
GRASP = Proxy(
    "grasp",
    +1,
    _needs("loss", "hessian"),
    hessian_product,
    finish=lambda t, m: torch.where(t == 0, -torch.inf, -t),  # exactly 0: no gradient flows
    worst=LOWEST,
    positive=False,
)
GRASP_ABS = Proxy("grasp-abs", +1, _needs("loss", "hessian"), hessian_product, finish=lambda t, m: t.abs())
TRACE = Proxy("trace", +1, _needs("logit"), layer_kernel, finish=lambda t, m: (trace_norm(t) / m).sqrt())
KAPPA = Proxy("kappa", -1, _needs("logit"), layer_kernel, finish=lambda t, m: condition_number(t), worst=1e7)
KNAS = Proxy("knas", +1, _needs("logit"), layer_kernel, finish=lambda t, m: t.double().mean((1, 2)).abs())
FISHER = Proxy("fisher", +1, _needs("loss", "outputs"), channel_saliency)
FISHER_FAN_IN = Proxy("fisher-fan-in", +1, _needs("loss", "outputs"), fan_in_saliency)
SYNFLOW = Proxy("synflow", +1, _needs("synflow"), path_strength)
NASWOT = Proxy(
    "naswot",
    +1,
    _needs("relu"),
    pattern=agreements,
    finish=lambda t, m: log_determinant(t),
    worst=LOWEST,
    positive=False,
)
REGIONS = Proxy("regions", +1, _needs("relu"), pattern=agreements, finish=lambda t, m: linear_regions(t))
JACOB_COV = Proxy(
    "jacob_cov",
    +1,
    _needs("input"),
    at_input=input_correlations,
    finish=lambda t, m: jacobian_covariance(t),
    worst=LOWEST,
    positive=False,
)
SWAP = Proxy("swap", +1, _needs("relu"), pattern=pattern_codes, distinct=True)
ZICO = Proxy("zico", +1, _needs("halves"), signal_to_noise, worst=LOWEST, positive=False)
MECO = Proxy("meco", +1, _needs("loss", "outputs"), least_correlation)
EXPRESSIVITY = Proxy("expressivity", +1, _needs("features"), block=entropies, finish=lambda t, m: t.sum(1))
PROGRESSIVITY = Proxy(
    "progressivity",
    +1,
    _needs("features"),
    block=entropies,
    finish=lambda t, m: least_rise(t),
    worst=LOWEST,
    positive=False,
)
TRAINABILITY = Proxy(
    "trainability",
    +1,
    _needs("features", "jumps"),
    block=jumps,
    finish=lambda t, m: mean_jump(t),
    worst=LOWEST,
    positive=False,
)
PARAMS = Proxy("params", +1, _needs(), weight_count)
MACS = Proxy("macs", +1, _needs("macs"), multiply_accumulates)


class Tally:
    """Adds up the terms of several metrics while a producer hands in records, then finishes the scores."""

    def __init__(self, proxies: Iterable[Proxy], architectures: int) -> None:
        self.proxies = list(proxies)
        self.architectures = architectures
        self._totals: dict[Callable[..., Tensor], Tensor] = {}
        self._gathered: dict[Callable[..., Tensor], list[tuple[Tensor, Tensor]]] = {}

    def needs(self) -> set[Need]:
        """The passes a producer has to run for these metrics."""
        return {need for proxy in self.proxies for need in proxy.needs}

    def add(self, record: LayerRecord, kind: Pass) -> None:
        """Sum the terms that read one layer of this pass.

        Args:
            record: of the layer.
            kind: of the pass; metrics that read another one are left alone.
        """
        for term in {p.term for p in self.proxies if p.term is not None and p.reads == kind}:
            self._sum(term, record.rows, term(record))

    def add_pattern(self, record: ReluRecord) -> None:
        """Take one ReLU's pattern."""
        self._add(record, {p.pattern: p.distinct for p in self.proxies if p.pattern is not None})

    def add_input(self, record: InputRecord) -> None:
        """Keep what the gradients at the input say."""
        self._add(record, {p.at_input: False for p in self.proxies if p.at_input is not None})

    def add_block(self, record: BlockRecord) -> None:
        """Sum the terms that read one block."""
        self._add(record, {p.block: False for p in self.proxies if p.block is not None})

    def _add(self, record: ReluRecord | InputRecord | BlockRecord, parts: Mapping[Callable[..., Tensor], bool]) -> None:
        for part, distinct in parts.items():
            values = part(record).cpu()
            if distinct:
                rows = record.rows.cpu()[:, None].expand(values.shape)
                self._gathered.setdefault(part, []).append((rows.flatten(), values.flatten()))
            else:
                self._sum(part, record.rows, values)

    def _sum(self, key: Callable[..., Tensor], rows: Tensor, values: Tensor) -> None:
        values = values.cpu()  # small by now; what follows needs float64, which not every accelerator has
        if key not in self._totals:
            self._totals[key] = values.new_zeros(self.architectures, *values.shape[1:])
        self._totals[key].index_add_(0, rows.cpu(), values)

    def scores(self, examples: int) -> dict[str, Tensor]:
        """Metric name -> (A,) float64 scores for a batch of ``examples``."""
        found = {}
        for proxy in self.proxies:
            total = self._totals.get(proxy.part)
            if proxy.part in self._gathered:
                rows, values = (torch.cat(several) for several in zip(*self._gathered[proxy.part], strict=True))
                total = distinct_codes(rows, values, self.architectures)
            if total is None:
                found[proxy.name] = torch.full((self.architectures,), proxy.worst, dtype=torch.float64)
            else:
                found[proxy.name] = proxy.value(total, examples)
        return found
