"""Files that are either whole or absent: atomic writes, JSON, append-only logs, and trees of tensors.

Everything a run keeps is written through this module, so that a kill or a full disk at any moment leaves the previous
state readable. Loading executes nothing: a checkpoint is safetensors with the tree's JSON skeleton in its header. It
knows nothing of runs, stages or networks. Torch is imported where tensors are: who lists runs does not wait for it.
"""

from __future__ import annotations

import io
import json
import os
import re
import zlib
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import isfinite, prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from safetensors import SafetensorError, safe_open

from archwright.errors import ArchwrightError, InputError, RunError
from archwright.paths import odd_kind, open_plain, read_plain, refuse_odd
from archwright.runs import disk
from archwright.strict import parse_json
from archwright.terminal import shortened

if TYPE_CHECKING:
    import torch

Json: TypeAlias = Any
Tree: TypeAlias = Any
"""Nested dicts (string or integer keys), lists and tuples of tensors, NumPy arrays and JSON scalars."""

_MARKS = _TENSOR, _ARRAY, _TUPLE, _PAIRS = "__tensor__", "__array__", "__tuple__", "__pairs__"


LARGEST = 500_000_000
"""Bytes of a JSON file that is read."""
LONGEST_LINE = 100_000_000
"""Bytes of a line in a log."""
ASIDE = re.compile(r"\..+\.\d+\.tmp")
"""Names of files that are written aside: what they are to be called and the number of the process."""


def write_atomic(path: Path, data: bytes) -> None:
    """Write ``data`` aside and rename it into place, so that ``path`` is never half-written."""
    with atomic_file(path) as file:
        file.write(data)


@contextmanager
def atomic_file(path: Path, lasting: bool = True) -> Iterator[disk.Writer]:
    """A file to write, which gets the name ``path`` when it is whole; after an error ``path`` is as it was.

    Args:
        path: of the file.
        lasting: wait for the disk, so that it survives a power cut; not needed for what is of use for the moment.
    """
    refuse_odd(path)
    disk.make_folder(path.parent)
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with disk.Writer(disk.create(aside)) as file:
            yield file
            if lasting:
                disk.sync(file.fileno())
        disk.rename(aside, path)
    except BaseException:
        disk.remove(aside)
        raise
    if lasting:
        disk.sync_folder(path.parent)


def share_file(source: Path, target: Path) -> None:
    """Let ``target`` be the file ``source`` under a second name (a copy, where there are no links); never half-written.

    For files that are complete: what is written to one of them later may or may not be in the other. A target that is
    already there stays.
    """
    disk.make_folder(target.parent)
    try:
        disk.link(source, target)
    except FileExistsError:
        return
    except OSError:
        write_atomic(target, source.read_bytes())
    disk.sync_folder(target.parent)


def forget(path: Path) -> None:
    """Remove a file, or nothing where there is none, so that no power cut brings it back."""
    if path.exists():
        disk.remove(path)
        disk.sync_folder(path.parent)


def save_figure(figure: Any, path: Path, dpi: int = 110, metadata: dict[str, str] | None = None) -> None:
    """Draw a matplotlib figure and write it, atomically, in the format that the name of ``path`` ends with.

    Args:
        figure: what is drawn.
        path: of the file.
        dpi: dots an inch.
        metadata: what the file says of itself, by fields of its format.
    """
    drawn = io.BytesIO()
    figure.savefig(drawn, format=path.suffix.removeprefix("."), dpi=dpi, metadata=metadata)
    write_atomic(path, drawn.getvalue())


LONGEST_NAME = 255
"""Bytes of a name that file systems have room for."""


def inside(folder: Path, name: str) -> Path:
    """The path ``name`` in ``folder``; one that leads out of it (``..``, absolute, by a link) is refused.

    Every name that is read from a run's own files goes through here: the run may come from somebody else.
    """
    path = folder / name
    if not _is_name(name):
        raise RunError(f"expected a path inside {folder}, got {shortened(repr(name))}, which is no name of a file.")
    if not (_has_no_turn(folder, name) or _leads_to(path).is_relative_to(_leads_to(folder))):
        raise RunError(f"expected a path inside {folder}, got {name!r}, which leads out of it.")
    return path


def _leads_to(path: Path) -> Path:
    """Where ``path`` ends behind all links; a link to itself ends where it lies."""
    return Path(os.path.realpath(path))  # Path.resolve fails at such a link


