"""A run is a folder of plain files; everything needed to resume, read or move it is inside.

::

    run.json         configuration, versions, device, seed, list of stages (``plan``), fingerprint of the data
    data.npz         the images, where they were given in memory
    events.jsonl     what happened, append-only
    stages/NAME.json result of a finished stage; a finished stage is not redone
    items/NAME.jsonl finished work items of a stage under way
    checkpoints/NAME states of a stage under way
    artifacts/       what the user takes away: models, tables, plots
    lock             held while a process works on the run
    progress.json    how far that process is, for those who look on
    stop             asks that process to stop at its next safe point
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from logging import DEBUG
from pathlib import Path

from archwright.errors import InputError, RunError
from archwright.log import logger
from archwright.owncode import own_code
from archwright.paths import check_plain_run, check_utf8, check_writable, read_plain
from archwright.runs import disk, lock
from archwright.runs.checkpoints import Checkpoints
from archwright.runs.files import (
    ASIDE,
    Json,
    JsonLines,
    Place,
    Sealed,
    digests,
    file_checksum,
    forget,
    inside,
    read_json,
    read_sealed,
    reading,
    write_atomic,
    write_json,
    write_sealed,
)
from archwright.runs.telling import happened
from archwright.terminal import visible

FORMAT = 1
"""Version of the folder's layout; a run of another one is refused with a clear message."""

RESULT = "artifacts/result.json"
"""The answer of a finished run."""

_RECORDED = ("archwright", "torch", "numpy", "scipy", "scikit-learn", "optuna", "kornia")


NOTE = "note.txt"
"""In the run's folder: what somebody wrote about it."""
LONGEST_NOTE = 10_000
"""Characters of a note."""


