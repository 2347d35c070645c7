"""Networks with choices in them, good and bad, as a user would write them."""

from __future__ import annotations

from functools import reduce

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import archwright as aw
from archwright.spaces.nasbench201 import EDGES, NAMES
from archwright.supernets.cell import CellSupernet, Picked


def conv(width: int, kernel: int, out: int | None = None) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(width, out or width, kernel, 1, kernel // 2, bias=False), nn.BatchNorm2d(out or width)
    )


class Tiny(nn.Module):
    """All kinds of choices, one inside another, at the smallest scale."""

    def __init__(self, classes: int, image_channels: int = 1, channels: int = 4) -> None:
        super().__init__()
        self.stem = nn.Conv2d(image_channels, channels, 3, 2)
        inner = nn.Sequential(
            nn.ReLU(inplace=True), aw.nn.Choice({"one": conv(channels, 1), "three": conv(channels, 3)})
        )
        self.a = aw.nn.Choice({"plain": conv(channels, 3), "inner": inner})
        self.stage = aw.nn.Depth([conv(channels, 1) for _ in range(2)], least=0)
        self.extra = aw.nn.Optional(conv(channels, 3))
        self.pick = aw.nn.Inputs(["after", "before"])
        self.norm, self.drop = nn.BatchNorm1d(channels), nn.Dropout(0.1)
        self.head = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stage(self.a(self.stem(x)))
        return self.head(self.drop(self.norm(self.pick([self.extra(x), x]).mean((2, 3)))))


class BadShape(Tiny):
    def __init__(self, classes: int, image_channels: int = 1, channels: int = 4) -> None:
        super().__init__(classes, image_channels, channels)
        self.a = aw.nn.Choice({"plain": conv(channels, 3), "wide": conv(channels, 3, 2 * channels)})


class NeverCalled(Tiny):
    def __init__(self, classes: int, image_channels: int = 1) -> None:
        super().__init__(classes, image_channels)
        self.unused = aw.nn.Optional(conv(4, 3))


class OnlyLarge(Tiny):
    """Takes images of 16 px alone."""

    def __init__(self, classes: int, image_channels: int = 1) -> None:
        super().__init__(classes, image_channels)
        self.flat = nn.Linear(7 * 7, 1)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.flat(self.a(self.stem(x)).mean(1).flatten(1))


class InItself(Tiny):
    def __init__(self, classes: int, image_channels: int = 1) -> None:
        super().__init__(classes, image_channels)
        self.a = aw.nn.Optional(aw.nn.Optional(conv(4, 3), name="a"), name="a")


class Hidden(Tiny):
    """A choice that PyTorch does not know as a part."""

    def __init__(self, classes: int, image_channels: int = 1) -> None:
        super().__init__(classes, image_channels)
        self.more = [aw.nn.Choice({"one": conv(4, 1), "three": conv(4, 3)})]

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.more[0](self.pick([self.extra(y := self.stage(self.a(self.stem(x)))), y])).mean((2, 3)))


class Shared(nn.Module):
    """One decision in two places, one of them called twice."""

    def __init__(self, classes: int, image_channels: int = 1, channels: int = 4) -> None:
        super().__init__()
        self.stem = nn.Conv2d(image_channels, channels, 3, 2)
        self.first = aw.nn.Choice([conv(channels, 1), conv(channels, 3), conv(channels, 5)], name="kind")
        self.second = aw.nn.Choice([conv(channels, 1), conv(channels, 3), conv(channels, 5)], name="kind")
        self.last = aw.nn.Optional(conv(channels, 3))
        self.head = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.second(self.first(self.first(self.stem(x))))
        return self.head(self.last(x).mean((2, 3)))


MADE: list[str] = []
"""Devices that large options were made on."""


