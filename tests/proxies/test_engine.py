"""The scoring engine: twins once, the same on every executor, nothing scored again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from archwright.data.request import DataRequest
from archwright.errors import InputError
from archwright.execution.base import make_executor
from archwright.proxies import engine
from archwright.proxies.engine import (
    ScoreRequest,
    cached_scores,
    draw_batch,
    load_data,
    score_architectures,
    scores_key,
)
from archwright.runs.run import ItemLog
from archwright.spaces.base import Scale
from archwright.spaces.choice_space import ChoiceSpace, Combination
from archwright.spaces.darts import DARTS
from archwright.spaces.nasbench201 import NASBENCH201, cell_of

NOISE = DataRequest("random:classes=10,size=8,channels=3,count=256", 0)
REQUEST = ScoreRequest(("grad", "snip", "trace", "kappa"), NOISE, channels=4, cells=1, image_size=8, batch_size=16)
CELLS = [NASBENCH201.sample(np.random.default_rng(i)) for i in range(12)]


def test_executors_agree_and_twins_are_scored_once(tmp_path: Path) -> None:
    twin = [cell_of((0, 3, 2, 0, 1, 1)), cell_of((0, 3, 4, 0, 3, 1))]  # node 1 is nothing in both
    architectures = [*CELLS, *twin, *CELLS[:3]]
    here = ItemLog(tmp_path / "here")
    first = score_architectures(NASBENCH201, architectures, REQUEST, executor=make_executor(), log=here)
    assert NASBENCH201.canonical(twin[0]) == NASBENCH201.canonical(twin[1])
    assert np.array_equal(first.values[12], first.values[13])
    assert np.array_equal(first.values[14:], first.values[:3])
    rows = sum(len(result) for result in here.done.values())
    assert rows == len({NASBENCH201.canonical(a) for a in architectures})
    two = make_executor("processes", 2)
    second = score_architectures(NASBENCH201, architectures, REQUEST, executor=two, log=ItemLog(tmp_path / "two"))
    assert np.allclose(first.values, second.values, rtol=1e-6)


def test_scores_do_not_depend_on_the_company(tmp_path: Path) -> None:
    together = score_architectures(NASBENCH201, CELLS, REQUEST, executor=make_executor(), log=ItemLog(tmp_path / "a"))
    alone = score_architectures(NASBENCH201, CELLS[5:6], REQUEST, executor=make_executor(), log=ItemLog(tmp_path / "b"))
    assert np.allclose(together.values[5], alone.values[0], rtol=1e-4)


def test_other_spaces_and_replicates(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    cells = [DARTS.sample(rng) for _ in range(2)]
    request = ScoreRequest(("grad", "kappa"), NOISE, channels=4, cells=3, image_size=8, batch_size=8, replicates=2)
    found = score_architectures(DARTS, cells, request, executor=make_executor(), log=ItemLog(tmp_path / "log"))
    assert found.values.shape == (2, 2)
    assert (found.values > 0).all()
    assert np.isfinite(found.standard_errors).all()


def test_cached_scores_are_not_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = cached_scores(tmp_path, NASBENCH201, CELLS, REQUEST, executor=make_executor())

    def forbidden(*_: object) -> None:
        raise AssertionError("scored again")

    monkeypatch.setattr(engine, "score_chunk", forbidden)
    assert np.array_equal(
        cached_scores(tmp_path, NASBENCH201, CELLS, REQUEST, executor=make_executor()).values, first.values
    )


def test_draws_are_functions_of_seed_and_replicate() -> None:
    data = load_data(NOISE)
    one, again, other = (draw_batch(REQUEST, data, r) for r in (0, 0, 1))
    assert np.array_equal(one[0], again[0])
    assert not np.array_equal(one[0], other[0])
    assert tuple(one[0].shape) == (16, 3, 8, 8)


def test_bad_requests_are_refused(tmp_path: Path) -> None:
    def attempt(**changes: object) -> None:
        request = ScoreRequest.from_json({**REQUEST.to_json(), **changes})
        score_architectures(NASBENCH201, CELLS, request, executor=make_executor(), log=ItemLog(tmp_path / "x"))

    with pytest.raises(InputError, match="Did you mean"):
        attempt(metrics=("gradd",))
    with pytest.raises(InputError, match="batch of 2"):
        attempt(batch_size=1)
    with pytest.raises(InputError, match="replicate"):
        attempt(replicates=0)
    with pytest.raises(InputError, match="at least one architecture"):
        score_architectures(NASBENCH201, [], REQUEST, executor=make_executor(), log=ItemLog(tmp_path / "y"))


def test_the_name_of_kept_scores_goes_by_values_that_code_takes_from_elsewhere() -> None:
    def space(width: int) -> ChoiceSpace:
        def build(architecture: Combination, scale: Scale) -> nn.Module:
            layers = [nn.Conv2d(scale.image_channels, width, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
            return nn.Sequential(*layers, nn.Linear(width, scale.classes))

        return ChoiceSpace({"depth": [1, 2]}, build=build)

    before = torch.random.get_rng_state()
    keys = [scores_key(one, list(one.enumerated() or ()), REQUEST) for one in (space(4), space(4), space(6))]
    assert keys[0] == keys[1] != keys[2]
    assert torch.equal(torch.random.get_rng_state(), before)


def test_scores_of_code_in_no_file_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "source_digest", lambda makers: None)
    assert scores_key(NASBENCH201, CELLS, REQUEST) is None
    with pytest.raises(InputError, match="whose code is in a file"):
        cached_scores(tmp_path, NASBENCH201, CELLS, REQUEST, executor=make_executor())