class ItemLog:
    """Finished work items of one stage, each on disk as soon as it is done."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines = JsonLines(path, sealed=True)
        with reading(path.parent.parent):
            self.done: dict[str, Json] = {str(record["key"]): record["result"] for record in self._lines}

    def record(self, key: str, result: Json) -> None:
        """Keep the ``result`` of the item ``key``."""
        self.record_all([(key, result)])

    def record_all(self, results: Sequence[tuple[str, Json]]) -> None:
        """Keep several results by their keys: all are on disk when this returns."""
        self._lines.append(*({"key": key, "result": result} for key, result in results))
        self.done.update(results)


class Run:
    """One run folder. Create it with :meth:`create`, or :meth:`open` an existing one; work inside :meth:`locked`."""

    def __init__(self, folder: Path, header: dict[str, Json]) -> None:
        self.folder, self.header = folder, header
        self._events = JsonLines(folder / "events.jsonl")
        self.listeners: list[Callable[[dict[str, Json]], None]] = []
        """Called with every event that is recorded from now on."""
        self.left_by: lock.Holder | None = None
        """The process of another machine that left its lock behind, while this one holds it."""

    @classmethod
    def create(
        cls,
        folder: Path,
        configuration: dict[str, Json],
        device: dict[str, Json],
        keep_data: Callable[[Path], None] | None = None,
    ) -> Run:
        """Start a new run; an existing one is never overwritten.

        Args:
            folder: of the run; new or empty.
            configuration: what it is asked to do.
            device: machine and device that it starts on.
            keep_data: writes the images that were given in memory to a path, before there is a run to be resumed.
        """
        cls.check_free(folder)
        header = {
            "format": FORMAT,
            "created": time.strftime("%Y-%m-%dT%H:%M:%S"),
            "versions": {name: _version(name) for name in _RECORDED} | {"python": platform.python_version()},
            "machine": device,
            "configuration": configuration,
        }
        if keep_data is not None:
            keep_data(folder / "data.npz")
        write_json(folder / "run.json", header)
        return cls(folder, header)

    @staticmethod
    def check_free(folder: Path) -> None:
        """Refuse a folder that a new run cannot have: one with something in it, or that cannot be written or named."""
        check_utf8(str(folder.absolute()), "the path of a run")
        if (folder / "run.json").exists():
            raise InputError("a folder without a run", str(folder), f"Continue it with: {resume_command(folder)}")
        if folder.exists() and not (folder.is_dir() and all(_is_leftover(path.name) for path in folder.iterdir())):
            raise InputError("a new or empty folder for the run", str(folder))
        check_writable(folder / "run.json")

    @classmethod
    def open(cls, folder: Path, whole: bool = True) -> Run:
        """The run in ``folder``; says what is wrong with a folder that has none or one of another layout.

        Args:
            folder: of the run.
            whole: refuse a run with anything but plain files and folders in it, as somebody else's may have; a list of
                runs, which reads little of each, does without.
        """
        path = folder / "run.json"
        if not path.is_file():
            raise InputError("a run folder (with run.json)", str(folder), "List yours with: archwright runs list")
        if whole:
            check_plain_run(folder)
        header = read_json(path)
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            found = header.get("format") if isinstance(header, dict) else type(header).__name__
            versions = header.get("versions") if isinstance(header, dict) else None
            version = versions.get("archwright", "unknown") if isinstance(versions, dict) else "unknown"
            raise RunError(
                f"expected a run of format {FORMAT}, got format {found} (written by archwright {version}) in {path}. "
                f"Open it with that version: pip install 'archwright=={version}'"
            )
        _check_header(header, folder)
        return cls(folder, header)

    @property
    def configuration(self) -> dict[str, Json]:
        """What the run was asked to do."""
        configuration: dict[str, Json] = self.header["configuration"]
        return configuration

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run for this process; a second process gets an error that names the first."""
        with lock.held(self.folder) as self.left_by:
            self._sweep()
            yield

    def event(self, kind: str, **fields: Json) -> None:
        """Append one event of this ``kind`` with its ``fields`` and tell the listeners and, at DEBUG, the logger.

        A run whose folder was removed meanwhile ends here.
        """
        if not (self.folder / "run.json").exists():
            raise RunError(
                f"expected the run to stay in {self.folder}, got a folder without run.json: it was removed or moved "
                "while a process worked on it."
            )
        record = {"time": round(time.time(), 3), "kind": kind, **fields}
        self._events.append(record)
        if kind != "said" and logger.isEnabledFor(DEBUG):  # what was said is logged by the progress that said it
            logger.debug("%s", visible(happened(record)))
        for listener in self.listeners:
            with own_code("a callback"):
                listener(record)

    def events(self) -> list[dict[str, Json]]:
        """All events so far."""
        return list(self.each_event())

    def each_event(self) -> Iterator[dict[str, Json]]:
        """All events so far, one after the other: there may be very many."""
        for event, _ in self.events_after(Place()):
            yield event

    def events_after(self, place: Place) -> Iterator[tuple[dict[str, Json], Place]]:
        """Events behind ``place`` in their file, each with its own, from which a later look goes on."""
        for event, here in self._events.after(place):
            yield _checked_event(event, here.lines, self._events.path), here

    def last_events(self, count: int) -> tuple[list[dict[str, Json]], int]:
        """The last ``count`` events, and how many there are."""
        last, total = self._events.tail(count)
        first = total - len(last) + 1
        return [_checked_event(event, number, self._events.path) for number, event in enumerate(last, first)], total

    def seconds_spent(self) -> float:
        """Working time: each session from its start to its last event, the present one until now."""
        now = start = last = time.time()
        spent = 0.0
        for event in self.each_event():
            if event["kind"] == "started":
                spent, start = spent + last - start, event["time"]
            last = event["time"]
        return float(spent + now - start)

    def stage_result(self, name: str) -> Json | None:
        """The result of a finished stage, or None."""
        path = self._stage(name)
        return read_sealed(path).value if path.exists() else None

    def finish_stage(self, name: str, result: Json) -> None:
        """Keep the ``result`` of the stage ``name`` and drop its checkpoints.

        The stage is not run again unless the run is reopened.
        """
        named = {text: self.folder / text for text in _named_files(result)}
        files = {text: file_checksum(path) for text, path in named.items() if path.is_file()}
        write_sealed(self._stage(name), Sealed(result, digests(self._lasting_settings()), files))
        self.forget_checkpoints(name)

    def forget_checkpoints(self, name: str = "") -> None:
        """Remove all checkpoints of a stage, those of its items included; by default of all stages."""
        folder = self.folder / "checkpoints" / name
        if folder.is_dir() and not folder.is_symlink():
            disk.remove_folder(folder)
            disk.sync_folder(folder.parent)

    def _sweep(self) -> None:
        """Remove what a kill left lying about: files written aside, and checkpoints of finished stages."""
        for path in self.folder.rglob(".*.tmp"):
            if ASIDE.fullmatch(path.name):
                disk.remove(path)
        for path in (self.folder / "stages").glob("*.json"):
            self.forget_checkpoints(path.stem)

    def _lasting_settings(self) -> dict[str, Json]:
        """The settings that decide a result, each option of the method under its own name."""
        asked = {name: value for name, value in self.configuration.items() if name not in _MAY_CHANGE}
        options = asked.pop("options", None) or {}
        if not isinstance(options, dict):
            raise RunError(f"expected a configuration with options by name in {self.folder}, got other ones.")
        return asked | {f"options.{name}": value for name, value in options.items()}

    def changed_settings(self) -> list[str]:
        """Settings in ``run.json`` that are not those which the finished stages were made with."""
        now, found = digests(self._lasting_settings()), dict[str, None]()
        for path in sorted((self.folder / "stages").glob("*.json")):
            before = read_sealed(path).made_with
            names = {**before, **now} if before else {}
            found |= dict.fromkeys(name for name in names if before.get(name) != now.get(name))
        return list(found)

    def accept_settings(self) -> None:
        """Let the settings in ``run.json`` be those of the finished stages from now on: they are meant."""
        self.event("accepted", settings=self.changed_settings())
        for path in sorted((self.folder / "stages").glob("*.json")):
            write_sealed(path, read_sealed(path)._replace(made_with=digests(self._lasting_settings())))

    def check_file(self, name: str) -> Path:
        """The file ``name`` of the run, which must be the one that the last stage to name it left.

        Args:
            name: its path in the run, as ``artifacts/best.safetensors``.
        """
        path, left = inside(self.folder, name), ""
        for stage in self.header.get("plan", []):
            file = self._stage(stage["name"])
            left = read_sealed(file).files.get(name, left) if file.exists() else left
        if left and path.is_file() and file_checksum(path) != left:
            raise RunError(f"expected {path} as this run left it, got another file in its place.")
        return path

    def reopen(self, changes: dict[str, Json], stages: Sequence[str]) -> None:
        """Change the configuration and forget the answer and some stages' results; finished items are kept.

        The answer goes first and the configuration comes last: a kill in between leaves the run as it was asked for
        before, only unfinished.

        Args:
            changes: fields of the configuration with their new values.
            stages: names of the stages whose results go, in their order.
        """
        forget(self.folder / RESULT)
        for name in reversed(stages):
            forget(self._stage(name))
        self.header = {**self.header, "configuration": {**self.configuration, **changes}}
        write_json(self.folder / "run.json", self.header)
        self.event("reopened", **changes)

    def checkpoints(self, name: str) -> Checkpoints:
        """The checkpoints of a stage or of one of its items (``stage/item``)."""
        return Checkpoints(self.folder / "checkpoints" / name)

    def damaged_checkpoints(self) -> list[str]:
        """One sentence for each newest checkpoint that does not read back whole."""
        found = []
        for folder in sorted({path.parent for path in (self.folder / "checkpoints").rglob("[0-9]*.safetensors")}):
            checkpoints = Checkpoints(folder)
            checkpoints.latest()
            found += checkpoints.warnings
        return found

    def items(self, name: str) -> ItemLog:
        """The finished work items of a stage."""
        return ItemLog(self.folder / "items" / f"{name}.jsonl")

    def results_after(self, name: str, place: Place) -> Iterator[tuple[Json, Place]]:
        """Results of the finished work items of stage ``name`` behind ``place`` in their file, each with its own."""
        for record, here in JsonLines(self.folder / "items" / f"{name}.jsonl", sealed=True).after(place):
            yield record.get("result"), here

    def artifact(self, name: str) -> Path:
        """Path of an artifact; its folder exists."""
        path = self.folder / "artifacts" / name
        disk.make_folder(path.parent)
        return path

    def _stage(self, name: str) -> Path:
        return inside(self.folder, f"stages/{name}.json")  # the plan of somebody else's run names stages, too

    @property
    def stop_file(self) -> Path:
        """What a process that works on the run looks for between two steps, to stop when it is there."""
        return self.folder / "stop"

    def status(self) -> str:
        """``finished``, ``running`` (a process works on it) or ``stopped`` (resumable)."""
        return status_of(self.folder)

    def describe(self, **facts: Json) -> None:
        """Add facts to ``run.json``, such as the plan of stages."""
        self.header = {**self.header, **facts}
        write_json(self.folder / "run.json", self.header)

    def delete(self) -> None:
        """Remove the folder and all in it; a run that a process works on is refused, and so is a link to one."""
        if self.folder.is_symlink():
            do = f"Name the folder itself: {self.folder.resolve()}"
            raise InputError("the folder of a run to remove", f"{self.folder}, a link to it", do)
        with self.locked():
            disk.remove_folder(self.folder)

    @property
    def note(self) -> str:
        """What somebody wrote about the run; empty where nobody did."""
        path = self.folder / NOTE
        return read_plain(path).decode(errors="replace")[:LONGEST_NOTE] if path.is_file() else ""

    def write_note(self, text: str) -> None:
        """Keep ``text`` as the note of the run, also while a process works on it; an empty one removes it."""
        text = text.strip()
        if len(text) > LONGEST_NOTE:
            raise InputError(f"a note of at most {LONGEST_NOTE:,} characters", f"{len(text):,}")
        if text:
            write_atomic(self.folder / NOTE, f"{text}\n".encode(errors="backslashreplace"))
        else:
            disk.remove(self.folder / NOTE)

    def on_epoch(self, stage: str, **which: Json) -> Callable[[int, Mapping[str, Json]], None]:
        """For a training loop: a function of the epoch's number (from 0) and metrics that records an event ``epoch``.

        Args:
            stage: that trains.
            which: further fields of the event, such as the architecture.
        """

        def record(epoch: int, metrics: Mapping[str, Json]) -> None:
            self.event("epoch", stage=stage, **which, epoch=epoch, **metrics)

        return record

    def on_part(self, training: str) -> Callable[[float, Mapping[str, Json]], None]:
        """For a training of counted steps, called ``training``: a function of the percent done and the metrics."""

        def record(percent: float, metrics: Mapping[str, Json]) -> None:
            self.event("part", training=training, percent=round(percent, 2), **metrics)

        return record


