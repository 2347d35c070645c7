"""BINAS from pretrained weights beside simpler ways to use them, at three latency limits on few images.

All arms of a data set share one latency table, and seconds of training are turned into steps by timed ones, so that a
busy machine costs no arm anything. The limits: the whole network at 96 px keeps the first, at 128 px the third, and the
second is half way between. What an arm chooses by is the validation part; rows are on the test part.

- ours: the search, all limits together;
- resolution: the whole network at each of the sizes, fine-tuned from the same start for an equal share of the seconds
  that ours trained for; a limit gets the best within it;
- frozen: logistic regression on the frozen network's features, the best size within the limit;
- scratch: the fast plan without pretrained weights, in the minutes that ours took.

Every arm of every seed is kept when it is finished, and the command goes on from there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from archwright.data import Steps
from archwright.device import Device
from archwright.errors import InputError, unknown_name
from archwright.execution.base import Item, run_items
from archwright.export import has_onnx
from archwright.methods.binas.latency import MARGIN
from archwright.methods.binas.method import Binas
from archwright.methods.binas.pretrained import PretrainedPlan
from archwright.methods.binas.sizes import SizedTables
from archwright.pretrained import DEFAULT
from archwright.reproduce.base import Outcome, Row, Settings, needs
from archwright.runs.files import Json, write_atomic
from archwright.runs.progress import Progress
from archwright.runs.run import ItemLog, Run
from archwright.runs.stop import Stop
from archwright.search.answer import Answer
from archwright.search.configuration import Configuration
from archwright.search.context import Context
from archwright.search.engine import reopened, resume, search
from archwright.search.jobs import measure as accuracy_of
from archwright.tables.locate import shared_data
from archwright.training import train

ARMS = ("ours", "resolution", "frozen", "scratch")
DATA = ("photos", "cifar")
DEFAULT_SEEDS = 1
BETWEEN = (96, 128)
"""The sizes whose whole networks the limits are around."""
PHOTO_CLASSES, PHOTOS_EACH, PHOTO_SIDE = 4, 150, 96
CIFAR_EACH, CIFAR_TEST = 200, 1000
"""Images a class that are trained and validated on (1,600 and 400 of ten classes), and images that are tested on."""


@needs(images=False)
def binas_pretrained(settings: Settings) -> Outcome:
    """Test accuracy of every arm at every limit."""
    if settings.only is not None and settings.only not in DATA:
        raise unknown_name("data", settings.only, DATA)
    seeds = range(settings.seeds or DEFAULT_SEEDS)
    rows, notes = [], []
    for name in DATA if settings.only is None else [settings.only]:
        folder = settings.folder / name
        data = written(name, folder)
        limits = prepared(folder / "table", data)
        payloads = {
            f"{arm} seed {seed}": {"arm": arm, "seed": seed, "limits": limits, "folder": str(folder), "data": data}
            for arm, seed in product(ARMS, seeds)
        }
        log, found = ItemLog(folder / "finished.jsonl"), dict[str, Json]()
        first = {key for key in payloads if key.startswith(ARMS[0])}  # the others have its seconds
        for keys in (first, payloads.keys() - first):
            items = [Item(key, payloads[key]) for key in payloads if key in keys]
            done = sum(item.key in log.done for item in items)
            with settings.progress.task(f"{name}: arms", len(items), done) as bar:
                found |= run_items(settings.executor, run_arm, items, log, Stop(), bar)
        accuracies = {
            arm: np.array([found[f"{arm} seed {seed}"]["accuracies"] for seed in seeds], dtype=float) for arm in ARMS
        }
        rows += arm_rows(name, accuracies)
        notes += arm_notes(name, limits, accuracies)
    return Outcome(f"{len(seeds)} seed(s), one thread, {DEFAULT}", rows, notes)


def arm_rows(name: str, accuracies: dict[str, NDArray[np.float64]]) -> list[Row]:
    """A row an arm and limit; ``accuracies`` by arm are (seeds, limits), NaN where nothing keeps the limit."""
    rows = []
    for arm, values in accuracies.items():
        for number, at_limit in enumerate(values.T.tolist(), 1):
            label, unit = f"{arm} {name} limit {number}", "% on test"
            known = not np.isnan(at_limit).any()
            rows.append(Row.of(label, unit, None, at_limit) if known else Row(label, unit, None, None))
    return rows


def arm_notes(name: str, limits: list[float], accuracies: dict[str, NDArray[np.float64]]) -> list[str]:
    """The limits, and how ours stands beside each arm at each of them: the mean difference and its standard error."""
    notes = [f"{name}: limits {', '.join(f'{limit:.3g} ms' for limit in limits)}"]
    for arm, values in accuracies.items():
        if arm == ARMS[0]:
            continue
        said = []
        for gain in (accuracies[ARMS[0]] - values).T:
            error = f" ± {gain.std(ddof=1) / np.sqrt(len(gain)):.2f}" if len(gain) > 1 else ""
            said.append("nothing keeps it" if np.isnan(gain).any() else f"{gain.mean():+.2f}{error}")
        notes.append(f"{name}: ours is {', '.join(said)} points beside {arm}, limit by limit")
    return notes


# --- what all arms share ----------------------------------------------------------------------------------------------


def written(name: str, folder: Path) -> str:
    """The images of that name, written once: the folder of examples/photo_folder.py, or fewer of CIFAR-10."""
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
                path.parent.mkdir(parents=True, exist_ok=True)
                photo = Image.fromarray(images[np.flatnonzero(labels == label)[number]])
                photo.resize((PHOTO_SIDE, PHOTO_SIDE), Image.Resampling.BICUBIC).save(path, quality=92)
        return f"folder:{folder / 'images'}"
    path = folder / "images.npz"
    if not path.exists():
        chosen = np.concatenate([np.flatnonzero(labels == label)[:CIFAR_EACH] for label in range(len(names))])
        part = {"x_train": images[chosen], "y_train": labels[chosen], "class_names": np.array(names)}
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name("aside.npz")
        np.savez(aside, **part, x_test=test[0][:CIFAR_TEST], y_test=test[1][:CIFAR_TEST])
        aside.rename(path)
    return f"npz:{path}"


def configured(data: str, seed: int, limits: list[float]) -> Configuration:
    """The search of one seed; what is timed is the table, once for all."""
    backend = "onnxruntime" if has_onnx() else "eager"
    return Configuration(
        method="binas",
        space="mbconv",
        data=data,
        seed=seed,
        threads=1,
        limits={"latency_ms": limits} if limits else {},
        options={"pretrained": DEFAULT, "backend": backend, "verify": False},
    )


def prepared(folder: Path, data: str) -> list[float]:
    """A run with the latency table, measured once, and its limits."""
    device = Device.choose("cpu", 1)
    if not (folder / "run.json").exists():
        Run.create(folder, configured(data, 0, []).model_dump(), device.describe())
    run = Run.open(folder)
    context = Context(Configuration(**run.configuration), run, device)
    known = run.stage_result("table")
    if known is None:
        _, whole = sized(Binas(context)).ends()
        small, large = (whole[size] / MARGIN for size in BETWEEN)
        limits = [round(small, 4), round((small + large) / 2, 4), round(large, 4)]
        asked = Context(configured(data, 0, limits), run, device)
        made = sized(Binas(asked)).make().model_dump(mode="json")
        known = {**made, "limits": limits}
        run.finish_stage("table", known)
    found: list[float] = known["limits"]
    return found


def sized(method: Binas) -> SizedTables:
    """The tables of a search from pretrained weights."""
    assert isinstance(method.tables, SizedTables)
    return method.tables


# --- arms -------------------------------------------------------------------------------------------------------------


def run_arm(payload: Json, stop: Stop) -> Json:
    """Work item: the test accuracy of one arm at every limit."""
    folder, seed, arm = Path(payload["folder"]), payload["seed"], payload["arm"]
    ours = folder / f"ours-{seed}"
    if arm == ARMS[0]:
        return {"accuracies": [one.accuracy for one in searched(ours, folder / "table", payload).models]}
    if arm == "scratch":
        return {"accuracies": scratch(folder / f"scratch-{seed}", ours, payload)}
    log = ItemLog(folder / "networks" / f"{arm}-{seed}.jsonl")
    return {"accuracies": Others(ours, payload["limits"], log, stop).run(arm)}


def searched(folder: Path, table: Path, payload: Json) -> Answer:
    """The search of a seed, with the table of all seeds."""
    if not (folder / "run.json").exists():
        asked = configured(payload["data"], payload["seed"], payload["limits"])
        Run.create(folder, asked.model_dump(), Device.choose("cpu", 1).describe())
    run = Run.open(folder)
    if run.stage_result("table") is None:
        write_atomic(run.artifact("latency.json"), (table / "artifacts" / "latency.json").read_bytes())
        run.finish_stage("table", Run.open(table).stage_result("table"))
    return resume(folder)


def scratch(folder: Path, ours: Path, payload: Json) -> list[float | None]:
    """Without pretrained weights, in the minutes that ours took."""
    if (folder / "run.json").exists():
        return [one.accuracy for one in resume(folder).models]
    found = search(
        "binas",
        run=folder,
        data=payload["data"],
        seed=payload["seed"],
        threads=1,
        minutes=max(1.0, Answer.read(ours).seconds / 60),
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
    def plan(self) -> PretrainedPlan:
        """Of the search."""
        method = reopened(Run.open(self.folder), self.stop, Progress())
        assert isinstance(method, Binas)
        assert isinstance(method.plan, PretrainedPlan)
        return method.plan

    def run(self, arm: str) -> list[float | None]:
        """The arm's test accuracy at every limit: of the size that is best on validation within it, if there is one."""
        sizes = self.plan.tables.result.sizes
        made = {size: self.frozen(size) if arm == "frozen" else self.tuned(size, len(sizes)) for size in sizes}
        best: list[float | None] = []
        for limit in self.limits:
            within = [made[size] for size in sizes if self.latency_ms(size) <= limit]
            best.append(max(within)[1] if within else None)
        return best

    def latency_ms(self, size: int) -> float:
        """Of the whole network, by the table."""
        space = self.plan.tables.space(size)
        return self.plan.tables.costs(size).cost(space.to_choice(space.heaviest()), "latency_ms")

    def seconds(self) -> float:
        """That ours trained for, all in all, by timed steps."""
        plan, trained = self.plan.plan, self.plan.tuner.trained()
        mean = float(np.mean(list(plan.step_ms.values())))
        tuned = [plan.step_ms[one.image_size] for name, one in trained.items() if name.startswith("tuned-")]
        return (plan.trunk_steps * mean + 2 * plan.elastic_steps * mean + plan.tuned_steps * sum(tuned)) / 1000

    def frozen(self, size: int) -> tuple[float, float]:
        """Validation and test accuracy of the floor at one size."""
        return self._kept(f"frozen {size}", size, 0)

    def tuned(self, size: int, sizes: int) -> tuple[float, float]:
        """The same of the whole network, fine-tuned for its share of the seconds."""
        steps = max(1, round(1000 * self.seconds() / sizes / self.plan.plan.step_ms[size]))
        return self._kept(f"tuned {size} for {steps}", size, steps)

    def _kept(self, key: str, size: int, steps: int) -> tuple[float, float]:
        if key not in self.log.done:
            tuner, context = self.plan.tuner, self.plan.context
            network, device = tuner.load(f"floor-{size}"), context.device.name
            if steps:
                batches, seed = Steps(tuner.batches(f"resolution {size}", size), steps), context.configuration.seed
                train(network, batches, tuner.recipe, seed=seed, device=device, stop=self.stop)
            parts = ("validation", "test")
            self.log.record(key, [accuracy_of(network, tuner.data(size), part, device).percent for part in parts])
        validation, test = self.log.done[key]
        return float(validation), float(test)