class Large(nn.Module):
    """An option that is made late."""

    def __init__(self, classes: int, image_channels: int = 1, channels: int = 4) -> None:
        super().__init__()
        self.stem = nn.Conv2d(image_channels, channels, 3, 2)
        self.a = aw.nn.Choice({"small": conv(channels, 3), "large": lambda: self.large(channels)})
        self.head = nn.Linear(channels, classes)

    @staticmethod
    def large(channels: int) -> nn.Module:
        made = conv(channels, 5)
        MADE.append(made[0].weight.device.type)
        return made

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.a(self.stem(x)).mean((2, 3)))


class Loaded(Tiny):
    """Comes with weights, as from a file."""

    def __init__(self, classes: int, image_channels: int = 1, channels: int = 4) -> None:
        super().__init__(classes, image_channels, channels)
        weights = torch.Generator().manual_seed(0)
        state = {key: value for key, value in self.state_dict().items() if value.is_floating_point()}
        made = {key: torch.rand(value.shape, generator=weights, device="cpu") for key, value in state.items()}
        self.load_state_dict(made, strict=False)


def relu_conv(before: int, width: int, kernel: int, stride: int = 1, affine: bool = True) -> nn.Module:
    convolution = nn.Conv2d(before, width, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(nn.ReLU(), convolution, nn.BatchNorm2d(width, affine=affine))


class Cell(nn.Module):
    """Four nodes, an edge from each to every later one; the same edge of all cells is one decision."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.edges = nn.ModuleDict()
        for edge in ("0>1", "0>2", "1>2", "0>3", "1>3", "2>3"):
            options = {
                "none": aw.nn.Zero(),
                "skip_connect": nn.Identity(),
                "nor_conv_1x1": relu_conv(width, width, 1, affine=False),
                "nor_conv_3x3": relu_conv(width, width, 3, affine=False),
                "avg_pool_3x3": nn.AvgPool2d(3, 1, 1, count_include_pad=False),
            }
            self.edges[edge] = aw.nn.Choice(options, name=edge)

    def forward(self, x: Tensor) -> Tensor:
        nodes = [x]
        for target in (1, 2, 3):
            nodes.append(
                reduce(torch.add, (self.edges[f"{source}>{target}"](nodes[source]) for source in range(target)))
            )
        return nodes[-1]


class Halved(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = relu_conv(width, 2 * width, 3, 2), relu_conv(2 * width, 2 * width, 3)
        self.shortcut = nn.Conv2d(width, 2 * width, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x)) + self.shortcut(F.avg_pool2d(x, 2, 2, ceil_mode=True))


class NasBench201(nn.Module):
    """The whole network of that benchmark, as one would write it with choices."""

    def __init__(self, classes: int, image_channels: int = 3, channels: int = 16, cells: int = 1) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(image_channels, channels, 3, 1, 1, bias=False), nn.BatchNorm2d(channels))
        widths = [channels, 2 * channels, 4 * channels]
        self.stages = nn.ModuleList(nn.Sequential(*(Cell(width) for _ in range(cells))) for width in widths)
        self.reductions = nn.ModuleList(Halved(width) for width in widths[:2])
        self.last_norm, self.classifier = nn.BatchNorm2d(widths[-1]), nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stages[0](self.stem(x))
        for reduction, stage in zip(self.reductions, self.stages[1:], strict=True):
            x = stage(reduction(x))
        return self.classifier(torch.relu(self.last_norm(x)).mean((2, 3)))


def load_from_cells(mine: nn.Module, theirs: CellSupernet) -> None:
    """The weights of our supernet of cells in the same network written with choices."""
    network, cells = mine.network, ".cell."
    state = {key: value for key, value in theirs.network.state_dict().items() if cells not in key}
    for place, picked in theirs.network.named_modules():
        if isinstance(picked, Picked):
            for row, edge in enumerate(EDGES):
                for column, name in enumerate(NAMES):
                    if name not in ("none", "skip_connect"):
                        part = f"{place}.edges.{edge[0]}>{edge[1]}.parts.{column}"
                        own = picked.cell.export(row, name)
                        state |= {f"{part}.{key}": value for key, value in own.items()}
    network.load_state_dict(state)
