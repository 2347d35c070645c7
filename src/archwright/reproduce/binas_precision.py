"""What a search over precision is worth from pretrained weights, beside simple uses of the same weights.

All arms of a data set share one latency table a precision and one count of steps. Limits are fixed milliseconds of the
ONNX file on this machine, one thread; all networks are held to them by the table. Rows are on the test part.

- ours: the search with ``--precision any``, all limits together;
- ours-fp32: the same search in float;
- whole-fp32: the whole network at the largest of the usual sizes at which it keeps the limit in float, fine-tuned from
  the same start for as many steps as the whole network of ours has that others are cut from, on the images in the
  same order: at that network's size both are the same;
- whole-int8: the same in int8, quantised as ours are; its size is the largest at which it keeps the limit in int8;
- frozen: logistic regression on the frozen network's features at the largest size, in float.

The usual sizes are those whose blocks are timed (48, 64, 96, 128 px ...); ours has finer ones. Every arm of every seed
is kept when it is finished, and the command goes on from there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import nn

from archwright.costs.places import Place, pixels, start_of
from archwright.data import Steps
from archwright.device import Device
from archwright.errors import missing_extra, unknown_name
from archwright.export import has_onnx
from archwright.methods.binas import Binas
from archwright.methods.binas.around import MOST_PATIENCE, Around, trunk_name
from archwright.pretrained import DEFAULT
from archwright.quantise import OnnxNetwork, Precision, quantise, to_onnx
from archwright.reproduce.arms import Accuracies, mean_gain, row_of, run_arms
from archwright.reproduce.base import Outcome, Row, Settings, needs
from archwright.reproduce.binas_pretrained import configured, searched, tuning, written
from archwright.runs.files import Json
from archwright.runs.progress import Progress
from archwright.runs.run import ItemLog, Run
from archwright.runs.stop import Stop
from archwright.search.budget import Pace
from archwright.search.configuration import Configuration
from archwright.search.context import Context
from archwright.search.engine import reopened
from archwright.search.jobs import measure as accuracy_of
from archwright.training import train

ARMS = ("ours", "ours-fp32", "whole-fp32", "whole-int8", "frozen")
LIMITS = [0.5, 1.0, 2.0, 4.0]
"""In milliseconds, of one image in ONNX Runtime with one thread."""
SECONDS = {"photos": 60.0, "cifar": 120.0}
"""The data sets, and the seconds of training that a search has, at most."""
DEFAULT_SEEDS = 3


@needs(images=False)
def binas_precision(settings: Settings) -> Outcome:
    """Test accuracy of every arm at every limit."""
    if settings.only is not None and settings.only not in SECONDS:
        raise unknown_name("data", settings.only, SECONDS)
    if not has_onnx():
        raise missing_extra("onnxruntime", "onnx", "networks in int8")
    seeds, rows, notes = settings.seeds or DEFAULT_SEEDS, list[Row](), list[str]()
    for name in SECONDS if settings.only is None else [settings.only]:
        folder = settings.folder / name
        data = written(name, folder)
        binding = prepared(folder / "plan", data, SECONDS[name])
        shared = {"limits": LIMITS, "data": data}
        accuracies, latencies = (
            run_arms(settings, folder, ARMS, seeds, shared, run_arm, what) for what in ("accuracies", "latencies")
        )
        rows += [
            row_of(f"{arm} {name} {limit:g} ms", own)
            for arm, values in accuracies.items()
            for limit, own in zip(LIMITS, values.T, strict=True)
        ]
        notes += arm_notes(name, binding, accuracies, latencies)
    return Outcome(f"{seeds} seed(s), one thread, {DEFAULT}, as ONNX on this machine", rows, notes)


def arm_notes(name: str, binding: list[float], accuracies: Accuracies, latencies: Accuracies) -> list[str]:
    """How ours stands beside each arm, limit by limit and in the mean, and what it takes for the accuracy of float.

    Args:
        name: of the data set.
        binding: the limits that the whole float network at the largest size does not keep: others bind nobody.
        accuracies: by arm, (seeds, limits), in percent; NaN where nothing of the arm keeps the limit.
        latencies: the same in milliseconds.
    """
    ours, held = accuracies[ARMS[0]], [LIMITS.index(limit) for limit in binding]
    said = ", ".join(f"{limit:g} ms" for limit in binding) or "none"
    notes = [f"{name}: limits that bind (the whole float network at the largest size breaks them): {said}"]
    for arm in ARMS[1:]:
        gains = ours - accuracies[arm]
        by_limit = [_said(gain) for gain in gains.T]
        means = f"; in the mean over limits {_said(gains.mean(1))}"
        means += f", over those that bind {_said(gains[:, held].mean(1))}" if held else ""
        notes.append(f"{name}: ours is {', '.join(by_limit)} points beside {arm}, limit by limit{means}")
    return [*notes, *half_note(name, accuracies, latencies)]


def half_note(name: str, accuracies: Accuracies, latencies: Accuracies) -> list[str]:
    """The least latency at which ours is as accurate as the whole float network at its best size, beside its latency.

    Args:
        name: of the data set.
        accuracies: by arm, (seeds, limits), in percent.
        latencies: the same in milliseconds.
    """
    whole = np.nan_to_num(accuracies["whole-fp32"].mean(0), nan=-1.0)
    best = int(whole.argmax())
    values = accuracies["whole-fp32"][:, best]
    error = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
    equal = [number for number, own in enumerate(accuracies["ours"].mean(0)) if own >= whole[best] - error]
    if not equal:
        return [f"{name}: ours is nowhere as accurate as the whole float network at its best size"]
    own_ms, whole_ms = (float(latencies[arm][:, at].mean()) for arm, at in (("ours", equal[0]), ("whole-fp32", best)))
    own = (
        f"ours has {accuracies['ours'].mean(0)[equal[0]]:.2f} % in {own_ms:.3g} ms, {own_ms / whole_ms:.2f} times that"
    )
    return [f"{name}: the whole float network at its best size has {whole[best]:.2f} % in {whole_ms:.3g} ms; {own}"]


def _said(gains: NDArray[np.float64]) -> str:
    return "(nothing keeps it)" if np.isnan(gains).any() else mean_gain(gains)


# --- what all arms share ----------------------------------------------------------------------------------------------


def prepared(folder: Path, data: str, seconds: float) -> list[float]:
    """Make the run that has the tables and the counted steps, once; returns the limits that bind.

    Args:
        folder: of the run.
        data: reference to its images.
        seconds: of training, that the steps are counted from.
    """
    device, asked = Device.choose("cpu", 1), configured(data, 0, LIMITS, precision="any")
    if not (folder / "run.json").exists():
        Run.create(folder, asked.model_dump(), device.describe())
    run = Run.open(folder)
    strategy = tuning(Binas(Context(Configuration(**run.configuration), run, device)))
    if run.stage_result("table") is None:
        run.finish_stage("table", strategy.table.make(strategy.limits_without).model_dump(mode="json"))
    if run.stage_result("plan") is None:
        pace = Pace(device, strategy.trainer.recipe.batch_size)
        counted = strategy.counted(strategy.timed_steps(pace), seconds, MOST_PATIENCE)
        run.finish_stage("plan", counted.model_dump(mode="json"))
    largest = strategy.whole_costs(max(strategy.table.result.sizes, key=pixels))["latency_ms"]
    return [limit for limit in LIMITS if limit < largest]


# --- arms -------------------------------------------------------------------------------------------------------------


def run_arm(payload: Json, stop: Stop) -> Json:
    """Work item: test accuracy in percent and latency in milliseconds of one arm at every limit.

    Args:
        payload: ``folder``, ``data``, ``seed``, ``arm`` and ``limits`` in milliseconds.
        stop: asked at every step of the arms that use the weights otherwise.
    """
    folder, seed, arm = Path(payload["folder"]), payload["seed"], payload["arm"]
    if arm in ARMS[:2]:
        asked = "any" if arm == ARMS[0] else "fp32"
        models = searched(folder / f"{arm}-{seed}", folder / "plan", payload, precision=asked, beside=False).models
        return {"accuracies": [one.accuracy for one in models], "latencies": [one.latency_ms for one in models]}
    log = ItemLog(folder / "networks" / f"whole-{seed}.jsonl")
    found = Whole(folder / f"{ARMS[0]}-{seed}", log, stop)
    own: Precision = "int8" if arm == "whole-int8" else "fp32"
    places = [found.largest(limit, own) for limit in payload["limits"]]
    steps = 0 if arm == "frozen" else found.steps
    return {
        "accuracies": [None if place is None else found.tested(place, steps, own) for place in places],
        "latencies": [None if place is None else found.latency_ms(place, own) for place in places],
    }


@dataclass
class Whole:
    """The whole network at the usual sizes, on the images and the tables of a finished search.

    Attributes:
        folder: of the search.
        log: of test accuracies by size, steps and precision.
        stop: asked at every step.
    """

    folder: Path
    log: ItemLog
    stop: Stop

    @cached_property
    def ours(self) -> Around:
        """The strategy of the finished search, opened again."""
        return tuning(reopened(Run.open(self.folder), self.stop, Progress()))

    @property
    def steps(self) -> int:
        """Of a training: as many as the whole network of ours has."""
        return self.ours.steps.trunk_steps

    def latency_ms(self, place: Place, precision: Precision) -> float:
        """Of the whole network, by the table.

        Args:
            place: its size.
            precision: that it is computed in.
        """
        return self.ours.whole_costs(place, precision)["latency_ms"]

    def largest(self, limit_ms: float, precision: Precision) -> Place | None:
        """The largest usual size at which the whole network keeps a limit; None for none.

        Args:
            limit_ms: in milliseconds.
            precision: that it is computed in.
        """
        usual = [place for place in self.ours.table.result.sizes if place not in self.ours.between]
        return max((one for one in usual if self.latency_ms(one, precision) <= limit_ms), key=pixels, default=None)

    def tested(self, place: Place, steps: int, precision: Precision) -> float:
        """Test accuracy in percent; a network is trained once for both precisions, and frozen ones are in float only.

        Args:
            place: its size.
            steps: of the training; 0 leaves the features frozen.
            precision: that it is computed in.
        """
        key = f"{place} for {steps}"
        if key not in self.log.done:
            self.log.record(key, self._trained(place, steps))
        return float(self.log.done[key][precision])

    def _trained(self, place: Place, steps: int) -> dict[str, float]:
        trainer, context, data = self.ours.trainer, self.ours.context, self.ours.data(place)
        network, device = trainer.load(self.ours.floor(place).weights), context.device.name
        files: dict[str, nn.Module] = {"fp32": network}
        if steps:
            order, seed = trunk_name(start_of(place)), context.configuration.seed  # the images in the order of ours
            batches = Steps(trainer.batches(order, place), steps)
            train(network, batches, trainer.recipe, seed=seed, device=device, stop=self.stop)
            files["int8"] = self._in_int8(network, place)
        return {name: accuracy_of(one, data, "test", "cpu").percent for name, one in files.items()}

    def _in_int8(self, network: nn.Module, place: Place) -> OnnxNetwork:
        """The int8 file of a trained network, made as ours are."""
        trainer, images = self.ours.trainer, self.ours.trainer.calibration(place)
        content = to_onnx(network.cpu().eval(), images[:1])
        int8 = quantise(
            content,
            images.numpy(),
            lambda file: trainer.outcomes(OnnxNetwork(file), place)[1],
            lambda file: float(trainer.outcomes(OnnxNetwork(file), place)[0].mean()),
        )
        return OnnxNetwork(int8.content)
