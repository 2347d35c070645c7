"""The command ``archwright``: thin commands over the same public functions. ``--help`` imports no torch."""

from __future__ import annotations

import errno
import sys
from pathlib import Path
from typing import Any

import click

from archwright.cli import listing
from archwright.cli.latency import latency_command
from archwright.cli.reproduce import reproduce_command
from archwright.cli.score import score_command
from archwright.cli.search import SearchGroup
from archwright.errors import ArchwrightError


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="archwright")
def cli() -> None:
    """Finds neural-network architectures for your data and your device, and explains the choice."""


cli.add_command(SearchGroup(name="search", help="Search for an architecture by one of the methods below."))
for command in (*listing.COMMANDS, score_command, latency_command, reproduce_command):
    cli.add_command(command)


@cli.group()
def runs() -> None:
    """List, show and resume runs."""


@runs.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object as the last line.")
def runs_list(as_json: bool) -> None:
    """The runs in ./runs (or $ARCHWRIGHT_RUNS), oldest first."""
    from archwright.cli.view import print_json, show_runs
    from archwright.runs.run import list_runs

    found = list_runs()
    if as_json:
        print_json({"runs": [{"run": str(run.folder), "status": run.status(), **run.configuration} for run in found]})
    else:
        show_runs(found)


@runs.command("show")
@click.argument("run", default="last")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object as the last line.")
def runs_show(run: str, as_json: bool) -> None:
    """What a run was asked, how far it is and what it found. RUN is a folder, a name or 'last'."""
    from archwright.cli.view import print_json, show_run
    from archwright.runs.run import find_run

    found = find_run(run)
    if as_json:
        print_json({"run": str(found.folder), "status": found.status(), **found.header, "events": found.events()})
    else:
        show_run(found)


@runs.command("resume")
@click.argument("run", default="last")
@click.option("--limit", type=float, multiple=True, help="A further latency limit in ms, for a binas run; repeatable.")
@click.option("--remeasure", is_flag=True, help="Measure the latencies of a binas run anew, without training again.")
@click.option("--minutes", type=float, help="Time budget of this session.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object as the last line.")
def runs_resume(run: str, limit: tuple[float, ...], remeasure: bool, minutes: float | None, as_json: bool) -> None:
    """Continue a run where it stopped. RUN is a folder, a name or 'last'."""
    from archwright.cli.view import show_answer
    from archwright.runs.progress import TerminalProgress
    from archwright.runs.run import find_run
    from archwright.search.engine import resume

    folder = find_run(run).folder
    found = resume(folder, latency_ms=limit, remeasure=remeasure, minutes=minutes, progress=TerminalProgress())
    show_answer(found, as_json)


@cli.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("images", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--top", default=3, show_default=True, help="Classes to show.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object as the last line.")
def predict(model: Path, images: tuple[Path, ...], top: int, as_json: bool) -> None:
    """Classify IMAGES with MODEL (a .safetensors or .onnx file, or a run folder)."""
    from archwright.cli.view import print_json, show_predictions
    from archwright.models import load_classifier

    found = load_classifier(model).predict(images, top=top)
    if as_json:
        rows = [{"image": p.image, "class": p.label, "probability": p.probability, "top": p.top} for p in found]
        print_json({"model": str(model), "predictions": rows})
    else:
        show_predictions(found)


def main(arguments: list[str] | None = None) -> None:
    """Entry point: runs a command and turns errors into one clear line and an exit code."""
    try:
        result: Any = cli.main(args=arguments, prog_name="archwright", standalone_mode=False)
        sys.exit(result if isinstance(result, int) else 0)
    except click.exceptions.Abort:
        fail("interrupted", 130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except ArchwrightError as error:
        fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        fail("interrupted; what was saved can be continued with: archwright runs resume last", 130)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        fail(
            f"the disk is full ({error}). Nothing saved is lost: free some space, then: archwright runs resume last", 1
        )


def fail(message: str, code: int) -> None:
    """Print an error as a person reads it and leave."""
    click.echo(click.style("error: ", fg="red", bold=True) + message, err=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
