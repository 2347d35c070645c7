"""A network of one's own that has learned: EfficientNet-Lite0, fine-tuned on a folder of images and saved.

    python examples/photo_folder.py photos
    python examples/trained_network.py photos
    archwright search rarts-width --network examples/trained_network.py:build --data folder:photos --keep-macs 0.65

The first command after the photographs trains for a minute and saves ``trained_network.safetensors`` beside this file.
``build`` is what Archwright calls: it returns the network with those weights, and says how it wants to see images by an
attribute ``preprocessing``. Your own network needs no more than that. Only the images that a search with seed 0 trains
on are trained on here: a network that has seen the test images would seem better than it is.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from archwright.data import Augmentation, Batches, load
from archwright.pretrained import load_start
from archwright.pretrained.starts import STARTS

FILE = Path(__file__).with_suffix(".safetensors")
NAME, IMAGE_SIZE = "efficientnet-lite0", 64
EPOCHS, BATCH, RATE = 10, 32, 5e-4


def network_of(classes: int) -> nn.Module:
    """Lite0 for so many classes, which says how it was trained."""
    network: nn.Module = STARTS[NAME].network(classes, IMAGE_SIZE)
    start = STARTS[NAME]
    network.preprocessing = {  # type: ignore[assignment]
        "mean": start.mean,
        "std": start.std,
        "image_size": IMAGE_SIZE,
        "turned": start.turned,
    }
    return network


def build(classes: int) -> nn.Module:
    """The trained network."""
    if not FILE.is_file():
        raise FileNotFoundError(f"no {FILE.name}: train it first, with: python examples/trained_network.py FOLDER")
    with safe_open(FILE, "pt") as file:
        names = json.loads(file.metadata()["classes"])
        state = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - no mapping
    if len(names) != classes:
        raise ValueError(f"trained for {len(names)} classes ({', '.join(names)}), asked for {classes}")
    network = network_of(classes)
    network.load_state_dict(state)
    return network


def fine_tune(folder: str, epochs: int) -> None:
    """Train on the train part of the folder, and save."""
    torch.manual_seed(0)
    data = load(f"folder:{folder}", image_size=IMAGE_SIZE)
    if data.image_channels != 3:
        raise SystemExit(f"expected colour images in {folder}, got grey ones: {NAME} was trained on photographs.")
    start = load_start(NAME)
    network = network_of(data.classes)
    network.load_state_dict(start.network(data.classes, IMAGE_SIZE).state_dict())
    how = network.preprocessing
    mean, std = (torch.tensor(how[name]).view(1, 3, 1, 1) for name in ("mean", "std"))
    own_mean, own_std = (torch.tensor(one).view(1, 3, 1, 1) for one in (data.mean, data.std))
    batches = Batches(data, "train", min(BATCH, len(data.train)), augment=Augmentation(crop=4, flip=True))
    adam = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(adam, RATE, total_steps=epochs * len(batches))
    for epoch in range(epochs):
        for step in range(len(batches)):
            images, labels = batches.get(epoch, step)
            images = ((images * own_std + own_mean - mean) / std).flip(2, 3)  # as the network was trained
            network.train()
            for module in network.modules():
                if isinstance(module, nn.BatchNorm2d):
                    module.eval()  # the statistics it came with
            loss = F.cross_entropy(network(images), labels, label_smoothing=0.1)
            adam.zero_grad()
            loss.backward()
            adam.step()
            schedule.step()
        print(f"epoch {epoch + 1} of {epochs}: loss {float(loss.detach()):.3f}")
    state = {name: tensor.contiguous() for name, tensor in network.state_dict().items()}
    save_file(state, FILE, metadata={"classes": json.dumps(data.class_names)})
    print(f"{FILE.name}: {len(data.train)} images of {data.classes} classes ({', '.join(data.class_names)})")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Fine-tune EfficientNet-Lite0 on a folder of images, and save it.")
    parser.add_argument("folder", help="images, one sub-folder a class")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="passes over the training images")
    chosen = parser.parse_args()
    fine_tune(chosen.folder, chosen.epochs)


if __name__ == "__main__":
    main()
