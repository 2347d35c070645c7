"""One image to square 8-bit pixels: orientation, colour, transparency, size. Training and prediction share it."""

from __future__ import annotations

import struct
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from archwright.device import memory_bytes
from archwright.errors import InputError
from archwright.paths import open_plain

# Everything Pillow is known to raise on files that are not, or no longer, images.
BAD_IMAGE = (
    *(OSError, SyntaxError, ValueError, EOFError, struct.error, zlib.error, Image.DecompressionBombError),
    *(TypeError, LookupError, AttributeError, RuntimeError, OverflowError, ZeroDivisionError, MemoryError),
)
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""What is opened, whatever a file is called: Pillow would start Ghostscript for others, and knows forty more."""

MOST_ENLARGED = 32
"""Times a side; more is a slip, and takes minutes."""

# Pillow warns of large photographs, which are no attack, and of what it cannot read, which is an error here anyway. Set
# once: a filter around each call would race with the threads that decode.
warnings.filterwarnings("ignore", module=r"PIL\.")

_GREY_MODES = {"1", "L", "LA", "La", "I", "I;16", "I;16L", "I;16B", "I;16N"}


@contextmanager
def opened(path: Path) -> Iterator[Image.Image]:
    """The image in the plain file ``path``, of one of the :data:`FORMATS`.

    One of more than 179 million pixels is refused by its header (Pillow's own bound).
    """
    with open_plain(path) as file, opened_stream(file) as image:
        yield image


@contextmanager
def opened_stream(file: IO[bytes]) -> Iterator[Image.Image]:
    """As :func:`opened`, of an open ``file``."""
    with Image.open(file, formats=FORMATS) as image:
        yield image


def is_grey(image: Image.Image) -> bool:
    """Whether the image's own mode has no colour."""
    return image.mode in _GREY_MODES


def square_pixels(image: Image.Image, size: int, channels: int) -> NDArray[np.uint8]:
    """Upright, on white where transparent, short side resized to ``size``, centre cropped: (C, size, size).

    Args:
        image: of any size and mode.
        size: pixels a side.
        channels: 1 (grey) or 3 (colour).
    """
    return _planes(ImageOps.fit(_flat(image, channels), (size, size), method=Image.Resampling.BILINEAR), channels)


def _flat(image: Image.Image, channels: int) -> Image.Image:
    """Upright, on white where transparent, in 8-bit grey or colour."""
    upright = ImageOps.exif_transpose(image)
    return _without_alpha(_eight_bit(upright)).convert("L" if channels == 1 else "RGB")


def _planes(image: Image.Image, channels: int) -> NDArray[np.uint8]:
    """The pixels of a grey or colour image, (C, H, W)."""
    pixels = np.asarray(image, dtype=np.uint8)
    return pixels[None] if channels == 1 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def window_pixels(image: Image.Image, window: NDArray[np.float64], size: int, channels: int) -> NDArray[np.uint8]:
    """A part of the image at its own resolution, upright, on white where transparent, resized to (C, size, size).

    A JPEG is decoded no larger than the part needs (its draft mode: by a half, a quarter or an eighth).

    Args:
        image: of any size and mode, not loaded yet.
        window: height and width in short sides of the image, cut where it ends, and where the window begins from above
            and from the left, as a share of the room that it has, (4,).
        size: pixels a side.
        channels: 1 (grey) or 3 (colour).
    """
    short = min(image.size)
    height, width, down, across = window.tolist()
    shrink = short * min(height, width) / size
    if image.format == "JPEG" and shrink >= 2:
        image.draft(image.mode, (int(image.width / shrink), int(image.height / shrink)))
    opaque = _flat(image, channels)
    short = min(opaque.size)
    tall, wide = min(height * short, opaque.height), min(width * short, opaque.width)
    top, left = down * (opaque.height - tall), across * (opaque.width - wide)
    part = opaque.resize((size, size), Image.Resampling.BILINEAR, box=(left, top, left + wide, top + tall))
    return _planes(part, channels)


def resize_arrays(pixels: NDArray[np.uint8], size: int | None) -> NDArray[np.uint8]:
    """Images to (n, C, size, size) the way image files are.

    Args:
        pixels: (n, C, H, W).
        size: pixels a side; None takes the shorter side, so that square images stay as they are.
    """
    channels, height, width = pixels.shape[1:]
    size = min(height, width) if size is None else size
    if height == width == size:
        return pixels
    if size > MOST_ENLARGED * min(height, width):
        smaller = f"an image size of at most {MOST_ENLARGED} times the images' {min(height, width)} px"
        raise InputError(smaller, f"{size} px", "Use a smaller --image-size.")
    if len(pixels) * channels * size * size > memory_bytes() // 2:
        wanted = f"{len(pixels):,} of {size} px"
        raise InputError("images that fit into half of the memory", wanted, "Use a smaller --image-size.")
    resized = np.empty((len(pixels), channels, size, size), dtype=np.uint8)
    for index, planes in enumerate(pixels):
        flat = planes[0] if channels == 1 else np.ascontiguousarray(planes.transpose(1, 2, 0))
        resized[index] = square_pixels(Image.fromarray(flat), size, channels)
    return resized


def _eight_bit(image: Image.Image) -> Image.Image:
    """16-bit grey scaled to 8 bits (Pillow's own conversion would clip it); other modes unchanged."""
    if image.mode == "F":
        raise ValueError("floating-point pixels have no agreed range")
    if image.mode.startswith("I"):
        return Image.fromarray((np.asarray(image).clip(0, 65535) >> 8).astype(np.uint8))
    return image


def _without_alpha(image: Image.Image) -> Image.Image:
    """Transparent pixels hide arbitrary colours: show white instead."""
    if not image.has_transparency_data:
        return image
    coloured = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", coloured.size, "white"), coloured)
