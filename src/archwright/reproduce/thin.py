"""Thinning networks that have learned: every score, uniform widths and a smaller size, at equal work and latency.

One network of each data set is trained (:mod:`archwright.reproduce.thin_networks`); seeds change what is drawn, the
validation part, and the order and augmentation of the images in the fine-tuning, which takes as long in every arm as a
search does by itself: three passes over the images, 60 steps at least. Rows are on test images that no network has
seen. Every arm is an ordinary run in a folder of its own: a killed study goes on, and more seeds only add runs; all
arms of a seed are done before the next seed. Scores that the first seed leaves far behind are not run again: seeds
differ by a point or two.

At shares of the multiply-accumulates all arms have widths on steps of 8. At limits on the latency as ONNX widths go by
the staircase of this machine; beside them are the whole network with images so small that it is as quick, tuned alike,
and on photographs the search of BINAS from the published weights, by its usual plan, in float. The ONNX files of the
first seed are timed in turn with the given network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from archwright.costs.backends import find_backend
from archwright.costs.clock import quickest_round, stopwatch
from archwright.costs.measure import Stopwatch, Timing
from archwright.costs.registry import default_backend
from archwright.errors import InfeasibleError, unknown_name
from archwright.export import has_onnx
from archwright.models import load_member
from archwright.pretrained import DEFAULT
from archwright.reproduce.arms import mean_gain
from archwright.reproduce.base import Outcome, Row, Settings, needs
from archwright.reproduce.searches import finished
from archwright.reproduce.thin_networks import archive, trained_lite, trained_resnet, written_photos
from archwright.runs import disk
from archwright.runs.run import ItemLog
from archwright.search.answer import Answer, Beside, Candidate

DATA = ("photos4", "photos6", "cifar")
DEFAULT_SEEDS = 3
STEPS: int | None = None
"""Of fine-tuning; None: as many as a search takes by itself."""
OURS = "fisher"
"""The arm that a search takes by itself."""
SHARES, FEWER = (0.8, 0.65, 0.5), (0.65, 0.5)
"""Shares of the multiply-accumulates that stay: of the scores in one pass, and of what they are compared with."""
LIMITS = (0.7, 0.5)
"""Parts of the given network's latency as ONNX."""
STEP = 8
PAIRS = 5
"""Times that a network and the given one are timed in turn; the median of their ratios counts."""
ARMS: Mapping[str, Mapping[str, Any]] = {
    "fisher": {"scores": "fisher", "keep_macs": SHARES},
    "taylor": {"scores": "taylor", "keep_macs": SHARES},
    "random": {"scores": "random", "keep_macs": FEWER},
    "L1": {"scores": "l1", "keep_macs": FEWER},
    "uniform widths": {"scores": "fisher", "uniform": True, "keep_macs": FEWER},
    "fisher, distilled": {"scores": "fisher", "distill": 0.5, "keep_macs": FEWER},
    "RARTS": {"scores": "rarts", "keep_macs": FEWER, "search_epochs": 3},
    "RARTS from taylor": {"scores": "rarts-taylor", "keep_macs": FEWER, "search_epochs": 3},
    "RARTS by image": {"scores": "rarts-images", "keep_macs": FEWER, "search_epochs": 3},
    "DARTS": {"scores": "darts", "keep_macs": FEWER, "search_epochs": 3},
    "Network Slimming": {"scores": "slimming", "keep_macs": FEWER, "search_epochs": 3},
}
"""Settings of every arm at shares."""
FAR_BEHIND = 10.0
"""Points that an arm is behind ours at every share with the first seed, so that it gets no further seeds."""
LIMITED: Mapping[str, Mapping[str, Any]] = {
    OURS: {"scores": OURS, "compare": True},
    "taylor": {"scores": "taylor", "compare": False},
    "uniform widths": {"scores": OURS, "compare": False, "uniform": True},
}
"""Settings of every arm at limits."""
SMALLER, BINAS = "smaller images", "BINAS"
"""What else is as quick: the whole network, and what a search from published weights finds."""
CIFAR_EPOCHS = 1
"""Passes over the images beside trained scores, where there are ten times as many images."""


@dataclass
class Found:
    """What the arms of one data set have found: test accuracies by row, one a seed.

    Attributes:
        given: of the given network.
        rows: by label.
        ratios: latency of a network as a part of the given one's, by label, in percent.
        notes: sentences.
    """

    given: list[float] = field(default_factory=list)
    rows: dict[str, list[float]] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Tested:
    """A network of a finished run: its row, its accuracy on test and its file."""

    label: str
    accuracy: float
    file: Path


