"""When to stop: Ctrl-C, a termination signal, a file that asks for it or the end of the time budget, at a safe point.

Long loops look at :attr:`Stop.requested` between two steps, save, and call :meth:`Stop.check`, which raises.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from archwright.errors import InputError, Interrupted

AT_FIRST = "\nStopping at the next step, where everything is saved; a second signal ends it at once.\n"
"""Said when the first signal comes."""


@contextmanager
def raise_on_signals(kept: str) -> Iterator[None]:
    """Raise :class:`Interrupted` where SIGINT or SIGTERM comes: for work without safe points of its own.

    Args:
        kept: what the message says about what was done so far.
    """

    def handle(number: int, _frame: FrameType | None) -> None:
        name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
        raise Interrupted(f"stopped by {name}; {kept}.")

    with _handled(handle):
        yield


@contextmanager
def _handled(handle: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """SIGINT and SIGTERM go to ``handle``; in a thread other than the main one, which gets no signals, nothing does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Stop:
    """A request to stop that loops poll.

    Args:
        minutes: time budget from now on; None for no limit.
    """

    def __init__(self, minutes: float | None = None) -> None:
        if minutes is not None and not 0 <= minutes <= 1e6:  # NaN is neither
            raise InputError("0 minutes or more", str(minutes))
        self._deadline = None if minutes is None else time.monotonic() + 60 * minutes
        self._signal: str | None = None
        self._file: Path | None = None

    def watch(self, file: Path) -> None:
        """From now on ``file`` asks to stop by being there: how another process, or machine, stops a run."""
        self._file = file

    @property
    def signalled(self) -> bool:
        """Whether a person or the system asked to stop."""
        return self._signal is not None or self._asked

    @property
    def _asked(self) -> bool:
        return self._file is not None and self._file.exists()

    @property
    def out_of_time(self) -> bool:
        """Whether the time budget is used up."""
        return self._deadline is not None and time.monotonic() >= self._deadline

    @property
    def requested(self) -> bool:
        """Whether to stop at the next safe point, for either reason."""
        return self.signalled or self.out_of_time

    def check(self) -> None:
        """Raise :class:`Interrupted` if a stop is requested; call it where everything is saved."""
        if self.signalled:
            raise Interrupted(f"stopped by {self._signal or 'a request'}")
        if self.out_of_time:
            raise Interrupted("stopped at the end of the time budget")

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Turn the first SIGINT or SIGTERM into a request, and say so; a second one ends the work at once.

        After the second they do again what the system does: a third ends the process, whatever it is doing.

        A signal that comes after the last safe point stops nothing here: work around this, which takes signals itself,
        gets it then. Python takes signals in the main thread only: a search in another thread leaves them to the
        program around it.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def handle(number: int, _frame: FrameType | None) -> None:
            if self._signal is not None:
                signal.signal(number, signal.SIG_DFL)
                raise KeyboardInterrupt
            self._signal = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
            os.write(2, AT_FIRST.encode())  # whatever is being printed just now
            around = before[signal.Signals(number)]
            if callable(around) and around is not signal.default_int_handler:
                missed.append(lambda: around(number, None))

        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        missed: list[Callable[[], object]] = []
        with _handled(handle):
            yield
        for hand_on in missed:
            hand_on()
