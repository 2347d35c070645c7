"""The errors a user can meet, each with the exit code the command line gives it.

Every message has one form: what was expected, what was got, what to do. Nothing here knows any other module.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ArchwrightError(Exception):
    """Base of everything Archwright raises on purpose."""

    exit_code = 1


class InputError(ArchwrightError, ValueError):
    """Something given by the user cannot be used.

    Args:
        expected: what would have been right, as a noun phrase ("an image folder with one sub-folder a class").
        got: what was there instead.
        do: the next step for the user; omitted where it is obvious.
    """

    exit_code = 2

    def __init__(self, expected: str, got: str, do: str = "") -> None:
        super().__init__(expected, got, do)
        self.expected, self.got, self.do = expected, got, do

    def __str__(self) -> str:
        text = f"expected {self.expected}, got {self.got}."
        return f"{text} {self.do}" if self.do else text


class InfeasibleError(ArchwrightError):
    """No architecture meets the limits that were asked for; the message prints the reachable range."""

    exit_code = 3


class RunError(ArchwrightError):
    """A run folder cannot be used: locked, from another version, or damaged beyond its last good checkpoint."""

    exit_code = 2


class DivergedError(ArchwrightError):
    """A loss or a score stopped being finite; the last good checkpoint is kept."""


class Interrupted(ArchwrightError):  # noqa: N818 - an event, not a mistake
    """The run was stopped by Ctrl-C, a signal or its time budget; everything is saved and can be resumed."""

    exit_code = 130


def unknown_name(kind: str, name: str, known: Iterable[str]) -> InputError:
    """The error for a name that is not registered, with the nearest known ones first.

    Args:
        kind: of the thing, as a noun ("space").
        name: that was given.
        known: names that there are.
    """
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    do = f"Did you mean {' or '.join(map(repr, near))}?" if near else ""
    return InputError(f"the name of a {kind} ({', '.join(known)})", repr(name), do)


def missing_extra(package: str, extra: str, purpose: str) -> InputError:
    """The error for an optional dependency that is not installed.

    Args:
        package: that is missing.
        extra: of Archwright that installs it.
        purpose: what it is needed for.
    """
    return InputError(
        f"the optional package {package!r} for {purpose}",
        "an environment without it",
        f"Install it with: pip install 'archwright[{extra}]'",
    )
