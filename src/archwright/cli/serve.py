"""``archwright serve``: the live dashboard of the runs."""

from __future__ import annotations

import click

from archwright.cli.values import PORT


@click.command("serve", epilog="Example: archwright serve --port 8765")
@click.option("--port", type=PORT, default=8765, show_default=True, help="On this machine only; 0 takes a free one.")
def serve_command(port: int) -> None:
    """Show the runs in ./runs (or $ARCHWRIGHT_RUNS) in a browser: live progress, logs, reports, stop and resume.

    It prints an address with a secret of this start; only who has it gets in, and only from this machine.
    """
    from archwright.errors import missing_extra
    from archwright.runs.run import runs_root
    from archwright.terminal import say

    try:
        from archwright.report.server import serve
    except ImportError as error:
        raise missing_extra(error.name or "fastapi", "report", "the dashboard") from error
    try:
        serve(runs_root(), port, say)
    except KeyboardInterrupt:
        say("No longer served. Searches that were continued here go on.", stderr=True)
