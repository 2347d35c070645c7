"""Archives of images: the same data as a folder, nothing unpacked, and nothing believed that a header says."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from archwright.data import image_files, load
from archwright.data.request import DataRequest
from archwright.data.tar import braces
from archwright.errors import InputError

Make = Callable[..., Path]


def add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    archive.addfile(info, io.BytesIO(content))


def png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Write an archive of noise, with so many images of each class."""

    def write(name: str, counts: dict[str, int], seed: int = 0) -> Path:
        rng = np.random.default_rng(seed)
        with tarfile.open(tmp_path / name, "w") as archive:
            for label, count in counts.items():
                for number in range(count):
                    add(archive, f"{label}-{number}.png", png(rng.integers(0, 256, (20, 24, 3), dtype=np.uint8)))
                    add(archive, f"{label}-{number}.cls", label.encode())
        return tmp_path / name

    return write


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def test_braces() -> None:
    assert braces("a/{008..010}.tar") == ["a/008.tar", "a/009.tar", "a/010.tar"]
    assert braces("{x,y}-{0..1}") == ["x-0", "x-1", "y-0", "y-1"]
    assert braces("plain.tar") == ["plain.tar"]
    for wrong in ("{5..2}", "{0..99999999}", "{0..999}{0..999}"):
        with pytest.raises(InputError):
            braces(wrong)


def test_archives_hold_what_a_folder_holds(make: Make, tmp_path: Path, cache: Path) -> None:
    first, second = make("000.tar", {"2": 5, "10": 5}), make("001.tar", {"2": 3, "10": 4}, seed=1)
    data = load(f"tar:{tmp_path}/{{000..001}}.tar", cache_dir=cache)
    assert data.class_names == ("2", "10")  # numbers by value
    assert (len(data.train) + len(data.validation) + len(data.test), data.image_size) == (17, 16)
    root = tmp_path / "unpacked"
    for path in (first, second):
        with tarfile.open(path) as archive:
            archive.extractall(root / path.stem, filter="data")
    for part in (data.train, data.validation, data.test):
        for index in range(len(part)):
            name = part.file(index)
            archive_name, _, inside = name.partition("/")
            with Image.open(root / archive_name.removesuffix(".tar") / inside) as image:
                expected = data.preprocess(image)
            assert np.array_equal(data.normalise(part.pixels(np.array([index]))), expected)
            assert data.class_names[part.labels[index]] == inside.partition("-")[0]
    assert DataRequest(f"tar:{tmp_path}/{{000..001}}.tar", 0).needs == (str(first), str(second))


def test_what_is_known_is_kept_until_the_archive_changes(
    make: Make, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make("one.tar", {"a": 6, "b": 6})
    before = load(f"tar:{path}", cache_dir=cache)
    monkeypatch.setattr("archwright.data.tar._read", lambda *_: pytest.fail("it was read through again"))
    again = load(f"tar:{path}", cache_dir=cache)
    assert again.fingerprint == before.fingerprint
    monkeypatch.undo()
    for file in (cache / "indices").iterdir():
        file.write_bytes(file.read_bytes()[:100])
    assert load(f"tar:{path}", cache_dir=cache).fingerprint == before.fingerprint  # damaged: as good as none
    make("one.tar", {"a": 6, "b": 7})
    assert load(f"tar:{path}", cache_dir=cache).fingerprint != before.fingerprint


def test_parts_by_name(make: Make, tmp_path: Path, cache: Path) -> None:
    make("set-train-0.tar", {"a": 6, "b": 6})
    make("set-val-0.tar", {"a": 2, "b": 1}, seed=1)
    make("set-test-0.tar", {"a": 2, "b": 2}, seed=2)
    data = load(f"tar:{tmp_path}/set-{{test,train,val}}-0.tar", cache_dir=cache)
    assert (len(data.train), len(data.validation), len(data.test)) == (12, 3, 4)


def test_streamed_equals_cached(make: Make, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make("one.tar", {"a": 6, "b": 6})
    kept = load(f"tar:{path}", cache_dir=cache)
    monkeypatch.setattr(image_files, "MEMORY_LIMIT_BYTES", 0)
    streamed = load(f"tar:{path}", cache_dir=cache)
    every = np.arange(len(kept.train))
    assert np.array_equal(kept.train.pixels(every), streamed.train.pixels(every))
    assert (kept.fingerprint, kept.preprocessing) == (streamed.fingerprint, streamed.preprocessing)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("c.png", b"", "1 to .* bytes"),
        ("c.png", b"no image", "KEY.cls"),
        ("a-0.cls", b"x" * 2000, "2,000 bytes"),
        ("a-0.cls", b"\xff\xfe", "UTF-8"),
        ("a-0.cls", b"one\x00two", "name of a class"),
        ("a-0.jpg", b"second image of one name", "two for a-0.jpg"),
    ],
)
def test_odd_members_are_refused(make: Make, cache: Path, name: str, content: bytes, message: str) -> None:
    path = make("one.tar", {"a": 6, "b": 6})
    with tarfile.open(path, "a") as archive:
        add(archive, name, content)
    with pytest.raises(InputError, match=message):
        load(f"tar:{path}", cache_dir=cache)


def test_a_damaged_image_is_named_or_skipped(make: Make, cache: Path) -> None:
    path = make("one.tar", {"a": 6, "b": 6})
    with tarfile.open(path, "a") as archive:
        add(archive, "bad.png", b"nothing")
        add(archive, "bad.cls", b"a")
    for _ in range(2):  # also when the index is kept
        with pytest.raises(InputError, match=r"one\.tar: bad\.png \(not an image\)"):
            load(f"tar:{path}", cache_dir=cache)
    assert load(f"tar:{path}", skip_bad=True, cache_dir=cache).skipped == ("one.tar/bad.png",)


def test_links_and_claims_of_an_archive_are_not_followed(make: Make, tmp_path: Path, cache: Path) -> None:
    path = make("one.tar", {"a": 6, "b": 6})
    (tmp_path / "secret.png").write_bytes(png(np.zeros((20, 24, 3), np.uint8)))
    with tarfile.open(path, "a") as archive:
        link = tarfile.TarInfo("c.png")
        link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path / "secret.png")
        archive.addfile(link)
    assert len(load(f"tar:{path}", cache_dir=cache).train) == 8
    content = bytearray(path.read_bytes())
    with tarfile.open(path) as archive:
        last = archive.getmembers()[-3]
    content[last.offset + 124 : last.offset + 136] = b"77777777777\0"  # bytes that the file does not have
    checksum = (
        sum(content[last.offset : last.offset + 148]) + 8 * 32 + sum(content[last.offset + 156 : last.offset + 512])
    )
    content[last.offset + 148 : last.offset + 156] = b"%06o\0 " % checksum
    path.write_bytes(bytes(content))
    with pytest.raises(InputError):
        load(f"tar:{path}", cache_dir=cache)


def test_what_is_no_archive_is_refused(tmp_path: Path, cache: Path, make: Make) -> None:
    (tmp_path / "text.tar").write_text("words " * 1000)
    (tmp_path / "empty.tar").touch()
    with tarfile.open(tmp_path / "packed.tar", "w:gz") as archive:
        add(archive, "a.cls", b"1")
    for name in ("text", "empty", "packed", "absent"):
        with pytest.raises(InputError):
            load(f"tar:{tmp_path / name}.tar", cache_dir=cache)
    with pytest.raises(InputError, match="Write tar:"):
        load(str(make("bare.tar", {"a": 3, "b": 3})))
