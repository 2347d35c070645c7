"""Chapter 5's studies at a tiny scale, on supernets and networks that they share."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from archwright.errors import InputError
from archwright.methods.nesbs import PosteriorResult
from archwright.reproduce import searches, thesis5
from archwright.reproduce.base import Settings
from archwright.spaces.nasbench201 import NASBENCH201

CELL = "|nor_conv_3x3~0|+|nor_conv_1x1~0|skip_connect~1|+|none~0|avg_pool_3x3~1|nor_conv_3x3~2|"

TINY = {
    "CHANNELS": 4, "IMAGE_SIZE": 8, "SUPERNET_EPOCHS": 1, "POSTERIOR_EPOCHS": 1, "FINAL_EPOCHS": 1, "SIZE": 2,
    "CANDIDATES": 1, "POOL": 3, "STEPS": 30, "FIGURE_SIZES": (2,), "BUDGETS": (1, 2), "TEMPERATURES": (1.0,),
    "ATTACKED_IMAGES": 10, "COMPARED": 5,
}  # fmt: skip


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("thesis5")


@pytest.fixture
def tiny(shared: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Settings:
    for name, value in TINY.items():
        monkeypatch.setattr(thesis5, name, value)
    data = "random:classes=4,size=8,channels=1,count=240"
    return Settings(shared / request.node.name, seeds=1, data=data)


def test_figure_5_2_spreads_with_delta_and_collapses_below_minus_one(tmp_path: Path) -> None:
    outcome = thesis5.figure_5_2(Settings(tmp_path, seeds=2))
    distances = [row.ours or 0.0 for row in outcome.rows]
    assert [row.label for row in outcome.rows][1:] == [f"delta = {d}" for d in ("-0.5", "0", "0.5", "1", "2")]
    assert all(low < high for low, high in itertools.pairwise(distances))
    assert distances[0] < 1e-3
    assert outcome.plot is not None
    outcome.plot(tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 1000


def test_table_5_1_compares_ensembles_with_their_members(tiny: Settings) -> None:
    rows = {row.label: row.ours for row in thesis5.table_5_1(tiny).rows}
    assert len(rows) == 17
    assert 0 <= rows["MC drop-path"] <= 100
    for label in thesis5.LABELS.values():
        assert 0 <= (rows[f"{label}, best member"] or 0) <= (rows[f"{label}, mean member"] or 0) <= 100


def test_table_5_5_trains_nothing_again(tiny: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    thesis5.table_5_1(tiny)
    monkeypatch.setattr(thesis5, "train_answer", lambda *_, **__: pytest.fail("trained again"))
    monkeypatch.setattr(searches, "search", lambda *_, **__: pytest.fail("searched again"))
    outcome = thesis5.table_5_5(tiny)
    rows = {row.label: row for row in outcome.rows}
    assert rows["NES-RS ATE"].paper == 2.87
    assert all(0 <= (row.ours or 0) <= 100 for row in rows.values())
    kept = thesis5.Kept(tiny, 0)
    ensemble, data = kept.ensemble("mc"), kept.method().context.task.data
    wrong = [100 * float((own != data.test.labels).mean()) for own in kept.predicted(ensemble)]
    assert wrong == pytest.approx(kept.report(ensemble).member_errors)
    assert outcome.plot is not None
    outcome.plot(tiny.folder / "members.png")
    assert (tiny.folder / "members.png").read_bytes().startswith(b"\x89PNG")


def test_figure_5_5_measures_what_the_most_likely_architecture_lacks(tiny: Settings) -> None:
    rows = {row.label: row.ours or 0.0 for row in thesis5.figure_5_5(tiny).rows}
    for posterior in ("post-training", "best-response"):
        assert 0 <= rows[f"{posterior}, discrepancy"] <= 100 - rows[f"{posterior}, best architecture"]
        assert 0 <= rows[f"{posterior}, architectures better than the most likely"] <= 100
    kept = thesis5.Kept(tiny, 0).method(sampler="mc", size=2)
    likely, logits = kept.sampler().most_likely(), kept.result("posterior", PosteriorResult).logits
    columns = [kept.space.candidates(name) for name in kept.space.decisions]
    encoded = kept.space.encode(likely)
    for (name, alpha), own in zip(logits.items(), columns, strict=True):
        np.testing.assert_array_equal(encoded[name][:, own].argmax(1), np.argmax(alpha, axis=1))


def test_table_5_4_attacks_and_defends(tiny: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("art.estimators.classification")
    attacks = {"mc": {"fgsm": (78.75, 89.15), "pgd-40": (63.60, 85.35)}}
    monkeypatch.setattr(thesis5, "TABLE_5_4", attacks)
    rows = thesis5.table_5_4(tiny).rows
    assert [row.paper for row in rows] == [78.75, 89.15, 63.60, 85.35]
    assert all(row.ours_std is not None for row in rows)  # a round a member


def test_without_the_toolbox_nothing_is_trained(tiny: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "art.estimators.classification", None)
    monkeypatch.setattr(thesis5, "Kept", lambda *_: pytest.fail("began"))
    with pytest.raises(InputError, match=r"archwright\[robustness\]"):
        thesis5.table_5_4(tiny)


def test_table_5_7_has_both_posteriors(tiny: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {key: paper for key, paper in thesis5.TABLE_5_7.items() if key[0] == "mc"}
    monkeypatch.setattr(thesis5, "TABLE_5_7", kept)
    assert [row.paper for row in thesis5.table_5_7(tiny).rows] == [4.74, 4.54]


def test_figures_with_inherited_weights(tiny: Settings) -> None:
    rows = {row.label: row.ours for row in thesis5.figure_5_3(tiny).rows}
    assert len(rows) == 5 * 2
    assert all(value is not None and 0 <= value <= 100 for value in rows.values())
    assert len(thesis5.figure_5_6(tiny).rows) == 2 * 2
    deltas = thesis5.figure_5_7(tiny).rows
    assert [row.label for row in deltas][:2] == ["tau = 1 delta = -2", "tau = 1 delta = -1.5"]
    assert all(np.isfinite(row.ours or 0.0) for row in deltas)


def test_a_pass_with_dropped_paths_is_another_network_and_leaves_the_model_as_it_was(tiny: Settings) -> None:
    model = thesis5.Kept(tiny, 0).trained(NASBENCH201.parse(CELL), drop_path=0.5)
    images = torch.randn(8, 1, 8, 8)
    usual = model.probabilities(images)
    first, second = (thesis5.stochastic_probabilities(model, [images], 0.5, seed) for seed in (0, 1))
    assert not np.allclose(first, second)
    assert np.array_equal(first, thesis5.stochastic_probabilities(model, [images], 0.5, 0))
    assert np.allclose(thesis5.stochastic_probabilities(model, [images], 0.0, 0), usual.numpy(), atol=1e-6)
    assert torch.equal(model.probabilities(images), usual)
