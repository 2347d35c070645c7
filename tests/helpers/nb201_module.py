"""A plain NAS-Bench-201 network, written independently of the package, as the oracle of the stacked program."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

EDGES = ((0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3))


def relu_conv_bn(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(nn.ReLU(), conv, nn.BatchNorm2d(outputs))


class Cell(nn.Module):
    def __init__(self, operations: Sequence[int], width: int) -> None:
        super().__init__()
        makers = {
            1: nn.Identity,
            2: lambda: relu_conv_bn(width, width, 1),
            3: lambda: relu_conv_bn(width, width, 3),
            4: lambda: nn.AvgPool2d(3, 1, 1, count_include_pad=False),
        }
        self.edges = nn.ModuleDict(
            {f"{s}{t}": makers[int(o)]() for (s, t), o in zip(EDGES, operations, strict=True) if o}
        )

    def forward(self, x: Tensor) -> Tensor:
        nodes = [x, torch.zeros_like(x), torch.zeros_like(x), torch.zeros_like(x)]
        for source, target in EDGES:
            if f"{source}{target}" in self.edges:
                nodes[target] = nodes[target] + self.edges[f"{source}{target}"](nodes[source])
        return nodes[3]


class Reduction(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = relu_conv_bn(width, 2 * width, 3, 2)
        self.second = relu_conv_bn(2 * width, 2 * width, 3)
        self.shortcut = nn.Sequential(nn.AvgPool2d(2, 2), nn.Conv2d(width, 2 * width, 1, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        return self.shortcut(x) + self.second(self.first(x))


class Network(nn.Module):
    def __init__(self, operations: Sequence[int], channels: int = 4, cells: int = 1, classes: int = 10) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, channels, 3, 1, 1, bias=False), nn.BatchNorm2d(channels)]
        for stage in range(3):
            if stage:
                layers.append(Reduction(channels * 2 ** (stage - 1)))
            layers += [Cell(operations, channels * 2**stage) for _ in range(cells)]
        width = 4 * channels
        layers += [nn.BatchNorm2d(width), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes)]
        self.layers = nn.Sequential(*layers)

    def blocks(self) -> list[nn.Module]:
        return [self.layers[1], *(one for one in self.layers if isinstance(one, Cell | Reduction))]

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


def layer_names(model: Network, cells: int) -> dict[str, str]:
    """Module path of each convolution or linear layer -> the name the stacked program draws its weight by."""
    names = {"layers.0": "stem"}
    index = 2
    for stage in range(3):
        if stage:
            for part, inner in (("first", "first.1"), ("second", "second.1"), ("shortcut", "shortcut.1")):
                names[f"layers.{index}.{inner}"] = f"reduction{stage}.{part}"
            index += 1
        for number in range(cells):
            for source, target in EDGES:
                for kernel in (1, 3):
                    path = f"layers.{index}.edges.{source}{target}.1"
                    names[f"{path}/{kernel}"] = f"cell{stage}.{number}.node{source}.to{target}.conv{kernel}"
            index += 1
    found = {}
    for path, module in model.named_modules():
        if isinstance(module, nn.Linear):
            found[path] = "classifier"
        elif isinstance(module, nn.Conv2d):
            found[path] = names.get(path) or names[f"{path}/{module.kernel_size[0]}"]
    return found


@torch.no_grad()
def with_weights(model: Network, weights, cells: int) -> Network:
    """Give ``model`` the weights the stacked program would draw."""
    modules = dict(model.named_modules())
    for path, name in layer_names(model, cells).items():
        layer = modules[path]
        shape = tuple(layer.weight.shape)
        layer.weight.copy_(weights(name, shape if len(shape) == 4 else (*shape, 1, 1)).view(shape))
        if layer.bias is not None:
            layer.bias.zero_()
    return model
