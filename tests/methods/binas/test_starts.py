"""Several starts in one search, and what of `--pretrained` and `--image-size` is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import archwright as aw
from archwright.errors import InputError
from archwright.methods import binas
from archwright.methods.binas import around, options
from archwright.methods.binas.options import BinasOptions
from archwright.models import load_member
from archwright.pretrained import Weights
from archwright.search.answer import Answer
from helpers.tiny_start import TINY, tiny_start, write_grey_photos


def start(name: str) -> Weights:
    """Weights of their own for the tiny network; the second start has another normalisation."""
    torch.manual_seed(len(name))
    own = replace(TINY, name=name, mean=(0.5, 0.5, 0.5) if name == "tiny-b" else TINY.mean)
    return Weights(own, own.network(image_size=16).state_dict(), name[-1] * 64, f"tests of {name}", "none needed")


@pytest.fixture(scope="module", autouse=True)
def tiny() -> Iterator[None]:
    with tiny_start(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(binas, "load_start", start)
        yield


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Answer:
    folder = tmp_path_factory.mktemp("starts")
    data = write_grey_photos(folder / "photos")
    limits = {"latency_ms": [0.75, 2.0]}
    settings: dict[str, Any] = {"limits": limits, "verify": False, "threads": 1, "pretrained": "tiny-a,tiny-b"}
    return aw.search("binas", run=folder / "run", data=data, **settings)


def test_all_starts_are_trained_and_one_front_is_over_them(found: Answer) -> None:
    lines = (found.folder / "items" / "trained.jsonl").read_text().splitlines()
    kept = {one["key"]: one["result"] for one in map(json.loads, lines)}
    for name in ("tiny-a", "tiny-b"):
        own = {key.split("-")[0] for key, one in kept.items() if one["start"] == name}
        assert own == {"floor", "trunk", "tuned"}
    points = json.loads((found.folder / "artifacts" / "front.json").read_text())["points"]
    assert {one["start"] for one in points} <= {"tiny-a", "tiny-b"}
    losses = [one["loss"] for one in points]
    assert losses == sorted(losses, reverse=True)
    assert [one["name"] for one in found.details["pretrained"]] == ["tiny-a", "tiny-b"]


def test_every_model_names_its_start_and_is_shown_images_as_that_was(found: Answer) -> None:
    for one in found.models:
        model = load_member(found.folder / one.model)
        facts = model.measured["pretrained"]
        assert facts["name"] in ("tiny-a", "tiny-b")
        assert facts == one.details["facts"]["pretrained"]
        assert model.preprocessing.mean == ((0.5,) * 3 if facts["name"] == "tiny-b" else TINY.mean)


def test_any_is_all_that_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "installed_starts", lambda: ["one", "two"])
    assert BinasOptions(pretrained="any").starts == ["one", "two"]
    assert BinasOptions(pretrained="any,three").starts == ["one", "two", "three"]
    assert BinasOptions(pretrained="one").starts == ["one"]
    for text in ("any,one", "none,one", "one,", ","):
        with pytest.raises(InputError, match="different weights"):
            _ = BinasOptions(pretrained=text).starts


def test_images_are_not_enlarged_beyond_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(around, "ALWAYS", 20)
    data = write_grey_photos(tmp_path / "photos")
    with pytest.raises(InputError, match=r"at most 21 px for images of 16 px, got --image-size 32"):
        aw.search("binas", run=tmp_path / "run", data=data, pretrained="tiny-a", image_size=32)
    assert not (tmp_path / "run").exists()
