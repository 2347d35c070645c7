"""What a worker process runs: first it makes sure to end with its parent, then it works off items until told to end.

It is started as a script, ``python -P worker.py CONNECTION PARENT BY_SIGNAL``, so that nothing heavy is imported before
:func:`end_with` has run; the first item's function brings its modules (and torch) with it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import Any

PR_SET_PDEATHSIG = 1


def end_with(parent: int, by_signal: bool) -> None:
    """End this process when ``parent`` is gone: one that was killed cannot say so, and its run may be resumed.

    Linux does it by a signal, at once and whatever this process is doing; a thread that looks serves elsewhere, and
    where the signal cannot be used because it would follow a thread of the parent.

    Args:
        parent: process number.
        by_signal: ask Linux for the signal.
    """
    if by_signal and sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it was gone before the signal was asked for
        os._exit(1)
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)


def work_off(connection: Any) -> None:
    """Answer every (work, payload) with ("done", result) or ("failed", exception)."""
    import pickle

    sys.path[:] = connection.recv()
    while True:
        try:
            message = connection.recv_bytes()
        except EOFError:
            return
        try:
            work, payload = pickle.loads(message)  # noqa: S301 - of our own parent; imports the work's module
            from archwright.runs.stop import Stop

            answer = pickle.dumps(("done", work(payload, Stop())))
        except Exception as error:  # noqa: BLE001 - whatever it is, the parent is to know
            answer = pickle.dumps(("failed", portable(error)))
        connection.send_bytes(answer)


def portable(error: Exception) -> Exception:
    """The exception, or one with the same text where it does not travel; the place it comes from as a note."""
    import pickle
    import traceback

    from archwright.errors import ArchwrightError

    if not isinstance(error, ArchwrightError):
        error.add_note("In a worker process:\n" + "".join(traceback.format_exception(error)).rstrip())
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - just made
    except Exception:  # noqa: BLE001 - own constructors, members that do not pickle
        return ArchwrightError(f"{type(error).__name__}: {error}")
    return error


def main() -> None:
    """Entry point of the script."""
    connection, parent, by_signal = (int(argument) for argument in sys.argv[1:])
    end_with(parent, bool(by_signal))
    for number in (signal.SIGINT, signal.SIGTERM):  # what to do is the parent's decision
        signal.signal(number, signal.SIG_IGN)
    from multiprocessing.connection import Connection

    work_off(Connection(connection))


if __name__ == "__main__":
    main()
