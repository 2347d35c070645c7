from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from PIL import Image

from archwright.data import Preprocessing
from archwright.errors import InputError

COLOUR = Preprocessing(4, 3, (0.5, 0.25, 0.0), (0.5, 0.25, 1.0), ("a", "b"))


def test_normalise_by_hand() -> None:
    pixels = torch.tensor([255, 0, 51], dtype=torch.uint8).view(1, 3, 1, 1)
    assert COLOUR.normalise(pixels).flatten().tolist() == pytest.approx([1.0, -1.0, 0.2])


def test_any_image_becomes_one_input() -> None:
    x = COLOUR.preprocess(Image.fromarray(np.full((9, 17), 255, np.uint8)))
    assert x.shape == (1, 3, 4, 4)
    assert x.dtype == torch.float32
    assert x[0, :, 0, 0].tolist() == pytest.approx([1.0, 3.0, 1.0])


def test_survives_json() -> None:
    assert Preprocessing.from_dict(json.loads(json.dumps(COLOUR.to_dict()))) == COLOUR


def test_bad_metadata_is_refused() -> None:
    with pytest.raises(InputError, match="std"):
        Preprocessing.from_dict({k: v for k, v in COLOUR.to_dict().items() if k != "std"})
    with pytest.raises(InputError, match="2 means"):
        Preprocessing(4, 3, (0.5, 0.5), (1.0, 1.0, 1.0), ())


def test_the_steps_in_words_are_what_is_done() -> None:
    """Written again from ``steps()`` alone, with Pillow and NumPy."""
    rng = np.random.default_rng(0)
    image = Image.fromarray(rng.integers(0, 256, (9, 13, 4), dtype=np.uint8))  # transparent in places
    white = Image.new("RGBA", image.size, "white")
    flat = Image.alpha_composite(white, image).convert("RGB")
    square = flat.resize((4, 4), Image.Resampling.BILINEAR, box=(2, 0, 11, 9))
    unit = np.asarray(square, dtype=np.float64) / 255
    expected = ((unit - COLOUR.mean) / COLOUR.std).transpose(2, 0, 1)[None]
    np.testing.assert_allclose(COLOUR.preprocess(image).numpy(), expected, atol=1e-6)
    said = " ".join(COLOUR.steps())
    for word in ("EXIF", "white", "RGB", "crop", "4 x 4", "bilinear", "255", "mean", "std"):
        assert word in said


def test_files_of_before_pretrained_starts_are_read() -> None:
    """They do not say whether images are turned."""
    how = Preprocessing(8, 1, (0.5,), (0.25,), ("a", "b"))
    assert Preprocessing.from_dict({k: v for k, v in how.to_dict().items() if k != "turned"}) == how
