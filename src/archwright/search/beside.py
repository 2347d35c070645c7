"""What simple things reach on the same images, so that an answer is never shown alone.

Guessing, logistic regression on the pixels, a support vector machine where the data are few, and a plain network of
three convolutions. All learn from the train part, choose by the validation part and are tested on the test part of the
search. How long the plain network is trained is the strategy's to say: for as many steps as one answer, or for seconds
by the clock, whose decisions are kept; what is said of it then has these seconds. The same steps give the same numbers.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from archwright.data import Batches, Endless, ImageData, Steps
from archwright.data.augmentation import Augment
from archwright.runs.checkpoints import CheckpointStore
from archwright.runs.files import Json
from archwright.runs.run import ItemLog
from archwright.runs.stop import Stop
from archwright.runs.values import StageResult
from archwright.search.answer import Beside, Candidate
from archwright.search.budget import ByTheClock
from archwright.training import Accuracy, Recipe, evaluate, train
from archwright.training.evaluation import wilson_interval

CHANCE, LOGISTIC, SVM, PLAIN = "chance", "logistic regression", "support vector machine", "plain network"
MOST_IMAGES = 5000
"""Training images that the classifiers on pixels learn from; more are thinned out evenly."""
IMAGES_A_SECOND, FEWEST_IMAGES = 150, 500
"""Of them, where all simple things together have so many seconds, and the fewest of them."""
PATIENCE = 4.0
"""Seconds of a classifier on pixels within which all its penalties are tried in any case."""
LEAST_SECONDS = 1.0
"""Seconds that must be left for the plain network, where these are counted; else it is not trained."""
MOST_NUMBERS = 6_000_000
"""Pixels of all these images together, from which on they are made smaller."""
FEW_IMAGES = 2000
"""Training images up to which a support vector machine is tried: its time grows with their square."""
PENALTIES: Mapping[str, tuple[float, ...]] = {LOGISTIC: (0.01, 1.0), SVM: (1.0, 10.0)}
"""Values of C tried; the one that is best on validation counts."""
PLAIN_WIDTHS = (32, 64, 128)
LARGE_IMAGE = 48
"""From this size on the plain network's first convolution has a stride, too."""


FEW_BESIDE = 1000
"""Training images that classifiers on pixels learn from where no seconds are given: a matter of a second or two."""
SHARE = 0.1
"""Of a training's multiply-accumulates that the plain network beside it may take."""