@needs(images=False)
def thin(settings: Settings) -> Outcome:
    """Test accuracy of every arm on every data set, and latencies."""
    if settings.only is not None and settings.only not in DATA:
        raise unknown_name("data", settings.only, DATA)
    names = DATA if settings.only is None else (settings.only,)
    seeds = settings.seeds or DEFAULT_SEEDS
    found = {name: Found() for name in names}
    given = {name: prepared(name, settings.folder / name) for name in names}
    for seed in range(seeds):
        for name in names:
            study = Study(settings, name, *given[name], found[name])
            study.run(seed)
    rows, notes = list[Row](), list[str]()
    for name, one in found.items():
        rows.append(Row.of(f"{name} given network", "% on test", None, one.given))
        rows += [Row.of(f"{name} {label}", "% on test", None, values) for label, values in one.rows.items()]
        rows += [Row(f"{name} {label}: ONNX latency", "% of the given", None, ms) for label, ms in one.ratios.items()]
        notes += [*verdicts(name, one), *one.notes]
    scale = f"three passes of fine-tuning, 60 steps at least; {seeds} seed(s) share one trained network; one thread"
    return Outcome(scale, rows, notes)


def prepared(name: str, folder: Path) -> tuple[str, str]:
    """Images and trained network of one data set.

    Args:
        name: of the data set.
        folder: of its files.
    """
    disk.make_folder(folder)
    if name == "cifar":
        data = f"npz:{archive()}"
        return data, str(trained_resnet(folder, data))
    data = written_photos(folder, int(name.removeprefix("photos")))
    return data, str(trained_lite(folder, data))


@dataclass(frozen=True)
class Study:
    """The arms of one data set.

    Attributes:
        settings: of the study.
        name: of the data set.
        data: reference to the images.
        network: file of the given network.
        found: what is added to.
    """

    settings: Settings
    name: str
    data: str
    network: str
    found: Found

    @property
    def folder(self) -> Path:
        """Of the data set's runs."""
        return self.settings.folder / self.name

    def run(self, seed: int) -> None:
        """All arms of one seed; what they find is added."""
        arms = [arm for arm in ARMS if not self.far_behind(arm)]
        tested = [one for arm in arms for one in self.at_shares(arm, seed)]
        if has_onnx():
            for arm in LIMITED:
                tested += self.within_limits(arm, seed)
            if self.name != "cifar":
                tested += self.binas(seed)
            if seed == 0:
                self.found.ratios |= self.ratios(tested)
        for one in tested:
            self.found.rows.setdefault(one.label, []).append(one.accuracy)

    def far_behind(self, arm: str) -> bool:
        """Whether the first seed, if it is done, left the arm far behind ours at every share they are compared at."""
        pairs = [
            (self.found.rows.get(at_share(OURS, share)), self.found.rows.get(at_share(arm, share))) for share in FEWER
        ]
        return all(ours and other and ours[0] - other[0] > FAR_BEHIND for ours, other in pairs)

    def _thinned(self, kind: str, arm: str, seed: int, **options: Any) -> Answer:
        """The run of one arm, finished."""
        folder = self.folder / f"{kind}{arm.replace(' ', '-').replace(',', '')}-{seed}"
        common: dict[str, Any] = {"data": self.data, "network": self.network, "seed": seed, "threads": 1}
        answer = finished(folder, "rarts-width", **common, tune_steps=STEPS, beside=False, **options)
        accuracies = ", ".join(f"{one.accuracy:.1f} %" for one in answer.models)
        self.settings.progress.say(f"{self.name}, seed {seed}: {kind.replace('-', ' ')}{arm} {accuracies}")
        return answer

    def at_shares(self, arm: str, seed: int) -> list[Tested]:
        """What an arm keeps with less of the work.

        Args:
            arm: of :data:`ARMS`.
            seed: of the arm.
        """
        own = dict(ARMS[arm])
        if self.name == "cifar" and "search_epochs" in own:
            own["search_epochs"] = CIFAR_EPOCHS
        answer = self._thinned("", arm, seed, **own, timing=False, step=STEP, compare=False, onnx=False)
        if arm == OURS and answer.before is not None:
            self.found.given.append(float(answer.before.accuracy or 0))
        return [_tested(answer, at_share(arm, (one.details or {})["asked"]["keep_macs"]), one) for one in answer.models]

    # --- limits ---

    @cached_property
    def limits(self) -> list[float]:
        """Milliseconds as ONNX, tightest first: parts of the given network's, which is timed once."""
        log = ItemLog(self.folder / "given.jsonl")
        if "given" not in log.done:
            find_backend(default_backend()).check()
            watch = _watch(Path(self.network))  # in a busy moment limits would be looser than their rows say
            log.record("given", min(quickest_round(watch).median_ms for _ in range(PAIRS)))
        return sorted(part * float(log.done["given"]) for part in LIMITS)

    def within_limits(self, arm: str, seed: int) -> list[Tested]:
        """Widths within the limits, and, beside ours, the whole network with smaller images that is as quick.

        Args:
            arm: of :data:`LIMITED`.
            seed: of the arm.
        """
        tested = []
        try:
            answer = self._thinned("limits-", arm, seed, **LIMITED[arm], limits={"latency_ms": self.limits})
        except InfeasibleError as error:
            self._note(f"seed {seed}: {arm}: {error}")
            return []
        for part, one in zip(sorted(LIMITS), answer.models, strict=True):
            tested.append(_tested(answer, _within(arm, part), one))
            size = (one.details or {}).get("as_quick_at")
            if size is not None:
                tested.append(_tested(answer, _within(SMALLER, part), answer.beside[f"whole at {size} px"]))
        if answer.verdict:
            self._note(f"seed {seed}: {answer.verdict}")
        return tested

    def binas(self, seed: int) -> list[Tested]:
        """What a search from the published weights finds for the same limits, or for those that it can reach."""
        parts = sorted(LIMITS)
        options: dict[str, Any] = {"pretrained": DEFAULT, "backend": default_backend()}
        for first in range(len(parts)):
            limits = {"latency_ms": self.limits[first:]}
            try:
                answer = finished(
                    self.folder / f"binas-{len(parts) - first}-{seed}", "binas", data=self.data, seed=seed, threads=1,
                    beside=False, limits=limits, precision="fp32", **options,
                )  # fmt: skip
            except InfeasibleError as error:
                self._note(f"seed {seed}: {BINAS}: {error}")
                continue
            return [
                _tested(answer, _within(BINAS, part), one)
                for part, one in zip(parts[first:], answer.models, strict=True)
            ]
        return []

    def _note(self, text: str) -> None:
        self.found.notes.append(f"{self.name}, {text}")

    def ratios(self, tested: Sequence[Tested]) -> dict[str, float]:
        """ONNX latency in percent of the given network's, of each network timed in turn with it, once."""
        log, whole = ItemLog(self.folder / "timed.jsonl"), _watch(Path(self.network))
        for one in tested:
            if one.label not in log.done:
                own = _watch(one.file)
                pairs = [(quickest_round(own).median_ms, quickest_round(whole).median_ms) for _ in range(PAIRS)]
                log.record(one.label, float(np.median([thin / all_ms for thin, all_ms in pairs])))
        return {one.label: 100 * float(log.done[one.label]) for one in tested}


