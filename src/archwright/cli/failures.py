"""What a person sees when something fails: one screen without a traceback, and the exit code that scripts go by."""

from __future__ import annotations

import errno
import os
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from typing import Any

import click

from archwright.errors import ArchwrightError
from archwright.owncode import place_of, told
from archwright.terminal import shortened

_FULL = (errno.ENOSPC, errno.EDQUOT)


class Program(click.Group):
    """The group of all commands; with ``--debug`` it prints the traceback of whatever leaves a command.

    A warning is one sentence, with ``--debug`` also the line of code that gave it.
    """

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; with ``--debug`` the traceback of what leaves it is printed."""
        usual = warnings.formatwarning
        try:
            if not ctx.params.get("debug"):
                warnings.formatwarning = _sentence
            return super().invoke(ctx)
        except click.exceptions.Exit:
            raise
        except BaseException:
            if ctx.params.get("debug"):
                traceback.print_exc()
            raise
        finally:
            warnings.formatwarning = usual


def open_closed_streams() -> None:
    """Where the program was started with stdin, stdout or stderr closed (``>&-``), let them lead nowhere.

    Otherwise the next file that is opened gets their number, and what is printed goes into it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            try:
                os.fstat(number)
            except OSError:
                os.dup2(os.open(os.devnull, os.O_RDWR), number)
            setattr(sys, name, Path(os.devnull).open("r" if number == 0 else "w"))  # noqa: SIM115 - until the end


def _sentence(message: Warning | str, *_: Any, **__: Any) -> str:
    """A warning for people."""
    return f"Warning: {message}\n"


def report_failure(error: BaseException) -> int:
    """Say what went wrong on stderr and give the exit code: 2 bad input, 3 no answer, 130 interrupted, 1 the rest."""
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else 1
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, BrokenPipeError):  # `archwright ... | head`: nobody is there to be told
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    message, code = _message(error)
    click.echo(click.style("error: ", fg="red", bold=True) + shortened(message), err=True)
    return code


def _message(error: BaseException) -> tuple[str, int]:
    """What to say, and the exit code."""
    if isinstance(error, click.exceptions.Abort):
        return "interrupted", 130
    if isinstance(error, KeyboardInterrupt):
        return "interrupted; what was saved can be continued with: archwright runs resume last", 130
    if isinstance(error, click.UsageError):
        where = f" Help: {error.ctx.command_path} --help" if error.ctx is not None else ""
        return error.format_message() + where, error.exit_code
    if isinstance(error, click.ClickException):
        return error.format_message(), error.exit_code
    if isinstance(error, ArchwrightError):
        return str(error), error.exit_code
    if isinstance(error, OSError) and error.errno in _FULL:
        do = "Nothing saved is lost: free some space, then: archwright runs resume last"
        return f"the disk is full ({error}). {do}", 1
    if isinstance(error, OSError) and error.errno is not None:
        return f"expected a file or folder that can be used, got: {error}.", 2
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        do = "Use smaller images, networks or batches."
        return f"expected something that fits into memory, got: {str(error) or 'no memory left'}. {do}", 2
    if place_of(error):
        return f"expected your own code to work, got {told(error)}.", 2
    return _unexpected(error), 1


def _unexpected(error: BaseException) -> str:
    """One line, with the traceback in a file: the run may have taken hours."""
    text = f"unexpected {type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'without a message'}"
    try:
        with tempfile.NamedTemporaryFile("w", prefix="archwright-", suffix=".txt", delete=False) as file:
            traceback.print_exception(error, file=file)
        return f"{text}. This is a bug; its traceback is in {Path(file.name)} (archwright --debug ... shows it)."
    except OSError:
        return f"{text}. This is a bug; archwright --debug ... shows its traceback."
