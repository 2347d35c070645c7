"""Run a search: validate everything, open the run folder, do the stages that are not done, keep the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from torch import Tensor

from archwright.data import ImageData, from_object
from archwright.data.kept import keep
from archwright.data.request import remember
from archwright.device import Device, load_average, processors
from archwright.effort import LONGEST_STEP, SECONDS_A_RECORD, TRAINING, refuse_large, seconds_of, training_bytes
from archwright.errors import ArchwrightError, InfeasibleError, InputError, Interrupted, RunError
from archwright.imports import require_permission, require_trust, trust
from archwright.numerics import use
from archwright.owncode import place_of, told
from archwright.references import ObjectRef, SpaceRef, refer
from archwright.runs import disk
from archwright.runs.files import Json, write_atomic
from archwright.runs.progress import KeptProgress, Progress, logged, said_seconds
from archwright.runs.run import Run, new_folder, resume_command, runs_root
from archwright.runs.stop import Stop
from archwright.search.answer import Answer, Found
from archwright.search.asked import asked_for, check_idle, completed, names_given, space_text
from archwright.search.configuration import ASK_AND_TELL, Configuration, foreign, imports, references, validated
from archwright.search.context import Context
from archwright.search.method import BY_LATENCY, BY_LIMITS, Method, Redone, SearchMethod, Stage
from archwright.search.plan import planned
from archwright.search.registry import methods
from archwright.search.task import Task
from archwright.search.together import check_ranks, join, prepare, with_ranks
from archwright.spaces.base import Space
from archwright.spaces.model_space import ModelSpace
from archwright.tables.base import load_benchmark
from archwright.terminal import brief
from archwright.trackers import attach, check_trackers
from archwright.training.team import FEW_IMAGES, Team

BUSY = 0.75
"""Load of a processor from which on a machine is busy before a search begins."""
Callback = Callable[[dict[str, Json]], None]
"""Called with every event of a run as it is recorded: its ``kind`` (stage, evaluated, failed, finished) and fields."""


@contextmanager
def _as_written() -> Iterator[None]:
    """Refuse a result without what a later stage reads of it, in the run that goes on or in one that is used again."""
    try:
        yield
    except ValidationError as error:
        wrong = error.errors()[0]
        what = f"{'.'.join(map(str, (error.title, *wrong['loc'])))}: {wrong['msg']}"
        raise RunError(
            f"expected the results of a run as they were written, got a damaged or altered file ({what})."
        ) from error


@_as_written()
def search(
    method: str,
    *,
    space: str | Space[Any] | None = None,
    data: Any = None,
    evaluate: str | Callable[[Any], float] | None = None,
    augment: str | Callable[[Tensor], Tensor] = "default",
    callbacks: Sequence[Callback] = (),
    log: Sequence[str] = (),
    run: Path | str | None = None,
    progress: Progress | None = None,
    options: dict[str, Any] | None = None,
    yes: bool = False,
    ranks: int = 1,
    **settings: Any,
) -> Answer:
    """Search for an architecture.

    Args:
        method: registered name (``archwright methods`` lists them).
        space: registered name, a text as on the command line, or a space of your own.
        data: a text as on the command line, or what you have in memory (see :func:`archwright.data.from_object`),
            which the run keeps in its folder; the embedded digits by default, none beside ``evaluate``.
        evaluate: your own function of an architecture, higher is better, instead of training.
        augment: of training images; also a function of a batch (n, C, H, W) in [0, 1].
        callbacks: called with every event of the run; one that raises :class:`~archwright.errors.Interrupted` stops it.
        log: trackers that the events go to: ``tensorboard``, ``mlflow``, ``wandb`` (see :mod:`archwright.trackers`).
        run: folder of the run; a new one in the runs root by default.
        progress: where to show what happens; silent by default.
        options: the method's own options; they may also be given as further keyword arguments.
        yes: begin also what takes days (see :mod:`archwright.effort`).
        ranks: processes on this machine that train together, a divisor of the setting ``shards``; they do not change
            the answer (see :mod:`archwright.search.together`).
        settings: fields of :class:`~archwright.search.configuration.Configuration`.

    Example:
        >>> found = search("random", space="nasbench201", data="digits", evaluations=4)  # doctest: +SKIP
        >>> found.best.predict(["three.png"])  # doctest: +SKIP
        >>> search("evolution", space=ChoiceSpace({"x": range(9)}), evaluate=lambda a: -(a["x"] ** 2))  # doctest: +SKIP
    """
    chosen: type[Method] = methods.get(method)
    own = None if augment == "default" else augment
    given = {**settings, "space": space, "data": data, "evaluate": evaluate, "augment": own, "options": options or {}}
    asked = asked_for(method, given)
    check_ranks(asked.shards, ranks)
    team = join(asked.shards)
    for what in foreign(asked.model_dump()):
        trust(what)
    check_trackers(log)
    Run.check_free(Path(run) if run is not None else runs_root() / "new")
    images = None if data is None or isinstance(data, str) else _in_memory(data, asked)
    configuration = completed(chosen, Task(asked, given=images))
    check_idle(chosen, configuration, names_given(asked))  # beside what the method chose
    # Everything is validated on a context without a folder, so that bad input leaves none behind.
    nowhere, device = Run(Path(run or runs_root() / "new"), {}), compute_device(configuration)
    context = Context(configuration, nowhere, device, Stop(), logged(progress), images)
    prepared = chosen(context)
    _ = context.executor
    prepared.check()
    if images is None:
        context.executor.require(context.task.data_request.needs if configuration.data is not None else ())
    _check_shards(prepared, team is not None or ranks > 1)
    counted = _check_step(prepared, yes)
    if configuration.minutes is not None:
        refuse_large("a search", 60 * configuration.minutes, yes=yes)
    with _training_together(context, team, ranks):
        if configuration.minutes is not None:
            prepared = _within_minutes(prepared, configuration.minutes)
            context = prepared.context
        else:
            refuse_large("a search", _say_plan(prepared, counted), yes=yes)
        folder = Path(run) if run is not None else new_folder(method, context.task.space.name)
        keep_images = None if images is None else partial(keep, images)
        context.run = Run.create(folder, context.configuration.model_dump(), device.describe(), keep_images)
        context.run.listeners = [*callbacks, *(attach(name, context.run) for name in log)]
        context.task.home = folder
        if images is not None:
            remember(context.task.data_request, images)
        return _finish(prepared)


@contextmanager
def _training_together(context: Context, joined: Team | None, ranks: int) -> Iterator[None]:
    """Give a search the processes that train with this one.

    Args:
        context: of the search.
        joined: those that were started with this process.
        ranks: how many there are to be in all, where this process starts them.
    """
    threads = context.device.threads
    with with_ranks(ranks, context.configuration.shards, threads) as started:
        context.together = joined or started
        numerics = context.configuration.numerics
        context.team.call(prepare, space=context.task.space_text, threads=threads, numerics=numerics)
        yield


def _check_shards(method: Method, several: bool) -> None:
    """Refuse batches that cannot be cut into the shards, and what other processes cannot have; warn of small shards.

    Args:
        method: of the search.
        several: whether other processes train with this one.
    """
    context, shards = method.context, method.context.configuration.shards
    if several:
        context.task.check_own(sends_away=True)
    if shards == 1 or context.configuration.data is None:
        return
    sizes = [min(size, len(context.task.data.train)) for size in method.batch_sizes()]
    least = min(sizes, default=shards)
    if least < shards:
        raise InputError(f"batches of at least one image for each of {shards} shards", f"{least} images a batch")
    cut = min(sizes[1:] if context.configuration.sync_norm else sizes, default=least) // shards
    if cut < FEW_IMAGES:
        context.progress.warn(
            f"Note: shards of {cut} images: statistics of batch norms over fewer than {FEW_IMAGES} are poor. Give "
            "larger batches, fewer shards or, where networks are trained alone, --sync-norm."
        )


def _in_memory(data: Any, asked: Configuration) -> ImageData:
    return from_object(data, seed=asked.seed, image_size=asked.image_size, split=asked.split)


def _within_minutes(method: Method, minutes: float) -> Method:
    """The same search cut to the time there is; what was cut is said."""
    configuration, expected = planned(method, minutes)
    changed = method
    if configuration != method.context.configuration:
        changed = type(method)(method.context.changed(configuration))
        changed.check()
    context = changed.context
    if configuration.data is not None:
        context.progress.say(context.task.data.describe())
    evaluations = configuration.options.get("evaluations")
    parts = [f"{evaluations} evaluations"] if evaluations is not None else []
    parts += [f"{context.task.recipe.epochs} epochs each"] if configuration.data and changed.counts_epochs else []
    text = (
        f"{configuration.method} in about {expected:.1f} of {minutes:g} min{': ' if parts else ''}{', '.join(parts)}."
    )
    context.progress.say(text if expected <= minutes else f"{text} No less ends with an answer.")
    return changed


@_as_written()
def resume(
    folder: Path | str,
    *,
    latency_ms: Sequence[float] = (),
    remeasure: bool = False,
    minutes: float | None = None,
    failures: int | None = None,
    space: Space[Any] | None = None,
    evaluate: Callable[[Any], float] | None = None,
    augment: Callable[[Tensor], Tensor] | None = None,
    callbacks: Sequence[Callback] = (),
    log: Sequence[str] = (),
    progress: Progress | None = None,
    allow_import: bool = False,
    accept_changes: bool = False,
    ranks: int = 1,
) -> Answer:
    """Continue a run where it stopped; a finished one returns its answer.

    Args:
        folder: of the run.
        latency_ms: further latency limits for a run whose method answers several: only what they need is done.
        remeasure: make the latency table anew and time the networks again; nothing is trained again for it.
        minutes: how long this session may work; what is left is for the next one.
        failures: how many evaluations may fail in all, instead of what the search was asked.
        space: the space of the run, where it was an object of another program.
        evaluate: the function of the run, where it was an object of another program.
        augment: the augmentation of the run, where it was an object of another program.
        callbacks: called with every event from now on.
        log: trackers that these events go to (see :func:`search`).
        progress: where to show what happens; silent by default.
        allow_import: whether modules of the user's that the run names (its space, function or augmentation) may be
            imported, which runs them, and whether the answers of a Ray cluster or the pickles of a benchmark that it
            names may be run; what this process has used before needs no permission.
        accept_changes: go on although settings in ``run.json`` are not those that the finished stages were made with.
        ranks: processes on this machine that train together; any divisor of the run's shards goes on with it.
    """
    check_trackers(log)
    run = Run.open(Path(folder))
    kept = run.configuration.get("shards", 1)
    shards = kept if isinstance(kept, int) else 1  # what is no number is refused with the rest of the configuration
    check_ranks(shards, ranks)
    team = join(shards)
    run.listeners = list(callbacks)
    stop, progress = Stop(minutes), logged(progress)
    if run.configuration.get("evaluate") == ASK_AND_TELL:
        raise InputError("a run of a search", f"a study in {folder}", "Go on with it in Python: archwright.Study(...).")
    _check_settings(run, accept_changes)
    if remeasure or latency_ms or run.status() != "finished":
        _check_imports(run, allow_import, {"space": space, "evaluate": evaluate, "augment": augment})
    if remeasure:
        _forget_latencies(reopened(run, stop, progress))
    if latency_ms:
        return _with_limits(run, list(latency_ms), stop, progress, team, ranks)
    changes = _given_again(run, {"space": space, "evaluate": evaluate, "augment": augment})
    prepared = reopened(run, stop, progress, **changes, **({} if failures is None else {"failures": failures}))
    if failures is not None and "failures" not in prepared.uses:
        raise InputError("a run of a method that evaluates architectures (--failures)", f"one of {prepared.name!r}")
    run.listeners += [attach(name, run) for name in log]
    if run.status() == "finished":  # looked at after the configuration: a damaged run is not passed on
        return Answer.read(run.folder)
    _say_imports(prepared.context)
    prepared.check()
    with _training_together(prepared.context, team, ranks):
        return _finish(prepared, resumed=True)


def stop(folder: Path | str) -> None:
    """Ask the process that works on a run, here or on another machine, to save and stop; it may take a step or two."""
    run = Run.open(Path(folder))
    if run.configuration.get("evaluate") == ASK_AND_TELL:
        raise InputError("a run of a search", f"a study in {folder}", "The program that asks it ends it.")
    if run.status() != "running":
        raise InputError("a run that a process works on", f"a {run.status()} one in {folder}")
    write_atomic(run.stop_file, b"")


def _check_settings(run: Run, accept_changes: bool) -> None:
    """Refuse a run whose settings were changed since a stage was finished, unless that is on purpose."""
    changed = run.changed_settings()
    if changed and not accept_changes:
        raise RunError(
            f"expected the settings that the finished stages of {run.folder} were made with, got others in its "
            f"run.json: {', '.join(changed)}. Put them back, or go on with them by --accept-changes "
            "(accept_changes=True)."
        )
    if changed:
        with run.locked():
            run.accept_settings()


def _check_imports(run: Run, allowed: bool, given: Mapping[str, Any]) -> None:
    """Refuse to import what a run names, unless its reader allows it, gave it again or has used it in this process."""
    for name, named in references(run.configuration).items():
        own = named if isinstance(named, ObjectRef) else named.object if isinstance(named, SpaceRef) else None
        if own is not None and not own.is_local and given.get(name) is None:
            looked_up = isinstance(named, SpaceRef) and named.kind == "object" and own.is_imported
            require_permission(own, name, f"the run in {run.folder}", allowed or looked_up)
    for what in foreign(run.configuration):
        require_trust(what, f"the run in {run.folder}", allowed)


def _say_imports(context: Context) -> None:
    """A run that names a user's own module is about to execute it; this is never silent."""
    for place in imports(context.configuration.model_dump()):
        context.progress.say(f"Importing {place}, which this run names.")
    for what in foreign(context.configuration.model_dump()):
        context.progress.say(f"Running {what}, which this run names.")


