"""``archwright doctor``: whether this installation works, and what it lacks."""

from __future__ import annotations

import click

_SIGNS = {"good": "ok", "missing": "--", "bad": "!!"}


@click.command("doctor", epilog="Example: archwright doctor")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object as the last line of stdout.")
@click.pass_context
def doctor_command(ctx: click.Context, as_json: bool) -> None:
    """Say versions, device, optional packages, data and runs folder, and try a small search (exit code 1 if bad)."""
    from dataclasses import asdict

    from archwright.cli.view import print_json
    from archwright.doctor import examine
    from archwright.terminal import say

    findings = []
    for one in examine():
        findings.append(one)
        if not as_json:
            say(f"{_SIGNS[one.state]}  {one.topic + ' ' + one.name:<28} {one.text}")
    if as_json:
        print_json({"findings": [asdict(one) for one in findings]})
    ctx.exit(1 if any(one.state == "bad" for one in findings) else 0)
