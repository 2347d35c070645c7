"""Your own space of networks and your own training-free metric: python examples/own_space_and_metric.py"""

# %% [markdown]
# A space of networks is a choice of names and a function that builds a torch module. Parameters and
# multiply-accumulates are counted on it, so that limits work, too.

# %%
import numpy as np
import torch
from torch import nn

import archwright as aw
from archwright.proxies.metrics import Proxy
from archwright.proxies.registry import PROXIES


def build(architecture, scale) -> nn.Module:
    """A stack of convolutions for images of ``scale``."""
    width, kernel, layers, channels = architecture["width"], architecture["kernel"], [], scale.image_channels
    for _ in range(architecture["depth"]):
        layers += [nn.Conv2d(channels, width, kernel, padding=kernel // 2), nn.BatchNorm2d(width), nn.ReLU()]
        channels = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, scale.classes))


SPACE = aw.ChoiceSpace({"depth": [1, 2, 3], "width": [4, 8, 16], "kernel": [3, 5]}, build=build)

# %% [markdown]
# A metric says what is summed over the layers: here the norm of the gradient relative to that of the weights. Tensors
# have a leading axis over architectures. `{"loss"}` names the pass that it reads; +1 says that higher is better.


# %%
def relative_gradient(record) -> torch.Tensor:
    """Norm of the layer's gradient over the norm of its weights: (A,)."""
    return record.weight_gradient.flatten(1).norm(dim=1) / record.weight.flatten(1).norm(dim=1)


PROXIES.register("relative-gradient", Proxy("relative-gradient", +1, frozenset({"loss"}), relative_gradient))

rng = np.random.default_rng(0)
drawn = [SPACE.sample(rng) for _ in range(4)]
scores = aw.score(drawn, "digits", ["relative-gradient", "grad", "params"], space=SPACE, batch_size=32)
for number, architecture in enumerate(drawn):
    print(architecture, *(f"{name} {scores[name][number]:.3g}" for name in ("relative-gradient", "grad", "params")))

# %% [markdown]
# A search in that space under a limit, and the network that it trained.

# %%
small = {"epochs": 1, "final_epochs": 2, "evaluations": 2, "batch_size": 64}
found = aw.search("random", space=SPACE, data="digits", limits={"params": 3000}, **small)
print(found.best.architecture, f"{found.best.accuracy:.1f} %, {found.best.params:,} parameters")
network = found.best.load().network
print(network)
