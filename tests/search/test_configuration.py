from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from archwright.errors import InputError
from archwright.methods.baselines import EvolutionOptions
from archwright.search.configuration import Configuration, validated
from archwright.search.engine import compute_device
from archwright.search.task import Task
from archwright.tables.nasbench201 import CompactTable
from archwright.training import Recipe


def test_a_configuration_survives_the_run_file() -> None:
    made = Configuration(method="random", data="digits", limits={"params": 1e5}, options={"evaluations": 3})
    assert Configuration(**made.model_dump()) == made
    with pytest.raises(ValidationError):
        made.seed = 3  # type: ignore[misc]


def test_all_that_is_wrong_is_said_at_once() -> None:
    values = {"method": "evolution", "sed": 1, "epochs": 0, "workers": "many", "options": {"populaton": 5, "sample": 0}}
    with pytest.raises(InputError) as caught:
        validated(Configuration, values, "settings of a search", beside=EvolutionOptions)
    message = str(caught.value)
    assert "Did you mean 'seed'" in message
    assert "epochs (--epochs): Input should be greater than or equal to 1 (got 0)" in message
    assert "workers (--workers): Input should be a valid integer" in message
    assert "Did you mean 'population'" in message
    assert "sample (--sample): Input should be greater than or equal to 1 (got 0)" in message


def test_valid_values_come_back_as_the_model() -> None:
    assert validated(EvolutionOptions, {"population": 4, "sample": 2}, "options").population == 4


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"data": "digits", "workers": 2}, "--workers without --executor"),
        ({"data": "digits", "address": "localhost:1"}, "address"),
        ({"data": "digits", "executor": "processes", "address": "localhost:1"}, "address"),
        ({"data": "digits", "dataset": "cifar10"}, "dataset"),
        ({"benchmark": "nb201", "split": "70,15,15"}, "split"),
        ({"benchmark": "nb201", "augment": "off"}, "augment"),
        ({"benchmark": "nb201", "image_size": 16}, "--image-size without --data"),
        ({"benchmark": "nb201", "final_epochs": 3}, "--final-epochs"),
        ({"data": "digits", "split": "a,b"}, "split"),
        ({"data": "digits", "training": "adam"}, "optimizer=adamw"),
    ],
)
def test_settings_that_would_do_nothing_are_refused(settings: dict[str, Any], word: str) -> None:
    with pytest.raises(InputError, match=word) as caught:
        validated(Configuration, {"method": "random", **settings}, "settings")
    assert len(str(caught.value)) < 300


def test_texts_of_the_command_line_are_read() -> None:
    values = {"method": "random", "data": "digits", "split": "70,15,15", "training": "optimizer=adamw,momentum=0.8"}
    configuration = Configuration(**values)
    assert configuration.split == (70, 15, 15)
    assert configuration.training == {"optimizer": "adamw", "momentum": 0.8}
    kept_as_texts = {"optimizer": "adamw", "momentum": "0.8"}  # as runs of earlier versions have it
    assert Configuration(**{**values, "training": kept_as_texts}) == configuration
    recipe = Task(configuration).recipe
    assert (recipe.optimizer, recipe.momentum) == ("adamw", 0.8)
    assert Configuration(**configuration.model_dump(mode="json")) == configuration


RECIPE = {
    **dict.fromkeys(Recipe.model_fields, 0),
    "head_lr": 0.01,
    "optimizer": "adam",
    "schedule": "constant",
    "precision": "auto",
}


@pytest.mark.parametrize("field", sorted(set(Recipe.model_fields) - {"epochs", "batch_size", "lr", "sync_norm"}))
def test_every_field_of_the_recipe_can_be_given(field: str) -> None:
    training = {"nesterov": False, field: RECIPE[field]}
    task = Task(Configuration(method="random", data="digits", training=training))
    if field.startswith("distill"):
        with pytest.raises(InputError, match="further field"):
            _ = task.recipe
    else:
        assert getattr(task.recipe, field) == RECIPE[field]


def test_drop_path_and_auxiliary_loss_need_a_network_that_has_them() -> None:
    for space, training, refused in (
        ("compact", {"drop_path": 0.2}, True),
        ("nasbench201", {"drop_path": 0.2}, False),
        ("darts", {"drop_path": 0.2}, False),
        ("darts", {"auxiliary_weight": 0.4}, True),
    ):
        task = Task(Configuration(method="random", data="digits", space=space, training=training))
        if refused:
            with pytest.raises(InputError, match=next(iter(training))):
                task.check_recipe()
        else:
            task.check_recipe()


def test_a_misspelt_device_beside_a_table_is_refused(nb201: CompactTable) -> None:
    with pytest.raises(InputError, match="pixel3"):
        compute_device(Configuration(method="random", benchmark="nb201", device="pixl3"))
    assert compute_device(Configuration(method="random", benchmark="nb201", device="pixel3")).name


def test_files_of_the_user_are_kept_by_their_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    own = {"space": "choices:space.json", "evaluate": "mine.py:score", "augment": "sub/mine.py:noise", "data": "digits"}
    made = Configuration(method="random", **own)
    assert made.space == f"choices:{tmp_path}/space.json"
    assert made.evaluate == f"{tmp_path}/mine.py:score"
    assert made.augment == f"{tmp_path}/sub/mine.py:noise"
    assert Configuration(method="random", benchmark="nb101:table.npz").benchmark == f"nb101:{tmp_path}/table.npz"
    for text in ("nasbench201", 'choices:{"a": [1, 2], "b": ["x.py:y"]}', "json:dumps", "crop=4,flip"):
        assert Configuration(method="random", space=text).space == text
