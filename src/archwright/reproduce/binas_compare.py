"""BINAS beside what one would do otherwise, at three latency limits.

All but the last share the supernet of the search behind table 2, and their networks are tuned alike:

- BINAS: the exact front of the predictor;
- random sub-networks: the best on validation of as many within the limit as BINAS' pool has validation epochs, for
  every limit anew, so that three limits cost three pools;
- evolution on the supernet: the same number of validations, spent on mutations;
- uniform networks: one depth and one block everywhere, as wide as the limit allows, trained from scratch, each for a
  third of the time that the search's trainings and its pool took.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import pairwise, product
from pathlib import Path

import numpy as np

from archwright.costs.measure import Timing, measure
from archwright.costs.tables import LatencyTable
from archwright.execution.base import Item, run_items
from archwright.methods.binas import Binas
from archwright.methods.engine import reopened
from archwright.methods.work import TrainingJob, train_and_measure
from archwright.methods.work import measure as accuracy_of
from archwright.reproduce.base import Outcome, Row, Settings
from archwright.reproduce.binas import finished_search, search_scale
from archwright.runs.files import Json, read_json, write_json
from archwright.runs.progress import Progress
from archwright.runs.run import ItemLog, Run
from archwright.runs.stop import Stop
from archwright.solvers import pareto
from archwright.spaces.mbconv import MbConv, MbConvArchitecture, MbConvBlock
from archwright.spaces.mbconv_scale import MbConvScale
from archwright.training import train

SHARES = (0.2, 0.4, 0.6)
"""Where between the fastest and the slowest network the limits are."""
TUNE_EPOCHS = 5
POPULATION = 12
TOURNAMENT = 4
UNIFORM_BLOCK = (6, 3, False)
"""Expansion, kernel and squeeze-excite of the uniform networks: the block of MobileNetV2."""
UNIFORM_WIDTHS = (0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0)
TRAINING_STAGES = ("heaviest", "supernet", "measure")
ARMS = ("BINAS", "random sub-networks", "evolution on the supernet", "uniform network")


def binas_compare(settings: Settings) -> Outcome:
    """Test accuracy after tuning at three limits, and the latency measured here."""
    result = finished_search(settings)
    method = opened(result.folder, settings.progress)
    table = LatencyTable.load(result.folder / "artifacts" / "latency.json")
    least, most = method.problem.cost_range("latency_ms")
    limits = [round(least + share * (most - least), 3) for share in SHARES]
    chosen = _kept(settings.folder / "chosen.json", lambda: choose(method, table, limits, settings))
    seconds = stage_seconds(Run.open(result.folder))
    items = [
        Item(f"{arm} {limit}", {"run": str(result.folder), "architecture": chosen[str(limit)][arm]})
        for limit, arm in product(limits, ARMS[:-1])
    ]
    items += [
        Item(f"{ARMS[-1]} {limit}", {"run": str(result.folder), "seconds": seconds / 3, **chosen[str(limit)][ARMS[-1]]})
        for limit in limits
    ]
    log = ItemLog(settings.folder / "trained.jsonl")
    items.sort(key=lambda item: "seconds" not in item.payload)  # the longest first
    with settings.progress.task("training", len(items), sum(item.key in log.done for item in items)) as bar:
        found = run_items(settings.executor, train_item, items, log, Stop(), bar)
    rows = []
    for limit, arm in product(limits, ARMS):
        one = found[f"{arm} {limit}"]
        rows.append(Row(f"{limit} ms, {arm}", "% on test", None, one["accuracy"]))
        rows.append(Row(f"{limit} ms, {arm}: measured", "ms", None, chosen[str(limit)][f"{arm} ms"]))
    evaluations = chosen["evaluations"]
    notes = [
        f"search: {seconds / 60:.0f} min for heaviest network, supernet and pool; tuning {TUNE_EPOCHS} epochs each",
        f"random and evolution: {evaluations} validations of whole sub-networks for every limit",
        *(
            f"{limit} ms, {ARMS[-1]}: depth {chosen[str(limit)][ARMS[-1]]['depth']}, width "
            f"{chosen[str(limit)][ARMS[-1]]['width']}, {found[f'{ARMS[-1]} {limit}']['epochs']} epochs"
            for limit in limits
        ),
        f"{len(method.context.data.test)} test images: a difference below about 2 points is no difference; one seed",
    ]
    return Outcome(search_scale(settings, result), rows, notes)


def _kept(path: Path, make: Callable[[], Json]) -> Json:
    """What ``make`` gives, made once."""
    if not path.exists():
        write_json(path, make())
    return read_json(path)


def opened(folder: Path, progress: Progress | None = None) -> Binas:
    """The search in ``folder``, for its data, supernet, predictor and table."""
    method = reopened(Run.open(folder), Stop(), progress or Progress())
    assert isinstance(method, Binas)
    return method


def stage_seconds(run: Run) -> float:
    """What the search spent on training and on the pool; judging the predictor is not part of it."""
    kinds = [event for event in run.events() if event["kind"] in ("stage", "finished", "started", "interrupted")]
    spent = [after["time"] - one["time"] for one, after in pairwise(kinds) if one.get("name") in TRAINING_STAGES]
    return float(sum(spent))


# --- choosing ---------------------------------------------------------------------------------------------------------


def choose(method: Binas, table: LatencyTable, limits: list[float], settings: Settings) -> Json:
    """Each arm's network at each limit, and its median latency in ms."""
    rows = method.context.run.stage_result("measure")
    evaluations = max(1, rows["rows"] // len(method.context.data.validation)) if rows else 1
    found: dict[str, Json] = {"evaluations": evaluations}
    with settings.progress.task("choosing sub-networks", 2 * evaluations * len(limits)) as bar:
        for number, limit in enumerate(limits):

            def accuracy(architecture: MbConvArchitecture) -> float:
                bar.advance()
                return float(method.work.outcomes(method.space.to_choice(architecture)).mean())

            exact = method.space.from_choice(pareto.solve(method.problem, "latency_ms", limit).choice)
            drawn = within(method, limit, np.random.default_rng([number, 0]))
            picked = {
                ARMS[0]: exact,
                ARMS[1]: max((next(drawn) for _ in range(evaluations)), key=accuracy),
                ARMS[2]: evolved(method, table, limit, evaluations, accuracy, np.random.default_rng([number, 1])),
            }
            depth, width, uniform_ms = uniform(method.space.scale, limit, method.timing)
            found[str(limit)] = {
                **{arm: str(architecture) for arm, architecture in picked.items()},
                **{f"{arm} ms": method.latency_of(one, table).median_ms for arm, one in picked.items()},
                ARMS[3]: {"depth": depth, "width": width},
                f"{ARMS[3]} ms": uniform_ms,
            }
    return found


def within(method: Binas, limit: float, rng: np.random.Generator) -> Iterator[MbConvArchitecture]:
    """Random sub-networks that the table predicts within the limit."""
    while True:
        choices = method.problem.sample(100_000, rng)
        costs = method.problem.evaluate(choices)[1]["latency_ms"]
        for place in np.flatnonzero(costs <= limit):
            yield method.space.from_choice(choices[int(place)])


def evolved(
    method: Binas,
    table: LatencyTable,
    limit: float,
    evaluations: int,
    accuracy: Callable[[MbConvArchitecture], float],
    rng: np.random.Generator,
) -> MbConvArchitecture:
    """Regularised evolution with real validations: mutate the best of a few of the youngest, within the limit."""
    drawn = within(method, limit, rng)
    history: list[tuple[float, MbConvArchitecture]] = []
    for number in range(evaluations):
        child = next(drawn)
        if number >= POPULATION:
            youngest = history[-POPULATION:]
            candidates = [youngest[int(i)] for i in rng.choice(POPULATION, TOURNAMENT, replace=False)]
            parent = max(candidates, key=lambda one: one[0])[1]
            mutants = (method.space.mutate(parent, rng) for _ in range(1000))
            child = next((one for one in mutants if table.predict(method.space, [one])[0] <= limit), child)
        history.append((accuracy(child), child))
    return max(history, key=lambda one: one[0])[1]


def uniform(scale: MbConvScale, limit: float, timing: Timing) -> tuple[int, float, float]:
    """Depth and width of the uniform network that computes most within the limit here, and its median ms."""
    shape, found = (scale.image_channels, scale.image_size, scale.image_size), []
    for depth, width in product(scale.depths, UNIFORM_WIDTHS):
        space = MbConv(scale.changed(width=width))
        architecture = uniform_architecture(space, depth)
        ms = measure(space.build(architecture, space.scale), shape, timing).median_ms
        found.append((space.cost(architecture, space.scale).macs, depth, width, ms))
    fitting = [one for one in found if one[-1] <= limit] or [min(found, key=lambda one: one[-1])]
    return max(fitting)[1:]


def uniform_architecture(space: MbConv, depth: int) -> MbConvArchitecture:
    """The same block everywhere, ``depth`` times in every stage."""
    return MbConvArchitecture(
        tuple(
            tuple(MbConvBlock(*UNIFORM_BLOCK, block.stride, block.channels) for block in blocks[:depth])
            for blocks in space.heaviest().stages
        )
    )


# --- training ---------------------------------------------------------------------------------------------------------


def train_item(payload: Json, stop: Stop) -> Json:
    """Work item: tune a sub-network, or train a uniform network from scratch for a given time."""
    method = opened(Path(payload["run"]))
    if "seconds" in payload:
        return _train_uniform(method, payload, stop)
    context, device = method.context, method.context.device.name
    recipe = method.tuning_recipe().model_copy(update={"epochs": TUNE_EPOCHS})
    network = method.work.trained.cut_out(method.space.parse(payload["architecture"]))
    begin = time.perf_counter()
    train(
        network,
        method.work.batches(recipe),
        recipe,
        seed=context.configuration.seed,
        device=device,
        teacher=method.work.teacher if recipe.distill_weight else None,
        stop=stop,
    )
    accuracy = accuracy_of(network, context.data, "test", device)
    return {"accuracy": accuracy.percent, "epochs": TUNE_EPOCHS, "seconds": time.perf_counter() - begin}


def _train_uniform(method: Binas, payload: Json, stop: Stop) -> Json:
    context = method.context
    space = MbConv(method.space.scale.changed(width=payload["width"]))
    recipe = method.work.recipe(1, 1.0)
    job = TrainingJob(
        data=context.data_request,
        space=space.name,
        scale=space.scale.to_dict(),
        architecture=str(uniform_architecture(space, payload["depth"])),
        recipe={**recipe.model_dump(), "warmup_epochs": 0.0},
        seed=context.configuration.seed,
        device=context.device.name,
        split="test",
    )
    one_epoch = train_and_measure(job.to_json(), stop)["seconds"]
    epochs = max(2, round(payload["seconds"] / one_epoch))
    recipe = method.work.recipe(epochs, 1.0)
    return {**train_and_measure({**job.to_json(), "recipe": recipe.model_dump()}, stop), "epochs": epochs}