def _given_again(run: Run, objects: dict[str, Any]) -> dict[str, str]:
    """The texts of objects that a user gives again because they lived in another program."""
    named = references(run.configuration)
    given = {name: thing for name, thing in objects.items() if thing is not None}
    texts = {name: space_text(thing) if name == "space" else refer(thing) for name, thing in given.items()}
    for name, text in texts.items():
        known = run.configuration.get(name) or ""
        if text != known and not (name in named and named[name].is_local):
            raise InputError(f"no {name} beside a run that names its own", f"another one than {known or 'none'}")
    return texts


def reopened(run: Run, stop: Stop, progress: Progress, **changes: Any) -> Method:
    """The method of a run, as the run was configured but for ``changes``.

    Args:
        run: that exists.
        stop: what its stages poll.
        progress: where it is shown.
        changes: settings of its configuration that are otherwise.
    """
    values = {**run.configuration, **changes}
    configuration = validated(Configuration, values, f"configuration in {run.folder}")
    context = Context(configuration, run, compute_device(configuration), stop, progress)
    method: Method = methods.get(configuration.method)(context)
    return method


def _redone(method: Method, by: Redone) -> list[str]:
    """Stages that are done again for further limits, or for latencies measured anew."""
    return [stage.name for stage in method.stages() if stage.redone & by]


