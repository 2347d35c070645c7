from __future__ import annotations

import importlib.metadata
import json
from importlib.metadata import EntryPoint

import pytest

import archwright.registry
from archwright.data.registry import datasets
from archwright.errors import InputError
from archwright.registry import Entry, Registry
from archwright.search.registry import methods
from archwright.spaces.registry import spaces
from archwright.tables.registry import benchmarks


def test_an_entry_is_imported_when_asked_for() -> None:
    registry = Registry("thing", Entry("join", "os.path:join", "joins"), Entry("bad", "no.such.module:x", "never"))
    import os.path

    assert registry.get("join") is os.path.join
    assert [entry.name for entry in registry] == ["bad", "join"]
    assert "join" in registry
    assert "split" not in registry


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(InputError, match=r"name of a space .*'nasbench2'\. Did you mean 'nasbench201'"):
        spaces.get("nasbench2")


def test_a_plug_in_is_found_and_cannot_replace_one_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        EntryPoint("mine", "json:dumps", "archwright.things"),
        EntryPoint("ours", "json:loads", "archwright.things"),
    ]
    asked = []

    def entry_points(*, group: str) -> list[EntryPoint]:
        asked.append(group)
        return points

    monkeypatch.setattr(archwright.registry, "entry_points", entry_points)
    registry = Registry("thing", Entry("ours", "os.path:join", "ours"))
    import os.path

    assert asked == []
    assert registry.get("mine") is json.dumps
    assert registry.get("ours") is os.path.join
    assert asked == ["archwright.things"]
    assert "plug-in" in next(entry for entry in registry if entry.name == "mine").summary
    assert importlib.metadata.entry_points(group="archwright.things") == ()


@pytest.mark.parametrize("registry", [spaces, methods, datasets, benchmarks], ids=lambda r: r.kind)
def test_every_registered_thing_loads_and_has_one_line(registry: Registry) -> None:
    for entry in registry:
        assert entry.load() is not None
        assert entry.summary
        assert "\n" not in entry.summary


def test_a_user_registers_and_cannot_replace_what_is_there() -> None:
    registry = Registry("thing", Entry("ours", "os.path:join", "ours"))
    own = object()
    registry.register("own", own, "mine")
    registry.register("own", own)
    registry.register("dumps", json.dumps)
    assert registry.get("own") is own
    assert [entry.name for entry in registry] == ["dumps", "ours", "own"]
    assert registry.elsewhere("dumps") == "json:dumps"
    assert registry.elsewhere("ours") == "ours"
    for name in ("own", "ours", "a:b", ""):
        with pytest.raises(InputError):
            registry.register(name, json.loads)
