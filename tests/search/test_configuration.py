from __future__ import annotations

import pytest
from pydantic import ValidationError

from archwright.errors import InputError
from archwright.methods.baselines import EvolutionOptions
from archwright.search.configuration import Configuration, validated


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
    assert "epochs: Input should be greater than or equal to 1 (got 0)" in message
    assert "workers: Input should be a valid integer" in message
    assert "Did you mean 'population'" in message
    assert "sample: Input should be greater than or equal to 1 (got 0)" in message


def test_valid_values_come_back_as_the_model() -> None:
    assert validated(EvolutionOptions, {"population": 4, "sample": 2}, "options").population == 4
