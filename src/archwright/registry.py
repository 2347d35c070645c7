"""Named things: spaces, methods, proxies and data sets, found by name and extended by third parties.

An entry is a ``module:attribute`` string that is imported on first use, so that listing names costs no import of torch.
Third parties register through entry points of a group such as ``archwright.spaces``, under the name to be registered.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import entry_points
from typing import Any

from archwright.errors import unknown_name


@dataclass(frozen=True)
class Entry:
    """One registered thing: where it lives and what it is for, in one line."""

    name: str
    target: str
    summary: str

    def load(self) -> Any:
        """Import and return what ``target`` ("package.module:attribute") points at."""
        module, _, attribute = self.target.partition(":")
        return getattr(importlib.import_module(module), attribute)


class Registry:
    """All entries of one kind, our own and those of installed plug-ins."""

    def __init__(self, kind: str, *own: Entry, group: str = "") -> None:
        self.kind = kind
        self.group = f"archwright.{group or kind + 's'}"
        self._own = {entry.name: entry for entry in own}

    @cached_property
    def entries(self) -> dict[str, Entry]:
        """Our entries, then plug-ins; a plug-in cannot replace one of ours."""
        found = {}
        for point in entry_points(group=self.group):
            origin = point.dist.name if point.dist else point.module
            found[point.name] = Entry(point.name, point.value, f"plug-in from {origin}")
        return {**found, **self._own}

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries[name] for name in sorted(self.entries))

    def __contains__(self, name: str) -> bool:
        return name in self.entries

    def get(self, name: str) -> Any:
        """The thing registered as ``name``; an unknown name is an error that suggests the nearest."""
        if name not in self.entries:
            raise unknown_name(self.kind, name, self.entries)
        return self.entries[name].load()
