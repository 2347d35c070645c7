"""A folder of images to try a search on: 4 classes of 150 JPEG files from an archive of CIFAR-10's form.

The archive is ``--from FILE.npz`` or the subset in ARCHWRIGHT_DATA; without either the embedded digits are written.

    python examples/photo_folder.py photos --from cifar10_10k2k.npz
    python examples/photo_folder.py digits --digits     # handwritten digits, which need no file
    archwright search binas --data folder:photos --latency-ms 2 --latency-ms 4 --minutes 5

The images are 32 px; they are enlarged to 96 px (bicubic) and saved at quality 92, so that they look to a program like
small photographs. The first 150 images of each of the first four classes are taken, in the order of the file. The
digits are scikit-learn's 1,797 in ten classes, 8 px, as PNG files.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

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


def write_digits(folder: Path) -> int:
    """The same with the embedded digits."""
    digits = load_digits()
    for number, (pixels, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        place = folder / str(label)
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray((pixels * 255 / 16).astype(np.uint8)).save(place / f"{number:04d}.png")
    return len(digits.images)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Write a folder of images to try a search on.")
    parser.add_argument("folder", type=Path, help="where to write; one sub-folder a class")
    parser.add_argument("--digits", action="store_true", help="handwritten digits instead of photographs")
    parser.add_argument("--from", dest="archive", type=Path, help="npz file with x_train, y_train and class_names")
    chosen = parser.parse_args()
    if chosen.digits:
        print(f"{write_digits(chosen.folder)} images in {chosen.folder}")
        return
    named = os.environ.get("ARCHWRIGHT_DATA")
    archive = chosen.archive or (Path(named) / "cifar10_10k2k.npz" if named else None)
    if archive is None:
        print(f"{write_digits(chosen.folder)} digits in {chosen.folder} (photographs: --from FILE.npz)")
        return
    if not archive.is_file():
        parser.error(f"expected an archive of images, got no file {archive}. Give another one, or --digits.")
    count = write_photos(archive, chosen.folder)
    print(f"{count} photographs in {chosen.folder}")


if __name__ == "__main__":
    main()