def _named_files(result: Json) -> list[str]:
    """Paths of artifacts anywhere in a stage's result."""
    if isinstance(result, str):
        return [result] if result.startswith("artifacts/") else []
    parts = result.values() if isinstance(result, dict) else result if isinstance(result, list) else ()
    return [one for part in parts for one in _named_files(part)]


def _is_leftover(name: str) -> bool:
    """Whether a file is one that a kill leaves before there is a run."""
    return name == "data.npz" or ASIDE.fullmatch(name) is not None


def status_of(folder: Path) -> str:
    """``finished``, ``running`` or ``stopped``, as :meth:`Run.status` says.

    Reading it takes no lock, which could turn away a process that is just starting.
    """
    if os.path.exists(f"{folder}/{RESULT}"):  # noqa: PTH110 - asked of ten thousand runs at once
        return "finished"
    found = lock.holder(folder)
    return "running" if found is not None and found.works else "stopped"


_MAY_CHANGE = frozenset(
    ("data", "device", "threads", "executor", "address", "workers", "minutes", "failures", "timeout", "limits")
)
"""Settings that say where and how long a run works, what it may be asked besides, and where the images lie, whose
fingerprint is kept: their change changes no finished result."""
_HEADER: dict[str, type] = {"created": str, "versions": dict, "machine": dict, "configuration": dict}
MOST_OF_A_PART = 40
"""Characters of a run folder's name that a method or a space has."""
MOST_NAME = 100
"""Characters of the name of a stage, which is the name of its files."""
_ASKED: dict[str, type] = {"method": str, "space": str, "seed": int}
"""What lists show; the configuration as a whole is validated where a search is made of it."""


