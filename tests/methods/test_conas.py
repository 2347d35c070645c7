from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from archwright.errors import InputError, RunError
from archwright.methods import conas
from archwright.methods.conas import meaning, measure_subgraph, plot_polynomial, strongest_terms
from archwright.report.page import report_run
from archwright.runs.run import Run
from archwright.runs.stop import Stop
from archwright.search.answer import Answer
from archwright.search.engine import search
from archwright.solvers.polynomial import Polynomial
from archwright.spaces.nasbench201 import NASBENCH201
from archwright.spaces.registry import spaces
from archwright.spaces.subgraphs import Subgraphs, read_bits
from helpers.triangle_space import TriangleSpace

SMALL: dict[str, Any] = {
    "data": "random:classes=3,size=8,channels=1,count=150",
    "channels": 2,
    "cells": 1,
    "epochs": 1,
    "final_epochs": 1,
    "threads": 1,
    "supernet_epochs": 1,
    "supernet_batch": 32,
    "measurements": 12,
    "images": 24,
    "measure_batch": 24,
}


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Answer:
    """A small search whose supernet and measurements the tests share."""
    return search("conas", run=tmp_path_factory.mktemp("conas") / "run", threshold=9.0, rounds=1, **SMALL)


def stage(result: Answer, name: str) -> dict[str, Any]:
    found: dict[str, Any] = Run.open(result.folder).stage_result(name)
    return found


def measurements(result: Answer) -> dict[str, Any]:
    return Run.open(result.folder).items("measure").done


def planted_losses(monkeypatch: pytest.MonkeyPatch, loss: Any) -> None:
    """Replace the forward pass by a function of the bits."""

    def outcome(_of: str, bits: str) -> Any:
        value = loss(read_bits(bits))

        class Outcome:
            loss = value
            accuracy = 50.0

        return Outcome

    monkeypatch.setattr(conas, "_outcome", outcome)


def test_answer_and_what_is_shown(first: Answer) -> None:
    assert NASBENCH201.is_connected(NASBENCH201.parse(first.best.architecture))
    assert first.evaluations == 12
    with (first.folder / "artifacts" / "polynomial.csv").open() as file:
        rows = list(csv.DictReader(file))
    terms = stage(first, "search")["rounds"][0]["terms"]
    assert len(rows) == len(terms) > 0
    sizes = [abs(term["coefficient"]) for term in terms]
    assert sizes == sorted(sizes, reverse=True)
    assert {name for term in terms for name in term["bits"]} <= set(Subgraphs(NASBENCH201).names)
    assert (first.folder / "artifacts" / "polynomial.png").read_bytes()[:4] == b"\x89PNG"