def _is_name(name: str) -> bool:
    """Whether a file system has room and characters for it."""
    try:
        return "\0" not in name and all(len(os.fsencode(part)) <= LONGEST_NAME for part in name.split("/"))
    except UnicodeEncodeError:
        return False


def _has_no_turn(folder: Path, name: str) -> bool:
    """Whether the way from ``folder`` to ``name`` goes down only, without links: then nothing has to be resolved."""
    parts = name.split("/")
    ways = (f"{folder}/{'/'.join(parts[: depth + 1])}" for depth in range(len(parts)))
    return not {"", ".", ".."} & set(parts) and not any(os.path.islink(way) for way in ways)  # noqa: PTH114 - fast


def write_json(path: Path, value: Json) -> None:
    """Write ``value`` as readable strict JSON at ``path``, atomically."""
    write_atomic(path, (strict_json(value, indent=1) + "\n").encode())


def strict_json(value: Json, indent: int | None = None) -> str:
    """A value as JSON that any reader takes: NaN and infinite numbers, which JSON does not have, become null.

    Args:
        value: what JSON can hold.
        indent: spaces a level; None writes one line.
    """
    try:
        return json.dumps(value, indent=indent, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), indent=indent, allow_nan=False)


def _finite(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def read_json(path: Path) -> Json:
    """The JSON in ``path``; a damaged file, or anything but a plain file, is an error that names it."""
    try:
        return parse_json(read_plain(path, most=LARGEST))
    except ValueError as error:
        raise RunError(f"expected JSON in {path}, got a damaged file ({error}).") from error


@contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Around what reads a run that may be somebody else's: whatever its files lack or have too much is one error."""
    try:
        yield
    except ArchwrightError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        got = f"{type(error).__name__}: {error}"
        raise RunError(f"expected the files of a run in {folder} as they were written, got others ({got}).") from error


class Sealed(NamedTuple):
    """A value with what it depends on.

    Attributes:
        value: what is kept.
        made_with: digests of the settings that it was made with, by name (:func:`digests`).
        files: checksums of the files that it names (:func:`file_checksum`), by their paths.
    """

    value: Json
    made_with: dict[str, str] = {}  # noqa: RUF012 - of a tuple, and never changed
    files: dict[str, str] = {}  # noqa: RUF012


def write_sealed(path: Path, kept: Sealed) -> None:
    """Write ``kept`` to ``path`` as JSON with its checksum, so that :func:`read_sealed` notices any change."""
    write_json(path, {"checksum": _checksum(kept._asdict()), **kept._asdict()})


def file_checksum(path: Path) -> str:
    """CRC-32 of the content of a file, however large."""
    found = 0
    with open_plain(path) as file:
        while piece := file.read(2**20):
            found = zlib.crc32(piece, found)
    return f"{found:08x}"


def digests(settings: Mapping[str, Json]) -> dict[str, str]:
    """A digest of each setting, by which a later change can be named."""
    return {name: _checksum(value) for name, value in settings.items()}


def read_sealed(path: Path) -> Sealed:
    """What :func:`write_sealed` wrote; a file that was changed since is an error that names it."""
    found = read_json(path)
    known = found if isinstance(found, dict) else {}
    older = set(known) == {"checksum", "value"}  # of before it kept what the value depends on
    kept = Sealed(known.get("value"), known.get("made_with", {}), known.get("files", {}))
    if known.get("checksum") != _checksum(kept.value if older else kept._asdict()):
        raise RunError(f"expected {path} as it was written, got a damaged or altered file (its checksum differs).")
    if not (isinstance(kept.made_with, dict) and isinstance(kept.files, dict)):
        raise RunError(f"expected digests by name in {path}, got something else.")
    return kept


def _checksum(value: Json) -> str:
    """CRC-32 of the JSON of ``value``, whatever its white space and the order of its keys."""
    plain = json.loads(strict_json(value))  # as the file has it: keys that are numbers are text there
    return f"{zlib.crc32(json.dumps(plain, sort_keys=True).encode()):08x}"


class Place(NamedTuple):
    """Where a reader of a log is: behind so many lines, which have so many bytes."""

    lines: int = 0
    bytes: int = 0


class JsonLines:
    """An append-only log of JSON objects, one a line; a line cut short by a crash is dropped at the next opening.

    Args:
        path: of the file.
        sealed: keep a checksum in every line, so that one that was changed since is an error.
    """

    def __init__(self, path: Path, sealed: bool = False) -> None:
        self.path, self.sealed = path, sealed

    def append(self, *records: dict[str, Json]) -> None:
        """Add records; they are on disk when this returns. A torn line left by a failed write is cut off first."""
        kept = [{**one, "checksum": _checksum(one)} if self.sealed else one for one in records]
        line = "".join(f"{strict_json(one)}\n" for one in kept).encode()
        new = not self.path.exists()
        if new:
            disk.make_folder(self.path.parent)
        with disk.Writer(disk.append(self.path)) as file:
            size, start = os.fstat(file.fileno()).st_size, _whole_bytes(file.fileno())
            if size != start:
                disk.cut(file.fileno(), start)
            try:
                file.write(line)
                disk.sync(file.fileno())
            except OSError:
                disk.cut(file.fileno(), start)
                raise
        if new:
            disk.sync_folder(self.path.parent)

    def __iter__(self) -> Iterator[dict[str, Json]]:
        for record, _ in self.after(Place()):
            yield record

    def after(self, place: Place) -> Iterator[tuple[dict[str, Json], Place]]:
        """The records behind ``place``, each with its own, from which a later look goes on."""
        for line, here in self._whole_lines(place):
            yield self._read(line, here.lines), here

    def tail(self, count: int) -> tuple[list[dict[str, Json]], int]:
        """The last ``count`` records, and how many there are; only these are read as JSON."""
        last, here = deque[tuple[bytes, int]](maxlen=count), Place()
        for line, here in self._whole_lines(Place()):
            last.append((line, here.lines))
        return [self._read(line, number) for line, number in last], here.lines

    def _whole_lines(self, place: Place) -> Iterator[tuple[bytes, Place]]:
        """Lines behind ``place``, without one that was cut short."""
        if not self.path.exists():
            return
        number, offset = place
        with open_plain(self.path) as file:
            file.seek(offset)
            while line := file.readline(LONGEST_LINE):
                if len(line) == LONGEST_LINE:
                    raise RunError(f"expected a JSON object in line {number + 1} of {self.path}, got no end of it.")
                if not line.endswith(b"\n"):
                    return
                number, offset = number + 1, offset + len(line)
                yield line, Place(number, offset)

    def _read(self, line: bytes, number: int) -> dict[str, Json]:
        try:
            record = parse_json(line)
        except ValueError as error:
            raise RunError(f"expected a JSON object in line {number} of {self.path}, got {error}.") from error
        if not isinstance(record, dict):
            raise RunError(f"expected a JSON object in line {number} of {self.path}, got {type(record).__name__}.")
        if self.sealed and record.pop("checksum", None) != _checksum(record):
            raise RunError(f"expected line {number} of {self.path} as it was written, got a damaged or altered one.")
        return record


def _whole_bytes(descriptor: int) -> int:
    """Length of a file up to the end of its last whole line."""
    size = end = os.fstat(descriptor).st_size
    while end > 0:
        if size - end > LONGEST_LINE:
            raise RunError("expected a log of lines to be continued, got a file whose last line has no beginning.")
        begin = max(0, end - 4096)
        newline = os.pread(descriptor, end - begin, begin).rfind(b"\n")
        if newline >= 0:
            return begin + newline + 1
        end = begin
    return 0


def save_tree(path: Path, tree: Tree) -> None:
    """Write ``tree``, of tensors and scalars, as one safetensors file at ``path``, atomically."""
    from safetensors.torch import save as safetensors_bytes

    tensors: dict[str, torch.Tensor] = {}
    skeleton = json.dumps(_pack(tree, tensors))
    data = safetensors_bytes(tensors, metadata={"tree": skeleton})
    write_atomic(path, data + zlib.crc32(data).to_bytes(4, "little"))


def load_tree(path: Path) -> Tree:
    """The tree written by :func:`save_tree`; a truncated or altered file is a :class:`RunError` that names it."""
    data = read_plain(path)
    body, check = data[:-4], data[-4:]
    if len(data) < 12 or zlib.crc32(body).to_bytes(4, "little") != check:
        raise RunError(f"expected a whole checkpoint in {path}, got a truncated or altered file.")
    from safetensors.torch import load as safetensors_load

    try:
        header = json.loads(body[8 : 8 + int.from_bytes(body[:8], "little")])
        return _unpack(json.loads(header["__metadata__"]["tree"]), safetensors_load(body))
    except (SafetensorError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise RunError(f"expected a checkpoint in {path}, got something else ({error}).") from error


def read_metadata(path: Path) -> dict[str, str]:
    """The text metadata of a plain safetensors file."""
    with _opened(path) as file:
        return dict(file.metadata() or {})


def stored_elements(path: Path) -> int:
    """How many numbers a plain safetensors file holds, from its header alone."""
    with _opened(path) as file:
        return sum(prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118 - no mapping


def save_weights(path: Path, state: Mapping[str, torch.Tensor], metadata: Mapping[str, str]) -> None:
    """Write tensors and text metadata as a plain safetensors file, atomically; the same content is the same bytes.

    The library writes metadata in an order of the moment; here it is sorted.

    Args:
        path: of the file.
        state: tensors by name.
        metadata: texts by name.
    """
    from safetensors.torch import save as safetensors_bytes

    data = safetensors_bytes(dict(state), metadata=dict(metadata))
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header["__metadata__"] = dict(sorted(metadata.items()))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of eight bytes
    with atomic_file(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.write(memoryview(data)[8 + size :])


def load_weights(module: torch.nn.Module, path: Path) -> None:
    """Put the weights of a plain safetensors file at ``path`` into ``module``.

    Other names or shapes and broken numbers are errors.
    """
    with _opened(path) as file:
        state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    broken = [name for name, tensor in state.items() if tensor.is_floating_point() and not tensor.isfinite().all()]
    if broken:
        raise RunError(f"expected finite weights in {path}, got NaN or infinite ones in {', '.join(broken[:3])}.")
    wanted = module.state_dict()
    other = [name for name, tensor in state.items() if name in wanted and not _same_kind(tensor, wanted[name])]
    if other:
        raise RunError(f"expected weights of the network's own types in {path}, got others in {', '.join(other[:3])}.")
    try:
        module.load_state_dict(state)
    except (RuntimeError, InputError) as error:  # torch's first line names the class, the next what does not fit
        reasons = "; ".join(line.strip() for line in str(error).splitlines()[1:3]) or str(error)
        raise RunError(f"expected the weights of the network that {path} describes, got others: {reasons}") from error


def _same_kind(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether both are real, or both whole numbers, and the first can be had in the second's type without overflow."""
    if one.is_floating_point() != other.is_floating_point() or one.is_complex():
        return False
    return not one.is_floating_point() or bool(one.to(other.dtype).isfinite().all())


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    kind = odd_kind(path, follow=True)
    if kind is not None:
        raise RunError(f"expected a safetensors file in {path}, got {kind}.")
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (SafetensorError, OSError) as error:
        raise RunError(f"expected a safetensors file in {path}, got {error}.") from error


def _pack(node: Tree, tensors: dict[str, torch.Tensor]) -> Json:
    import torch

    if isinstance(node, torch.Tensor | np.ndarray):
        name = str(len(tensors))
        is_array = isinstance(node, np.ndarray)
        tensor = torch.from_numpy(np.array(node, order="C")) if isinstance(node, np.ndarray) else node.detach().cpu()
        tensors[name] = tensor.clone(memory_format=torch.contiguous_format)
        return {_ARRAY if is_array else _TENSOR: name}
    if isinstance(node, dict):
        if all(isinstance(key, str) and key not in _MARKS for key in node):
            return {key: _pack(value, tensors) for key, value in node.items()}
        return {_PAIRS: [[key, _pack(value, tensors)] for key, value in node.items()]}
    if isinstance(node, tuple):
        return {_TUPLE: [_pack(value, tensors) for value in node]}
    if isinstance(node, list):
        return [_pack(value, tensors) for value in node]
    if node is None or isinstance(node, bool | int | float | str):
        return node
    if isinstance(node, np.generic):
        return node.item()
    raise TypeError(f"a checkpoint holds tensors, arrays and JSON scalars, not {type(node).__name__}")


def _unpack(node: Json, tensors: dict[str, torch.Tensor]) -> Tree:
    if isinstance(node, list):
        return [_unpack(value, tensors) for value in node]
    if not isinstance(node, dict):
        return node
    if _TENSOR in node:
        return tensors[node[_TENSOR]]
    if _ARRAY in node:
        return tensors[node[_ARRAY]].numpy()
    if _TUPLE in node:
        return tuple(_unpack(value, tensors) for value in node[_TUPLE])
    if _PAIRS in node:
        return {key: _unpack(value, tensors) for key, value in node[_PAIRS]}
    return {key: _unpack(value, tensors) for key, value in node.items()}