def _check_header(header: dict[str, Json], folder: Path) -> None:
    """Refuse a damaged ``run.json``."""
    problems = [f"no {name}" for name in _HEADER if name not in header]
    problems += _wrong_plan(header.get("plan", []))
    problems += _wrong_types(header, _HEADER) or _wrong_types(header.get("configuration", {}), _ASKED)
    if problems:
        raise RunError(f"expected a whole run.json in {folder}, got {'; '.join(problems)}.")


def _wrong_plan(plan: Json) -> list[str]:
    """What is wrong with a plan of stages, each with its name and its title."""
    stages = plan if isinstance(plan, list) else [plan]
    named: dict[str, type] = {"name": str, "title": str}
    good = all(isinstance(one, dict) and set(one) >= set(named) and not _wrong_types(one, named) for one in stages)
    if not good:
        return ["a plan that is no list of stages"]
    return [] if all(_names_a_file(one["name"]) for one in stages) else ["a plan with a stage whose name no file has"]


def _names_a_file(stage: str) -> bool:
    """Whether a file in the run's folder may be called so, with an ending."""
    return 0 < len(stage) <= MOST_NAME and stage.isascii() and stage.isprintable() and "/" not in stage


def _wrong_types(values: dict[str, Json], types: dict[str, type]) -> list[str]:
    """What is there and of another type; True and False are no numbers."""
    return [
        f"{name} of type {type(values[name]).__name__}"
        for name, kind in types.items()
        if name in values and type(values[name]) is not kind
    ]


