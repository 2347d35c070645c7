"""What would not end, or fill the memory: refused by a rough count before anything begins, unless it is confirmed."""

from __future__ import annotations

import json
import os
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from archwright.cli.main import main
from archwright.effort import LONGEST_HOURS, refuse_large, seconds_of
from archwright.ensembles import Ensemble, load_ensemble
from archwright.errors import InputError, RunError
from archwright.models import load_model
from helpers.wrong_data import GOOD
from helpers.wrong_files import Site
from helpers.wrong_options import CELL

LARGE = [
    ("latency", "--batch", 1_000_000),
    ("latency", "--repeats", 10**9),
    ("latency", "--warm-up", 10**9),
    ("latency", "--networks", 10**9),
    ("latency", "--validation-networks", 10**9),
    ("latency", "--image-size", 4096),
    ("latency", "--space", "mbconv", "--image-size", 4096),
    ("latency", "--space", "mbconv", "--width", 64, "--image-size", 512),
    ("score", CELL, "--replicates", 10**9),
    ("score", CELL, "--channels", 16_384, "--cells", 1000),
    ("analyze", "darts-v2", "--epochs", 1000, "--channels", 256, "--cells", 100),
]


@pytest.mark.parametrize("words", LARGE)
def test_what_takes_days_needs_a_word_more(words: tuple[Any, ...], refused: Any) -> None:
    said = refused(*words)
    assert "--yes" in said
    assert "about" in said


def test_a_word_more_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as leaving:  # the fixture lets nothing start
        main(["latency", "--repeats", str(10**9), "--yes"])
    assert leaving.value.code == 1  # as the fixture ends what is accepted


def test_the_bound_is_where_it_is_said_to_be() -> None:
    refuse_large("work", 3600 * LONGEST_HOURS)
    with pytest.raises(InputError, match="about 2 days"):
        refuse_large("work", 3600 * LONGEST_HOURS + 1)
    refuse_large("work", 1e30, 1e30, yes=True)
    with pytest.raises(InputError, match="931,323 GB"):
        refuse_large("work", 1, 1e15)
    assert seconds_of(5e9, 2) == pytest.approx(2, rel=1e-3)


PLACES = {
    "an image": ("predict", "model.safetensors", "{}"),
    "a model": ("predict", "{}", "image.png"),
    "a table of latencies": ("search", "binas", "--data", "digits", "--latency-ms", 1, "--latency-table", "{}"),
    "a table of operations": (
        *("search", "rarts", "--data", "digits", "--space", "nasbench201"),
        *("--latency-weight", 0.1, "--latencies", "{}"),
    ),
    "choices": ("score", "--space", "choices:{}", "{{}}"),
    "a list of architectures": ("score", "--file", "{}"),
    "an archive": ("search", "random", "--data", "npz:{}"),
    "a folder of images": ("search", "random", "--data", "folder:{}"),
    "a module": ("search", "random", "--data", "digits", "--augment", "{}:f"),
    "weights": ("search", "binas", "--data", "digits", "--pretrained", "{}"),
    "a run": ("runs", "show", "{}"),
    "a table": ("search", "random", "--benchmark", "nb201:{}"),
}
SUFFIXES = {"a module": ".py", "weights": "efficientnet_lite0.safetensors", "a model": ".safetensors"}


@pytest.mark.parametrize("kind", ["a pipe", "endless", "a link to the endless"])
@pytest.mark.parametrize("place", PLACES)
def test_what_never_ends_is_not_read(place: str, kind: str, refused: Any, site: Site) -> None:
    path = site.copy() / f"odd{SUFFIXES.get(place, '')}" if place != "weights" else site.copy() / SUFFIXES[place]
    if kind == "a pipe":
        os.mkfifo(path)
    elif kind == "endless":
        if os.geteuid() != 0:
            pytest.skip("only root makes devices")
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))  # a /dev/zero of our own
    else:
        path.symlink_to("/dev/zero")
    begin = time.monotonic()
    refused(*(str(word).format(path.name) for word in PLACES[place]))
    assert time.monotonic() - begin < 60


def test_a_list_of_members_without_end(site: Site) -> None:
    folder = site.copy()
    model = load_model(folder / "model.safetensors")
    Ensemble((model, model)).save(folder / "both")  # type: ignore[arg-type]
    path = folder / "both" / "ensemble.json"
    listed = json.loads(path.read_text())
    for members, said in ((["0.safetensors"] * 100_000, "100,000"), (["0.safetensors"] * 2, "twice")):
        path.write_text(json.dumps({**listed, "members": members}))
        with pytest.raises(RunError, match=said):
            load_ensemble(folder / "both")


def test_stdin_without_end(refused: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("archwright.cli.score.MOST_CHARACTERS", 1000)
    with Path("/dev/zero").open() as endless:
        monkeypatch.setattr("sys.stdin", endless)
        assert "1,000 characters" in refused("score", "--file", "-")


def test_sound_archives_are_still_read(tmp_path: Path) -> None:
    import numpy as np

    from archwright.data import load

    np.savez(tmp_path / "good.npz", **GOOD)
    (tmp_path / "link.npz").symlink_to(tmp_path / "good.npz")
    assert load(f"npz:{tmp_path / 'link.npz'}").classes == 2


SEARCHES = [
    ("random", "--data", "digits", "--evaluations", 10**9),
    ("random", "--data", "digits", "--epochs", 10**9),
    ("random", "--data", "digits", "--minutes", 10**9),
    ("random", "--data", "digits", "--channels", 16_384, "--cells", 1000),
    (
        "random",
        "--space",
        'choices:{"x": [1, 2]}',
        "--evaluate",
        "helpers.hostile_code:signals",
        "--evaluations",
        10**9,
    ),
    ("binas", "--data", "digits", "--minutes", 10**6),
    ("darts", "--data", "digits", "--epochs", 10**8),
    ("hnas", "--data", "digits", "--proxy-channels", 1000),
    ("gdas", "--data", "digits", "--image-size", 256, "--channels", 256),
]


@pytest.mark.parametrize("words", SEARCHES)
def test_a_search_of_days_needs_a_word_more(words: tuple[Any, ...], refused: Any) -> None:
    assert "--yes" in refused("search", *words)


def test_a_step_that_takes_long_is_counted_and_not_tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("archwright.search.engine.LONGEST_STEP", 0.0)
    monkeypatch.setattr("archwright.search.method.SearchMethod.estimate_seconds", None)  # which is not called
    with pytest.raises(SystemExit) as leaving:  # the fixture lets nothing start
        main(["search", "random", "--data", "digits"])
    assert leaving.value.code == 1


def test_images_are_enlarged_within_reason(refused: Any) -> None:
    assert "32 times" in refused("search", "random", "--data", "digits", "--image-size", 1000)


def test_combinations_of_limits_are_counted_before_they_are_made(refused: Any) -> None:
    many = [word for number in range(1, 31) for word in ("--latency-ms", number, "--params", number, "--macs", number)]
    assert "100 combinations" in refused("search", "binas", "--data", "digits", *many)
    assert "once" in refused("search", "binas", "--data", "digits", "--latency-ms", 3, "--latency-ms", 3)
