"""Choices inside your own network: python examples/search_own_network.py"""

# %% [markdown]
# Put a choice where a layer goes. The first option of each is the network as you wrote it, so that it works without any
# search.

# %%
import torch
from torch import nn

import archwright as aw


def conv(width: int, kernel: int) -> nn.Module:
    """Convolution, norm, ReLU."""
    return nn.Sequential(nn.Conv2d(width, width, kernel, 1, kernel // 2), nn.BatchNorm2d(width), nn.ReLU())


class Net(nn.Module):
    """Up to three blocks of either kernel, and a layer that may be left out."""

    def __init__(self, classes: int, image_channels: int = 1, channels: int = 8) -> None:
        super().__init__()
        self.stem = nn.Conv2d(image_channels, channels, 3, padding=1)
        blocks = [aw.nn.Choice({"conv3": conv(channels, 3), "conv5": conv(channels, 5)}) for _ in range(3)]
        self.stage = aw.nn.Depth(blocks, least=1)
        self.extra = aw.nn.Optional(conv(channels, 1))
        self.head = nn.Linear(channels, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images (B, image_channels, H, W) to logits (B, classes)."""
        return self.head(self.extra(self.stage(self.stem(x))).mean((2, 3)))


print("as written:", tuple(Net(10)(torch.zeros(2, 1, 8, 8)).shape))

# %% [markdown]
# A space of all its networks. An architecture is one line of JSON; what is built from it is your class with the chosen
# modules in place of the choices.

# %%
space = aw.ModelSpace(Net)
print(space.size, "networks; as written:", space.as_written())

# %% [markdown]
# Every method searches it. Here a differentiable one, with few epochs.

# %%
short = {"data": "digits", "epochs": 2, "final_epochs": 2}
found = aw.search("rarts", space=space, search_epochs=2, **short)
print("rarts:", found.best.architecture, f"{found.best.accuracy:.1f} %")

# %% [markdown]
# Under a hard latency limit, exactly: `binas` times every part where it stands, fits what every option adds, solves and
# verifies the answer on this machine. Without a limit it takes two inside the reachable range. More epochs give better
# networks, of course.

# %%
found = aw.search("binas", space=space, beside=False, **short)
for model in found.models:
    limit = model.limits["latency_ms"]
    print(f"within {limit:.4f} ms: {model.latency_ms:.4f} ms, {model.accuracy:.1f} %, {model.architecture}")
print("reachable:", *(f"{one:.4f} ms" for one in found.reachable_ms))

# %% [markdown]
# The network is plain PyTorch again.

# %%
model = aw.load_model(found.run)
print(type(model.network.body).__name__, sum(p.numel() for p in model.network.parameters()), "parameters")
