"""A training as a stage of a run: its checkpoints, its stop, its progress and its events."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from archwright.search.context import Context
from archwright.search.together import FollowedError, follow_stage
from archwright.training import Stateful, Step, drive


def drive_stage(
    context: Context,
    stage: str,
    step: Step,
    state: Mapping[str, Stateful],
    *,
    epochs: int,
    steps_per_epoch: int,
    seed: int | None = None,
    title: str | None = None,
    on_epoch: Callable[[int, dict[str, float]], None] | None = None,
) -> list[dict[str, float]]:
    """:func:`archwright.training.drive` inside a run; the mean metrics of each epoch.

    The other processes of a team get here by doing the same stage, and no further: what comes after is the leader's.

    Args:
        context: of the search.
        stage: name of the method's stage, in which this is the only training; its checkpoints are continued, and its
            events say each epoch's metrics.
        step: of the training.
        state: what the step changes, by name.
        epochs: how many there are.
        steps_per_epoch: steps in each of them.
        seed: of the draws inside a step; the search's by default.
        title: what people read while it goes on; the stage's name by default.
        on_epoch: called instead of writing an event.
    """
    if context.team.leads:
        context.team.call(follow_stage, folder=str(context.run.folder.absolute()), stage=stage)
    with context.progress.task(title or stage, epochs * steps_per_epoch) as bar:
        history = drive(
            step,
            state,
            epochs=epochs,
            steps_per_epoch=steps_per_epoch,
            seed=context.configuration.seed if seed is None else seed,
            checkpoints=context.run.checkpoints(stage),
            stop=context.stop,
            on_step=lambda _: bar.advance(),
            on_epoch=on_epoch or context.run.on_epoch(stage),
            team=context.team,
        )
    if not context.team.leads:
        raise FollowedError
    return history
