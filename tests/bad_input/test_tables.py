"""Latency tables, supernets and benchmarks."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from archwright.spaces.nasbench201 import NASBENCH201
from helpers.wrong_files import ABSENT, DAMAGE, Place, Site, altered, table_cases


@pytest.mark.parametrize(("place", "new"), list(table_cases()))
def test_a_latency_table_with_other_fields_is_refused(place: Place, new: Any, refused: Any, site: Site) -> None:
    path = site.copy() / "table.json"
    table = json.loads(path.read_text())
    table["correction"] = {"slope": 1.0, "intercept_ms": 0.0, "networks": 20, "validation_networks": 0}
    if place[:2] == ("entries", 0):
        place = ("entries", next(iter(table["entries"])), *place[2:])
    path.write_text(json.dumps(altered(table, place, new)))
    refused("search", "binas", "--latency-table", path)


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_table_of_operations_is_refused(damage: str, refused: Any, tmp_path: Path) -> None:
    names = dict.fromkeys(NASBENCH201.operations, 0.1)
    (tmp_path / "table.json").write_bytes(DAMAGE[damage](json.dumps(names).encode()))
    refused("search", "rarts", "--latency-weight", "1", "--latency-table", "table.json")


@pytest.mark.parametrize("value", [ABSENT, None, "fast", -1.0, math.nan, math.inf, [1.0], True, 10**400], ids=range(9))
def test_a_table_of_operations_with_another_value_is_refused(value: Any, refused: Any, tmp_path: Path) -> None:
    names = dict.fromkeys(NASBENCH201.operations, 0.1)
    (tmp_path / "table.json").write_text(json.dumps(altered(names, ("nor_conv_3x3",), value)))
    refused("search", "rarts", "--latency-weight", "1", "--latency-table", "table.json")


def put_supernet(folder: Path, state: dict[str, torch.Tensor], facts: str | None) -> None:
    path = folder / "run" / "artifacts" / "supernet.safetensors"
    path.parent.mkdir(parents=True)
    save_file(state, path, metadata=None if facts is None else {"supernet": facts})


def read_supernet(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    with safe_open(path, "pt") as file:
        return load_file(path), json.loads(file.metadata()["supernet"])


@pytest.mark.parametrize("name", ["space", "scale", "data"])
@pytest.mark.parametrize("new", [ABSENT, None, 7, "many", [], {}], ids=["absent", "None", "7", "many", "[]", "{}"])
def test_a_supernet_with_other_facts_is_refused(
    name: str, new: Any, refused: Any, tmp_path: Path, supernet: Path
) -> None:
    state, facts = read_supernet(supernet)
    put_supernet(tmp_path, state, json.dumps(altered(facts, (name,), new)))
    assert "supernet.safetensors" in refused("search", "binas", "--plan", "paper", "--supernet", "run")


@pytest.mark.parametrize("facts", [None, "", "{", "[]", "[" * 100_000])
def test_a_supernet_without_facts_is_refused(facts: str | None, refused: Any, tmp_path: Path, supernet: Path) -> None:
    put_supernet(tmp_path, read_supernet(supernet)[0], facts)
    assert "supernet.safetensors" in refused("search", "binas", "--plan", "paper", "--supernet", "run")


@pytest.mark.parametrize("kind", ["one missing", "one more", "another shape", "not a number"])
def test_other_weights_of_a_supernet_are_refused(kind: str, refused: Any, tmp_path: Path, supernet: Path) -> None:
    state, facts = read_supernet(supernet)
    first = next(name for name in state if name.endswith("weight"))
    if kind == "one missing":
        del state[first]
    else:
        new = {"one more": torch.zeros(2), "another shape": torch.zeros(2, 2), "not a number": state[first] * math.nan}
        state["more" if kind == "one more" else first] = new[kind]
    put_supernet(tmp_path, state, json.dumps(facts))
    assert "supernet.safetensors" in refused("search", "binas", "--plan", "paper", "--supernet", "run")


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_supernet_is_refused(damage: str, refused: Any, tmp_path: Path, supernet: Path) -> None:
    path = tmp_path / "run" / "artifacts" / "supernet.safetensors"
    path.parent.mkdir(parents=True)
    path.write_bytes(DAMAGE[damage](supernet.read_bytes()))
    refused("search", "binas", "--plan", "paper", "--supernet", "run")


COLUMNS = {
    "nb201": {"ops": np.zeros((15_625, 6), np.uint8), "op_names": np.array(["none"] * 5)},
    "nb101": {name: np.zeros(3, np.uint32) for name in ("vertices", "adj_bits", "ops", "test_acc_108", "params")},
}


@pytest.mark.parametrize("damage", [*DAMAGE, "other columns", "no columns"])
@pytest.mark.parametrize("name", COLUMNS)
def test_a_damaged_benchmark_is_refused(name: str, damage: str, refused: Any, tmp_path: Path) -> None:
    path, space = tmp_path / "table.npz", "nasbench201" if name == "nb201" else "nasbench1shot1-1"
    np.savez_compressed(path, **({} if damage == "no columns" else COLUMNS[name]))  # type: ignore[arg-type]
    if damage in DAMAGE:
        path.write_bytes(DAMAGE[damage](path.read_bytes()))
    refused("search", "random", "--space", space, "--benchmark", f"{name}:table.npz")