_EVENTS: dict[str, dict[str, type]] = {
    "stage": {"name": str, "title": str},
    "epoch": {"stage": str, "epoch": int},
    "diagnostics": {"epoch": int},
    "evaluated": {"stage": str, "architecture": str},
    "failed": {"stage": str, "architecture": str, "why": str},
    "said": {"text": str},
}
"""What those who read events rely on, by kind."""


def _checked_event(event: dict[str, Json], number: int, path: Path) -> dict[str, Json]:
    """``event`` with a kind, a time of this age or of a clock that was never set, and what its kind says."""
    at, kind = event.get("time"), event.get("kind")
    fields = _EVENTS.get(kind, {}) if isinstance(kind, str) else {"kind": str}
    wrong = [name for name, one in fields.items() if type(event.get(name)) is not one]
    if wrong or not isinstance(at, int | float) or not -1e10 <= at < 1e11:
        raise RunError(f"expected an event with its time and kind in line {number} of {path}, got another record.")
    return event


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def resume_command(folder: Path) -> str:
    """What continues the run in ``folder``, for a shell."""
    return f"archwright runs resume {shlex.quote(str(folder))}"


def runs_root() -> Path:
    """Where runs are kept: ``$ARCHWRIGHT_RUNS`` or ``./runs``."""
    return Path(os.environ.get("ARCHWRIGHT_RUNS", "runs"))


def new_folder(*parts: str) -> Path:
    """A new, empty folder in the runs root, named by the time and ``parts``; no other process gets the same."""
    stem = "-".join(
        [
            time.strftime("%Y%m%d-%H%M%S"),
            *(re.sub(r"[^A-Za-z0-9.]+", "-", part)[:MOST_OF_A_PART].strip("-") for part in parts),
        ]
    )
    for suffix in ("", *(f"-{n}" for n in range(2, 1000))):
        folder = runs_root() / f"{stem}{suffix}"
        try:
            disk.make_folder(folder, new=True)
        except FileExistsError:
            continue
        return folder
    raise RunError(f"expected a free run name in {runs_root()}, got a thousand runs called {stem}.")


def list_runs(root: Path | None = None) -> list[Run]:
    """The readable runs of a folder, oldest first; others are passed over (:func:`survey_runs` says why)."""
    return survey_runs(root)[0]


def survey_runs(root: Path | None = None) -> tuple[list[Run], list[str]]:
    """The readable runs of a folder, oldest first, and one sentence for each that is not readable."""
    root = runs_root() if root is None else root
    found, damaged = [], []
    for path in sorted(root.glob("*/run.json")):
        try:
            found.append(Run.open(path.parent, whole=False))
        except (RunError, InputError, OSError) as error:
            damaged.append(f"{path.parent.name}: {error}")
    return found, damaged


def _last_run(root: Path) -> Run:
    """The newest readable run of a folder."""
    for path in sorted(root.glob("*/run.json"), reverse=True):
        with suppress(RunError, InputError, OSError):
            Run.open(path.parent, whole=False)
            break
    else:
        raise InputError(f"a run in {root}", "none")
    return Run.open(path.parent)


def find_run(name: str) -> Run:
    """The run called ``name`` (a path, a name in the runs root, or ``last``)."""
    if name == "last":
        return _last_run(runs_root())
    for folder in (Path(name), runs_root() / name):
        if (folder / "run.json").is_file():
            return Run.open(folder)
    return Run.open(Path(name))


__all__ = [
    "FORMAT",
    "ItemLog",
    "Run",
    "find_run",
    "list_runs",
    "new_folder",
    "runs_root",
    "status_of",
    "survey_runs",
]
