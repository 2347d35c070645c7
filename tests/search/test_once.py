"""A search validates its settings once and loads images and weights once, whatever it looks at before it starts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from archwright.data import request
from archwright.methods import binas
from archwright.runs.run import Run
from archwright.search import engine
from archwright.search.configuration import Configuration
from helpers.tiny_start import tiny_start, write_grey_photos

NOISE = "random:classes=2,size=8,channels=1,count=64"


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often things are done before the first stage, which is left out."""
    found: Counter[str] = Counter()

    def counted(owner: Any, name: str, what: str) -> None:
        usual = getattr(owner, name)

        def count(*args: Any, **keywords: Any) -> Any:
            found[what] += 1
            return usual(*args, **keywords)

        monkeypatch.setattr(owner, name, count)

    counted(Configuration, "__init__", "validated")
    counted(request, "load", "images")
    monkeypatch.setattr(engine, "_finish", lambda prepared, **_: prepared)
    monkeypatch.setattr(request, "LOADED", {})
    return found


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("random", {"data": NOISE, "evaluations": 2}),
        ("random", {"data": NOISE, "minutes": 0.0001, "evaluations": 30}),  # cut, so that the method is made anew
        ("darts", {"data": NOISE, "minutes": 1000.0, "space": "nasbench201"}),
        ("binas", {"data": "digits"}),
        ("binas", {"data": "digits", "minutes": 5.0}),  # looks at the images to choose a size
        ("binas", {"data": NOISE, "minutes": 5.0, "plan": "paper"}),
    ],
)
def test_settings_are_validated_and_images_loaded_once(
    name: str, settings: dict[str, Any], counts: Counter[str], tmp_path: Path
) -> None:
    engine.search(name, run=tmp_path / "run", **settings)
    assert (counts["validated"], counts["images"]) == (1, 1)


def test_weights_are_loaded_once_beside_minutes(counts: Counter[str], tmp_path: Path) -> None:
    photos = write_grey_photos(tmp_path / "photos")
    with tiny_start():
        usual = binas.load_start

        def load(text: str) -> Any:
            counts["tiny"] += 1
            return usual(text)

        binas.load_start = load
        engine.search("binas", run=tmp_path / "run", data=photos, pretrained="tiny", minutes=5.0)
    assert (counts["validated"], counts["tiny"]) == (1, 1)


def test_a_run_is_validated_once_when_it_is_resumed(counts: Counter[str], tmp_path: Path) -> None:
    engine.search("random", run=tmp_path / "run", data=NOISE, evaluations=2)
    assert Run.open(tmp_path / "run").status() == "stopped"
    counts.clear()
    engine.resume(tmp_path / "run")
    assert (counts["validated"], counts["images"]) == (1, 0)


def test_a_smaller_size_is_loaded_from_the_files_once(counts: Counter[str], tmp_path: Path) -> None:
    """Images are looked at in their own size, then loaded as the search takes them: once each."""
    engine.search("binas", run=tmp_path / "run", data="random:classes=2,size=96,count=12", minutes=5.0)
    assert Run.open(tmp_path / "run").configuration["image_size"] < 96
    assert counts["images"] == 2


@pytest.mark.parametrize("spec", ["digits", NOISE, "photos"])
def test_images_at_their_own_size_are_the_same_however_it_is_said(spec: str, tmp_path: Path) -> None:
    spec = write_grey_photos(tmp_path / "photos") if spec == "photos" else spec
    own = request.load(spec, seed=1)
    assert request.load(spec, seed=1, image_size=own.image_size).fingerprint == own.fingerprint