class PlainNetwork(nn.Module):
    """Three 3x3 convolutions with batch norm, each but the first halving the image; global mean; a linear layer."""

    def __init__(self, data: ImageData) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = data.image_channels
        for number, width in enumerate(PLAIN_WIDTHS):
            stride = 2 if number or data.image_size >= LARGE_IMAGE else 1
            layers += [nn.Conv2d(channels, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
            channels = width
        self.features, self.classifier = nn.Sequential(*layers), nn.Linear(channels, data.classes)

    def forward(self, x: Tensor) -> Tensor:
        """Images (B, C, H, W) to logits (B, classes)."""
        logits: Tensor = self.classifier(self.features(x).mean((2, 3)))
        return logits


@dataclass(frozen=True)
class PlainTraining:
    """How the plain network is trained: like an answer.

    Attributes:
        recipe: of one pass over ``steps`` batches.
        steps: as many as one answer's time allows.
        seconds: of all simple things together, where these are given instead of steps; the network has what the others
            leave of them, and its steps are kept in ``log``.
    """

    recipe: Recipe
    steps: int
    augment: Augment | None
    seed: int
    device: str
    checkpoints: CheckpointStore | None = None
    stop: Stop | None = None
    seconds: float | None = None
    log: ItemLog | None = None

    def network(self, data: ImageData) -> PlainNetwork:
        """With the initial weights of the seed."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            return PlainNetwork(data)

    def batches(self, data: ImageData) -> Steps | Endless:
        """What it is trained on."""
        whole = Batches(data, "train", self.recipe.batch_size, seed=self.seed, augment=self.augment, device=self.device)
        return Steps(whole, self.steps) if self.seconds is None else Endless(whole)

    @property
    def begun(self) -> bool:
        """Whether a training that ends by the clock was begun before, which it then goes on with."""
        return self.log is not None and PLAIN in self.log.done

    def length(self, taken: float) -> ByTheClock | None:
        """When its training ends by the clock, of whose seconds so many are over; None where steps are counted."""
        if self.seconds is None or self.log is None:
            return None
        return ByTheClock(self.log, PLAIN, max(0.1, self.seconds - taken), 100)


class BesideResult(StageResult):
    """Simple things, by name."""

    found: dict[str, Beside]


def simple_things(
    data: ImageData, plain: PlainTraining, on_step: Callable[[], None] = lambda: None, most: int = MOST_IMAGES
) -> dict[str, dict[str, Json]]:
    """By name: ``accuracy`` on the test part with its interval, ``accuracy_on``, and ``validation_accuracy``.

    Args:
        data: images in three parts.
        plain: how the plain network is trained; one without steps and seconds is left out.
        on_step: called after each step of that training.
        most: training images that classifiers on pixels learn from.
    """
    begin = time.perf_counter()
    if plain.seconds is not None:
        most = int(np.clip(IMAGES_A_SECOND * plain.seconds, FEWEST_IMAGES, MOST_IMAGES))
    found = {CHANCE: guess(data), LOGISTIC: fit_pixels(data, LOGISTIC, most, plain.seconds)}
    if len(data.train) <= min(most, FEW_IMAGES):
        found[SVM] = fit_pixels(data, SVM, most, plain.seconds)
    taken = time.perf_counter() - begin
    counted = plain.seconds is None and plain.steps > 0
    if counted or plain.begun or (plain.seconds is not None and plain.seconds - taken >= LEAST_SECONDS):
        found[PLAIN] = train_plain(data, plain, on_step, taken)
    return found


def steps_within(data: ImageData, recipe: Recipe, macs: float, share: float = SHARE) -> int:
    """Steps of the plain network that are a part of a network's training, by counted multiply-accumulates.

    No clock is read, so a search that goes on after a kill says the same. Fewer than one pass over the images are none.

    Args:
        data: images in three parts.
        recipe: that both are trained by.
        macs: multiply-accumulates of one image through the network.
        share: part of its training.
    """
    each = max(1, len(data.train) // recipe.batch_size)
    image = torch.empty(1, data.image_channels, data.image_size, data.image_size, device="meta")
    with torch.device("meta"), torch.no_grad(), FlopCounterMode(display=False) as counter:
        PlainNetwork(data).eval()(image)
    whole = recipe.epochs * each
    found = int(min(1.0, share * macs / (counter.get_total_flops() / 2)) * whole)
    return found if found >= each else 0


def guess(data: ImageData) -> dict[str, Json]:
    """Always the commonest class of the train part."""
    commonest = np.bincount(data.train.labels, minlength=data.classes).argmax()
    validation, test = (part.labels == commonest for part in (data.validation, data.test))
    return _record(data, test) | {"validation_accuracy": 100 * float(validation.mean())}


def fit_pixels(data: ImageData, name: str, most: int = MOST_IMAGES, seconds: float | None = None) -> dict[str, Json]:
    """A classifier on the standardised pixels, with the penalty that is best on validation; accuracies in percent.

    It takes one thread: those of a BLAS wait for each other on a busy machine, a hundred times longer than they work.

    Args:
        data: images in three parts.
        name: which classifier, a key of ``PENALTIES``.
        most: images of the train part that are learnt from.
        seconds: of all simple things together, if given; no further penalty is tried when a third of them is over.
    """
    from threadpoolctl import threadpool_limits

    begin, side = time.perf_counter(), pixel_side(data)
    train = np.unique(np.linspace(0, len(data.train) - 1, min(most, len(data.train))).astype(np.int64))
    x, labels = _pixels(data, "train", side, train), data.train.labels[train]
    validation, test = (_pixels(data, part, side) for part in ("validation", "test"))
    best: tuple[float, NDArray[np.bool_], float] | None = None
    for penalty in PENALTIES[name]:
        if best is not None and seconds is not None and time.perf_counter() - begin > max(seconds / 3, PATIENCE):
            break
        model = _classifier(name, penalty)
        with warnings.catch_warnings(), threadpool_limits(1):
            warnings.simplefilter("ignore")  # of iterations that end before the last digit has settled
            model.fit(x, labels)
        score = 100 * float((model.predict(validation) == data.validation.labels).mean())
        if best is None or score > best[0]:
            best = score, model.predict(test) == data.test.labels, penalty
    assert best is not None
    return _record(data, best[1]) | {"validation_accuracy": best[0], "penalty": best[2], "image_size": side}


def _classifier(name: str, penalty: float) -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import SVC

    return LogisticRegression(C=penalty, max_iter=200) if name == LOGISTIC else SVC(C=penalty)


def pixel_side(data: ImageData) -> int:
    """The side that images are shown at to classifiers on pixels: the data's own, halved until all fit."""
    side, count = data.image_size, min(MOST_IMAGES, len(data.train))
    while side > 8 and count * data.image_channels * side**2 > MOST_NUMBERS:
        side = max(8, side // 2)
    return side


def _pixels(data: ImageData, part: str, side: int, chosen: NDArray[np.int64] | None = None) -> NDArray[np.float32]:
    """Standardised pixels (n, C * side * side), in the order of the part."""
    images = getattr(data, part)
    chosen = np.arange(len(images)) if chosen is None else chosen
    rows = []
    for start in range(0, len(chosen), 512):
        x = data.normalise(images.pixels(chosen[start : start + 512]))
        small = x if side == data.image_size else nn.functional.interpolate(x, (side, side), mode="area")
        rows.append(small.flatten(1).numpy())
    return np.concatenate(rows)


def train_plain(
    data: ImageData, plain: PlainTraining, on_step: Callable[[], None] = lambda: None, taken: float = 0.0
) -> dict[str, Json]:
    """The plain network after its steps: accuracies in percent, steps, parameters.

    Args:
        data: images in three parts.
        plain: how it is trained.
        on_step: called after each training step.
        taken: seconds of its time that are over.
    """
    network, length = plain.network(data), plain.length(taken)
    train(
        network,
        plain.batches(data),
        plain.recipe,
        seed=plain.seed,
        device=plain.device,
        checkpoints=plain.checkpoints,
        stop=plain.stop,
        on_step=lambda _: on_step(),
        length=length,
    )
    validation, test = (_accuracy(network, data, part, plain.device) for part in ("validation", "test"))
    return {
        "accuracy": test.percent,
        "accuracy_interval": [test.low, test.high],
        "accuracy_on": f"{data.name} test, {test.count} images",
        "validation_accuracy": validation.percent,
        "steps": plain.steps if length is None else length.reviews[-1].total,
        **({} if length is None else {"seconds": round(length.seconds, 1)}),
        "params": sum(parameter.numel() for parameter in network.parameters()),
    }


def _accuracy(network: nn.Module, data: ImageData, part: Any, device: str) -> Accuracy:
    return evaluate(network, Batches(data, part, 256, shuffle=False, drop_last=False, device=device), device=device)


def _record(data: ImageData, right: NDArray[np.bool_]) -> dict[str, Json]:
    """Accuracy on the test part of a classifier that is right on these of its images."""
    low, high = wilson_interval(int(right.sum()), len(right))
    return {
        "accuracy": 100 * float(right.mean()),
        "accuracy_interval": [100 * low, 100 * high],
        "accuracy_on": f"{data.name} test, {len(right)} images",
    }


QUICKER = 0.95
"""The part of another's latency below which a network is quicker."""
LITTLE = 1.0
"""Points that a quicker answer may be below the plain network, within chance, and still be called as accurate."""
REMEDY = "Give the search more time (--minutes), more images, or images whose classes look different."


def verdict(best: Candidate, beside: Mapping[str, Beside], models: Sequence[Candidate] = ()) -> str:
    """What an answer is worth beside simple things, at equal cost; a warning where it is not worth its name.

    A warning is for an answer near chance, for something simple that is more accurate within the answer's limit, and
    for something as accurate that is not slower. Else it says what was won against the plain network, if anything.

    Args:
        best: the answer, with its test accuracy and interval.
        beside: simple things by name, chance among them; latencies in milliseconds where they are known.
        models: all answers, where several limits have one each: the quickest of them may be as accurate, too.
    """
    assert best.accuracy is not None
    assert best.accuracy_interval is not None
    low, high = best.accuracy_interval
    guessed = beside[CHANCE].accuracy
    if low <= guessed:
        return (
            f"Warning: {best.accuracy:.1f} % is not clearly better than guessing ({guessed:.1f} %): "
            f"the network has learned little or nothing. {REMEDY}"
        )
    limit = (best.limits or {}).get("latency_ms", np.inf)
    rivals = {name: one for name, one in beside.items() if name != CHANCE and (one.latency_ms or 0.0) <= limit}
    name, simple = max(rivals.items(), key=lambda one: one[1].accuracy, default=("", beside[CHANCE]))
    gained = simple.latency_ms is not None and (best.latency_ms or np.inf) < QUICKER * simple.latency_ms
    close = simple.accuracy <= high or _near(best, simple)
    won = _won(best, beside[PLAIN], models) if PLAIN in beside else ""
    if not close or (simple.accuracy >= best.accuracy and not gained and not (won and name == PLAIN)):
        near = "the difference may be chance" if close else "it is worse"
        quicker = simple.latency_ms is not None and simple.latency_ms < QUICKER * (best.latency_ms or 0.0)
        cost = ", which is quicker" if quicker else ""
        return (
            f"Warning: the answer's {best.accuracy:.1f} % is not better than the {simple.accuracy:.1f} % of the "
            f"{name}{cost} on the same images ({near}). {REMEDY}"
        )
    return won


def _near(answer: Candidate, other: Beside) -> bool:
    """Whether an answer's accuracy is one that the other's may have: near 100 % its own interval is too narrow."""
    low, _ = other.accuracy_interval or (np.inf, np.inf)
    return answer.accuracy is not None and answer.accuracy >= low


def _milliseconds(answer: Candidate) -> float:
    return answer.latency_ms if answer.latency_ms is not None else np.inf


def _as_accurate(answer: Candidate, plain: Beside) -> bool:
    """Whether an answer and the plain network differ by no more than chance."""
    _, high = answer.accuracy_interval or (np.inf, -np.inf)
    return plain.accuracy <= high or _near(answer, plain)


def _won(best: Candidate, plain: Beside, models: Sequence[Candidate]) -> str:
    """What an answer, or a quicker one of ``models``, has over the plain network; empty where that is nothing."""
    assert best.accuracy is not None
    assert best.accuracy_interval is not None
    if best.latency_ms is None or plain.latency_ms is None:
        return ""
    share, gain = best.latency_ms / plain.latency_ms, best.accuracy - plain.accuracy
    seconds = (plain.model_extra or {}).get("seconds")
    after = "" if seconds is None else f" after {seconds:.3g} s of training"
    if plain.accuracy < best.accuracy_interval[0]:
        its = f"{share:.2f} {'of' if share < 1 else 'times'} its time"
        return f"{gain:.1f} points above the plain network's {plain.accuracy:.1f} %{after}, in {its}."
    its = f"{plain.accuracy:.1f} %{after}, within chance"
    quickest = min((one for one in models if one.latency_ms is not None), key=_milliseconds, default=best)
    quick, little = _milliseconds(quickest) / plain.latency_ms, plain.accuracy - (quickest.accuracy or 0.0) <= LITTLE
    if quick < min(QUICKER, share) and little and _as_accurate(quickest, plain):
        which = f"The quickest answer, {quickest.accuracy:.1f} %, is as accurate"
        return f"{which} as the plain network ({its}) in {quick:.2f} of its time."
    if _as_accurate(best, plain) and share < QUICKER:
        return f"As accurate as the plain network ({its}) in {share:.2f} of its time."
    return ""
