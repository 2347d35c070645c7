from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from archwright.data import image_files, load
from archwright.data.images import opened, square_pixels
from archwright.errors import InputError


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def test_classes_sizes_and_counts(image_folder) -> None:
    data = load(f"folder:{image_folder({'dog': 10, 'cat': 10}, size=(40, 50))}")
    assert data.class_names == ("cat", "dog")
    assert (data.image_size, data.image_channels) == (32, 3)
    assert (len(data.train), len(data.validation), len(data.test)) == (12, 4, 4)
    assert "32x32" in data.describe()


@pytest.mark.parametrize(
    ("median", "size"), [(5, 8), (8, 8), (20, 16), (32, 32), (63, 32), (64, 64), (100, 96), (200, 128), (3000, 224)]
)
def test_default_size_is_the_largest_not_above_the_median(median: int, size: int) -> None:
    assert image_files.default_size([median - 3, median, median + 500]) == size


def test_grey_folders_have_one_channel_unless_one_image_is_coloured(image_folder) -> None:
    root = image_folder({"a": 5, "b": 5}, mode="L")
    assert load(f"folder:{root}").image_channels == 1
    Image.new("RGB", (16, 16), "red").save(root / "a" / "z.png")
    assert load(f"folder:{root}").image_channels == 3


def test_orientation_is_followed(tmp_path: Path) -> None:
    pixels = np.zeros((16, 16, 3), np.uint8)
    pixels[:8] = 255  # white above, black below
    exif = Image.Exif()
    exif[0x0112] = 6  # shown turned by a quarter clockwise: what was above is now right
    Image.fromarray(pixels).save(tmp_path / "turned.png", exif=exif)
    with Image.open(tmp_path / "turned.png") as image:
        shown = square_pixels(image, 16, 3)
    assert (shown[:, :, 8:] == 255).all()
    assert (shown[:, :, :8] == 0).all()


def test_long_side_is_cropped_around_the_centre() -> None:
    pixels = np.zeros((8, 24), np.uint8)
    pixels[:, 8:16] = 200
    assert (square_pixels(Image.fromarray(pixels), 8, 1) == 200).all()
    assert (square_pixels(Image.fromarray(pixels.T.copy()), 8, 1) == 200).all()


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (Image.new("L", (8, 8), 77), (77, 77, 77)),
        (Image.new("RGB", (8, 8), (1, 2, 3)), (1, 2, 3)),
        (Image.new("RGBA", (8, 8), (9, 9, 9, 0)), (255, 255, 255)),
        (Image.new("RGBA", (8, 8), (9, 8, 7, 255)), (9, 8, 7)),
        (Image.new("LA", (8, 8), (40, 255)), (40, 40, 40)),
        (Image.new("RGB", (8, 8), (255, 0, 0)).quantize(4), (255, 0, 0)),
        (Image.new("1", (8, 8), 1), (255, 255, 255)),
        (Image.fromarray(np.full((8, 8), 0x4080, np.uint16)), (0x40, 0x40, 0x40)),
        (Image.new("CMYK", (8, 8), (0, 0, 0, 0)), (255, 255, 255)),
    ],
)
def test_every_mode_becomes_colour(image: Image.Image, expected: tuple[int, int, int]) -> None:
    assert [set(channel.ravel().tolist()) for channel in square_pixels(image, 4, 3)] == [{v} for v in expected]