def _forget_latencies(method: Method) -> None:
    """Let a run measure its latencies again; what it trained stays, and limits that it chose by itself."""
    run, stages = method.context.run, _redone(method, BY_LATENCY)
    if not stages:
        raise InputError("a run of a method that measures latencies", f"one of {method.name!r}")
    method.check()
    limits = method.limits
    with run.locked():
        method.forget_latencies()
        run.reopen({"limits": limits}, stages)


def _with_limits(
    run: Run, latency_ms: list[float], stop: Stop, progress: Progress, team: Team | None, ranks: int
) -> Answer:
    """The answer of a finished run with further latency limits; it is as before where one of them cannot be met.

    Args:
        run: that is finished.
        latency_ms: the further limits.
        stop: what its stages poll.
        progress: where it is shown.
        team: processes that were started with this one.
        ranks: how many there are to be, where this process starts them.
    """
    method = reopened(run, stop, progress)
    before, stages = method.limits, _redone(method, BY_LIMITS)
    if not stages or "latency_ms" not in before:
        raise InputError(
            "a finished run of a method that answers several latency limits",
            f"one of {method.name!r} with limits on {', '.join(before) or 'nothing'}",
            "Start a new search with --latency-ms.",
        )
    if run.status() != "finished":
        raise InputError(
            "a finished run", f"an unfinished one in {run.folder}", "Continue it first without --latency-ms."
        )
    known = before["latency_ms"] if isinstance(before["latency_ms"], list) else [before["latency_ms"]]
    wanted = dict.fromkeys([*known, *map(float, latency_ms)])
    if len(wanted) == len(known):
        return resume(run.folder)
    prepared = reopened(run, stop, progress, limits={**before, "latency_ms": list(wanted)})
    prepared.check()
    with run.locked():
        run.reopen({"limits": prepared.context.configuration.limits}, stages)
    try:
        with _training_together(prepared.context, team, ranks):
            return _finish(prepared, resumed=True)
    except InfeasibleError:
        with run.locked():
            run.reopen({"limits": before}, stages)
        _finish(reopened(run, stop, progress), resumed=True)
        raise


