"""Every reader of a file takes any bytes: it understands them, or says what is wrong, and never anything else."""

from __future__ import annotations

import gzip
import itertools
import json
import random
import tarfile
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import save_file

import archwright as aw
from archwright.cli.score import _texts
from archwright.costs.tables import LatencyTable
from archwright.data import load, sources
from archwright.data.kept import keep, load_kept
from archwright.data.request import DataRequest, load_data
from archwright.ensembles import Ensemble
from archwright.errors import InputError, RunError
from archwright.export import OnnxClassifier
from archwright.methods.rarts import read_latencies
from archwright.models import Model, load_member, load_model
from archwright.pretrained import load_start
from archwright.report.live import _bars
from archwright.runs import lock
from archwright.runs.checkpoints import Checkpoints
from archwright.runs.files import load_tree, read_metadata, stored_elements, write_json
from archwright.runs.index import FILE as INDEX
from archwright.runs.index import list_folder
from archwright.runs.progress import FILE as PROGRESS
from archwright.runs.run import Run
from archwright.search.answer import Answer
from archwright.spaces.nasbench201 import NASBENCH201
from archwright.spaces.registry import find_space
from archwright.supernets.cell import CellSupernet
from archwright.supernets.files import load_supernet, save_supernet
from archwright.tables.nasbench101 import NasBench101Table
from archwright.tables.nasbench201 import CompactTable
from helpers import lite_oracle
from helpers.latency_tables import counted_table
from helpers.mutations import mutated
from helpers.wrong_files import SCALE

pytest.importorskip("onnxruntime")

SECONDS = 20
SPACE = 'choices:{"x": [1, 2], "y": ["a", null, true]}'

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
anything = st.one_of(
    st.binary(max_size=300),
    values.map(lambda value: json.dumps(value).encode()),
    st.lists(values, max_size=4).map(lambda found: "".join(json.dumps(one) + "\n" for one in found).encode()),
)
"""Bytes, JSON and lines of JSON that know nothing of the reader."""


class Reader:
    """How a file is read, and a good one of its kind.

    Args:
        name: of the file in its folder.
        make: writes a good one, and what is needed beside it, into a folder.
        read: reads it there.
    """

    def __init__(self, name: str, make: Callable[[Path], object], read: Callable[[Path], object]) -> None:
        self.name, self.make, self.read = name, make, read


def make_run(folder: Path) -> Run:
    run = Run.create(
        folder / "run", {"method": "random", "space": SPACE, "seed": 0, "data": "digits"}, {"device": "cpu"}
    )
    run.describe(plan=[{"name": "search", "title": "evaluate"}, {"name": "answer", "title": "answer"}])
    (run.folder / "lock").write_text("12 34 far")
    run.event("started", threads=1)
    run.event("stage", name="search", title="evaluate")
    run.event("epoch", stage="search", epoch=0, loss=1.5)
    run.items("search").record("a", {"accuracy": 50.0, "epochs": []})
    run.finish_stage("search", {"architecture": "a", "accuracy": 50.0})
    run.checkpoints("train").save(3, {"weight": torch.arange(4.0), "tuple": (1, "x"), "pairs": {1: np.arange(2)}})
    return run


def make_result(folder: Path) -> None:
    best = {"architecture": "a", "accuracy": 50.0, "accuracy_on": "x", "params": 5, "macs": 6}
    answer = {"best": best, "method": "random", "space": SPACE, "data": "digits", "seed": 0, "evaluations": 2}
    found = Answer.model_validate({**answer, "seconds": 1.0, "run": str(folder)})
    found.save()


def model() -> Model:
    cell = NASBENCH201.sample(np.random.default_rng(0))
    how = aw.data.Preprocessing(8, 3, (0.5,) * 3, (0.25,) * 3, ("a", "b", "c"))
    return Model(NASBENCH201.build(cell, SCALE), "nasbench201", cell, SCALE, how, {"accuracy": 50.0})


def make_study(folder: Path) -> None:
    with aw.Study("random", SPACE, run=folder / "study") as study:
        for score in (1.0, None):
            study.tell(study.ask(), score)
        study.ask()


def make_supernet(folder: Path) -> None:
    save_supernet(CellSupernet(NASBENCH201, SCALE), "print", folder / "supernet.safetensors")


def make_table(folder: Path) -> None:
    np.savez(folder / "table.npz", accuracy=np.zeros((3, 2)), names=np.array(["a", "b"]))


def make_images(folder: Path) -> None:
    rng = np.random.default_rng(0)
    images = {"x": rng.integers(0, 256, (12, 8, 8), dtype=np.uint8), "y": np.arange(12) % 2}
    np.savez(folder / "images.npz", **images, class_names=np.array(["a", "b"]))


