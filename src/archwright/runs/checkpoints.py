"""Checkpoints of one stage: the newest whole one is what a resumed run continues from."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, runtime_checkable

from archwright.errors import RunError
from archwright.runs import disk
from archwright.runs.files import Tree, load_tree, save_tree

SECONDS = 30.0
"""Least time between two checkpoints of one piece of work; looked up when it begins."""


@runtime_checkable
class CheckpointStore(Protocol):
    """What a training loop needs to survive a kill; :class:`Checkpoints` keeps it in files."""

    def save(self, position: int, tree: Tree) -> None:
        """Keep ``tree`` as the state after ``position`` steps."""

    def latest(self) -> tuple[int, Tree] | None:
        """The newest state that reads back whole, or None."""

    def clear(self) -> None:
        """Forget every state (the stage is finished, its result is kept elsewhere)."""


class Checkpoints:
    """Numbered checkpoint files of one stage; the ``keep`` newest stay.

    A damaged newest file (a truncated copy, a bad disk) is reported in ``warnings`` and the one before it is used.
    """

    def __init__(self, folder: Path, keep: int = 2) -> None:
        self.folder, self.keep = folder, keep
        self.warnings: list[str] = []

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("[0-9]*.safetensors"))

    def save(self, position: int, tree: Tree) -> None:
        """Write ``tree``, the state after ``position`` steps, then drop the oldest beyond ``keep``."""
        save_tree(self.folder / f"{position:09d}.safetensors", tree)
        for old in [*self._files()[: -self.keep], *self.folder.glob(".*.tmp")]:  # a kill leaves its aside file behind
            disk.remove(old)

    def latest(self) -> tuple[int, Tree] | None:
        """Position and state of the newest whole checkpoint; None where there is none."""
        for path in reversed(self._files()):
            try:
                return int(path.stem), load_tree(path)
            except RunError as error:
                self.warnings.append(f"{error} The one before it is used, or else the training starts anew.")
        return None

    def clear(self) -> None:
        """Remove all checkpoints of this stage."""
        for path in self._files():
            disk.remove(path)
