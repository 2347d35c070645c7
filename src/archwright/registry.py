"""Named things: spaces, methods, proxies and data sets, found by name and extended by users and third parties.

An entry is a ``module:attribute`` string that is imported on first use, so that listing names costs no import of torch.
A user's program calls :meth:`Registry.register`; third parties register through entry points of a group such as
``archwright.spaces``, under the name to be registered.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import entry_points
from typing import Any

from archwright.errors import InputError, unknown_name
from archwright.references import refer, resolve


@dataclass(frozen=True)
class Entry:
    """One registered thing: where it lives and what it is for, in one line."""

    name: str
    target: str
    summary: str

    def load(self) -> Any:
        """Import and return what ``target`` ("package.module:attribute") points at."""
        return resolve(self.target, f"entry {self.name!r}")


class Registry:
    """All entries of one kind, our own and those of installed plug-ins."""

    def __init__(self, kind: str, *own: Entry, group: str = "") -> None:
        self.kind = kind
        self.group = f"archwright.{group or kind + 's'}"
        self._own = {entry.name: entry for entry in own}
        self._added: set[str] = set()

    @cached_property
    def entries(self) -> dict[str, Entry]:
        """Our entries, then plug-ins; a plug-in cannot replace one of ours."""
        found = {}
        for point in entry_points(group=self.group):
            origin = point.dist.name if point.dist else point.module
            found[point.name] = Entry(point.name, point.value, f"plug-in from {origin}")
        return {**found, **self._own}

    def register(self, name: str, thing: Any, summary: str = "") -> None:
        """Let a thing be found by a name in this process; a name that is taken by something else is refused.

        Args:
            name: without a colon.
            thing: what ``get(name)`` gives.
            summary: one line for lists.

        Example:
            >>> from archwright.spaces.registry import spaces
            >>> spaces.register("mine", MySpace())  # doctest: +SKIP
        """
        target = refer(thing)
        if not name or ":" in name:
            raise InputError(f"a name without a colon for a {self.kind}", repr(name))
        if name in self.entries and self.entries[name].target != target:
            raise InputError(f"a name that no other {self.kind} has", repr(name), "Choose another one.")
        self.entries[name] = Entry(name, target, summary or f"registered by {target.partition(':')[0]}")
        self._added.add(name)

    def elsewhere(self, name: str) -> str:
        """How another process finds what is called ``name`` here: by the same name, or by what was registered."""
        return self.entries[name].target if name in self._added else name

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries[name] for name in sorted(self.entries))

    def __contains__(self, name: str) -> bool:
        return name in self.entries

    def get(self, name: str) -> Any:
        """The thing registered as ``name``; an unknown name is an error that suggests the nearest."""
        if name not in self.entries:
            raise unknown_name(self.kind, name, self.entries)
        return self.entries[name].load()