def test_streamed_equals_cached(image_folder, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = f"folder:{image_folder({'a': 8, 'b': 9}, size=(33, 21))}"
    cached = load(spec)
    monkeypatch.setattr(image_files, "MEMORY_LIMIT_BYTES", 0)
    streamed = load(spec)
    assert cached.train._source.in_memory
    assert not streamed.train._source.in_memory
    assert streamed.fingerprint == cached.fingerprint
    assert streamed.preprocessing == cached.preprocessing
    every = np.arange(len(cached.train))
    assert np.array_equal(streamed.train.pixels(every), cached.train.pixels(every))
    assert streamed.train.pixels(np.array([], dtype=np.int64)).shape == (0, 3, 16, 16)


def test_prediction_treats_a_file_as_training_did(image_folder) -> None:
    root = image_folder({"a": 5, "b": 5}, size=(40, 25))
    data = load(f"folder:{root}")
    files = sorted(root.rglob("*.png"))
    with Image.open(files[data.train.indices[2]]) as image:
        assert np.array_equal(data.preprocess(image), data.normalise(data.train.pixels(np.array([2]))))


def test_truncated_image_is_named_or_skipped(image_folder) -> None:
    root = image_folder({"a": 5, "b": 5})
    truncate(root / "b" / "3.png")
    (root / "a" / "notes.txt").write_text("not an image, not looked at")
    with pytest.raises(InputError, match=r"3\.png") as caught:
        load(f"folder:{root}")
    assert "skip_bad" in caught.value.do
    data = load(f"folder:{root}", skip_bad=True)
    assert data.skipped == ("b/3.png",)
    assert "1 bad images skipped" in data.describe()
    assert len(data.train) + len(data.validation) + len(data.test) == 9


def test_truncated_jpeg_is_caught_by_the_full_decode(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in "ab":
        (tmp_path / name).mkdir()
        for i in range(4):
            Image.fromarray(rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(tmp_path / name / f"{i}.jpg")
    truncate(tmp_path / "a" / "1.jpg")
    with pytest.raises(InputError, match=r"1\.jpg"):
        load(f"folder:{tmp_path}")
    assert load(f"folder:{tmp_path}", skip_bad=True).skipped == ("a/1.jpg",)


def test_file_damaged_after_loading_is_named_when_streamed(image_folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_files, "MEMORY_LIMIT_BYTES", 0)
    root = image_folder({"a": 5, "b": 5})
    data = load(f"folder:{root}")
    truncate(root / "a" / "0.png")
    part = next(part for part in (data.train, data.validation, data.test) if 0 in part.indices)
    with pytest.raises(InputError, match=r"0\.png"):
        part.pixels(np.arange(len(part)))


def test_unusable_folders_are_refused(image_folder, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="existing folder"):
        load(f"folder:{tmp_path / 'absent'}")
    with pytest.raises(InputError, match="at least two sub-folders"):
        load(f"folder:{tmp_path}")
    root = image_folder({"only": 5})
    with pytest.raises(InputError, match="only"):
        load(f"folder:{root}")
    (root / "empty").mkdir()
    with pytest.raises(InputError, match=r"none in .*empty"):
        load(f"folder:{root}")
    Image.new("RGB", (16, 16)).save(root / "empty" / "one.png")
    with pytest.raises(InputError, match="'empty' has 1"):
        load(f"folder:{root}")


def test_split_folders_are_not_taken_for_classes(image_folder) -> None:
    with pytest.raises(InputError, match="two sub-folders"):
        load(f"folder:{image_folder({'train': 3, 'test': 3})}")


def test_official_parts_of_a_folder_are_kept(image_folder) -> None:
    root = image_folder({"train/cat": 10, "train/dog": 10, "test/cat": 3, "test/dog": 2})
    data = load(f"folder:{root}", seed=4, split=(80, 20))
    assert (len(data.train), len(data.validation), len(data.test)) == (16, 4, 5)
    assert data.class_names == ("cat", "dog")
    assert data.test.labels.tolist() == [0, 0, 0, 1, 1]
    with Image.open(root / "test" / "dog" / "1.png") as image:
        assert np.array_equal(data.test.pixels(np.array([4])).numpy()[0], square_pixels(image, 16, 3))


def test_an_official_validation_part_is_kept_too(image_folder) -> None:
    root = image_folder({f"{part}/{name}": 4 for part in ("Train", "val", "test") for name in ("a", "b")})
    data = load(f"folder:{root}")
    assert (len(data.train), len(data.validation), len(data.test)) == (8, 8, 8)
    with pytest.raises(InputError, match="no shares"):
        load(f"folder:{root}", split=(80, 20))


def test_official_parts_are_counted_without_bad_images(image_folder) -> None:
    root = image_folder({f"{part}/{name}": 6 for part in ("train", "test") for name in ("a", "b")})
    for part in ("train", "test"):
        (root / part / "a" / "0.png").write_bytes(b"nothing")
    data = load(f"folder:{root}", skip_bad=True)
    assert len(data.train) + len(data.validation) == 11
    assert len(data.test) == 11
    assert set(data.skipped) == {"train/a/0.png", "test/a/0.png"}


@pytest.mark.parametrize(
    "counts",
    [
        {"train/a": 4, "train/b": 4, "test/a": 2, "test/zebra": 2},
        {"test/a": 4, "val/b": 4},
        {"train/a": 4, "train/b": 4},
        {"train/a": 4, "train/b": 4, "test": 2},
        {"train/a": 4, "test/a": 2},
    ],
)
def test_odd_official_parts_are_refused(image_folder, counts: dict[str, int]) -> None:
    with pytest.raises(InputError):
        load(f"folder:{image_folder(counts)}")


def test_folder_of_nothing_but_bad_images_is_refused_even_when_skipping(image_folder) -> None:
    root = image_folder({"a": 2, "b": 2})
    for path in root.rglob("*.png"):
        path.write_text("text")
    with pytest.raises(InputError, match=r"a/0\.png.*b/1\.png.*--skip-bad"):
        load(f"folder:{root}", skip_bad=True)


EPS = b"""%!PS-Adobe-3.0 EPSF-3.0
%%BoundingBox: 0 0 8 8
%%EndComments
showpage
%%EOF
"""


def test_a_format_that_is_not_ours_is_no_image_whatever_it_is_called(image_folder, tmp_path: Path) -> None:
    """Pillow hands an EPS file to Ghostscript, a program that obeys it."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "gs").write_text(f"#!/bin/sh\ntouch {tmp_path / 'started'}\n")
    (tools / "gs").chmod(0o755)
    root = image_folder({"a": 5, "b": 5})
    (root / "a" / "drawn.png").write_bytes(EPS)
    code = f"import archwright.data; archwright.data.load('folder:{root}')"
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert "drawn.png (not an image)" in done.stderr
    assert not (tmp_path / "started").exists()


def test_a_pipe_in_place_of_an_image_is_not_waited_for(image_folder) -> None:
    root = image_folder({"a": 5, "b": 5})
    os.mkfifo(root / "a" / "endless.png")
    with pytest.raises(InputError, match="a pipe"):
        load(f"folder:{root}")
    assert load(f"folder:{root}", skip_bad=True).skipped == ("a/endless.png",)


@pytest.mark.parametrize("kind", ["BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP"])
def test_every_format_of_ours_is_read(kind: str, tmp_path: Path) -> None:
    Image.new("RGB", (9, 7), (10, 200, 30)).save(tmp_path / "image", format=kind)
    with opened(tmp_path / "image") as image:
        assert square_pixels(image, 4, 3).shape == (3, 4, 4)
