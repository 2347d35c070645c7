"""Which files may be read and written over: plain ones.

A pipe or a device in place of a file never ends, and a link leads somewhere else. What a user names may be a link to a
plain file; what lies in a run may not be a link at all, for the run may come from somebody else.
"""

from __future__ import annotations

import mmap
import os
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from archwright.errors import InputError, RunError

_KINDS = {
    stat.S_IFLNK: "a link",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def check_utf8(text: str, what: str) -> None:
    """Refuse a name that is no UTF-8: a model, an ONNX file or a page could not hold it.

    Args:
        text: the name, with bytes that are no UTF-8 as Python reads them from a file system.
        what: how to call it in the error, as "names of classes".
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{what} in UTF-8", repr(text.encode(errors="surrogateescape")), "Rename it.") from error


_MOVED: dict[str, str] = {}


def move_path(path: str, place: str) -> None:
    """Let what a user calls ``path`` be read at ``place`` in this process: a file of another machine, sent here."""
    _MOVED[path] = place


def user_path(text: str) -> Path:
    """The path that a user wrote, with ``~`` as the home folder; of a user that is not there it stays as it is."""
    check_utf8(text, "a path")
    path = Path(_MOVED.get(text, text))
    try:
        return path.expanduser()
    except RuntimeError:
        return path


def odd_kind(path: Path, follow: bool = False) -> str | None:
    """What lies at ``path`` where it is no plain file, as "a pipe"; None for a plain file, and for nothing at all.

    Args:
        path: that is looked at; nothing there is opened.
        follow: whether of a link that counts which it leads to.
    """
    try:
        mode = path.stat(follow_symlinks=follow).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    return _KINDS.get(stat.S_IFMT(mode))


def open_plain(path: Path, follow: bool = True) -> IO[bytes]:
    """The file at ``path``, opened to be read; anything else than a plain file is refused and never waited for.

    Args:
        path: of the file.
        follow: whether it may be a link to one.
    """
    kind = odd_kind(path, follow)
    if kind is not None:
        raise InputError("a plain file", f"{path}, {kind}")
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # it was changed in between
        file.close()
        raise InputError("a plain file", str(path))
    return file


def read_plain(path: Path, follow: bool = True, most: int | None = None) -> bytes:
    """What a plain file holds.

    Args:
        path: of the file.
        follow: whether it may be a link to one.
        most: bytes that it may have; None for any number.
    """
    with open_plain(path, follow) as file:
        size = os.fstat(file.fileno()).st_size
        if most is not None and size > most:
            raise InputError(f"at most {most:,} bytes in {path}", f"{size:,}")
        return file.read()


def check_writable(path: Path) -> None:
    """Refuse a file that cannot be written, before the work whose result it is to get."""
    refuse_odd(path)
    parent = next(parent for parent in path.absolute().parents if parent.exists())
    try:
        with tempfile.NamedTemporaryFile(dir=parent, prefix=".archwright-"):  # permissions alone do not tell
            pass
    except OSError as error:
        raise InputError(f"a folder that can be written for {path.name}", f"{parent} ({error.strerror})") from error


def refuse_odd(path: Path) -> None:
    """Refuse to write where something else than a plain file lies: a device or a pipe would be replaced by a file."""
    kind = odd_kind(path)
    if kind is not None:
        raise InputError("the name of a file to write", f"{path}, {kind}")


def check_output(path: Path, mark: bytes, overwrite: bool = False, inputs: Iterable[Path] = ()) -> None:
    """Refuse a file that a user names for a result and that must not be written, before the work.

    Args:
        path: of the file.
        mark: what every file of this kind that we write has in it; such a file may be written again.
        overwrite: whether a file of another origin may be replaced, too.
        inputs: files and folders that the same command reads; no file of theirs is replaced in any case.
    """
    check_writable(path)
    if path.exists() and any(_reads(one, path) for one in inputs):
        raise InputError("another file to write than one that is read", str(path))
    refuse_foreign(path, mark, overwrite)


def refuse_foreign(path: Path, mark: bytes, overwrite: bool) -> None:
    """Refuse to write over a file that we did not write.

    Args:
        path: of the file; there may be none yet.
        mark: what every file of this kind that we write has in it.
        overwrite: whether a file of another origin may be replaced, too.
    """
    refuse_odd(path)
    if path.exists() and not overwrite and not _has(path, mark):
        raise InputError(
            "the name of a new file, or of one that this command wrote",
            f"{path}, which is something else",
            "Choose another name, or replace it with --overwrite (in Python: overwrite=True).",
        )


def _reads(source: Path, path: Path) -> bool:
    """Whether ``path`` is the file ``source`` or one in that folder, by whatever name."""
    if source.is_dir():
        return path.resolve().is_relative_to(source.resolve()) or any(
            one.is_file() and one.samefile(path) for one in source.rglob("*")
        )
    return source.exists() and source.samefile(path)


def _has(path: Path, mark: bytes) -> bool:
    """Whether ``mark`` is somewhere in the file; an empty file has nothing to lose."""
    with open_plain(path) as file:
        if os.fstat(file.fileno()).st_size == 0:
            return True
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return content.find(mark) >= 0


_FOLDERS = frozenset(("stages", "items", "checkpoints", "artifacts"))
_FILES = frozenset(("lock", "stop"))
_SUFFIXES = frozenset((".json", ".jsonl", ".safetensors", ".onnx", ".npz", ".html", ".txt"))
"""What is a folder in a run, and what is a file."""


def check_plain_run(folder: Path, unread: str = "") -> None:
    """Refuse a run with links, pipes, devices or sockets in it, or with files and folders in each other's place.

    Args:
        folder: of the run.
        unread: name of a folder in it that is not read and therefore not looked into.
    """
    with os.scandir(folder) as entries:
        for entry in entries:
            kind = _KINDS.get(stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode))
            is_file = entry.name in _FILES or Path(entry.name).suffix in _SUFFIXES
            if kind == "a folder" and not is_file:
                if entry.name != unread:
                    check_plain_run(Path(entry.path))
            elif kind is not None:
                raise RunError(f"expected plain files and folders in a run, got {entry.path}, {kind}.")
            elif entry.name in _FOLDERS:
                raise RunError(f"expected plain files and folders in a run, got the file {entry.path} for a folder.")
