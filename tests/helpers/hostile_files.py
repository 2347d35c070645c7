"""Good files to be made bad: the smallest model, a user's own network, and things that are no plain files."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from archwright.data.preprocessing import Preprocessing
from archwright.models import Model
from archwright.spaces.base import Scale
from archwright.spaces.nasbench201 import NASBENCH201

NET = """
from pathlib import Path
import torch
Path({mark!r}).write_text("it ran")

def make(classes, image_channels):
    return torch.nn.Sequential(
        torch.nn.Conv2d(image_channels, 4, 3, padding=1), torch.nn.ReLU(),
        torch.nn.Conv2d(4, 6, 3, padding=1), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(),
        torch.nn.Linear(6, classes),
    )
"""


def saved_model(path: Path) -> Model:
    """A small network of a space of ours, with two classes of 8 px grey images."""
    scale = Scale(channels=2, cells=1, classes=2, image_size=8, image_channels=1)
    cell = NASBENCH201.parse("|none~0|+|none~0|none~1|+|nor_conv_1x1~0|none~1|none~2|")
    model = Model(
        NASBENCH201.build(cell, scale), "nasbench201", cell, scale, Preprocessing(8, 1, (0.5,), (0.2,), ("a", "b"))
    )
    model.save(path)
    return model


KINDS = ("a link", "a link to nothing", "a folder", "a pipe", "a device", "a socket")


def make_odd(path: Path, kind: str) -> Path:
    """Something else than a plain file at ``path``; a link leads to the file ``elsewhere`` beside it."""
    if kind == "a link":
        (path.parent / "elsewhere").write_text("precious")
        path.symlink_to(path.parent / "elsewhere")
    elif kind == "a link to nothing":
        path.symlink_to(path.parent / "nothing")
    elif kind == "a folder":
        path.mkdir()
    elif kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a device":
        if os.geteuid() != 0:
            pytest.skip("only root makes devices")
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 7))  # a /dev/full of our own
    else:
        here = Path.cwd()
        os.chdir(path.parent)  # names of sockets are short
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
        os.chdir(here)
    return path
