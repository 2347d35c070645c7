"""How much a request will take, by a rough count before it begins; what nobody means is refused unless it is confirmed.

A slip of the keyboard (``--repeats 1000000000``) must not become a process that nobody ends, or a full memory. The
counts are of an order of magnitude: a multiply-accumulate takes what it takes on one thread of a laptop.
"""

from __future__ import annotations

from archwright.device import memory_bytes
from archwright.errors import InputError

LONGEST_HOURS = 48.0
"""What takes longer needs to be confirmed."""
MEMORY_SHARE = 0.5
"""Of the machine's memory; what takes more needs to be confirmed."""
MACS_A_SECOND = 5e9
SECONDS_A_CALL = 5e-5
"""What calling a module takes, whatever is in it."""
SECONDS_A_RECORD = 2e-3
"""What keeping the result of an evaluation takes, which waits for the disk."""
TRAINING = 3
"""A forward and a backward pass take so many times a forward pass."""
NUMBERS_A_WEIGHT = 4
"""A weight in training: itself, its gradient, its momentum, and a copy."""
BYTES_A_NUMBER = 4
MACS_A_NUMBER = 500
"""A step of training keeps a number for so many multiply-accumulates, at least, until it goes back."""
SCORING = 10
"""A metric takes so many passes forward, roughly."""
LONGEST_STEP = 20.0
"""Seconds; what takes longer by the count is not tried for an estimate, which then goes by the count."""


def seconds_of(macs: float, calls: float = 1.0) -> float:
    """Seconds that ``calls`` passes of ``macs`` multiply-accumulates each take, roughly."""
    return calls * (SECONDS_A_CALL + macs / MACS_A_SECOND)


def training_bytes(params: float, macs: float = 0.0) -> float:
    """Memory of a step of training.

    Args:
        params: of the network.
        macs: multiply-accumulates of a forward pass of the whole batch; 0 counts the weights alone.
    """
    return BYTES_A_NUMBER * (NUMBERS_A_WEIGHT * params + macs / MACS_A_NUMBER)


def refuse_large(what: str, seconds: float, memory: float = 0.0, yes: bool = False) -> None:
    """Refuse work that takes longer, or more memory, than anybody means without saying so.

    Args:
        what: the work, as "measuring latencies".
        seconds: that it takes, roughly.
        memory: in bytes, roughly.
        yes: whether it is confirmed.
    """
    room = MEMORY_SHARE * memory_bytes()
    if yes or (seconds <= 3600 * LONGEST_HOURS and memory <= room):
        return
    parts = [f"about {_time(seconds)}"] if seconds > 3600 * LONGEST_HOURS else []
    parts += [f"about {memory / 2**30:,.0f} GB"] if memory > room else []
    raise InputError(
        f"{what} within {LONGEST_HOURS:g} hours and half of the memory ({room / 2**30:,.0f} GB)",
        " and ".join(parts),
        "Ask for less, or confirm it with --yes (in Python: yes=True).",
    )


def _time(seconds: float) -> str:
    days = seconds / 86_400
    return f"{days / 365:,.0f} years" if days > 1000 else f"{days:,.0f} days"
