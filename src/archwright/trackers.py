"""Events of a run for trackers of experiments: ``--log tensorboard``, or ``callbacks=[tensorboard("logs")]``.

A tracker gets every number of the events ``epoch``, ``part``, ``evaluated`` and ``finished`` under the name of what was
trained, MLflow and Weights & Biases the run's settings, too; nothing else of the run. Each is a few lines on
:func:`counted`, and so is one of your own.
"""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from archwright.errors import InputError, missing_extra, unknown_name
from archwright.runs.run import Run

Event = dict[str, Any]
Callback = Callable[[Event], None]
KINDS = ("epoch", "part", "evaluated", "finished")
PLACES = ("time", "epoch", "percent")
"""Fields that say when something was, not how good it is."""
NEEDED = {"tensorboard": "tensorboard", "mlflow": "mlflow", "wandb": "wandb"}
"""The package of each tracker."""


def numbers(event: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Names and values of the numbers that an event measured."""
    if event.get("kind") in KINDS:
        name = event.get("training") or event.get("stage") or "run"
        for key, value in event.items():
            if key not in PLACES and isinstance(value, int | float) and not isinstance(value, bool):
                yield f"{name}/{key}", float(value)


def counted(write: Callable[[str, float, int], object], end: Callable[[], object], run: Run | None = None) -> Callback:
    """A callback that writes each number with how many of its name came before, and ends with the session.

    Args:
        write: is given name, value and number.
        end: is called when the run is finished or interrupted.
        run: that goes on: what it measured before is counted, not written again.
    """
    seen: Counter[str] = Counter()
    for event in () if run is None else run.each_event():
        seen.update(name for name, _ in numbers(event))

    def callback(event: Event) -> None:
        for name, value in numbers(event):
            write(name, value, seen[name])
            seen[name] += 1
        if event.get("kind") in ("finished", "interrupted"):
            end()

    return callback


def tensorboard(folder: Path | str, run: Run | None = None) -> Callback:
    """A callback that writes TensorBoard's files into ``folder``; needs the package tensorboard.

    Args:
        folder: new or one that TensorBoard's files are in.
        run: that goes on (see :func:`counted`).
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise missing_extra("tensorboard", "trackers", "TensorBoard's files") from error
    writer = SummaryWriter(str(folder))
    return counted(lambda name, value, step: writer.add_scalar(name, value, step), writer.flush, run)


def mlflow(experiment: str = "archwright", uri: str | None = None, run: Run | None = None) -> Callback:
    """A callback that logs metrics to MLflow; needs the package mlflow or mlflow-skinny.

    Args:
        experiment: name of the experiment.
        uri: of the tracking server or data base, as ``sqlite:///mlflow.db``; MLflow's own setting by default.
        run: whose name and settings are logged, too.
    """
    try:
        from mlflow.tracking import MlflowClient
    except ImportError as error:
        raise missing_extra("mlflow", "trackers", "MLflow") from error
    client = MlflowClient(tracking_uri=uri)
    found = client.get_experiment_by_name(experiment)
    number = client.create_experiment(experiment) if found is None else found.experiment_id
    own = client.create_run(number, run_name=None if run is None else run.folder.name).info.run_id
    for name, value in _settings(run).items():
        client.log_param(own, name, value)
    return counted(
        lambda name, value, step: client.log_metric(own, name, value, step=step),
        lambda: client.set_terminated(own),
        run,
    )


def wandb(project: str = "archwright", folder: Path | str | None = None, run: Run | None = None) -> Callback:
    """A callback that logs to Weights & Biases; needs the package wandb.

    Whether it sends anything is that package's setting: ``WANDB_MODE=offline`` keeps it on this machine, and
    ``wandb sync`` sends it later.

    Args:
        project: name of the project.
        folder: where its files are kept; that package's own setting by default.
        run: whose name and settings are logged, too.
    """
    try:
        import wandb as package
    except ImportError as error:
        raise missing_extra("wandb", "trackers", "Weights & Biases") from error
    name = None if run is None else run.folder.name
    own = package.init(
        project=project, name=name, config=_settings(run), dir=folder, settings=package.Settings(silent=True)
    )
    # Its one counter of steps may only rise, so each curve has a counter of its own among the values.
    return counted(lambda name, value, step: own.log({name: value, f"{name} step": step}), own.finish, run)


def _settings(run: Run | None) -> dict[str, Any]:
    """The settings of a run that say something."""
    given = {} if run is None else run.configuration
    return {name: value for name, value in given.items() if value not in (None, "", {}, [])}


# --- by name, for --log ---


def check_trackers(names: Iterable[str]) -> None:
    """Refuse names of no tracker, and those whose package is missing, before a search begins."""
    for name in names:
        kind = name.partition(":")[0]
        if kind not in NEEDED:
            raise unknown_name("tracker", kind, NEEDED)
        if importlib.util.find_spec(NEEDED[kind]) is None:
            raise missing_extra(NEEDED[kind], "trackers", f"--log {kind}")
        if name.endswith(":"):
            raise InputError(f"a place behind {name!r}, or none", "an empty one", "As in tensorboard:logs.")


def attach(name: str, run: Run) -> Callback:
    """The tracker called ``name`` for a run.

    Args:
        name: ``tensorboard``, ``mlflow`` or ``wandb``; behind a colon the folder of TensorBoard (by default
            ``tensorboard`` in the run), the address of MLflow or the project of Weights & Biases.
        run: that it listens to.
    """
    kind, _, place = name.partition(":")
    if kind == "tensorboard":
        return tensorboard(place or run.folder / "tensorboard", run)
    if kind == "mlflow":
        return mlflow(uri=place or None, run=run)
    return wandb(place or "archwright", run=run)  # in its own place: its files have links, which a run must not
