"""What looks sound and is not: two answers to one question, options that would do nothing, slips of the keyboard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from archwright.data import from_object
from archwright.device import Device
from archwright.errors import InputError, RunError
from archwright.search.answer import Answer
from archwright.spaces.choice_space import ChoiceSpace
from helpers.wrong_data import GOOD
from helpers.wrong_files import Site
from helpers.wrong_options import CELL


@pytest.mark.parametrize(
    "choices",
    ['{"x": [1, 2], "x": [3, 4]}', '{"x": [1, 1.0, true]}', '{"x": [0, false]}', '{"x": [1, 1]}', '{"x": [1, NaN]}'],
)
def test_choices_that_are_one(choices: str, refused: Any, tmp_path: Path) -> None:
    refused("score", "--space", f"choices:{choices}", "{}")
    (tmp_path / "choices.json").write_text(choices)
    refused("score", "--space", "choices:choices.json", "{}")


def test_an_architecture_with_one_name_twice() -> None:
    with pytest.raises(InputError, match="twice"):
        ChoiceSpace({"x": [1, 2]}).parse('{"x": 1, "x": 2}')


@pytest.mark.parametrize(
    "more", [{"x": GOOD["x_test"], "y": GOOD["y_test"]}, {"x": GOOD["x_test"]}, {"y": GOOD["y_test"]}]
)
def test_an_archive_with_two_pools(more: dict[str, Any], refused: Any, tmp_path: Path) -> None:
    np.savez(tmp_path / "both.npz", **GOOD, **more)
    assert "both" in refused("search", "random", "--data", "npz:both.npz")
    with pytest.raises(InputError, match="Leave one pair out"):
        from_object({**GOOD, **more})


@pytest.mark.parametrize("split", ["1e-300,1,1", "1,1e-300,1", "1,1,1e-9", "1e308,1e308,1e308", "0,1,1", "-1,1,1"])
def test_shares_of_nothing(split: str, refused: Any) -> None:
    refused("search", "random", "--data", "digits", "--split", split)


@pytest.mark.parametrize("device", ["cpu:7", "cpu:", "cpu:0:0", "cuda:x", "CPU", "cpu ", "meta"])
def test_devices_that_are_not_there(device: str, refused: Any) -> None:
    refused("search", "random", "--data", "digits", "--device", device)
    refused("latency", "--device", device)


def test_devices_by_name_and_number() -> None:
    assert Device.choose("cpu").name == "cpu"
    assert Device.choose("cpu:0").name == "cpu:0"


@pytest.mark.parametrize("path", ["", " ", "a\0b"])
@pytest.mark.parametrize(
    "words",
    [
        ("search", "random", "--data", "digits", "--run"),
        ("predict", "model.safetensors", "image.png", "--csv"),
        ("predict", "model.safetensors"),
        ("latency", "--out"),
        ("analyze", "darts-v2", "--epochs", "0", "--out"),
        ("runs", "report", "--out"),
        ("runs", "show"),
        ("runs", "delete"),
    ],
)
def test_paths_of_nothing(words: tuple[str, ...], path: str, refused: Any, site: Site) -> None:
    site.copy()
    refused(*words, path)


@pytest.mark.parametrize("option", [("--classes", 5), ("--image-size", 16), ("--image-channels", 1)])
def test_a_latency_table_of_images_with_other_numbers(option: tuple[str, int], refused: Any) -> None:
    assert option[0].strip("-").replace("-", "_") in refused("latency", "--data", "digits", *option)


@pytest.mark.parametrize(
    "words",
    [
        ("score", "--network", "x.py:f", "--channels", "3"),
        ("score", "--network", "x.py:f", "--space", "darts"),
        ("score", "--network", "x.py:f", "--executor", "processes"),
        ("score", CELL, "--workers", "2"),
        ("predict", "model.safetensors", "image.png", "--overwrite"),
        ("analyze", "darts-v2", "--epochs", "0", "--lr", "0.1"),
        ("analyze", "darts-v2", "--epochs", "0", "--grid", "3"),
        ("runs", "report", "last", "--overwrite"),
    ],
)
def test_options_that_do_nothing(
    words: tuple[str, ...], refused: Any, site: Site, finished: Path, monkeypatch: Any
) -> None:
    site.copy()
    monkeypatch.setenv("ARCHWRIGHT_RUNS", str(finished.parent))
    refused(*words)


@pytest.mark.parametrize(
    "data", ["random:count=30,count=40", "random:count=" + "1" * 5000, "random:,", "random:count=30,", "random:size"]
)
def test_noise_that_is_described_twice(data: str, refused: Any) -> None:
    refused("search", "random", "--data", data)


@pytest.mark.parametrize("augment", ["crop=1,crop=2", "crop=" + "1" * 5000, "autoaugment=7", "flip=1", "crop=-1"])
def test_augmentation_that_is_described_twice(augment: str, refused: Any) -> None:
    refused("search", "random", "--data", "digits", "--augment", augment)


@pytest.mark.parametrize("training", ["optimizer=adamw,optimizer=sgd", "momentum=0.9, momentum=0.8", "a=" + 9999 * "["])
def test_a_recipe_that_is_given_twice(training: str, refused: Any) -> None:
    refused("search", "random", "--data", "digits", "--training", training)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("rarts", "--w-lr", 1e6), "1,000"),
        (("darts", "--w-weight-decay", 1e6), "1,000"),
        (("darts", "--w-lr", 1e-300), "1e-30"),
        (("gdas", "--temperature", 1e-9), "0.0001"),
        (("darts", "--w-lr", 0.1, "--w-lr-min", 0.2), "w_lr"),
        (("conas", "--supernet-lr", 0.1, "--supernet-lr-min", 0.2), "supernet_lr"),
    ],
)
def test_rates_and_temperatures_that_end_in_no_numbers(words: tuple[Any, ...], said: str, refused: Any) -> None:
    assert said in refused("search", *words, "--data", "digits")


def test_an_answer_with_a_model_of_somewhere_else(tmp_path: Path) -> None:
    best = {"architecture": "x", "accuracy": 50.0, "accuracy_on": "x", "model": "../../etc/passwd"}
    answer = {"method": "random", "space": "x", "data": "digits", "seed": 0, "best": best, "evaluations": 2}
    Answer.model_validate({**answer, "seconds": 1.0, "run": str(tmp_path)}).save()
    with pytest.raises(RunError, match="leads out"):
        Answer.read(tmp_path)