def test_other_settings_need_no_forward_pass(first: Answer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def outcome(of: str, bits: str) -> Any:
        asked.append(bits)
        return original(of, bits)

    original = conas._outcome
    monkeypatch.setattr(conas, "_outcome", outcome)
    again = {**SMALL, "threshold": 9.0, "rounds": 1, "supernet": str(first.folder)}
    result = search("conas", run=tmp_path / "again", **again, lam=0.2, sparsity=3, degree=1)
    measured = stage(result, "measure")
    assert measured == stage(first, "measure")
    assert len(asked) <= 1  # the sub-graph that was found, unless it was measured before
    diagnostics = stage(result, "search")["rounds"][0]["diagnostics"]
    assert (diagnostics["lam"], diagnostics["features"]) == (0.2, 25)
    assert diagnostics["kept"] <= 3


def test_rsps_takes_the_best_of_the_measured(first: Answer, tmp_path: Path) -> None:
    result = search("rsps", run=tmp_path / "rsps", **SMALL, supernet=str(first.folder))
    done = measurements(result)
    best = min(done, key=lambda key: done[key]["loss"])
    bits = Subgraphs(NASBENCH201)
    chosen = NASBENCH201.parse(result.best.architecture)
    assert stage(result, "search")["subgraph"] == best
    if NASBENCH201.is_connected(bits.architecture(read_bits(best), np.zeros(24), np.random.default_rng(0))):
        np.testing.assert_array_equal(bits.of(chosen), read_bits(best))


def test_planted_optimum_is_found(first: Answer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # 3x3 on every edge lowers the loss, each other operation raises it: s = 24 terms of degree 1
    names = Subgraphs(NASBENCH201).names
    sign = np.array([-1.0 if "3x3" in name and "conv" in name else 1.0 for name in names])
    planted_losses(monkeypatch, lambda x: 1.0 + 0.02 * float(sign @ x))
    given = {**SMALL, "measurements": 120, "supernet": str(first.folder), "norms": "recalibrated"}
    result = search("conas", run=tmp_path / "run", **given, sparsity=24, lam=0.05, threshold=9.0)
    assert (
        result.best.architecture
        == "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+"
        + "".join(f"|nor_conv_3x3~{source}" for source in range(3))
        + "|"
    )
    assert len(stage(result, "search")["rounds"]) == 1


def test_restriction_measures_again_with_found_bits_fixed(
    first: Answer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # one bit decides nearly all; the others show once it is fixed
    weights = np.full(24, -0.001)
    weights[2] = -0.5
    planted_losses(monkeypatch, lambda x: 1.0 + float(weights @ x))
    given = {**SMALL, "measurements": 100, "supernet": str(first.folder), "norms": "recalibrated", "threshold": 9.0}
    result = search("conas", run=tmp_path / "run", **given, sparsity=1, lam=0.01, rounds=2)
    rounds = stage(result, "search")["rounds"]
    assert [one["fixed"] for one in rounds] == [0, 1]
    assert rounds[0]["terms"][0]["bits"] == ["cell 0>1 nor_conv_3x3"]
    assert result.evaluations == 200
    keys = list(measurements(result))
    assert all(key[2] == "1" for key in keys[100:])


def test_bad_losses(first: Answer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {**SMALL, "supernet": str(first.folder), "norms": "recalibrated", "rounds": 1}
    planted_losses(monkeypatch, lambda x: 2.0)
    with pytest.raises(InputError, match="differ"):
        search("conas", run=tmp_path / "constant", **given, threshold=9.0)
    with pytest.raises(InputError, match="Raise the threshold"):
        search("conas", run=tmp_path / "above", **given, threshold=1.5)
    planted_losses(monkeypatch, lambda x: float("nan"))
    with pytest.raises(InputError, match="finite"):
        search("conas", run=tmp_path / "nan", **given)
    planted_losses(monkeypatch, lambda x: float("nan") if x[0] > 0 else 1.0 + 0.1 * float(x[1]) + 0.01 * float(x[2]))
    result = search("conas", run=tmp_path / "some", **given, threshold=9.0, sparsity=6, lam=1e-6)
    dropped = stage(result, "search")["rounds"][0]["dropped"]
    assert 0 < dropped["not_finite"] < 12
    said = [event["text"] for event in Run.open(result.folder).events() if event["kind"] == "warning"]
    assert any("not finite" in text for text in said)
    assert any("Theorem 2.4" in text for text in said)  # fewer than 12 measurements for 6 coefficients


def test_a_measurement_is_the_supernets_loss(first: Answer) -> None:
    bits, result = next(iter(measurements(first).items()))
    made = json.loads((first.folder / "artifacts" / "measured_by.json").read_text())
    of = {
        **made,
        "space_text": "nasbench201",
        "data": {"spec": SMALL["data"], "seed": 0},
        "supernet": str(first.folder / "artifacts" / "supernet.safetensors"),
        "device": "cpu",
    }
    again = measure_subgraph({"of": of, "bits": bits}, Stop())
    assert again["loss"] == pytest.approx(result["loss"], rel=1e-4)


@pytest.mark.parametrize("space", ["darts", "darts-free", "nasbench1shot1-1"])
def test_every_cell_space(space: str, tmp_path: Path) -> None:
    settings = {**SMALL, "channels": 4, "cells": 3, "measurements": 6, "supernet_batch": 90}
    result = search("conas", run=tmp_path / "run", space=space, **settings, threshold=9.0, rounds=1)
    architecture = spaces.get(space).parse(result.best.architecture)
    assert spaces.get(space).is_connected(architecture)


def test_what_cannot_work_is_refused(first: Answer, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="space with a supernet"):
        search("conas", run=tmp_path / "a", **{**SMALL, "channels": None, "cells": None}, space="mbconv")
    with pytest.raises(InputError, match="limits"):
        search("rsps", run=tmp_path / "b", **SMALL, limits={"params": 1e6})
    with pytest.raises(InputError, match="channels"):
        search("rsps", run=tmp_path / "c", **{**SMALL, "channels": 4}, supernet=str(first.folder))


def test_measurements_that_are_lent_by_a_damaged_file_are_refused(first: Answer, tmp_path: Path) -> None:
    lender = tmp_path / "lender"
    shutil.copytree(first.folder, lender)
    (lender / "artifacts" / "measured_by.json").write_bytes(b"\xff{")
    with pytest.raises(RunError, match="measured_by"):
        search("rsps", run=tmp_path / "rsps", **SMALL, supernet=str(lender))


def test_the_polynomial_in_words(tmp_path: Path) -> None:
    polynomial = Polynomial(3, {(): 5.0, (0,): -0.1, (1, 2): 0.3})
    assert strongest_terms(polynomial) == [((1, 2), 0.3), ((0,), -0.1)]
    assert [meaning((0,), -1.0), meaning((0,), 1.0), meaning((0, 1), -1.0), meaning((0, 1), 1.0)] == [
        "on",
        "off",
        "alike",
        "unlike",
    ]
    plot_polynomial(polynomial, ["a", "b", "c"], tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes()[:4] == b"\x89PNG"


def test_the_report_says_why(first: Answer) -> None:
    page = report_run(first.folder).read_text()
    assert first.insights[0].split(" (")[0].split(">")[0] in page
    assert "polynomial" in page


def test_work_items_name_a_space_so_that_another_process_finds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spaces, "entries", dict(spaces.entries))
    monkeypatch.setattr(spaces, "_added", set(spaces._added))
    spaces.register("test-conas", TriangleSpace)
    sent: list[str] = []

    def kept(_executor: Any, _work: Any, items: Any, *_rest: Any) -> None:
        sent.extend(item.payload["of"]["space_text"] for item in items)
        raise KeyboardInterrupt

    monkeypatch.setattr(conas, "run_items", kept)
    with pytest.raises(KeyboardInterrupt):
        search("rsps", space="test-conas", **SMALL)
    assert set(sent) == {"helpers.triangle_space:TriangleSpace"}


def test_the_supernet_has_a_scale_of_its_own(tmp_path: Path) -> None:
    result = search("rsps", run=tmp_path / "run", **{**SMALL, "measurements": 4}, supernet_channels=4, supernet_cells=2)
    made = json.loads((tmp_path / "run" / "artifacts" / "measured_by.json").read_text())
    assert (made["scale"]["channels"], made["scale"]["cells"]) == (4, 2)
    small = NASBENCH201.scale_from({**made["scale"], "channels": 2, "cells": 1})
    assert result.best.params == NASBENCH201.cost(NASBENCH201.parse(result.best.architecture), small).params


def settled(space: str, **options: Any) -> conas.Conas:
    """The method in ``space``, without a run."""
    made = object.__new__(conas.Conas)
    made.context = SimpleNamespace(task=SimpleNamespace(space=spaces.get(space), data=SimpleNamespace(classes=3)))  # type: ignore[assignment]
    made.options = conas.ConasOptions(**options)
    return made


@pytest.mark.parametrize(
    ("space", "cells", "threshold", "decay"), [("darts", 8, 1.5, 3e-4), ("nasbench201", 5, 1.8, 5e-4)]
)
def test_the_papers_preset(space: str, cells: int, threshold: float, decay: float) -> None:
    names = ("supernet_channels", "supernet_cells", "supernet_epochs", "supernet_weight_decay", "measure_batch")
    paper, short = settled(space, preset="paper", supernet_epochs=7), settled(space)
    assert [paper.setting(name) for name in names] == [16, cells, 7, decay, 64]
    assert [short.setting(name) for name in names] == [None, None, 20, 5e-4, 256]
    assert (paper.threshold, short.threshold) == (threshold, pytest.approx(np.log(3)))
