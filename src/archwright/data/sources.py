"""The named data sets. Each function has the `Source` form; the small parsers of public formats are below them."""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from archwright.bounds import MOST_PIXELS
from archwright.data.downloads import RemoteFile, default_cache, fetch
from archwright.data.raw import Labels, Pixels, RawImages, raw_from_arrays, refuse_argument
from archwright.errors import InputError

_FASHION_URL = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/"
_FASHION_MD5 = {
    "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
    "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
    "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
}
_FASHION_CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
DEBIAN_FASHION = Path("/usr/share/datasets/fashion-mnist")
"""Where Debian's package dataset-fashion-mnist puts its files."""

MOST_NOISE = 2**28
"""Pixels of ``random``; they are drawn as 32-bit numbers."""

_CIFAR_URL = "https://www.cs.toronto.edu/~kriz/"
CIFAR10 = RemoteFile(
    "cifar-10-binary.tar.gz", f"{_CIFAR_URL}cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530"
)
CIFAR100 = RemoteFile(
    "cifar-100-binary.tar.gz", f"{_CIFAR_URL}cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8"
)


def digits(argument: str, *, image_size: int | None, skip_bad: bool, cache_dir: Path | None) -> RawImages:
    """scikit-learn's 1,797 handwritten digits: 8x8, grey, sixteen steps of grey scaled to 0..255.

    ``argument`` must be empty, ``image_size`` None leaves 8 px; ``skip_bad`` and ``cache_dir`` change nothing.
    """
    del skip_bad, cache_dir
    refuse_argument("digits", argument)
    from sklearn.datasets import load_digits  # deferred: scikit-learn takes a second to import

    bunch = load_digits()
    pixels = np.rint(bunch.images * (255 / 16)).astype(np.uint8)[:, None]
    return raw_from_arrays("digits", [(pixels, bunch.target)], [str(digit) for digit in range(10)], image_size)


def fashion_mnist(argument: str, *, image_size: int | None, skip_bad: bool, cache_dir: Path | None) -> RawImages:
    """Fashion-MNIST: from the cache's fashion-mnist/, from Debian's package, or downloaded.

    ``argument`` must be empty, ``image_size`` None leaves 28 px; files are looked for in ``cache_dir``; ``skip_bad``
    changes nothing.
    """
    del skip_bad
    refuse_argument("fashion-mnist", argument)
    arrays = [read_idx(_fashion_file(name, cache_dir)) for name in _FASHION_MD5]
    parts = [(images[:, None], labels.astype(np.int64)) for images, labels in (arrays[:2], arrays[2:])]
    return raw_from_arrays("fashion-mnist", parts, _FASHION_CLASSES, image_size)


def cifar10(argument: str, *, image_size: int | None, skip_bad: bool, cache_dir: Path | None) -> RawImages:
    """CIFAR-10 from its binary archive; five training files, one test file.

    ``argument`` must be empty, ``image_size`` None leaves 32 px; the archive is looked for in ``cache_dir``;
    ``skip_bad`` changes nothing.
    """
    del skip_bad
    refuse_argument("cifar10", argument)
    training = [f"data_batch_{number}.bin" for number in range(1, 6)]
    path = fetch(CIFAR10, cache_dir)
    return _cifar(path, "cifar10", training, "test_batch.bin", "batches.meta.txt", 1, image_size)


def cifar100(argument: str, *, image_size: int | None, skip_bad: bool, cache_dir: Path | None) -> RawImages:
    """CIFAR-100 with its 100 fine labels, from its binary archive.

    ``argument`` must be empty, ``image_size`` None leaves 32 px; the archive is looked for in ``cache_dir``;
    ``skip_bad`` changes nothing.
    """
    del skip_bad
    refuse_argument("cifar100", argument)
    path = fetch(CIFAR100, cache_dir)
    return _cifar(path, "cifar100", ["train.bin"], "test.bin", "fine_label_names.txt", 2, image_size)


