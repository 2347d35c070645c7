"""Thinning networks that have learned: every score, uniform widths and a smaller size, at equal work and latency.

One network of each data set is trained (:mod:`archwright.reproduce.thin_networks`); seeds change what is drawn, the
validation part, and the order and augmentation of the images in the fine-tuning, which has 60 steps in every arm. Rows
are on test images that no network has seen. Every arm is an ordinary run in a folder of its own: a killed study goes
on, and more seeds only add runs; all arms of a seed are done before the next seed.

At shares of the multiply-accumulates all arms have widths on steps of 8, and the ONNX files of the first seed are timed
together at the end. At latency limits widths go by the staircase of this machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from archwright.costs.backends import find_backend
from archwright.costs.clock import middle_round, quickest_round, stopwatch
from archwright.costs.measure import Stopwatch, Timing
from archwright.costs.registry import default_backend
from archwright.errors import unknown_name
from archwright.export import has_onnx
from archwright.models import load_member
from archwright.reproduce.arms import mean_gain
from archwright.reproduce.base import Outcome, Row, Settings, needs
from archwright.reproduce.searches import finished
from archwright.reproduce.thin_networks import archive, trained_lite, trained_resnet, written_photos
from archwright.runs import disk
from archwright.runs.run import ItemLog
from archwright.search.answer import Answer, Candidate

DATA = ("photos4", "photos6", "cifar")
DEFAULT_SEEDS = 3
STEPS = 60
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
    "Network Slimming": {"scores": "slimming", "keep_macs": FEWER, "search_epochs": 3},
}
"""Settings of every arm at shares."""
CIFAR_EPOCHS = 1
"""Passes over the images beside trained scores, where there are ten times as many images."""


@dataclass
class Found:
    """What the arms of one data set have found: test accuracies by row, one a seed.

    Attributes:
        given: of the given network.
        rows: by label.
        ratios: latency of a network as a part of the given one's, by label.
        notes: sentences.
    """

    given: list[float] = field(default_factory=list)
    rows: dict[str, list[float]] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


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
            run_seed(settings, name, seed, given[name], found[name])
    rows, notes = list[Row](), list[str]()
    for name, one in found.items():
        rows.append(Row.of(f"{name} given network", "% on test", None, one.given))
        rows += [Row.of(f"{name} {label}", "% on test", None, values) for label, values in one.rows.items()]
        rows += [Row(f"{name} {label}: ONNX latency", "% of the given", None, ms) for label, ms in one.ratios.items()]
        notes += [*verdicts(name, one), *one.notes]
    scale = f"{STEPS} steps of fine-tuning, {seeds} seed(s) that share one trained network, one thread"
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


def run_seed(settings: Settings, name: str, seed: int, given: tuple[str, str], found: Found) -> None:
    """All arms of one seed; what they find is added to ``found``.

    Args:
        settings: of the study.
        name: of the data set.
        seed: of the arms.
        given: reference to the images, and the file of the network.
        found: of the data set.
    """
    data, network = given
    common = {"data": data, "network": network, "seed": seed, "threads": 1, "tune_steps": STEPS, "beside": False}
    folder = settings.folder / name
    answers = dict[str, Answer]()
    for arm, own in ARMS.items():
        options = {**common, **own, "timing": False, "step": STEP, "compare": False}
        if name == "cifar" and "search_epochs" in own:
            options["search_epochs"] = CIFAR_EPOCHS
        answer = finished(folder / f"{arm.replace(' ', '-').replace(',', '')}-{seed}", "rarts-width", **options)
        for model in answer.models:
            label = f"{arm} {100 * (model.details or {})['asked']['keep_macs']:.0f} % MACs"
            found.rows.setdefault(label, []).append(float(model.accuracy or 0))
        answers[arm] = answer
        settings.progress.say(f"{name}, seed {seed}: {arm} {[round(one.accuracy or 0, 1) for one in answer.models]}")
    before = answers[OURS].before
    assert before is not None
    found.given.append(float(before.accuracy or 0))
    if has_onnx():
        if seed == 0:
            found.ratios |= timed_files(folder, answers)
        within_limits(settings, folder, seed, common, found, network)


def timed_files(folder: Path, answers: Mapping[str, Answer]) -> dict[str, float]:
    """ONNX latency of every network at a share, in percent of the given network's, timed in turn with it, once.

    Args:
        folder: of the data set.
        answers: by arm.
    """
    log, found = ItemLog(folder / "timed.jsonl"), dict[str, float]()
    given = answers[OURS].before
    assert given is not None
    whole = _watch(answers[OURS], given)
    for arm, answer in answers.items():
        for one in answer.models:
            label = f"{arm} {100 * (one.details or {})['asked']['keep_macs']:.0f} % MACs"
            if label not in log.done:
                own = _watch(answer, one)
                pairs = [(quickest_round(own).median_ms, quickest_round(whole).median_ms) for _ in range(PAIRS)]
                log.record(label, float(np.median([thin / all_ms for thin, all_ms in pairs])))
            found[label] = 100 * float(log.done[label])
    return found


def _watch(answer: Answer, one: Candidate) -> Stopwatch:
    """Of a network of a finished run, as ONNX."""
    model = load_member(answer.folder / str(one.model))
    return stopwatch(model.network, model.scale, Timing(default_backend(), 1))


def within_limits(
    settings: Settings, folder: Path, seed: int, common: Mapping[str, Any], found: Found, network: str
) -> None:
    """Exact and uniform widths, and a smaller size, within limits on the latency as ONNX.

    Args:
        settings: of the study.
        folder: of the data set.
        seed: of the arms.
        common: settings of all arms.
        found: what is added to.
        network: file of the given network.
    """
    limits = [part * given_ms(folder, network) for part in LIMITS]
    for arm, own in ((OURS, {"compare": True}), ("uniform widths", {"compare": False, "uniform": True})):
        options = {**common, **own, "scores": OURS, "limits": {"latency_ms": limits}}
        answer = finished(folder / f"limits-{arm.replace(' ', '-')}-{seed}", "rarts-width", **options)
        for part, model in zip(sorted(LIMITS), answer.models, strict=True):
            label = f"{arm} within {100 * part:.0f} % of the latency"
            found.rows.setdefault(label, []).append(float(model.accuracy or 0))
            if seed == 0 and answer.before is not None and answer.before.latency_ms:
                found.ratios[label] = 100 * float(model.latency_ms or 0) / answer.before.latency_ms
        for label, beside in answer.beside.items():
            if label.startswith("whole at"):
                found.rows.setdefault(f"{label}, fine-tuned", []).append(beside.accuracy)
        if answer.verdict and seed == 0:
            found.notes.append(f"{folder.name}: {answer.verdict}")
        settings.progress.say(
            f"{folder.name}, seed {seed}: {arm} within limits {[one.accuracy for one in answer.models]}"
        )


def given_ms(folder: Path, network: str) -> float:
    """Latency of the given network as ONNX, timed once.

    Args:
        folder: of the data set, where it is kept.
        network: its file.
    """
    log = ItemLog(folder / "given.jsonl")
    if "given" not in log.done:
        model = load_member(Path(network))
        timing = Timing(default_backend(), 1)
        find_backend(timing.backend).check()
        log.record("given", middle_round(stopwatch(model.network, model.scale, timing)).median_ms)
    return float(log.done["given"])


def verdicts(name: str, found: Found) -> list[str]:
    """What holds: ours beside the whole network and beside every other arm, seed by seed.

    Args:
        name: of the data set.
        found: its rows.
    """
    notes = []
    given = np.array(found.given)
    for share in FEWER:
        ending = f"{100 * share:.0f} % MACs"
        ours = np.array(found.rows[f"{OURS} {ending}"])
        notes.append(f"{name}: {OURS} with {ending} is {mean_gain(ours - given)} points beside the given network")
        others = [
            f"{mean_gain(ours - np.array(found.rows[f'{arm} {ending}']))} beside {arm}"
            for arm in ARMS
            if arm != OURS and f"{arm} {ending}" in found.rows
        ]
        notes.append(f"{name}: {OURS} with {ending} is {', '.join(others)}")
    slower = [label for label, part in found.ratios.items() if part >= 100]
    notes.append(f"{name}: the ONNX latency falls in every row" if not slower else f"{name}: not quicker: {slower}")
    return notes