def make_kept(folder: Path) -> None:
    keep(load_data(DataRequest("random:classes=2,size=8,count=24", 0)), folder / "data.npz")


def make_photos(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for kind, number in itertools.product("ab", range(6)):
        (folder / "photos" / kind).mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (9, 12, 3), dtype=np.uint8)).save(folder / f"photos/{kind}/{number}.png")


def read_photos(folder: Path) -> None:
    data = load(f"folder:{folder / 'photos'}")
    for part in (data.train, data.validation, data.test):
        part.pixels(np.arange(len(part)))


def make_cifar(folder: Path) -> None:
    """Two images, one to train and one to test on, and the names of the classes."""
    (folder / "train.bin").write_bytes(bytes(3073))
    (folder / "test.bin").write_bytes(bytes([1]) + bytes(3072))
    (folder / "names.txt").write_text("a\nb\n")


def read_cifar(folder: Path) -> None:
    names = ("train.bin", "test.bin", "names.txt")
    with tarfile.open(folder / "cifar.tar.gz", "w:gz") as archive:
        for name in names:
            archive.add(folder / name, arcname=name)
    sources._cifar(folder / "cifar.tar.gz", "cifar", names[:1], names[1], names[2], 1, None)


def read_idx(folder: Path) -> None:
    (folder / "labels.gz").write_bytes(gzip.compress((folder / "labels.idx").read_bytes(), 1))
    sources.read_idx(folder / "labels.gz")


def make_idx(folder: Path) -> None:
    (folder / "labels.idx").write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 4, 1, 2, 3, 4]))


def make_101(folder: Path) -> None:
    counts = {"vertices": 7, "adj_bits": 1, "test_acc_108": 90, "params": 10}
    columns = {name: np.full(3, value) for name, value in counts.items()}
    np.savez(folder / "table.npz", ops=np.zeros((3, 5), dtype=np.int64), **columns)


def make_start(folder: Path) -> None:
    save_file(lite_oracle.random_state(lite_oracle.LITE0, timm=True), folder / "efficientnet_lite0.safetensors")


@cache
def classifier() -> Model:
    return model()


def make_progress(folder: Path) -> None:
    bar = {"title": "x", "done": 1, "total": 2, "before": 0, "begun": 1e9, "note": ""}
    write_json(make_run(folder).folder / PROGRESS, {"bars": [bar]})


def read_onnx(folder: Path) -> None:
    OnnxClassifier(folder / "m.onnx").probabilities(torch.zeros(2, 3, 8, 8))