def _say_differences(context: Context) -> None:
    """What is not as it was when the run stopped: who held it, the machine, and checkpoints damaged since."""
    run, before = context.run, context.run.header["machine"]
    if run.left_by is not None:
        context.progress.say(f"Note: left behind by {run.left_by}.")
    for name, value in context.device.describe().items():
        if before.get(name) != value:
            text = f"{name} was {before.get(name)} and is {value} now: results may differ in the last digits."
            context.progress.warn(f"Note: {text}")
            run.event("changed", what=name, before=before.get(name), now=value)
    space, known = context.task.space, run.header.get("network", {}).get("digest")
    if isinstance(space, ModelSpace) and known not in (None, space.digest):
        text = f"the code of {context.configuration.space} has changed since this run began: the network may be another"
        context.progress.warn(f"Warning: {text}.")
        run.event("changed", what="network", before=known, now=space.digest)
    for text in run.damaged_checkpoints():
        context.progress.warn(f"Note: {text}")
        run.event("damaged", what=text)


def _finish(method: Method, resumed: bool = False) -> Answer:
    """Do the stages that are not done yet, under the run's lock."""
    context = method.context
    run = context.run
    with run.locked(), context.stop.on_signals(), context.executor:
        disk.remove(run.stop_file)  # meant for a session that ended before it saw it
        context.stop.watch(run.stop_file)
        run.event("started", threads=context.device.threads)
        context.progress = KeptProgress(context.progress, run)
        if resumed:
            _say_differences(context)
        try:
            stages = method.stages()
            _keep_plan(context, stages)
            for number, stage in enumerate(stages, 1):
                if run.stage_result(stage.name) is not None:
                    continue
                run.event("stage", name=stage.name, title=stage.title)
                context.progress.say(f"{number} of {len(stages)}: {stage.title}")
                run.finish_stage(stage.name, _worked(stage, run, resumed))
        except Interrupted as error:
            run.event("interrupted", why=str(error))
            raise Interrupted(f"{error}; everything is saved. Continue with: {resume_command(run.folder)}") from error
        seconds = round(run.seconds_spent(), 3)
        c = context.configuration
        found = method.result("answer", Found)
        answer = Answer(
            **dict(found),
            method=c.method,
            space=c.space,
            data=c.data or c.benchmark or c.evaluate,
            seed=c.seed,
            seconds=seconds,
            run=str(run.folder),
        )
        run.forget_checkpoints()
        answer.save()
        run.event("finished", seconds=seconds)
    return answer


