"""A folder of photographs to try a search on: 4 classes of 150 JPEG files from the CIFAR-10 subset in ARCHWRIGHT_DATA.

    python examples/photo_folder.py photos
    archwright search binas --data folder:photos --latency-ms 2 --latency-ms 4 --minutes 5

The images are 32 px; they are enlarged to 96 px (bicubic) and saved at quality 92, so that they look to a program like
small photographs. The first 150 images of each of the first four classes are taken, in the order of the file.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = 4
EACH = 150
SIDE = 96
QUALITY = 92


def write_photos(archive: Path, folder: Path) -> int:
    """Write the files, one sub-folder a class; returns how many."""
    with np.load(archive) as data:
        images, labels, names = data["x_train"], data["y_train"].ravel(), data["class_names"].tolist()
    for label in range(CLASSES):
        place = folder / str(names[label])
        place.mkdir(parents=True, exist_ok=True)
        for number, index in enumerate(np.flatnonzero(labels == label)[:EACH]):
            photo = Image.fromarray(images[index]).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
            photo.save(place / f"{number:03d}.jpg", quality=QUALITY)
    return CLASSES * EACH


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Write a folder of photographs to try a search on.")
    parser.add_argument("folder", type=Path, help="where to write; one sub-folder a class")
    chosen = parser.parse_args()
    archive = Path(os.environ.get("ARCHWRIGHT_DATA", "../shared/data")) / "cifar10_10k2k.npz"
    if not archive.is_file():
        parser.error(f"expected the CIFAR-10 subset, got no file {archive}. Set ARCHWRIGHT_DATA to its folder.")
    count = write_photos(archive, chosen.folder)
    print(f"{count} photographs in {chosen.folder}")


if __name__ == "__main__":
    main()