def random(argument: str, *, image_size: int | None, skip_bad: bool, cache_dir: Path | None) -> RawImages:
    """Gaussian noise (mean 0.5, standard deviation 0.25, clipped) with random labels: nothing can be learned from it.

    Args:
        argument: "classes=10,size=16,channels=3,count=2048,seed=0", every part of it optional.
        image_size: pixels a side; None is the size of the argument.
        skip_bad: changes nothing here.
        cache_dir: changes nothing here.
    """
    del skip_bad, cache_dir
    options = {"classes": 10, "size": image_size or 16, "channels": 3, "count": 2048, "seed": 0}
    given = [item.partition("=") for item in argument.split(",") if argument]
    names = [key for key, _, _ in given]
    for key, equals, value in given:
        if key not in options or not value.isdecimal() or len(value) > 12 or names.count(key) > 1:
            wanted = f"{', '.join(f'{k}=NUMBER' for k in options)} after 'random:', each once"
            raise InputError(wanted, repr(f"{key}{equals}{value}"[:80]))
        options[key] = int(value)
    if options["channels"] not in (1, 3):
        raise InputError("channels=1 or channels=3", f"channels={options['channels']}")
    if options["size"] < 1 or options["classes"] < 2 or options["count"] < 2 * options["classes"]:
        raise InputError("size of at least 1, two classes and two images a class", repr(argument))
    if options["size"] > MOST_PIXELS or options["count"] * options["channels"] * options["size"] ** 2 > MOST_NOISE:
        raise InputError(f"at most {MOST_NOISE:,} pixels of noise, {MOST_PIXELS} a side", repr(argument))
    rng = np.random.default_rng(options["seed"])
    shape = (options["count"], options["channels"], options["size"], options["size"])
    pixels = np.rint(rng.standard_normal(shape, dtype=np.float32) * 64 + 127.5).clip(0, 255).astype(np.uint8)
    labels = rng.permutation(np.arange(options["count"]) % options["classes"])
    return raw_from_arrays("random", [(pixels, labels)], list(map(str, range(options["classes"]))), image_size)


def _fashion_file(name: str, cache_dir: Path | None) -> Path:
    cached = (cache_dir or default_cache()) / "fashion-mnist" / name
    if not cached.exists() and (DEBIAN_FASHION / name).is_file():
        return DEBIAN_FASHION / name
    return fetch(RemoteFile(name, _FASHION_URL + name, _FASHION_MD5[name]), cached.parent)


def read_idx(path: Path) -> NDArray[np.uint8]:
    """A gzipped IDX file of bytes: two zeros, type 8, rank, then big-endian sizes and the values in C order."""
    try:
        content = gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise InputError("a readable gzip file", f"{path} ({error})") from error
    rank = content[3] if content[:3] == b"\x00\x00\x08" and len(content) > 3 else 0
    start = 4 + 4 * rank
    if rank == 0 or len(content) < start:
        raise InputError("an IDX file of unsigned bytes", f"another header in {path}")
    shape = tuple(np.frombuffer(content[4:start], dtype=">u4").astype(int).tolist())
    if len(content) - start != np.prod(shape, dtype=object):
        raise InputError(f"{shape} values in {path}", f"{len(content) - start} bytes")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)


def _cifar(
    path: Path, name: str, training: Sequence[str], test: str, names: str, label_bytes: int, image_size: int | None
) -> RawImages:
    """Both CIFAR archives: records of ``label_bytes`` labels, the last one ours, and 3 x 32 x 32 bytes of pixels."""
    members = _read_members(path, [*training, test, names])
    pool = _cifar_records(b"".join(members[file] for file in training), label_bytes, path)
    class_names = _text(members[names], path).split()
    parts = [pool, _cifar_records(members[test], label_bytes, path)]
    highest = max(int(labels.max()) for _, labels in parts)
    if highest >= len(class_names):
        raise InputError(f"labels below {len(class_names)} in {path}", str(highest))
    return raw_from_arrays(name, parts, class_names, image_size)


def _text(content: bytes, path: Path) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"names of classes in UTF-8 in {path}", str(error)) from error


def _read_members(path: Path, wanted: Sequence[str]) -> dict[str, bytes]:
    """The wanted files of a .tar.gz by their bare names, read without unpacking to disk."""
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                stream = archive.extractfile(member) if Path(member.name).name in wanted else None
                if stream is not None:
                    found[Path(member.name).name] = stream.read()
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise InputError("a readable .tar.gz archive", f"{path} ({error})") from error
    missing = [name for name in wanted if name not in found]
    if missing:
        raise InputError(f"{', '.join(missing)} in {path}", f"{', '.join(sorted(found)) or 'none of its files'}")
    return found


def _cifar_records(content: bytes, label_bytes: int, path: Path) -> tuple[Pixels, Labels]:
    width = label_bytes + 3 * 32 * 32
    if not content or len(content) % width:
        raise InputError(f"whole records of {width} bytes in {path}", f"{len(content)} bytes")
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, width)
    return records[:, label_bytes:].reshape(-1, 3, 32, 32), records[:, label_bytes - 1].astype(np.int64)
