"""One training on several processes, and what feeds it: how much quicker two processes are than one.

    python benchmarks/team.py [--json] [--only PART ...] [--repeats 5] [--batch 256]

Part ``team``: steps of two processes over steps of one that does the same shards in turn, both with one thread a
process, in turn in one run; the least time of each counts, so that other work on the machine counts little. Where the
machine is never quiet, see the ratios of ``processor``: the seconds of the processor that a step takes in one process,
over those of the slower one of two, in which nobody waits for a core. A step is that of the heaviest network of
``mbconv`` and of its supernet (one path an image) at 32 px, of first-order DARTS on the supernet of ``nasbench201`` (a
pass for alpha and one for the weights) and of a network of the ``darts`` space as it is trained at the end, all with
augmented images.

Part ``imagenet`` measures nothing: it counts what BINAS' paper plan would take at ImageNet's size (1.28 million images,
of which .8 train; 300 epochs of the heaviest network, 100 of the supernet with its teacher, 19 for each of 3 limits)
where a device computes ``--device-images`` images of the heaviest network a second and a processor core decodes and
augments ``--core-images``, with ``--cores`` of them beside each device.

Part ``loader``: images a second of JPEG files of 500 x 375 px, random parts of them at 224 px, normalised, against a
plain torch DataLoader with as many worker processes as we have threads (``loader/ours``, above 1 where we are quicker);
``overlap`` is a step over the longer of decoding and a device that takes as long as decoding does: 1 where one hides
the other, 2 where they take turns.

Part ``ray``: 2,000 items of 10 ms on two machines of one CPU each, all of them on this one. Part ``index``: a folder of
200,000 files that was loaded before.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # before torch
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"

import numpy as np
import torch
import torch.utils.data
from PIL import Image

from archwright.data import Augmentation, Batches, image_files, load
from archwright.execution.base import Item, make_executor, run_items
from archwright.methods.binas.supernet import OnePath
from archwright.methods.darts import first_order_step, softmax, supernet_loss
from archwright.runs.run import ItemLog
from archwright.runs.stop import Stop
from archwright.search.together import with_ranks
from archwright.spaces.darts import DARTS
from archwright.spaces.mbconv import SCALES, MbConv
from archwright.spaces.nasbench201 import NASBENCH201
from archwright.supernets.elastic import deal
from archwright.supernets.train import SharedTraining, new_elastic_supernet, new_supernet
from archwright.training import Position, Step, get_recipe
from archwright.training.bilevel import ArchitectureParameters, Problem, Variable, WeightCopy
from archwright.training.plain import make_optimizer, plain_step
from archwright.training.schedule import make_schedule
from archwright.training.team import Team

SHARDS = 2
SIDE = 224
"""Of photographs, in pixels."""
BATCHES = 3
"""That are trained with in turn."""


@dataclass
class Found:
    """What a part of the benchmark measured."""

    results: list[dict[str, str | float]] = field(default_factory=list)
    ratios: list[dict[str, str | float]] = field(default_factory=list)

    def result(self, label: str, value: float, unit: str) -> None:
        """Note a measured value, and print it."""
        self.results.append({"label": label, "value": round(value, 3), "unit": unit})
        print(f"{label:>30} {value:10.3f} {unit}", file=sys.stderr, flush=True)

    def ratio(self, label: str, value: float) -> None:
        """Note a ratio of two values of one run, and print it."""
        self.ratios.append({"label": label, "value": round(value, 3)})
        print(f"{label:>30} {value:10.3f}", file=sys.stderr, flush=True)


# --- part "team" -----------------------------------------------------------------------------------------------------


def images(batch: int) -> Batches:
    data = load(f"random:classes=10,size=32,channels=3,count={2 * BATCHES * batch}")  # more than half of them train
    return Batches(data, "train", batch, seed=0, augment=Augmentation(crop=4, flip=True))


def heaviest(team: Team, batch: int) -> Step:
    space = MbConv(SCALES["mbconv-32"].changed(classes=10))
    supernet, recipe = new_elastic_supernet(space, seed=0, device=torch.device("cpu")), get_recipe("short")
    network = OnePath(supernet, space.to_choice(space.heaviest())).to(memory_format=torch.channels_last)
    sgd = make_optimizer(network.parameters(), recipe)
    return plain_step(network, sgd, images(batch), recipe, device="cpu", schedule=recipe.learning_rate(), team=team)


def multi_path(team: Team, batch: int) -> Step:
    space, recipe = MbConv(SCALES["mbconv-32"].changed(classes=10)), get_recipe("short")
    supernet = new_elastic_supernet(space, seed=0, device=torch.device("cpu"))
    sgd, rate = make_optimizer(supernet.parameters(), recipe), recipe.learning_rate()
    training = SharedTraining(
        supernet,
        images(batch),
        lambda position, count, shard: deal(count, np.random.default_rng([position.index, shard.number]), space.scale),
        sgd,
        rate,
        memory_format=torch.contiguous_format,
        team=team,
    )
    return training.step


def darts(team: Team, batch: int) -> Step:
    scale = NASBENCH201.scales["small"].changed(channels=16, cells=1, image_size=32, image_channels=3, classes=10)
    supernet = new_supernet(NASBENCH201, scale, seed=0, device=torch.device("cpu"))
    alpha = ArchitectureParameters({name: torch.zeros(shape) for name, shape in NASBENCH201.decisions.items()})
    parameters, weights = list(alpha.parameters()), list(supernet.parameters())
    rate = make_schedule("constant", 0.01, 0.01)
    moved = Variable(parameters, torch.optim.Adam(parameters), rate, 0.0)
    copy = WeightCopy(supernet, Variable(weights, torch.optim.SGD(weights, 0.01, 0.9), rate, 5.0))
    problem = Problem(
        lambda network, alphas, shown, _: supernet_loss(network, softmax(alphas), shown, None),
        images(batch),
        images(batch),
        alpha,
        moved,
        team=team,
    )
    return first_order_step(problem, copy)


def final(team: Team, batch: int) -> Step:
    scale = DARTS.scales["small"].changed(image_size=32, image_channels=3, classes=10)
    torch.manual_seed(0)
    network = DARTS.build(DARTS.sample(np.random.default_rng(0)), scale).to(memory_format=torch.channels_last)
    recipe = get_recipe("short")
    sgd = make_optimizer(network.parameters(), recipe)
    return plain_step(network, sgd, images(batch), recipe, device="cpu", schedule=recipe.learning_rate(), team=team)


STEPS: dict[str, Callable[[Team, int], Step]] = {
    "heaviest": heaviest,
    "multi-path": multi_path,
    "darts": darts,
    "final": final,
}


@lru_cache(maxsize=2)  # of one kind, for one process and for two
def made(name: str, team: Team, batch: int) -> Step:
    return STEPS[name](team, batch)


def timed(team: Team, *, name: str, batch: int, number: int) -> tuple[float, float]:
    """Seconds of step ``number`` of a training, and the most of a processor; all of a team begin together."""
    step = made(name, team, batch)
    team.agreed(0)
    begin, worked = time.perf_counter(), time.process_time_ns()
    step(Position.at(number, 1000, 1))
    seconds, nanoseconds = time.perf_counter() - begin, time.process_time_ns() - worked
    return seconds, team.agreed(nanoseconds)[0] / 1e9


def called(team: Team, _stop: Stop, **asked: str | int) -> None:
    """As a follower: what the leader times."""
    timed(team, **asked)


def measure_team(asked: argparse.Namespace) -> Found:
    """Least seconds of a step on one and on two processes, taken in turn."""
    import team as here  # this file by a name that followers can import

    found, alone = Found(), Team(SHARDS)
    with with_ranks(2, SHARDS, 1) as both:
        assert both is not None
        for name in STEPS:
            times: dict[Team, list[tuple[float, float]]] = {alone: [], both: []}
            for number in range(1 + asked.repeats):
                for team, values in times.items():
                    work = {"name": name, "batch": asked.batch, "number": number % BATCHES}
                    if team is both:
                        both.call(here.called, **work)
                    values.append(here.timed(team, **work))
            for place, unit in enumerate(("s", "s of a processor")):
                one, two = (min(value[place] for value in values[1:]) for values in times.values())
                found.result(f"{name} one", one, unit)
                found.result(f"{name} two", two, unit)
                found.ratio(f"{name} two/one" + (", processor" if place else ""), one / two)
    return found


# --- part "imagenet" -------------------------------------------------------------------------------------------------


def count_imagenet(asked: argparse.Namespace) -> Found:
    """Hours of the paper's plan on one and on eight devices, computing or decoding, whatever takes longer."""
    found, space, rng = Found(), MbConv(SCALES["mbconv-224"]), np.random.default_rng(0)
    whole = space.cost(space.heaviest(), space.scale)
    mean = float(np.mean([space.cost(space.sample(rng), space.scale).macs for _ in range(500)]))
    passed = mean / whole.macs + 1 / 3  # of the heaviest network's training pass; the teacher's pass is a third of one
    images, epochs = 0.8 * 1_281_167, {"heaviest": (300, 1.0), "supernet": (100, passed), "tune": (3 * 19, passed)}
    found.result("heaviest network", whole.macs / 1e6, "million MACs")
    found.result("random network, mean", mean / 1e6, "million MACs")
    found.result("message a shard", 4 * whole.params / 1e6, "MB")
    for devices in (1, 8):
        computed = images * sum(number * cost for number, cost in epochs.values()) / (devices * asked.device_images)
        decoded = images * sum(number for number, _ in epochs.values()) / (devices * asked.cores * asked.core_images)
        found.result(f"{devices} devices, computing", computed / 3600, "h")
        found.result(f"{devices} devices, decoding", decoded / 3600, "h")
        found.result(f"{devices} devices", max(computed, decoded) / 3600, "h")
    return found