def at_share(arm: str, share: float) -> str:
    """The row of an arm where some of the work stays.

    Args:
        arm: its name.
        share: of the multiply-accumulates that stays.
    """
    return f"{arm} {100 * share:.0f} % MACs"


def _within(arm: str, part: float) -> str:
    return f"{arm} within {100 * part:.0f} % of the latency"


def _tested(answer: Answer, label: str, one: Candidate | Beside) -> Tested:
    """A network of ``answer``, in the row ``label``."""
    return Tested(label, float(one.accuracy or 0), answer.folder / str(getattr(one, "model", None)))


def _watch(file: Path) -> Stopwatch:
    """Of the network of a model file, as ONNX."""
    model = load_member(file)
    return stopwatch(model.network, model.scale, Timing(default_backend(), 1))


def verdicts(name: str, found: Found) -> list[str]:
    """What holds: ours beside the whole network and beside every other arm, seed by seed, and whether all are quicker.

    Args:
        name: of the data set.
        found: its rows.
    """
    notes = []
    for share in FEWER:
        notes += standing_of(name, found, at_share("", share).strip(), list(ARMS))
    for part in LIMITS if found.ratios else ():
        notes += standing_of(name, found, _within("", part).strip(), [*LIMITED, SMALLER, BINAS])
    slower = [f"{label} ({part:.0f} %)" for label, part in found.ratios.items() if part >= 100]
    if found.ratios:
        all_fall = f"{name}: the ONNX latency falls in every row"
        notes.append(f"{name}: not quicker than given: {', '.join(slower)}" if slower else all_fall)
    return notes


def standing_of(name: str, found: Found, ending: str, arms: Sequence[str]) -> list[str]:
    """Ours in the rows of one ending, beside the given network and beside other arms, by the seeds that both have.

    Args:
        name: of the data set.
        found: its rows.
        ending: of the labels that are compared.
        arms: the others.
    """
    ours = np.array(found.rows.get(f"{OURS} {ending}", []))
    if len(ours) != len(found.given):
        return []
    others = []
    for arm in (one for one in arms if one != OURS):
        values = np.array(found.rows.get(f"{arm} {ending}", []))
        if len(values) in (1, len(ours)):
            alone = " (first seed)" * (len(values) < len(ours))
            others.append(f"{mean_gain(ours[: len(values)] - values)} beside {arm}{alone}")
    whole = f"{mean_gain(ours - np.array(found.given))} points beside the given network"
    return [f"{name}: {OURS} {ending} is {'; '.join([whole, *others])}"]