def _worked(stage: Stage, run: Run, resumed: bool) -> Json:
    """What a stage returns; where a resumed one cannot use what the run holds, its files may have been altered."""
    try:
        return stage.work().model_dump(mode="json")
    except ArchwrightError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        if not resumed or place_of(error):  # else it is a matter of our code, or of the user's
            raise
        raise RunError(
            f"expected the stage {stage.name!r} to go on from what {run.folder} holds, got {told(error)}. Its files "
            "may have been altered; archwright --debug shows where it stopped."
        ) from error


def _keep_plan(context: Context, stages: list[Stage]) -> None:
    """Write the list of stages and the data's fingerprint into the run; resumed, refuse other images than before."""
    run, plan = context.run, [{"name": stage.name, "title": stage.title} for stage in stages]
    data = context.task.data if context.configuration.data is not None else None
    fingerprint = None if data is None else data.fingerprint
    if "plan" in run.header and run.header.get("fingerprint") != fingerprint:
        raise RunError(
            f"expected the images that the run in {run.folder} began with, got others in {context.configuration.data} "
            "(their fingerprint differs). Put them back, or start a new search."
        )
    if run.header.get("plan") != plan:
        run.describe(plan=plan, fingerprint=fingerprint, **_network(context))


def _network(context: Context) -> dict[str, Json]:
    """What a run keeps of a user's own network with choices: pages draw it without importing it."""
    space = context.task.space
    if not isinstance(space, ModelSpace):
        return {}
    return {"network": {"digest": space.digest, "choices": space.outline(context.task.scale)}}