READERS = {
    "run.json": Reader("run/run.json", make_run, lambda at: Run.open(at / "run").status()),
    "lock": Reader("run/lock", make_run, lambda at: (lock.holder(at / "run"), Run.open(at / "run").status())),
    "events": Reader(
        "run/events.jsonl", make_run, lambda at: (Run.open(at / "run").events(), Run.open(at / "run").last_events(2))
    ),
    "items": Reader("run/items/search.jsonl", make_run, lambda at: Run.open(at / "run").items("search").done),
    "stage": Reader("run/stages/search.json", make_run, lambda at: Run.open(at / "run").stage_result("search")),
    "checkpoint": Reader(
        "run/checkpoints/train/000000003.safetensors",
        make_run,
        lambda at: (
            Checkpoints(at / "run" / "checkpoints" / "train").latest(),
            Run.open(at / "run").damaged_checkpoints(),
        ),
    ),
    "tree": Reader(
        "run/checkpoints/train/000000003.safetensors",
        make_run,
        lambda at: load_tree(at / "run" / "checkpoints" / "train" / "000000003.safetensors"),
    ),
    "result": Reader("artifacts/result.json", make_result, Answer.read),
    "study": Reader(
        "study/items/study.jsonl", make_study, lambda at: aw.Study("random", SPACE, run=at / "study").close()
    ),
    "latency table": Reader(
        "table.json", lambda at: counted_table(at / "table.json"), lambda at: LatencyTable.load(at / "table.json")
    ),
    "model": Reader(
        "m.safetensors", lambda at: model().save(at / "m.safetensors"), lambda at: load_member(at / "m.safetensors")
    ),
    "header": Reader(
        "m.safetensors",
        lambda at: model().save(at / "m.safetensors"),
        lambda at: (read_metadata(at / "m.safetensors"), stored_elements(at / "m.safetensors")),
    ),
    "ensemble": Reader(
        "both/ensemble.json",
        lambda at: Ensemble((model(), model())).save(at / "both"),
        lambda at: load_model(at / "both"),
    ),
    "supernet": Reader(
        "supernet.safetensors",
        make_supernet,
        lambda at: load_supernet(at / "supernet.safetensors", CellSupernet(NASBENCH201, SCALE), "print"),
    ),
    "onnx": Reader("m.onnx", lambda at: model().export(at / "m.onnx"), read_onnx),
    "npz": Reader("images.npz", make_images, lambda at: load(f"npz:{at / 'images.npz'}")),
    "image": Reader("photos/a/0.png", make_photos, lambda at: classifier().predict([at / "photos" / "a" / "0.png"])),
    "image folder": Reader("photos/a/0.png", make_photos, read_photos),
    "idx": Reader("labels.idx", make_idx, read_idx),
    "gzip": Reader(
        "x.gz",
        lambda at: (at / "x.gz").write_bytes(gzip.compress(bytes([0, 0, 8, 1, 0, 0, 0, 1, 7]))),
        lambda at: sources.read_idx(at / "x.gz"),
    ),
    "CIFAR images": Reader("train.bin", make_cifar, read_cifar),
    "CIFAR names": Reader("names.txt", make_cifar, read_cifar),
    "tar": Reader(
        "cifar.tar.gz",
        lambda at: (make_cifar(at), read_cifar(at)),
        lambda at: sources._read_members(at / "cifar.tar.gz", ["names.txt"]),
    ),
    "latencies of operations": Reader(
        "table.json",
        lambda at: (at / "table.json").write_text('{"skip_connect": 0.1, "nor_conv_3x3": 1}'),
        lambda at: read_latencies(at / "table.json"),
    ),
    "published weights": Reader(
        "efficientnet_lite0.safetensors",
        make_start,
        lambda at: load_start(str(at / "efficientnet_lite0.safetensors")),
    ),
    "progress": Reader(f"run/{PROGRESS}", make_progress, lambda at: _bars(Run.open(at / "run"))),
    "lines": Reader(
        "cells.txt",
        lambda at: (at / "cells.txt").write_text(f"{NASBENCH201.sample(np.random.default_rng(0))}\n"),
        lambda at: [NASBENCH201.parse(line) for line in _texts((), at / "cells.txt")],
    ),
    "kept images": Reader("data.npz", make_kept, lambda at: load_kept(at / "data.npz")),
    "choices": Reader(
        "choices.json",
        lambda at: (at / "choices.json").write_text(SPACE.removeprefix("choices:")),
        lambda at: find_space(f"choices:{at / 'choices.json'}"),
    ),
    "benchmark": Reader("table.npz", make_table, lambda at: CompactTable(at / "table.npz")),
    "benchmark 101": Reader("table.npz", make_101, lambda at: NasBench101Table(at / "table.npz")),
}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder for each reader, with a good file."""
    found = {}
    for name, reader in READERS.items():
        found[name] = tmp_path_factory.mktemp("good")
        reader.make(found[name])
    return found


def check(reader: Reader, folder: Path, content: bytes) -> None:
    """Read ``content``: it is understood, or refused by one of our errors."""
    path = folder / reader.name
    kept = path.read_bytes()
    path.write_bytes(content)
    try:
        reader.read(folder)
    except (InputError, RunError):
        pass
    finally:
        path.write_bytes(kept)


LIMITS = {
    "deadline": timedelta(seconds=SECONDS),
    "suppress_health_check": list(HealthCheck),
    "max_examples": 60,
}


@pytest.mark.parametrize("name", READERS)
def test_a_good_file_is_read(name: str, good: dict[str, Path]) -> None:
    if name != "benchmark":  # which has twelve arrays of the same length
        READERS[name].read(good[name])


@pytest.mark.parametrize("name", READERS)
@settings(**LIMITS)
@given(content=anything)
def test_any_bytes_are_understood_or_refused(name: str, content: bytes, good: dict[str, Path]) -> None:
    check(READERS[name], good[name], content)


@pytest.mark.parametrize("name", READERS)
@settings(**LIMITS)
@given(seed=st.integers(0, 2**32))
def test_a_good_file_made_bad_is_understood_or_refused(name: str, seed: int, good: dict[str, Path]) -> None:
    reader = READERS[name]
    content = (good[name] / reader.name).read_bytes()
    check(reader, good[name], mutated(reader.name, content, random.Random(seed)))


@settings(**LIMITS)
@given(content=anything)
def test_any_bytes_in_place_of_the_index_leave_the_list_as_it_is(
    content: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.getbasetemp() / "listed"
    if not root.exists():
        make_run(root)
    expected = list_folder(root)
    (root / INDEX).write_bytes(content)
    assert list_folder(root) == expected


@settings(**LIMITS)
@given(text=st.text() | values.map(json.dumps))
def test_any_text_of_choices_is_understood_or_refused(text: str) -> None:
    try:
        space = find_space(f"choices:{text}")
    except (InputError, RunError):
        return
    assert space.size >= 1