# --- part "loader" ---------------------------------------------------------------------------------------------------


def write_photos(folder: Path, count: int) -> None:
    """JPEG files of the size of ImageNet's, one sub-folder a class: smooth noise, so that they compress as photographs.

    Args:
        folder: that they are written to, in ten classes.
        count: of files.
    """
    rng = np.random.default_rng(0)
    for number in range(count):
        place = folder / f"class{number % 10}"
        place.mkdir(parents=True, exist_ok=True)
        coarse = Image.fromarray(rng.integers(0, 256, (47, 63, 3), dtype=np.uint8))
        coarse.resize((500, 375), Image.Resampling.BICUBIC).save(place / f"{number:05d}.jpg", quality=88)


class PlainPhotos(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """What one writes for a torch DataLoader: open, cut a random part out, flip, normalise."""

    def __init__(self, files: list[Path], zoom: float) -> None:
        self.files, self.zoom = files, zoom

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        with Image.open(self.files[index]) as image:
            colour = image.convert("RGB")
        side = self.zoom ** float(torch.rand(())) * min(colour.size)
        left, top = (float(torch.rand(()) * (whole - side)) for whole in colour.size)
        part = colour.resize((SIDE, SIDE), Image.Resampling.BILINEAR, box=(left, top, left + side, top + side))
        x = torch.from_numpy(np.asarray(part).copy()).permute(2, 0, 1).float() / 255
        return ((x.flip(2) if torch.rand(()) < 0.5 else x) - 0.45) / 0.225, 0


def each_second(loader: Callable[[], Iterator[tuple[torch.Tensor, torch.Tensor]]], steps: int) -> tuple[float, float]:
    """Images a second of a loader that has begun, and images a second of a processor, its start and end included."""
    worked, batches = sum(os.times()[:4]), loader()
    count = len(next(batches)[1])
    begin = time.perf_counter()
    taken = sum(len(next(batches)[1]) for _ in range(steps))
    seconds = time.perf_counter() - begin
    del batches  # its processes end, and their seconds count
    return taken / seconds, (count + taken) / (sum(os.times()[:4]) - worked)


def paced(batches: Batches, steps: int, seconds: float) -> float:
    """Seconds a step where a device is busy for ``seconds`` of each; a sleep stands for it, as it needs no core."""
    batches.get(0, 0)
    begin = time.perf_counter()
    for step in range(1, 1 + steps):
        batches.get(*divmod(step, len(batches)))
        time.sleep(seconds)
    return (time.perf_counter() - begin) / steps


def measure_loader(asked: argparse.Namespace) -> Found:
    """Images a second, of ours and of a torch DataLoader with as many workers as we have threads; and the overlap."""
    found, batch, steps, augment = Found(), 64, 8, Augmentation(zoom=0.35, flip=True)
    with tempfile.TemporaryDirectory(prefix="archwright-loader-") as folder:
        write_photos(Path(folder), 960)
        image_files.MEMORY_LIMIT_BYTES = 0  # read as a large folder is
        data = load(f"folder:{folder}", image_size=SIDE)
        files = [Path(folder) / data.train.file(index) for index in range(len(data.train))]
        rates: dict[str, list[tuple[float, float]]] = {"ours": [], "torch DataLoader": []}
        plain = torch.utils.data.DataLoader(
            PlainPhotos(files[: batch * (1 + steps)], 0.35), batch, shuffle=True, num_workers=image_files.THREADS
        )
        overlaps = []
        for _ in range(asked.repeats):
            some = np.arange(batch * (1 + steps))
            batches = Batches(data, "train", batch, augment=augment, indices=some, shuffle=False)
            rates["ours"].append(each_second(batches.__iter__, steps))
            rates["torch DataLoader"].append(each_second(plain.__iter__, steps))
            decode = paced(Batches(data, "train", batch, augment=augment), steps, 0.0)
            both = paced(Batches(data, "train", batch, augment=augment), steps, decode)
            overlaps.append((both / decode, decode, both))
        for place, unit in enumerate(("images/s", "images/s of a processor")):
            for name, values in rates.items():
                found.result(f"loader {name}", max(one[place] for one in values), unit)
        ratio, decode, both = sorted(overlaps)[len(overlaps) // 2]
        found.result("decode alone", 1000 * decode, "ms")
        found.result("step with a device as slow", 1000 * both, "ms")
        for place, name in enumerate(("loader/ours", "loader/ours, processor")):
            ours, theirs = (max(one[place] for one in values) for values in rates.values())
            found.ratio(name, ours / theirs)
        found.ratio("overlap", ratio)
    return found


# --- part "ray" ------------------------------------------------------------------------------------------------------


def wait(payload: float, _stop: Stop) -> float:
    """Work of so many seconds that needs no core."""
    time.sleep(payload)
    return payload


def measure_ray(asked: argparse.Namespace) -> Found:
    """Milliseconds an item, of many of 10 ms on two machines of one CPU each: 5 where nothing else took time."""
    import team as here  # this file by a name that workers can import

    os.environ["RAY_AUTH_MODE"] = "disabled"
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    from ray.cluster_utils import Cluster

    found, count = Found(), 2000
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        cluster.add_node(num_cpus=1)
        with make_executor("ray", 2, cluster.address) as executor, tempfile.TemporaryDirectory() as folder:
            log = ItemLog(Path(folder) / "items" / "log.jsonl")
            run_items(executor, here.wait, [Item(f"first {one}", 0.01) for one in range(8)], log, Stop())
            items = [Item(str(one), 0.01) for one in range(count)]
            begin = time.perf_counter()
            run_items(executor, here.wait, items, log, Stop())
            found.result("ray item", 1000 * (time.perf_counter() - begin) / count, "ms")
    finally:
        cluster.shutdown()
    return found


# --- part "index" ----------------------------------------------------------------------------------------------------

START = """
import resource, sys, time
from pathlib import Path
import torch
from archwright.data import Batches, load
def megabytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20
before, begin = megabytes(), time.process_time()
data = load(f"folder:{sys.argv[1]}", image_size=64, cache_dir=Path(sys.argv[2]))
print(len(data.train), time.process_time() - begin, megabytes() - before)
"""


def measure_index(asked: argparse.Namespace) -> Found:
    """Two starts with a folder of 200,000 files: processor seconds and memory of loading it."""
    found, count = Found(), 200_000
    with tempfile.TemporaryDirectory(prefix="archwright-index-") as folder:
        photos, cache = Path(folder) / "photos", Path(folder) / "cache"
        image = io.BytesIO()
        Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(image, "JPEG")
        earlier = time.time() - 3600
        for label in range(200):
            place = photos / f"class{label:03d}"
            place.mkdir(parents=True)
            for number in range(count // 200):
                path = place / f"image_{number:06d}.jpg"
                path.write_bytes(image.getvalue())
                os.utime(path, (earlier, earlier))
        for name in ("first start of 200,000", "index 200,000"):
            command = [sys.executable, "-c", START, str(photos), str(cache)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            _, seconds, megabytes = map(float, done.stdout.split())
            found.result(name, seconds, "s of a processor")
            found.result(f"{name}, memory", megabytes, "MB")
    return found


PARTS: dict[str, Callable[[argparse.Namespace], Found]] = {
    "team": measure_team,
    "imagenet": count_imagenet,
    "loader": measure_loader,
    "ray": measure_ray,
    "index": measure_index,
}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--only", choices=tuple(PARTS), action="append", help="one part; may be given again")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--device-images", type=float, default=2000, help="of the heaviest network, a second")
    parser.add_argument("--core-images", type=float, default=245, help="decoded and augmented, a second")
    parser.add_argument("--cores", type=int, default=8, help="beside each device")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    parts = [PARTS[name](asked) for name in asked.only or PARTS]
    results, ratios = [one for part in parts for one in part.results], [one for part in parts for one in part.ratios]
    if asked.json:
        print(json.dumps({"benchmark": "team", "results": results, "ratios": ratios}))


if __name__ == "__main__":
    main()