def compute_device(configuration: Configuration) -> Device:
    """The device to compute on, set up as the configuration asks."""
    device = _chosen_device(configuration)
    use(configuration.numerics, device.torch)
    return device


def _chosen_device(configuration: Configuration) -> Device:
    """The device of the configuration; a name that is a benchmark's device means that latency limits are for that."""
    c = configuration
    if c.benchmark is None or c.device == "auto":
        return Device.choose(c.device, c.threads)
    known = load_benchmark(c.benchmark).devices
    if c.device in known:
        return Device.choose("auto", c.threads)
    try:
        return Device.choose(c.device, c.threads)
    except InputError as error:
        raise InputError(f"{error.expected} or of the benchmark ({', '.join(known)})", error.got, error.do) from error


def _check_step(method: Method, yes: bool) -> float | None:
    """Refuse networks that nobody trains, by their counted cost, before a step of one is timed.

    Gives the seconds of the search by that count where a step takes too long to be timed for an estimate.
    """
    cost, task = method.largest(), method.context.task
    if cost is None:
        return None
    images = len(task.data.train)
    macs = cost.macs * min(task.recipe.batch_size, images)
    epoch = TRAINING * images * seconds_of(cost.macs)
    refuse_large("an epoch of one training", epoch, training_bytes(cost.params, macs), yes)
    slow = method.context.device.torch.type == "cpu" and TRAINING * seconds_of(macs) > LONGEST_STEP
    return epoch * task.final_recipe.epochs if slow else None


def _busy() -> str:
    """That an estimate was timed while others used the machine, as the end of a sentence; empty where none did."""
    load, count = load_average(), processors()
    if load < BUSY * count:
        return ""
    cores = f"{count} processor{'s' * (count != 1)}"
    return f", timed on a busy machine (a load of {load:.1f} on {cores}): less when it is quiet"


def _say_plan(method: Method, counted: float | None) -> float:
    """Says what a search will take, and gives the seconds, roughly.

    Args:
        method: that is to search.
        counted: the seconds where no step is to be timed.
    """
    context = method.context
    c = context.configuration
    if c.data is not None:
        context.progress.say(context.task.data.describe())
    seconds = method.estimate_seconds() if counted is None else counted
    if seconds is not None:
        text = f"{c.method} on {brief(c.space)}: about {said_seconds(seconds)} on {context.device.name}"
        context.progress.say(f"{text}{_busy()}.")
    kept = SECONDS_A_RECORD * method.rounds if isinstance(method, SearchMethod) else 0.0
    return max(seconds or 0.0, kept)
