import pytest
from pydantic import ValidationError

from archwright.errors import InputError
from archwright.training.recipe import RECIPES, Recipe, get_recipe


def test_darts_protocol():
    darts = RECIPES["darts"]
    assert (darts.epochs, darts.batch_size, darts.lr, darts.lr_min) == (600, 96, 0.025, 0.0)
    assert (darts.momentum, darts.weight_decay, darts.clip) == (0.9, 3e-4, 5.0)
    assert (darts.auxiliary_weight, darts.drop_path, darts.schedule) == (0.4, 0.2, "cosine")


def test_round_trip_through_json():
    for recipe in RECIPES.values():
        assert Recipe.model_validate_json(recipe.model_dump_json()) == recipe


def test_every_field_says_what_it_is():
    assert all(field.description for field in Recipe.model_fields.values())


@pytest.mark.parametrize(
    "wrong",
    [
        {"lr": 0.0}, {"lr": float("nan")}, {"epochs": 0}, {"momentum": 1.0}, {"drop_path": 1.0}, {"ema_decay": 1.0},
        {"lr_min": 1.0}, {"warmup_epochs": 3.0}, {"optimizer": "adam", "nesterov": True}, {"unknown": 1},
        {"momentum": 0.0, "nesterov": True}, {"precision": "bf16"}, {"distill_weight": 1.1}, {"label_smoothing": 1.0},
    ],
)  # fmt: skip
def test_bad_values_are_refused(wrong):
    with pytest.raises(ValidationError):
        Recipe(**{"epochs": 3, "batch_size": 8, "lr": 0.1, **wrong})


def test_frozen():
    with pytest.raises(ValidationError):
        RECIPES["short"].lr = 1.0


def test_get_recipe_validates_changes_and_reports_all_mistakes():
    assert get_recipe("short", epochs=2, warmup_epochs=0.5).epochs == 2
    with pytest.raises(InputError, match=r"epochs.*lr"):
        get_recipe("short", epochs=0, lr=-1)
    with pytest.raises(InputError, match="warmup_epochs"):
        get_recipe("short", epochs=1, warmup_epochs=1.0)
    assert get_recipe("short", epochs=1).warmup_epochs == 0.25
    with pytest.raises(InputError, match="'darts'"):
        get_recipe("dart")
