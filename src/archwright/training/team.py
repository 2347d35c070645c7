"""Several processes that train one network: who they are, how they talk, and a pass over a batch that they share.

The principle: a batch is cut into *shards*, a setting of the run. Each is a pass of its own, with its own images,
batch-norm statistics and random draws, and a step goes by the mean over all images. How many *processes* share the
shards is no setting: one process does all of them in turn, any divisor of their number does the same training, bit for
bit, and a run goes on with another number of processes.

That needs sums in one order, which no all-reduce promises: what the shards found is gathered, in one message a pass
(gradients, which weights have one, movements of float buffers, metrics), and every process adds it up by shard number.

One process leads: it keeps the run and decides. The others follow: they wait for a call (:meth:`Team.call`), which
names a function of a module and what to give it, and do it with the leader. They trust it, as it trusts them. A signal
to one of them is kept until all can agree on it, before a step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from archwright.data.shards import WHOLE, Shard, mixed
from archwright.errors import ArchwrightError, InputError, Interrupted
from archwright.numerics import backward
from archwright.runs.stop import Stop
from archwright.training.parcels import packed, unpacked
from archwright.training.seeds import seed_all

WAIT = timedelta(days=30)
"""Followers wait while the leader measures; who dies is noticed by its closed connection."""
GO, STOP, LEAVE = 0, 1, 2
"""What :meth:`Team.agreed` is asked before a step: go on, save and stop, or leave this training."""
FEW_IMAGES = 16
"""Batch-norm statistics of fewer images a shard are poor."""


class TeamError(ArchwrightError):
    """Another process of the team is gone."""


class LeftError(Exception):
    """The leader left a training before its end (it stopped, had enough, or failed): followers leave it, too."""


@dataclass(frozen=True)
class Pass:
    """What a pass over a shard gives.

    Attributes:
        loss: mean over its images, a 0-d tensor.
        count: its images.
        metrics: further means over them, 0-d tensors by name.
    """

    loss: Tensor
    count: int
    metrics: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Team:
    """This process and those that train with it.

    Attributes:
        shards: parts of a batch.
        rank: of this process; 0 leads.
        size: number of processes, a divisor of ``shards``.
    """

    shards: int = 1
    rank: int = 0
    size: int = 1

    def __post_init__(self) -> None:
        check_shared(self.shards, self.size)

    @property
    def leads(self) -> bool:
        """Whether this process keeps the run."""
        return self.rank == 0

    @cached_property
    def mine(self) -> list[Shard]:
        """The shards that this process computes, in order."""
        each = self.shards // self.size
        return [Shard(number, self.shards) for number in range(self.rank * each, (self.rank + 1) * each)]

    # --- talk ---

    def agreed(self, *values: int) -> tuple[int, ...]:
        """The greatest of what the processes say, number by number."""
        if self.size == 1:
            return values
        tensor = torch.tensor(values, dtype=torch.int64)
        with _connected():
            dist.all_reduce(tensor, dist.ReduceOp.MAX)
        return tuple(tensor.tolist())

    def told(self, thing: Any) -> Any:
        """What the leader says; what others say is not heard."""
        if self.size == 1:
            return thing
        box = [packed(thing) if self.leads else b""]
        with _connected():
            dist.broadcast_object_list(box, src=0, device=torch.device("cpu"))
        return thing if self.leads else unpacked(box[0])

    def call(self, function: Callable[..., None], **arguments: Any) -> None:
        """As the leader: have every follower call ``function(team, stop, **arguments)``, a function of a module."""
        if self.size > 1:
            self.told((self.shards, function, arguments))

    def follow(self, stop: Stop) -> None:
        """As a follower: do what the leader calls for, until it says goodbye; what ``stop`` asks is asked of all."""
        while (called := self.told(None)) is not None:
            shards, function, arguments = called
            with suppress(LeftError, Interrupted):
                function(replace(self, shards=shards), stop, **arguments)

    def part(self) -> None:
        """As the leader: let the followers go."""
        if self.size > 1 and dist.is_initialized():
            try:
                self.told(None)
            finally:
                dist.destroy_process_group()

    @contextmanager
    def failing_told(self) -> Iterator[None]:
        """As the leader: around what is done before something is :meth:`told`; where that raises, None is."""
        try:
            yield
        except BaseException:
            self.told(None)
            raise

    @contextmanager
    def excused(self) -> Iterator[None]:
        """As the leader: around what only it does between two steps; where that raises, all leave the training."""
        try:
            yield
        except TeamError:
            raise
        except BaseException:
            if self.leads:
                self.agreed(LEAVE, 0)
            raise

    @contextmanager
    def bound(self) -> Iterator[None]:
        """Around a step: where it raises here alone, the others wait for nobody, so the connection is ended."""
        try:
            yield
        except BaseException:
            if self.size > 1 and dist.is_initialized():
                dist.destroy_process_group()
            raise

    # --- passes ---

    def backward(
        self, modules: Sequence[nn.Module], one: Callable[[Shard], Pass], *, apart: bool = True
    ) -> dict[str, Tensor]:
        """Put the gradient of the mean loss over a batch into ``.grad``; returns ``loss`` and the metrics.

        A parameter that no shard used keeps no gradient, so that its momentum and decay rest.

        Args:
            modules: whose parameters get gradients and whose float buffers move by the mean over all images.
            one: a pass over a shard.
            apart: whether shards draw different random numbers (drop-path), or all the same (a sampled architecture).
        """
        if self.shards == 1:
            whole = one(WHOLE)
            backward(whole.loss, lambda: (weight for module in modules for weight in module.parameters()))
            return {"loss": whole.loss.detach(), **whole.metrics}
        parameters = [weight for module in modules for weight in module.parameters() if weight.requires_grad]
        names: list[str] = []

        def descended(shard: Shard) -> tuple[int, list[Tensor]]:
            for weight in parameters:
                weight.grad = None
            found = one(shard)
            backward(found.loss, lambda: parameters)
            names[:] = ["loss", *found.metrics]
            used = torch.tensor([float(weight.grad is not None) for weight in parameters])
            numbers = [found.loss.detach(), *found.metrics.values()]
            grads = [torch.zeros_like(one) if one.grad is None else one.grad for one in parameters]
            return found.count, [*grads, used.to(found.loss.device), *(one.float() for one in numbers)]

        *means, used = _rotated(self.mean(modules, descended, apart=apart), len(parameters))
        for weight, gradient, share in zip(parameters, means, used.tolist(), strict=False):
            weight.grad = torch.empty_like(weight).copy_(gradient) if share > 0 else None
        return dict(zip(names, means[len(parameters) :], strict=True))

    def mean(
        self, modules: Sequence[nn.Module], one: Callable[[Shard], tuple[int, Sequence[Tensor]]], *, apart: bool
    ) -> list[Tensor]:
        """Means over all images of a batch of what passes over its shards give.

        Args:
            modules: whose float buffers (batch-norm statistics) move by the mean over all images.
            one: of a shard: its images, and tensors that are means over them, of the same shapes for every shard.
            apart: whether shards draw different random numbers, or all the same.
        """
        if self.shards == 1:
            return list(one(WHOLE)[1])
        buffers = list({id(buffer): buffer for module in modules for buffer in module.buffers()}.values())
        before = [buffer.clone() for buffer in buffers]
        floats = [place for place, buffer in enumerate(buffers) if buffer.is_floating_point()]
        flats, shapes = [], list[Tensor]()
        for shard in self._seeded(apart):
            with torch.no_grad():
                torch._foreach_copy_(buffers, before) if buffers else None
            count, tensors = one(shard)
            shapes = [*tensors, *(buffers[place] - before[place] for place in floats)]
            flat = torch.cat([tensor.detach().reshape(-1) for tensor in shapes])
            flats.append(torch.cat([flat * count, flat.new_full((1,), float(count))]))
            if self.size == 1:
                flats = [flats[0].add_(flats[1])] if len(flats) > 1 else flats
        total = self._added(flats)
        parts = torch.split(total[:-1] / total[-1], [tensor.numel() for tensor in shapes])
        means = [part.view(tensor.shape).to(tensor.dtype) for part, tensor in zip(parts, shapes, strict=True)]
        with torch.no_grad():
            for place, moved in zip(floats, means[len(means) - len(floats) :], strict=True):
                buffers[place].copy_(before[place] + moved)
        return means[: len(means) - len(floats)]

    def summed(self, own: Tensor) -> Tensor:
        """The sum of a tensor over all processes, in one order."""
        return self._added([own.reshape(-1)]).view(own.shape)

    def _added(self, flats: list[Tensor]) -> Tensor:
        """The sum over all shards (n,) of what this process found, one (n,) a shard, in the order of the shards."""
        if self.size == 1:
            return flats[0]
        mine = torch.stack(flats)
        every = mine.new_empty(self.size * len(mine), mine.shape[1])
        with _connected():
            dist.all_gather_single(every, mine)
        total = every[0]
        for one in every[1:]:
            total += one
        return total

    def _seeded(self, apart: bool) -> Iterator[Shard]:
        """Own shards, each with its random numbers: its own, or the same for all; afterwards those of the step."""
        base = int(torch.randint(2**62, ()))
        for shard in self.mine:
            seed_all(mixed(base, 1 + shard.number) if apart else base)
            yield shard
        seed_all(mixed(base, 0))


def _rotated(tensors: list[Tensor], place: int) -> list[Tensor]:
    """With the tensor of ``place`` last."""
    return [*tensors[:place], *tensors[place + 1 :], tensors[place]]


def check_shared(shards: int, size: int) -> None:
    """Refuse a number of processes that does not divide that of the shards.

    Args:
        shards: that every batch is cut into.
        size: how many processes share them.
    """
    if shards < 1 or shards % size:
        raise InputError(
            f"shards that {size} processes can share evenly (--shards)",
            f"{shards}",
            f"Give --shards {size} or a multiple, or start another number of processes.",
        )


ALONE = Team()
"""One process, one shard."""


@contextmanager
def _connected() -> Iterator[None]:
    """Around talk: a closed connection says whom it was closed by only in the words of the library."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        raise TeamError(
            "expected all processes of this training, got a closed connection: one of them has ended or cannot be "
            "reached. What was saved is kept: resume the run (archwright runs resume), on any number of processes "
            "that divides its shards."
        ) from error
