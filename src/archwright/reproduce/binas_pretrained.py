"""BINAS from pretrained weights beside simpler ways to use them, at three latency limits on few images.

All arms of a data set share one latency table and one count of steps: the stated seconds of training are turned into
steps by steps that are timed once, so that a busy machine costs no arm anything. The limits: the whole network at 96 px
keeps the first, at 128 px the third, and the second is half way between. All arms from pretrained weights choose among
what keeps a limit by the same rule, on the validation part; rows are on the test part.

- ours: the search, all limits together;
- resolution: the whole network at each of the sizes, fine-tuned from the same start for an equal share of the seconds
  that ours trained for; a limit gets the best within it;
- frozen: logistic regression on the frozen network's features, the best size within the limit;
- scratch: the fast strategy without pretrained weights, in as many seconds and one minute more for its tables.

Every arm of every seed is kept when it is finished, and the command goes on from there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from archwright.costs.clock import MARGIN
from archwright.costs.places import Place
from archwright.data import Steps
from archwright.device import Device
from archwright.errors import InputError, unknown_name
from archwright.export import has_onnx
from archwright.methods.binas import Binas
from archwright.methods.binas.around import CLEARLY, MOST_PATIENCE, Around
from archwright.pretrained import DEFAULT
from archwright.reproduce.arms import Accuracies, limit_rows, mean_gain, run_arms
from archwright.reproduce.base import Outcome, Settings, needs
from archwright.reproduce.searches import finished
from archwright.runs.files import Json, atomic_file
from archwright.runs.progress import Progress
from archwright.runs.run import ItemLog, Run
from archwright.runs.stop import Stop
from archwright.search.answer import Answer
from archwright.search.budget import Pace
from archwright.search.configuration import Configuration
from archwright.search.context import Context
from archwright.search.engine import reopened
from archwright.search.jobs import measure as accuracy_of
from archwright.search.method import Method
from archwright.search.trained import networks_of, slowest_as_good
from archwright.tables.locate import shared_data
from archwright.training import train

ARMS = ("ours", "resolution", "frozen", "scratch")
SECONDS = {"photos": 110.0, "cifar": 200.0}
"""The data sets, and the seconds of training that an arm has, at most."""
DEFAULT_SEEDS = 3
BETWEEN = (96, 128)
"""The sizes whose whole networks the limits are around."""
PHOTO_CLASSES, PHOTOS_EACH, PHOTO_SIDE = 4, 150, 96
CIFAR_EACH, CIFAR_TEST = 200, 1000
"""Images a class that are trained and validated on (1,600 and 400 of ten classes), and images that are tested on."""


@needs(images=False)
def binas_pretrained(settings: Settings) -> Outcome:
    """Test accuracy of every arm at every limit."""
    if settings.only is not None and settings.only not in SECONDS:
        raise unknown_name("data", settings.only, SECONDS)
    seeds = settings.seeds or DEFAULT_SEEDS
    rows, notes = [], []
    for name in SECONDS if settings.only is None else [settings.only]:
        folder = settings.folder / name
        data = written(name, folder)
        limits = prepared(folder / "plan", data, SECONDS[name])
        shared = {"limits": limits, "data": data, "seconds": SECONDS[name]}
        accuracies = run_arms(settings, folder, ARMS, seeds, shared, run_arm)
        rows += [row for arm, values in accuracies.items() for row in limit_rows(name, arm, values)]
        notes += arm_notes(name, limits, accuracies)
    return Outcome(f"{seeds} seed(s), one thread, {DEFAULT}", rows, notes)


def arm_notes(name: str, limits: list[float], accuracies: Accuracies) -> list[str]:
    """The limits, and how ours stands beside each arm at each of them: the mean difference and its standard error.

    Args:
        name: of the data set.
        limits: in milliseconds.
        accuracies: by arm, (seeds, limits), in percent; NaN where nothing of the arm keeps the limit.
    """
    shown = ", ".join(f"{limit:.3g} ms" for limit in limits)
    notes = [f"{name}: at most {SECONDS[name]:g} s of training an arm and seed; limits {shown}"]
    for arm, values in accuracies.items():
        if arm == ARMS[0]:
            continue
        gains = (accuracies[ARMS[0]] - values).T
        said = ["nothing keeps it" if np.isnan(gain).any() else mean_gain(gain) for gain in gains]
        notes.append(f"{name}: ours is {', '.join(said)} points beside {arm}, limit by limit")
    return notes


# --- what all arms share ----------------------------------------------------------------------------------------------


def written(name: str, folder: Path) -> str:
    """A reference to images that are written once into ``folder``.

    Args:
        name: ``photos`` for the folder of examples/photo_folder.py; any other for fewer images of CIFAR-10.
        folder: where they are written.
    """
    archive = shared_data("cifar10_10k2k.npz")
    if archive is None:
        raise InputError(
            "the CIFAR-10 subset cifar10_10k2k.npz", "no such file", "Set ARCHWRIGHT_DATA to the folder that has it."
        )
    with np.load(archive) as given:
        images, labels = given["x_train"], given["y_train"].ravel()
        names, test = given["class_names"].tolist(), (given["x_test"], given["y_test"].ravel())
    if name == "photos":
        for label, number in product(range(PHOTO_CLASSES), range(PHOTOS_EACH)):
            path = folder / "images" / str(names[label]) / f"{number:03d}.jpg"
            if not path.exists():
                photo = Image.fromarray(images[np.flatnonzero(labels == label)[number]])
                with atomic_file(path) as file:
                    photo.resize((PHOTO_SIDE, PHOTO_SIDE), Image.Resampling.BICUBIC).save(file, "JPEG", quality=92)
        return f"folder:{folder / 'images'}"
    path = folder / "images.npz"
    if not path.exists():
        chosen = np.concatenate([np.flatnonzero(labels == label)[:CIFAR_EACH] for label in range(len(names))])
        part = {"x_train": images[chosen], "y_train": labels[chosen], "class_names": np.array(names)}
        with atomic_file(path) as file:
            np.savez(file, **part, x_test=test[0][:CIFAR_TEST], y_test=test[1][:CIFAR_TEST])
    return f"npz:{path}"


def configured(data: str, seed: int, limits: list[float], **settings: Any) -> Configuration:
    """The search of one seed; what is timed is the table, once for all.

    Args:
        data: reference to the images.
        seed: of the search.
        limits: in milliseconds; empty for none.
        settings: further ones of the search.
    """
    backend = "onnxruntime" if has_onnx() else "eager"
    return Configuration(
        method="binas",
        space="mbconv",
        data=data,
        seed=seed,
        threads=1,
        limits={"latency_ms": limits} if limits else {},
        options={"pretrained": DEFAULT, "backend": backend, "verify": False},
        **settings,
    )


def prepared(folder: Path, data: str, seconds: float) -> list[float]:
    """The limits in milliseconds of a run that has the latency table and the counted steps; measured once.

    Args:
        folder: of the run.
        data: reference to its images.
        seconds: of training, that the steps are counted from.
    """
    device = Device.choose("cpu", 1)
    if not (folder / "run.json").exists():
        Run.create(folder, configured(data, 0, []).model_dump(), device.describe())
    run = Run.open(folder)
    strategy = tuning(Binas(Context(Configuration(**run.configuration), run, device)))
    if run.stage_result("table") is None:
        run.finish_stage("table", strategy.table.made(list(BETWEEN), list).model_dump(mode="json"))
    small, large = (whole_ms(strategy, size) / MARGIN for size in BETWEEN)
    limits = [round(small, 4), round((small + large) / 2, 4), round(large, 4)]
    if run.stage_result("plan") is None:
        strategy = tuning(Binas(Context(configured(data, 0, limits), run, device)))
        pace = Pace(device, strategy.trainer.recipe.batch_size)
        counted = strategy.counted(strategy.timed_steps(pace), seconds, MOST_PATIENCE)
        run.finish_stage("plan", counted.model_dump(mode="json"))
    return limits


def whole_ms(strategy: Around, size: Place) -> float:
    """Milliseconds of the whole network at ``size`` pixels a side, by the table of ``strategy``."""
    return strategy.whole_costs(size)["latency_ms"]


def tuning(method: Method) -> Around:
    """The strategy of a search from pretrained weights."""
    assert isinstance(method, Binas)
    assert isinstance(method.strategy, Around)
    return method.strategy


# --- arms -------------------------------------------------------------------------------------------------------------


def run_arm(payload: Json, stop: Stop) -> Json:
    """Work item: the test accuracy in percent of one arm at every limit.

    Args:
        payload: ``folder``, ``data``, ``seed``, ``arm``, ``limits`` in milliseconds, and ``seconds`` of training.
        stop: asked at every step of the arms that use the weights otherwise.
    """
    folder, seed, arm = Path(payload["folder"]), payload["seed"], payload["arm"]
    ours = folder / f"ours-{seed}"
    if arm == ARMS[0]:
        return {"accuracies": [one.accuracy for one in searched(ours, folder / "plan", payload).models]}
    if arm == "scratch":
        return {"accuracies": scratch(folder / f"scratch-{seed}", payload)}
    log = ItemLog(folder / "networks" / f"{arm}-{seed}.jsonl")
    return {"accuracies": Others(ours, payload["limits"], log, stop).run(arm)}


def searched(folder: Path, planned: Path, payload: Json, **further: Any) -> Answer:
    """The search of a seed, with the table and the counted steps of all seeds.

    Args:
        folder: of its run.
        planned: folder of the run that has the table and the counted steps.
        payload: ``data``, ``seed`` and ``limits`` in milliseconds.
        further: settings of the search.
    """
    asked = configured(payload["data"], payload["seed"], payload["limits"], **further)
    settings = asked.model_dump(include={"data", "seed", "threads", "limits", *further})
    return finished(folder, "binas", **settings, options={**asked.options, "plan_from": str(planned)})


def scratch(folder: Path, payload: Json) -> list[float | None]:
    """Test accuracy in percent, limit by limit, of the fast strategy without pretrained weights.

    Args:
        folder: of its run.
        payload: ``data``, ``seed``, ``limits`` in milliseconds, and ``seconds`` of training.
    """
    found = finished(
        folder,
        "binas",
        data=payload["data"],
        seed=payload["seed"],
        threads=1,
        minutes=payload["seconds"] / 60 + 1,
        limits={"latency_ms": payload["limits"]},
        options={"pretrained": "none", "backend": "onnxruntime" if has_onnx() else "eager", "verify": False},
    )
    return [one.accuracy for one in found.models]


@dataclass
class Others:
    """The arms that use the weights otherwise, on the images and the table of a finished search.

    Attributes:
        folder: of the search.
        limits: in milliseconds.
        log: networks that are finished, each its validation and test accuracy.
    """

    folder: Path
    limits: list[float]
    log: ItemLog
    stop: Stop

    @cached_property
    def ours(self) -> Around:
        """The strategy of the finished search, opened again."""
        return tuning(reopened(Run.open(self.folder), self.stop, Progress()))

    def run(self, arm: str) -> list[float | None]:
        """The arm's test accuracy at every limit: of the size that is preferred within it, if there is one."""
        sizes, images = self.ours.table.result.sizes, len(self.ours.context.task.data.validation)
        made = {size: self.frozen(size) if arm == "frozen" else self.tuned(size, len(sizes)) for size in sizes}
        milliseconds = {size: whole_ms(self.ours, size) for size in sizes}
        found: list[float | None] = []
        for limit in self.limits:
            fits = [size for size in sizes if milliseconds[size] <= limit]
            validated, tested = ([made[size][part] for size in fits] for part in (0, 1))
            latencies = [milliseconds[size] for size in fits]
            found.append(tested[slowest_as_good(validated, latencies, images, CLEARLY)] if fits else None)
        return found

    def seconds(self) -> float:
        """That ours trained for, all in all, by timed steps."""
        plan, trained = self.ours.steps, networks_of(self.ours.context.run)
        tuned = [plan.step_ms[one.image_size] for name, one in trained.items() if name.startswith("tuned-")]
        return (plan.trunk_steps * plan.step_ms[plan.trunk_size] + plan.tuned_steps * sum(tuned)) / 1000

    def frozen(self, size: Place) -> tuple[float, float]:
        """Validation and test accuracy of the floor at one size."""
        return self._kept(f"frozen {size}", size, 0)

    def tuned(self, size: Place, sizes: int) -> tuple[float, float]:
        """Validation and test accuracy, in percent, of the whole network, fine-tuned for its share of the seconds.

        Args:
            size: of the images, in pixels a side.
            sizes: how many share the seconds that ours trained for.
        """
        steps = max(1, round(1000 * self.seconds() / sizes / self.ours.steps.step_ms[size]))
        return self._kept(f"tuned {size} for {steps}", size, steps)

    def _kept(self, key: str, size: Place, steps: int) -> tuple[float, float]:
        if key not in self.log.done:
            trainer, context = self.ours.trainer, self.ours.context
            network, device = trainer.load(f"floor-{size}"), context.device.name
            if steps:
                batches, seed = Steps(trainer.batches(f"resolution {size}", size), steps), context.configuration.seed
                train(network, batches, trainer.recipe, seed=seed, device=device, stop=self.stop)
            parts = ("validation", "test")
            self.log.record(key, [accuracy_of(network, trainer.data(size), part, device).percent for part in parts])
        validation, test = self.log.done[key]
        return float(validation), float(test)
