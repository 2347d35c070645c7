"""Simple things beside an answer: scikit-learn's own numbers, a plain network that repeats, and the verdict."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC

from archwright.data import Augmentation, ImageData, load
from archwright.search import beside
from archwright.search.answer import Beside, Candidate
from archwright.search.beside import CHANCE, LOGISTIC, PLAIN, SVM, PlainTraining
from archwright.training import Recipe


@pytest.fixture(scope="module")
def digits() -> ImageData:
    return load("digits", seed=1)


def training(steps: int = 30, seed: int = 0) -> PlainTraining:
    recipe = Recipe(epochs=1, batch_size=32, lr=0.05, nesterov=True, warmup_epochs=0.1)
    return PlainTraining(recipe, steps, Augmentation(), seed, "cpu")


@pytest.mark.parametrize(
    ("name", "models"),
    [
        (LOGISTIC, [LogisticRegression(C=c, max_iter=200) for c in (0.01, 1.0)]),
        (SVM, [SVC(C=c) for c in (1.0, 10.0)]),
    ],
)
def test_classifiers_on_pixels_are_the_library_s_with_the_penalty_of_validation(
    digits: ImageData, name: str, models: list[Any]
) -> None:
    parts = (digits.train, digits.validation, digits.test)
    x = [digits.normalise(part.pixels(np.arange(len(part)))).flatten(1).numpy() for part in parts]
    scores = [
        [100 * model.fit(x[0], digits.train.labels).score(x[i], parts[i].labels) for i in (1, 2)] for model in models
    ]
    validation, test = max(scores, key=lambda one: one[0])
    found = beside.fit_pixels(digits, name)
    assert found["validation_accuracy"] == pytest.approx(validation)
    assert found["accuracy"] == pytest.approx(test)
    low, high = found["accuracy_interval"]
    assert low < test <= high


def test_guessing_takes_the_commonest_class_of_the_train_part() -> None:
    data = load("random:classes=4,size=8,count=400")
    commonest = max(range(4), key=lambda label: (data.train.labels == label).sum())
    assert beside.guess(data)["accuracy"] == pytest.approx(100 * (data.test.labels == commonest).mean())


def test_large_data_are_shown_smaller(digits: ImageData, monkeypatch: pytest.MonkeyPatch) -> None:
    data = load("random:classes=2,size=32,channels=3,count=400")  # 240 train images: 737,280 numbers
    assert beside.pixel_side(data) == 32
    monkeypatch.setattr(beside, "MOST_NUMBERS", 240 * 3 * 16**2)
    assert beside.pixel_side(data) == 16
    monkeypatch.setattr(beside, "MOST_NUMBERS", 1)
    assert beside.pixel_side(data) == 8
    assert beside.fit_pixels(data, LOGISTIC)["image_size"] == 8


def test_the_plain_network_learns_and_repeats(digits: ImageData) -> None:
    first, second = (beside.simple_things(digits, training()) for _ in range(2))
    assert first == second
    assert set(first) == {CHANCE, LOGISTIC, SVM, PLAIN}
    assert first[PLAIN]["accuracy"] > 60
    assert first[PLAIN]["steps"] == 30
    weights = 9 * (1 * 32 + 32 * 64 + 64 * 128) + 2 * (32 + 64 + 128) + 128 * 10 + 10
    assert first[PLAIN]["params"] == weights
    assert beside.train_plain(digits, training(seed=1)) != first[PLAIN]


def test_the_plain_network_halves_large_images_once_more() -> None:
    shapes = {}
    for size in (32, 48):
        network = beside.PlainNetwork(load(f"random:classes=2,size={size},channels=3,count=20"))
        shapes[size] = network.features(torch.zeros(1, 3, size, size)).shape[-1]
    assert shapes == {32: 8, 48: 6}


def answer(percent: float, low: float, high: float) -> Candidate:
    return Candidate(architecture="any", accuracy=percent, accuracy_interval=(low, high))


def simple_thing(percent: float) -> Beside:
    return Beside(accuracy=percent, accuracy_on="the same images")


def test_the_verdict_says_when_an_answer_is_nothing_to_be_proud_of() -> None:
    simple = {CHANCE: simple_thing(25.0), LOGISTIC: simple_thing(55.0), PLAIN: simple_thing(60.0)}
    assert beside.verdict(answer(70, 61, 78), simple) == ""
    assert "guessing (25.0 %)" in beside.verdict(answer(30, 22, 39), simple)
    near = beside.verdict(answer(58, 50, 66), simple)
    assert "the 60.0 % of the plain network on" in near
    assert "may be chance" in near
    assert "--minutes" in near
    assert "(it is worse)" in beside.verdict(answer(40, 31, 49), simple)


def test_the_verdict_compares_at_equal_cost() -> None:
    def plain(percent: float, latency_ms: float) -> dict[str, Beside]:
        known = {"accuracy_on": "the same images", "latency_ms": latency_ms}
        return {CHANCE: simple_thing(25.0), LOGISTIC: simple_thing(55.0), PLAIN: Beside(accuracy=percent, **known)}

    def limited(latency_ms: float) -> Candidate:
        return answer(70, 61, 78).model_copy(update={"limits": {"latency_ms": 0.3}, "latency_ms": latency_ms})

    assert beside.verdict(limited(0.28), plain(80.0, 0.7)) == ""  # more accurate, but not within the limit
    assert "not better than the 80.0 %" in beside.verdict(limited(0.28), plain(80.0, 0.29))
    quicker = beside.verdict(limited(0.18), plain(71.0, 0.29))
    assert quicker == "As accurate as the plain network (71.0 %, within chance) in 0.62 of its time."
    short = plain(71.0, 0.29)
    short[PLAIN] = Beside(**{**short[PLAIN].model_dump(), "seconds": 12.0})
    assert "(71.0 % after 12 s of training, within chance)" in beside.verdict(limited(0.18), short)
    quick = answer(70.5, 61, 78).model_copy(update={"limits": {"latency_ms": 0.1}, "latency_ms": 0.09})
    worse = answer(68, 59, 76).model_copy(update={"limits": {"latency_ms": 0.05}, "latency_ms": 0.04})
    said = (
        "The quickest answer, 70.5 %, is as accurate as the plain network (71.0 %, within chance) in 0.31 of its time."
    )
    assert beside.verdict(limited(0.18), plain(71.0, 0.29), [quick, limited(0.18)]) == said
    assert beside.verdict(limited(0.28), plain(71.0, 0.29), [quick, limited(0.28)]) == said  # best alone: a warning
    assert beside.verdict(limited(0.18), plain(71.0, 0.29), [worse, limited(0.18)]) == quicker  # by three points
    assert "Warning" in beside.verdict(limited(0.28), plain(80.0, 0.29), [quick])  # best is clearly worse
    assert "Warning" in beside.verdict(limited(0.28), plain(71.0, 0.29))  # as accurate, and not slower
    assert "which is quicker" in beside.verdict(limited(0.28), plain(71.0, 0.1))
    assert beside.verdict(limited(0.28), plain(50.0, 0.7)).startswith("20.0 points above the plain network's 50.0 %")
    assert "the 75.0 % of the logistic regression" in beside.verdict(
        limited(0.2), {**plain(50.0, 0.7), LOGISTIC: simple_thing(75.0)}
    )
