from __future__ import annotations

import gzip
import io
import struct
import tarfile
from pathlib import Path

import numpy as np
import pooch
import pytest

from archwright.data import load, sources
from archwright.data.downloads import RemoteFile
from archwright.errors import InputError


def test_digits_facts() -> None:
    data = load("digits")
    whole = np.concatenate(
        [part.pixels(np.arange(len(part))).numpy() for part in (data.train, data.validation, data.test)]
    )
    assert whole.shape == (1797, 1, 8, 8)
    assert whole.dtype == np.uint8
    assert (whole.min(), whole.max()) == (0, 255)
    assert len(np.unique(whole)) == 17
    assert data.class_names == tuple("0123456789")


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def test_idx_parser(tmp_path: Path) -> None:
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(idx(array)))
    assert np.array_equal(sources.read_idx(path), array)


@pytest.mark.parametrize(
    "content",
    [
        b"not gzip",
        gzip.compress(b""),
        gzip.compress(b"\0\0\x0d\1\0\0\0\1\0"),
        gzip.compress(idx(np.zeros(9, np.uint8))[:-1]),
        gzip.compress(b"\0\0\x08\3\0\0"),
        gzip.compress(bytes(100))[:-9],
    ],
    ids=["not gzip", "empty", "wrong type", "too short", "cut header", "cut gzip"],  # gzip's bytes hold the time
)
def test_idx_parser_refuses(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(content)
    with pytest.raises(InputError):
        sources.read_idx(path)


def test_fashion_mnist_from_the_cache_with_official_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    monkeypatch.setattr(sources, "DEBIAN_FASHION", tmp_path / "absent")
    (tmp_path / "fashion-mnist").mkdir()
    for prefix, count in (("train", 100), ("t10k", 20)):
        images = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = (np.arange(count) % 10).astype(np.uint8)
        for name, array in ((f"{prefix}-images-idx3-ubyte.gz", images), (f"{prefix}-labels-idx1-ubyte.gz", labels)):
            path = tmp_path / "fashion-mnist" / name
            path.write_bytes(gzip.compress(idx(array)))
            monkeypatch.setitem(sources._FASHION_MD5, name, pooch.file_hash(str(path), alg="md5"))
    data, other = load("fashion-mnist", cache_dir=tmp_path), load("fashion-mnist", cache_dir=tmp_path, seed=5)
    assert (len(data.train), len(data.validation), len(data.test)) == (80, 20, 20)
    assert np.array_equal(data.test.indices, other.test.indices)
    assert np.array_equal(data.test.pixels(np.arange(20)).numpy()[:, 0], images)
    assert not np.array_equal(data.validation.indices, other.validation.indices)


def cifar_archive(path: Path, files: dict[str, bytes]) -> RemoteFile:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(f"inside/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return RemoteFile(path.name, "https://nowhere.invalid/x", pooch.file_hash(str(path), alg="md5"))


def records(labels: np.ndarray, images: np.ndarray, coarse: bool = False) -> bytes:
    head = [np.zeros_like(labels), labels] if coarse else [labels]
    return np.concatenate([np.stack(head, 1), images.reshape(len(images), -1)], 1).astype(np.uint8).tobytes()


def test_cifar10_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (40, 3, 32, 32), dtype=np.uint8)
    labels = np.arange(40) % 4
    files = {f"data_batch_{i + 1}.bin": records(labels[i * 6 : i * 6 + 6], images[i * 6 : i * 6 + 6]) for i in range(5)}
    files |= {"test_batch.bin": records(labels[30:], images[30:]), "batches.meta.txt": b"ant\nbee\ncat\ndog\n\n"}
    monkeypatch.setattr(sources, "CIFAR10", cifar_archive(tmp_path / "c10.tar.gz", files))
    data = load("cifar10", cache_dir=tmp_path)
    assert data.class_names == ("ant", "bee", "cat", "dog")
    assert np.array_equal(data.test.pixels(np.arange(10)).numpy(), images[30:])
    assert np.array_equal(data.test.labels, labels[30:])
    assert np.array_equal(data.train.pixels(np.arange(3)).numpy(), images[data.train.indices[:3]])


def test_cifar100_reads_the_fine_label(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images, labels = np.zeros((12, 3, 32, 32), np.uint8), np.arange(12) % 3
    files = {"train.bin": records(labels, images, True), "test.bin": records(labels[:3], images[:3], True)}
    remote = cifar_archive(tmp_path / "c100.tar.gz", {**files, "fine_label_names.txt": b"a b c"})
    monkeypatch.setattr(sources, "CIFAR100", remote)
    assert load("cifar100", cache_dir=tmp_path).test.labels.tolist() == [0, 1, 2]


@pytest.mark.parametrize("damage", ["label", "missing", "records", "archive"])
def test_damaged_cifar_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    images, labels = np.zeros((12, 3, 32, 32), np.uint8), np.arange(12) % 3 + (5 if damage == "label" else 0)
    train = records(labels, images, True)[: -1 if damage == "records" else None]
    files = {"train.bin": train, "test.bin": train, "fine_label_names.txt": b"a b c"}
    if damage == "missing":
        del files["test.bin"]
    path = tmp_path / "c100.tar.gz"
    remote = cifar_archive(path, files)
    if damage == "archive":
        path.write_bytes(path.read_bytes()[:60])
        remote = RemoteFile(path.name, remote.url, pooch.file_hash(str(path), alg="md5"))
    monkeypatch.setattr(sources, "CIFAR100", remote)
    with pytest.raises(InputError):
        load("cifar100", cache_dir=tmp_path)


def test_file_with_another_checksum_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / sources.CIFAR10.name
    path.write_bytes(b"mine")
    with pytest.raises(InputError, match=sources.CIFAR10.md5):
        load("cifar10", cache_dir=tmp_path)
    assert path.read_bytes() == b"mine"


def test_offline_error_says_where_to_put_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(*_: object, **__: object) -> None:
        raise ConnectionError("no route")

    monkeypatch.setattr(pooch, "retrieve", no_network)
    with pytest.raises(InputError) as caught:
        load("cifar10", cache_dir=tmp_path)
    assert str(tmp_path / "cifar-10-binary.tar.gz") in caught.value.do
    assert sources.CIFAR10.md5 in caught.value.do


def test_random_is_balanced_noise_of_the_asked_shape() -> None:
    data = load("random:classes=4,size=12,channels=1,count=400")
    assert (data.classes, data.image_size, data.image_channels) == (4, 12, 1)
    assert len(data.train) + len(data.validation) + len(data.test) == 400
    assert abs(data.mean[0] - 0.5) < 0.01
    assert abs(data.std[0] - 0.245) < 0.01
    assert load("random:size=12", image_size=8).image_size == 8


@pytest.mark.parametrize("argument", ["colour=3", "classes=x", "channels=2", "classes=1", "count=4", "size=0"])
def test_random_refuses(argument: str) -> None:
    with pytest.raises(InputError):
        load(f"random:{argument}")
