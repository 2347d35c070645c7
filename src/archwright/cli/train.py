"""``archwright train``: the options of a search's training, without a search."""

from __future__ import annotations

from typing import Any

import click

from archwright.cli.search import GroupedOption, MethodCommand, output_of, run_options, setting_options
from archwright.cli.values import TEXT
from archwright.search.registry import methods

WHAT = "What is trained"
HELPS = {
    "space": "Space of the architecture; by default that of the run, or the first that knows the text.",
    "epochs": "Epochs of the training, instead of the recipe's.",
}
"""Of settings that mean something else, or have another default, than in a search."""


class TrainCommand(MethodCommand):
    """A command whose options are read from the method when they are needed: the list of commands imports no torch."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The argument, the settings of a training, and where it is kept; ``ctx`` is click's."""
        if not self.params:
            source = "Run (a folder, a name or 'last') whose answer is trained, as it was unless you say otherwise."
            self.params = [
                click.Argument(["architecture"], required=False, type=TEXT),
                GroupedOption(["--from", "source"], type=TEXT, group=WHAT, help=source),
                *setting_options(methods.get("train")),
                *run_options(),
            ]
            for one in self.params:
                if isinstance(one, click.Option):
                    one.help = HELPS.get(str(one.name), one.help)
        return super().get_params(ctx)


def _train(as_json: bool, log: tuple[str, ...], quiet: bool, log_level: str | None, **values: Any) -> None:
    from archwright.cli.view import show_answer
    from archwright.search.training import train

    show_answer(train(**output_of(log, quiet, log_level), **values), as_json)


train_command = TrainCommand(
    "train",
    callback=_train,
    short_help="Train one architecture: given, published, or found by a run.",
    help="Train one architecture and test it once.\n\n"
    "ARCHITECTURE is a text of its space, or the name of something published (darts-v2, nasnet-a, hardcore-a).\n\n"
    "\b\nExample: archwright train darts-v2 --data cifar100 --scale paper --recipe darts",
)
