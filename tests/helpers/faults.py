"""Faults in the way of every change of a file: what a kill, a torn write or a power cut at that moment leaves behind.

One whole run of an action is recorded. Before each of its changes the folder is looked at: that is what a kill leaves
there. Half of a write on top of it is what a kill in its middle leaves. And what was not waited for (synced) until then
may be gone when the power is cut: new names, renames and removals back to what they were, new contents empty or as they
were when they were last waited for. Each such state is a folder from which the action is to go on.

A failing disk is another matter: the program sees it, so the action is run again with the n-th change failing.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from archwright.runs import disk

CHANGES = (
    *("make_folder", "create", "append", "write", "cut"),
    *("sync", "sync_folder", "rename", "link", "remove", "remove_folder"),
)
"""The functions of ``disk``."""

OWN_ASIDE = re.compile(rf"\.{os.getpid()}\.tmp$")
"""Files that this process writes aside; whoever goes on is another one."""

Tree = dict[str, bytes | None]
"""A folder by relative paths: contents of files, None for folders."""


def look(folder: Path) -> Tree:
    """What is in ``folder`` now."""
    found: Tree = {}
    for path in sorted(folder.rglob("*")):
        found[str(path.relative_to(folder))] = None if path.is_dir() else path.read_bytes()
    return found


def put(folder: Path, tree: Tree) -> None:
    """Make ``folder`` be ``tree``."""
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in tree.items():
        path = folder / name
        (path if content is None else path.parent).mkdir(parents=True, exist_ok=True)
        if content is not None:
            path.write_bytes(content)


@dataclass(frozen=True)
class Change:
    """One change of a file inside a folder: which function, of what, and where the file is."""

    function: str
    path: Path
    data: bytes = b""
    target: Path | None = None


@contextmanager
def watched(folder: Path, before: Callable[[Change], None]) -> Iterator[None]:
    """Call ``before`` ahead of every change inside ``folder``; nobody waits for the disk meanwhile."""

    def around(name: str) -> Callable[..., Any]:
        original = getattr(disk, name)

        def changed(*arguments: Any, **named: Any) -> Any:
            change = _change(name, arguments)
            if change.path.is_relative_to(folder) and not _changes_nothing(change):
                before(change)
            return None if name.startswith("sync") else original(*arguments, **named)

        return changed

    with pytest.MonkeyPatch.context() as patch:
        for name in CHANGES:
            patch.setattr(disk, name, around(name))
        yield


def _change(name: str, arguments: Sequence[Any]) -> Change:
    first = arguments[0]
    path = Path(f"/proc/self/fd/{first}").readlink() if isinstance(first, int) else Path(first).absolute()
    data = bytes(arguments[1]) if name == "write" else b""
    return Change(name, path, data, Path(arguments[1]).absolute() if name in ("rename", "link") else None)


def _changes_nothing(change: Change) -> bool:
    """What is done again: a folder that is there, a log that exists, a file that is gone."""
    if change.function in ("make_folder", "append"):
        return change.path.exists()
    return change.function == "remove" and not change.path.exists()


# --- what a power cut leaves -----------------------------------------------------------------------------------------


@dataclass
class Lasting:
    """What of a folder has been waited for."""

    folder: Path
    now: dict[Path, int] = field(default_factory=dict)
    """Files by name: each has a number of its own."""
    names: dict[Path, int] = field(default_factory=dict)
    """The same, as it was when each folder was last waited for."""
    contents: dict[int, bytes] = field(default_factory=dict)
    """Of files, when each was last waited for."""

    def __post_init__(self) -> None:
        """What is there at first has been waited for."""
        files = [path for path in self.folder.rglob("*") if path.is_file()]
        self.now = {path: number for number, path in enumerate(files)}
        self.names = dict(self.now)
        self.contents = {number: path.read_bytes() for number, path in enumerate(files)}

    def note(self, change: Change) -> None:
        """A change is about to be made."""
        path, function = change.path, change.function
        if function in ("create", "append"):
            self.now[path] = max([*self.now.values(), *self.names.values(), -1]) + 1
        elif function == "rename":
            assert change.target is not None
            self.now[change.target] = self.now.pop(path)
        elif function == "link":
            assert change.target is not None
            self.now[change.target] = self.now[path]
        elif function == "remove":
            self.now.pop(path, None)
        elif function == "remove_folder":
            self.now = {one: number for one, number in self.now.items() if not one.is_relative_to(path)}
        elif function == "sync":
            self.contents[self.now[path]] = path.read_bytes()
        elif function == "sync_folder":
            kept = {one: n for one, n in self.names.items() if one.parent != path and _is_reached(path, one)}
            self.names = kept | {one: number for one, number in self.now.items() if one.parent == path}

    def tree(self) -> Tree:
        """What is there when the power comes back."""
        return {
            str(path.relative_to(self.folder)): self.contents.get(number, b"") for path, number in self.names.items()
        }


def _is_reached(folder: Path, path: Path) -> bool:
    """Whether the folder inside ``folder`` that ``path`` lies in, if it does, is still there."""
    inner = path.relative_to(folder).parts if path.is_relative_to(folder) else ()
    return len(inner) < 2 or (folder / inner[0]).exists()


# --- states ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class State:
    """What a fault left: after which change of which kind, and the folder."""

    number: int
    kind: str
    change: Change
    tree: Tree = field(repr=False)

    def __str__(self) -> str:
        return f"{self.kind} at change {self.number} ({self.change.function} {self.change.path.name})"


def states(folder: Path, action: Callable[[], object]) -> tuple[list[State], int]:
    """All different states that kills, torn writes and power cuts leave of ``action``, and the number of its changes.

    States of the same content count once. The folder is left as the action leaves it.
    """
    found: dict[int, State] = {}
    lasting, count = Lasting(folder), 0
    same: dict[bytes | None, bytes | None] = {}  # of equal contents one copy is kept

    def keep(kind: str, change: Change, tree: Tree) -> None:
        elsewhere = {OWN_ASIDE.sub(".4711.tmp", name): same.setdefault(one, one) for name, one in tree.items()}
        found.setdefault(hash(frozenset(elsewhere.items())), State(count, kind, change, elsewhere))

    def before(change: Change) -> None:
        nonlocal count
        count += 1
        tree = look(folder)
        keep("kill", change, tree)
        if change.function == "write" and len(change.data) > 1:
            name = str(change.path.relative_to(folder))
            torn = (tree[name] or b"") + change.data[: len(change.data) // 2]
            keep("tear", change, {**tree, name: torn})
        keep("power", change, lasting.tree())
        lasting.note(change)

    with watched(folder, before):
        action()
    return list(found.values()), count


def fail_at(folder: Path, number: int, action: Callable[[], object]) -> Exception | None:
    """Run ``action`` with its ``number``-th change failing, a write after half of it; what it raised, if anything."""
    count = 0

    def before(change: Change) -> None:
        nonlocal count
        count += 1
        if count == number:
            if change.function == "write":
                with change.path.open("ab") as file:
                    file.write(change.data[: len(change.data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")

    with watched(folder, before):
        try:
            action()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is looked at
            return error
    return None
