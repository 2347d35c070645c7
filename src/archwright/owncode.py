"""The one place where a user's own code is called: whatever leaves it becomes one error that says whose code it was.

A function that scores architectures, a network, an augmentation, a callback or a module may raise anything, end the
process by ``sys.exit``, call itself without end, or never return. None of these is a bug of ours, and none may take the
work of hours with it.
"""

from __future__ import annotations

import inspect
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from archwright.errors import ArchwrightError

_OURS = str(Path(__file__).parent)


class OwnCodeError(ArchwrightError):
    """Code of the user's failed; the message says which, how and where."""

    exit_code = 2


class _OutOfTime(BaseException):
    """The time of a call is over."""


@contextmanager
def own_code(what: str, seconds: float | None = None) -> Iterator[None]:
    """Around a call of the user's code.

    What leaves it, also SystemExit, is raised as :class:`OwnCodeError`. Errors of ours pass (a user may raise them on
    purpose), and so does Ctrl-C, except in a worker process, which gets none: there it is the code's own.

    Args:
        what: the code, as "your function score.py:f".
        seconds: how long it may take, where this is the main thread; None for any time.
    """
    try:
        with time_limit(what, seconds):
            yield
    except ArchwrightError:
        raise
    except KeyboardInterrupt:
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            raise
        raise OwnCodeError(f"expected {what} to return, got KeyboardInterrupt.") from None
    except GeneratorExit:
        raise
    except BaseException as error:
        raise OwnCodeError(f"expected {what} to return, got {told(error)}.") from error


@contextmanager
def time_limit(what: str, seconds: float | None) -> Iterator[None]:
    """Around work that may take so many seconds: after them it is ended with :class:`OwnCodeError`.

    Args:
        what: the work, as "your function score.py:f".
        seconds: how long it may take, where this is the main thread; None for any time.
    """
    try:
        with _alarm(seconds):
            yield
    except _OutOfTime:
        raise OwnCodeError(f"expected {what} to return within {seconds:g} s, got no answer.") from None


def called(function: Callable[..., Any], known: Mapping[str, Any], what: str) -> Any:
    """What a user's function returns, given those of the ``known`` values that it has parameters for.

    Args:
        function: of the user's.
        known: by the names of parameters.
        what: the function, as in :func:`own_code`.
    """
    with own_code(f"{what} of {', '.join(known)}, or some of them,"):
        taken = inspect.signature(function).parameters
        open_ended = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in taken.values())
        return function(**{name: value for name, value in known.items() if open_ended or name in taken})


def told(error: BaseException) -> str:
    """An exception in one line, with the last line of the user's that it passed."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    place = place_of(error)
    return type(error).__name__ + (f": {text[:300].rstrip('.')}" if text else "") + (f" ({place})" if place else "")


def place_of(error: BaseException) -> str:
    """``FILE, line N`` of the innermost line of the user's in the traceback; empty where there is none."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame.filename)]
    return f"{frames[-1].filename}, line {frames[-1].lineno}" if frames else ""


def _is_users(file: str) -> bool:
    """Whether a file is neither ours nor of an installed package or of Python itself."""
    known = (_OURS, sys.prefix, sys.base_prefix, "<")
    return not file.startswith(known) and "site-packages" not in file and "dist-packages" not in file


@contextmanager
def _alarm(seconds: float | None) -> Iterator[None]:
    """Raises after so many seconds, in the main thread, which gets signals; elsewhere nothing is bounded."""
    if seconds is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(_number: int, _frame: FrameType | None) -> None:
        raise _OutOfTime

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)  # again and again: a bare `except:` may swallow the first
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
