"""The command ``archwright``: thin commands over the same public functions. ``--help`` imports no torch."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from archwright.cli import listing
from archwright.cli.analyze import analyze_command
from archwright.cli.completion import completion_command
from archwright.cli.doctor import doctor_command
from archwright.cli.export import export_command
from archwright.cli.failures import Program, open_closed_streams, report_failure
from archwright.cli.latency import latency_command
from archwright.cli.predict import predict_command
from archwright.cli.reproduce import reproduce_command
from archwright.cli.score import score_command
from archwright.cli.search import SearchGroup, output_of, output_options
from archwright.cli.serve import serve_command
from archwright.cli.train import train_command
from archwright.cli.values import FINITE_POSITIVE, OVERWRITE, PATH, RANKS_HELP, TEXT, FiniteRange, refuse_idle


@click.group(
    cls=Program,
    epilog="Example: archwright search binas --data folder:photos --latency-ms 8",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(package_name="archwright")
@click.option("--debug", is_flag=True, help="Show the traceback of an error (before the name of the command).")
def cli(debug: bool) -> None:
    """Finds neural-network architectures for your data and your device, and explains the choice."""
    del debug  # read by Program, around every command


cli.add_command(
    SearchGroup(
        name="search",
        help="Search for an architecture by one of the methods below.",
        epilog="Example: archwright search hnas --data folder:photos --minutes 30",
    )
)
for command in (
    *listing.COMMANDS,
    analyze_command,
    score_command,
    latency_command,
    train_command,
    predict_command,
    export_command,
    reproduce_command,
    serve_command,
    doctor_command,
    completion_command,
):
    cli.add_command(command)


def with_output(function: Any) -> Any:
    """Give the function of a command the options of :func:`~archwright.cli.search.output_options`."""
    function.__click_params__ = [*getattr(function, "__click_params__", []), *reversed(output_options(group="Output"))]
    return function


@cli.group(epilog="Example: archwright runs show last")
def runs() -> None:
    """List, show and resume runs."""


@runs.command("list", epilog="Example: archwright runs list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object as the last line.")
def runs_list(as_json: bool) -> None:
    """The runs in ./runs (or $ARCHWRIGHT_RUNS), oldest first."""
    if as_json:
        from archwright.cli.view import print_json
        from archwright.runs.index import shown_status
        from archwright.runs.run import survey_runs

        found, damaged = survey_runs()
        rows = [{"run": str(run.folder), "status": shown_status(run.folder), **run.configuration} for run in found]
        print_json({"runs": rows, "damaged": damaged})
    else:
        from archwright.cli.show_runs import show_runs
        from archwright.runs.index import list_folder

        show_runs(*list_folder())


@runs.command("show", epilog="Example: archwright runs show last")
@click.argument("run", default="last", type=TEXT)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object as the last line.")
def runs_show(run: str, as_json: bool) -> None:
    """What a run was asked, how far it is and what it found. RUN is a folder, a name or 'last'."""
    from archwright.cli.show_runs import show_run
    from archwright.cli.view import print_json
    from archwright.runs.run import find_run

    found = find_run(run)
    if as_json:
        print_json({"run": str(found.folder), "status": found.status(), **found.header, "events": found.events()})
    else:
        show_run(found)


@runs.command("note", epilog="Example: archwright runs note last 'with the new photographs'")
@click.argument("run", type=TEXT)
@click.argument("text", required=False, type=TEXT)
def runs_note(run: str, text: str | None) -> None:
    """Write a note about a run, or show it; an empty TEXT removes it. RUN is a folder, a name or 'last'."""
    from archwright.runs.run import find_run
    from archwright.terminal import say

    found = find_run(run)
    if text is None:
        for line in found.note.splitlines() or ["No note."]:
            say(line)
    else:
        found.write_note(text)
        say(f"The note is in {found.folder / 'note.txt'}" if text.strip() else "The note is removed.", stderr=True)


@runs.command("delete", epilog="Example: archwright runs delete last")
@click.argument("names", nargs=-1, required=True, metavar="RUN...", type=TEXT)
@click.option("--yes", is_flag=True, help="Do not ask.")
def runs_delete(names: tuple[str, ...], yes: bool) -> None:
    """Remove runs with all that is in their folders. RUN is a folder, a name or 'last'."""
    from archwright.runs.run import find_run
    from archwright.terminal import say, visible

    for run in [find_run(name) for name in names]:
        if yes or click.confirm(f"Remove {visible(str(run.folder))} ({run.status()}) for good?", abort=True, err=True):
            run.delete()
            say(f"removed {run.folder}", stderr=True)


@runs.command("report", epilog="Example: archwright runs report last")
@click.argument("names", metavar="[RUN]...", nargs=-1, type=TEXT)
@click.option("--out", type=PATH, help="The page; report.html in the run, or comparison.html.")
@OVERWRITE
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object as the last line.")
def runs_report(names: tuple[str, ...], out: Path | None, overwrite: bool, as_json: bool) -> None:
    """Write the page of a run; of several runs, one page that compares them. RUN is a folder, a name or 'last'."""
    from archwright.cli.view import print_json
    from archwright.paths import check_output
    from archwright.report.compared import report_comparison
    from archwright.report.page import report_run
    from archwright.report.style import MARK
    from archwright.runs.files import write_atomic
    from archwright.runs.run import find_run
    from archwright.terminal import say

    folders = [find_run(name).folder for name in names or ("last",)]
    if len(folders) > 1:
        out = out or Path("comparison.html")
    if out is None:
        refuse_idle("without --out", "overwrite")
    else:
        check_output(out, MARK, overwrite)
    if out is not None and len(folders) > 1:
        path = report_comparison(folders, out)
    else:
        path = report_run(folders[0])
        if out is not None:
            write_atomic(out, path.read_bytes())
            path = out
    print_json({"report": str(path)}) if as_json else say(f"Report: {path}")


@runs.command("plot", epilog="Example: archwright runs plot last --out front.png")
@click.argument("run", default="last", type=TEXT)
@click.option("--out", type=PATH, default=Path("front.png"), show_default=True, help="The picture (.png, .svg, .pdf).")
@OVERWRITE
def runs_plot(run: str, out: Path, overwrite: bool) -> None:
    """Draw accuracy against cost of what a search found and tried. RUN is a folder, a name or 'last'."""
    from archwright.report.picture import draw_front
    from archwright.runs.run import find_run
    from archwright.terminal import say

    say(f"Picture: {draw_front(find_run(run).folder, out, overwrite)}")


@runs.command("stop", epilog="Example: archwright runs stop last")
@click.argument("run", default="last", type=TEXT)
def runs_stop(run: str) -> None:
    """Ask a search in another terminal or machine to save and stop. RUN is a folder, a name or 'last'."""
    from archwright.runs.run import find_run, resume_command
    from archwright.search.engine import stop
    from archwright.terminal import say

    folder = find_run(run).folder
    stop(folder)
    say(f"Asked {folder} to stop; continue it with: {resume_command(folder)}", stderr=True)


@runs.command("resume", epilog="Example: archwright runs resume last --latency-ms 6")
@click.argument("run", default="last", type=TEXT)
@click.option(
    "--latency-ms",
    type=FINITE_POSITIVE,
    metavar="NUMBER",
    multiple=True,
    help="A further latency limit in ms, for a finished run of a method that answers several; repeatable.",
)
@click.option("--remeasure", is_flag=True, help="Measure the run's latencies anew, without training again.")
@click.option("--minutes", type=FiniteRange(min=0), help="How long this session may work; it can be resumed again.")
@click.option(
    "--failures", type=click.IntRange(min=0), help="How many evaluations may fail in all, instead of what was asked."
)
@click.option("--ranks", type=click.IntRange(min=1), default=1, help=RANKS_HELP)
@with_output
@click.option("--allow-import", is_flag=True, help="Run what the run names: modules of yours, a Ray cluster's answers.")
@click.option("--accept-changes", is_flag=True, help="Go on with settings in run.json that were changed meanwhile.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object as the last line.")
def runs_resume(
    run: str,
    latency_ms: tuple[float, ...],
    remeasure: bool,
    minutes: float | None,
    failures: int | None,
    ranks: int,
    allow_import: bool,
    accept_changes: bool,
    as_json: bool,
    log: tuple[str, ...],
    quiet: bool,
    log_level: str | None,
) -> None:
    """Continue a run where it stopped. RUN is a folder, a name or 'last'."""
    from archwright.cli.view import show_answer
    from archwright.runs.run import find_run
    from archwright.search.engine import resume

    folder = find_run(run).folder
    found = resume(
        folder,
        latency_ms=latency_ms,
        remeasure=remeasure,
        minutes=minutes,
        failures=failures,
        **output_of(log, quiet, log_level),
        allow_import=allow_import,
        accept_changes=accept_changes,
        ranks=ranks,
    )
    show_answer(found, as_json)


@runs.command("time", epilog="Example: archwright runs time last --times 3")
@click.argument("run", default="last", type=TEXT)
@click.option("--times", type=click.IntRange(1, 1000), default=3, show_default=True, help="How often each is timed.")
@click.option(
    "--backend", type=click.Choice(["eager", "onnxruntime"]), help="What runs them; as in the search by default."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object as the last line.")
def runs_time(run: str, times: int, backend: Any, as_json: bool) -> None:
    """Time the networks that a finished run chose for latency limits again. RUN is a folder, a name or 'last'.

    Times are as the clock shows them, so on a busy machine they are longer. Nothing in the run changes.
    """
    from archwright.cli.view import print_json, show_times
    from archwright.runs.progress import TerminalProgress
    from archwright.runs.run import find_run
    from archwright.search.limited import time_again

    found = time_again(find_run(run).folder, times, TerminalProgress(), backend)
    if as_json:
        print_json({"models": [{**one.model_dump(), "within": one.within} for one in found]})
    else:
        show_times(found)


def main(arguments: list[str] | None = None) -> None:
    """Entry point: runs a command and turns every error into one screen and an exit code."""
    open_closed_streams()
    try:
        result: Any = cli.main(args=arguments, prog_name="archwright", standalone_mode=False)
        sys.stdout.flush()  # a reader that went away is noticed here, not at the end of the interpreter
    except BaseException as error:  # noqa: BLE001 - the last resort of the program
        sys.exit(report_failure(error))
    sys.exit(result if isinstance(result, int) else 0)


if __name__ == "__main__":
    main()
