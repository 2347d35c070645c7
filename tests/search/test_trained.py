"""Networks that a search trains: what they are compared by, kept once, and trained again where they were stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError

from archwright.device import Device
from archwright.errors import Interrupted
from archwright.runs.run import Run
from archwright.runs.stop import Stop
from archwright.search.configuration import Configuration
from archwright.search.context import Context
from archwright.search.trained import (
    TrainedNetwork,
    Trainer,
    networks_of,
    order,
    short_name,
    slowest_as_good,
    without_twins,
)
from archwright.training import Recipe
from helpers.binas_plans import space_of

SPACE = space_of()
LIGHTEST = SPACE.lightest()


def network(losses: list[float], accuracy: float) -> TrainedNetwork:
    known: dict[str, Any] = {"name": "n", "architecture": "a", "image_size": 8, "steps": 1, "epochs": 1, "weights": "n"}
    return TrainedNetwork(**known, validation_accuracy=accuracy, losses=losses)


def test_what_is_kept_comes_back_and_other_versions_do_not() -> None:
    one = network([0.25, 0.75], 90.0)
    kept = json.loads(json.dumps(one.model_dump(mode="json")))
    assert TrainedNetwork.model_validate(kept) == one
    assert one.loss == 0.5
    with pytest.raises(ValidationError, match="version"):
        TrainedNetwork.model_validate({**kept, "version": 2})


def test_the_more_accurate_is_better_then_the_one_of_less_cross_entropy() -> None:
    accurate, sure, unsure = network([2.0], 91.0), network([1.0], 90.0), network([1.5], 90.0)
    assert max([unsure, sure, accurate], key=order) is accurate
    assert max([unsure, sure], key=order) is sure


def test_names_are_of_what_they_come_from() -> None:
    assert short_name("one", "tuned").startswith("tuned-")
    assert short_name("one", "tuned") != short_name("other", "tuned")


# --- training ---------------------------------------------------------------------------------------------------------


def trainer(folder: Path, stop: Stop | None = None) -> Trainer:
    values = {"method": "binas", "space": "compact", "data": "random:classes=2,size=8,channels=1,count=120"}
    configuration, device = Configuration(**values), Device.choose("cpu", 1)
    exists = (folder / "run.json").exists()
    run = Run.open(folder) if exists else Run.create(folder, configuration.model_dump(), device.describe())
    context = Context(configuration, run, device, stop or Stop())
    recipe = Recipe(epochs=1, batch_size=12, lr=0.05)
    return Trainer(context, recipe, lambda _: context.task.data, lambda _: None, looked_at=7)


def new_network() -> Any:
    torch.manual_seed(0)
    return SPACE.build(LIGHTEST, SPACE.scale)


def test_a_network_is_validated_saved_and_recorded_with_how_often_it_saw_the_images(tmp_path: Path) -> None:
    made = trainer(tmp_path / "run")
    run, data, trained = made.context.run, made.context.task.data, new_network()
    made.train("one", trained, 8, steps=18)
    found = made.keep("one", trained, LIGHTEST, SPACE, 18, known={"own": "word"})
    assert networks_of(run) == {"one": found}
    assert (found.steps, found.epochs) == (18, round(18 * 12 / len(data.train)))
    loaded = made.load(found.weights).eval()
    images, labels = (torch.cat(one) for one in zip(*made.in_order(8, "validation"), strict=True))
    with torch.no_grad():
        logits = loaded(images)
    losses = F.cross_entropy(logits, labels, reduction="none")
    assert found.losses == pytest.approx(losses.tolist(), abs=2e-5)
    assert found.validation_accuracy == 100 * float((logits.argmax(1) == labels).double().mean())
    assert found.known == {"own": "word"}
    assert run.checkpoints("trained/one").latest() is None


def test_one_file_of_weights_serves_several_networks_and_logs_are_apart(tmp_path: Path) -> None:
    made = trainer(tmp_path / "run")
    made.save("shared", new_network(), LIGHTEST, SPACE)
    network = made.load("shared")
    one = made.keep("one", network, LIGHTEST, SPACE, 0, weights="shared")
    two = made.keep("two", network, LIGHTEST, SPACE, 5, epochs=3, weights="shared", log="other")
    assert not made.file("one").exists()
    assert (one.weights, two.weights, one.epochs, two.epochs) == ("shared", "shared", 0, 3)
    assert list(networks_of(made.context.run)) == ["one"]
    assert list(networks_of(made.context.run, "other")) == ["two"]


def test_every_training_sees_the_images_in_an_order_of_its_own(tmp_path: Path) -> None:
    made = trainer(tmp_path / "run")
    first, again, other = (made.batches(name, 8).get(0, 0)[0] for name in ("a", "a", "b"))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_part_is_thinned_out_evenly(tmp_path: Path) -> None:
    made = trainer(tmp_path / "run")
    count = len(made.context.task.data.validation)
    seen = [len(x) for x, _ in made.in_order(8, "validation")]
    assert sum(seen) == count
    assert max(seen) == 7
    labels = torch.cat([y for _, y in made.in_order(8, "validation", 5)]).tolist()
    places = np.linspace(0, count - 1, 5).astype(int)
    assert labels == made.context.task.data.validation.labels[places].tolist()


def test_a_stopped_training_goes_on_and_ends_the_same(tmp_path: Path) -> None:
    whole, parts = new_network(), new_network()
    trainer(tmp_path / "whole").train("one", whole, 8, steps=20)
    with pytest.raises(Interrupted):
        trainer(tmp_path / "parts", Stop(minutes=0)).train("one", parts, 8, steps=20)
    fresh = new_network()
    trainer(tmp_path / "parts").train("one", fresh, 8, steps=20)
    assert all(torch.equal(a, b) for a, b in zip(whole.state_dict().values(), fresh.state_dict().values(), strict=True))


def test_the_slowest_that_is_not_clearly_worse_on_validation_is_preferred() -> None:
    accuracies, latencies = [96.7, 94.2, 95.0, 82.5], [2.1, 3.6, 2.0, 4.0]
    assert slowest_as_good(accuracies, latencies, 120, 2) == 1
    assert slowest_as_good(accuracies, latencies, 10_000, 2) == 0
    assert slowest_as_good([94.2, 96.7, 96.7], [2.0, 2.05, 2.1], 120, 2) == 2  # nearly as slow: the most accurate
    assert slowest_as_good([100.0, 99.2], [1.0, 2.0], 120, 2) == 1
    assert slowest_as_good([100.0, 99.2], [1.0, 2.0], 12_000, 2) == 0
    assert slowest_as_good([99.7, 99.4], [1.0, 2.0], 359, 1) == 1  # one image
    assert slowest_as_good([99.7, 98.9], [1.0, 2.0], 359, 1) == 0  # three


def test_where_a_network_fits_in_float_its_int8_form_is_not_taken() -> None:
    def named(name: str, precision: str) -> TrainedNetwork:
        return network([0.5], 90.0).model_copy(update={"name": name, "precision": precision})

    both = [named("a", "fp32"), named("a-int8", "int8"), named("b-int8", "int8")]
    assert [one.name for one in without_twins(both)] == ["a", "b-int8"]
    assert without_twins(both[1:]) == both[1:]
