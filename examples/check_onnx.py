"""Recompute the accuracy of an exported ONNX file, float or int8, from what the file itself says.

Nothing of Archwright is imported: the metadata of the file have the image size, the normalisation, the class names, the
steps from an image to an input, and the files it was tested on. So this is also how to use such a file elsewhere.

    archwright search binas --data folder:photos --latency-ms 1
    python examples/check_onnx.py runs/.../artifacts/model-1.onnx photos

Without a list of files in the metadata (a data set with a test folder of its own, or more than 2,000 images) all images
below the folder are taken: give the folder with the test images, one sub-folder a class.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

ENDINGS = {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp"}


def network_input(path: Path, known: dict[str, Any]) -> np.ndarray:
    """An image as the network is to see it: float32 (1, channels, size, size)."""
    image = ImageOps.exif_transpose(Image.open(path))
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        over = Image.new("RGBA", image.size, "white")
        over.alpha_composite(image.convert("RGBA"))
        image = over
    image = image.convert("L" if len(known["mean"]) == 1 else "RGB")
    size, side = known["image_size"], min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    square = image.crop((left, top, left + side, top + side)).resize((size, size), Image.Resampling.BILINEAR)
    pixels = np.asarray(square, dtype=np.float32).reshape(size, size, -1) / 255
    pixels = (pixels - np.array(known["mean"], np.float32)) / np.array(known["std"], np.float32)
    if known["turned"]:
        pixels = pixels[::-1, ::-1]
    return np.ascontiguousarray(pixels.transpose(2, 0, 1)[None], dtype=np.float32)


def metadata(session: onnxruntime.InferenceSession) -> dict[str, Any]:
    """What the file says of itself."""
    found = session.get_modelmeta().custom_metadata_map
    return {name: json.loads(text) for name, text in found.items()}


def labels_of(path: Path, folder: Path) -> tuple[Any, dict[str, Any], list[Path], list[str]]:
    """The session, the metadata, the files that are tested and the class that the network gives each of them."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    known = metadata(session)
    listed = known["archwright"]["measured"].get("test_files")
    files = [folder / name for name in listed] if listed else sorted(folder.rglob("*"))
    files = [one for one in files if one.suffix.lower() in ENDINGS]
    answers = []
    for one in files:
        (logits,) = session.run(None, {"images": network_input(one, known)})
        answers.append(known["class_names"][int(logits[0].argmax())])
    return session, known, files, answers


def main() -> None:
    """Print the accuracy, and what the file says it has."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="the ONNX file")
    parser.add_argument("folder", type=Path, help="the folder of images that was searched on")
    asked = parser.parse_args()
    _, known, files, answers = labels_of(asked.file, asked.folder)
    right = [one.parent.name == answer for one, answer in zip(files, answers, strict=True)]
    facts = known["archwright"]["measured"]
    print(f"{facts.get('precision', 'fp32')} network for {known['image_size']} px images of {known['class_names']}")
    print(f"{100 * np.mean(right):.4f} % of {len(files)} images are classified right")
    print(f"{facts['accuracy']:.4f} % is what the file says ({facts['accuracy_on']})")


if __name__ == "__main__":
    main()
