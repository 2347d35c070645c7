from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

torch.set_num_threads(1)


@pytest.fixture
def image_folder(tmp_path: Path) -> Callable[..., Path]:
    """Make a folder of noise PNGs: image_folder({"cat": 5, "dog": 4}, size=(20, 16))."""

    def make(counts: dict[str, int], size: tuple[int, int] = (20, 16), mode: str = "RGB") -> Path:
        rng = np.random.default_rng(0)
        root = tmp_path / "photos"
        for name, count in counts.items():
            (root / name).mkdir(parents=True)
            for index in range(count):
                shape = (size[1], size[0]) if mode == "L" else (size[1], size[0], 3)
                pixels = rng.integers(0, 256, shape, dtype=np.uint8)
                Image.fromarray(pixels).save(root / name / f"{index}.png")
        return root

    return make


@pytest.fixture
def archive(tmp_path: Path) -> Callable[..., str]:
    """Save arrays and give the spec of the file."""

    def make(**arrays: np.ndarray) -> str:
        path = tmp_path / "arrays.npz"
        np.savez(path, **arrays)
        return f"npz:{path}"

    return make
