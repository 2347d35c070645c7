"""The command that a run's page shows asks for the same search: every setting of every method goes there and back."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import numpy as np
import pytest
from annotated_types import Ge, Gt, Le, Lt
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic.fields import FieldInfo

from archwright.bounds import LEAST_TEMPERATURE
from archwright.cli import view
from archwright.cli.main import cli
from archwright.runs.run import Run
from archwright.search import engine
from archwright.search.asked import asked_for
from archwright.search.configuration import Configuration
from archwright.search.flags import command_of, only_in_memory
from archwright.search.registry import methods
from archwright.training import Recipe

NAMES = [entry.name for entry in methods]
WORDS = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z"), exclude_characters=":"), min_size=1)
PLACES = WORDS.map(lambda word: f"/data/it's a {word}")
SETTINGS: dict[str, st.SearchStrategy[Any]] = {
    "space": st.sampled_from(['choices:{"depth": [2, 3]}', "my.spaces:Mine", "/own files/mine.py:space", "darts"]),
    "data": PLACES.map("folder:{}".format) | PLACES.map("npz:{}".format) | st.just("random:classes=3,size=8"),
    "benchmark": PLACES.map("nats:{}".format) | st.just("nb201"),
    "evaluate": st.just("/own files/mine.py:score"),
    "augment": st.sampled_from(["off", "crop=4,flip,zoom=0.6", "my.module:noise"]),
    "executor": st.sampled_from(["processes", "ray"]),
    "split": st.tuples(*3 * [st.floats(0.1, 100, exclude_min=True)]),
    "limits": st.dictionaries(
        st.sampled_from(["params", "latency_ms"]),
        st.floats(1e-3, 1e9) | st.lists(st.floats(1e-3, 1e9), unique=True, min_size=2, max_size=3),
        min_size=1,
    ),
    "network": st.sampled_from(["vgg16", "own_networks:plain"]),
}
"""Values of settings and options whose type says too little."""
OWN = {"space": f"model:{Path(__file__).parents[2] / 'examples' / 'own_network.py'}:Net"}
"""A network of one's own, whose widths a user may set."""


def values_of(info: FieldInfo) -> st.SearchStrategy[Any]:
    """Values of a field that are not its default, by its type and its bounds."""
    kind = info.annotation
    if get_origin(kind) in (Union, UnionType):
        (kind,) = [one for one in get_args(kind) if one is not type(None)]
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    default = info.get_default(call_default_factory=True)
    return _values(kind, info).filter(lambda value: value != default)


def _values(kind: Any, info: FieldInfo) -> st.SearchStrategy[Any]:
    if get_origin(kind) is Literal:
        return st.sampled_from(get_args(kind))
    if kind is bool:
        return st.booleans()
    if kind is str:
        return WORDS
    low: list[float] = [one.ge for one in info.metadata if isinstance(one, Ge)]  # type: ignore[misc]
    low += [one.gt + 1e-9 for one in info.metadata if isinstance(one, Gt)]  # type: ignore[operator]
    high: list[float] = [one.le for one in info.metadata if isinstance(one, Le)]  # type: ignore[misc]
    high += [one.lt - 1e-9 for one in info.metadata if isinstance(one, Lt)]  # type: ignore[operator]
    least = max(low, default=-8)
    most = min([*high, least + 60])
    if kind is int:
        return st.integers(int(least), int(most))
    return st.floats(least, most).filter(lambda value: value == 0 or abs(value) >= LEAST_TEMPERATURE)


SETTINGS |= {
    "objectives": st.just(("accuracy", "-seconds")),
    **dict.fromkeys(("keep_channels", "keep_macs", "keep_params"), st.sampled_from([(0.5,), (0.5, 0.8)])),
    **dict.fromkeys(("mean", "std"), st.sampled_from([(0.5,), (0.485, 0.456, 0.406)])),
}
SETTINGS["training"] = st.fixed_dictionaries(
    {},
    optional={
        name: values_of(info)
        for name, info in Recipe.model_fields.items()
        if name not in ("epochs", "batch_size", "lr", "distill_weight", "distill_temperature")
    },
).filter(bool)


def own_values(name: str, info: FieldInfo) -> st.SearchStrategy[Any]:
    """Values of a setting or an option that are not its default."""
    if name.endswith("_lr_min"):
        return st.sampled_from([1e-4, 2e-4])  # below every learning rate at the start
    named = name == "mean" and "Literal" in str(info.annotation)  # of probabilities or logits, not of pixels
    return SETTINGS[name] if name in SETTINGS and not named else values_of(info)


def fields_of(method: str) -> dict[str, FieldInfo]:
    """All that can be given to a method: settings, limits and its own options."""
    chosen = methods.get(method)
    used = chosen.uses | ({"limits"} if chosen.resources else set())
    return {
        name: info for name, info in Configuration.model_fields.items() if name in used
    } | chosen.Options.model_fields


def strategy(method: str) -> st.SearchStrategy[dict[str, Any]]:
    """Any of the settings and options of a method, as a user would give them in Python."""
    values = {name: own_values(name, info) for name, info in fields_of(method).items()}
    return st.fixed_dictionaries({}, optional=values).map(lambda given: consistent(method, given))


def consistent(method: str, given: dict[str, Any]) -> dict[str, Any]:
    """Without what is refused beside the rest."""
    without = {"address"} if given.get("executor") != "ray" else set()
    without |= {"workers"} if "executor" not in given else set()
    without |= {"evaluate"} if "benchmark" in given else {"dataset"}
    if "data" not in given and {"benchmark", "evaluate"} & set(given):
        without |= {"split", "image_size", "skip_bad", "final_epochs", "onnx", "augment"}
    without |= {"rounds"} if given.get("estimator", "hierarchical") != "hierarchical" else set()
    if {"sample", "population"} & set(given):
        given["population"] = given.get("sample", 10) + given.get("population", 2) + 9  # 20 is the default
    given = {name: value for name, value in given.items() if name not in without}
    if "limits" in given and not methods.get(method).several_limits:
        given["limits"] = {name: max(np.atleast_1d(limit)).item() for name, limit in given["limits"].items()}
    while idle := idle_in(method, given):
        given = {name: value for name, value in given.items() if name not in idle}
        if "training" in given:
            given["training"] = {k: v for k, v in given["training"].items() if f"training.{k}" not in idle}
    return {name: value for name, value in given.items() if value != {}}


def idle_in(method: str, given: dict[str, Any]) -> set[str]:
    """Which of them do nothing beside the others."""
    data = {} if {"data", "benchmark", "evaluate"} & set(given) else {"data": "digits"}
    asked = Configuration.model_construct(method=method, options=given, **{**given, **data})
    named = {*given, *(f"training.{name}" for name in given.get("training", {}))}
    return named & set(methods.get(method).idle(asked))


class ParsedError(Exception):
    """Carries what the command line asks for."""


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The configuration that the real command makes of its words."""

    def asked(method: str, **given: Any) -> None:
        for name in ("run", "progress", "yes", "ranks", "log"):
            del given[name]
        raise ParsedError(asked_for(method, given))

    monkeypatch.setattr(engine, "search", asked)
    monkeypatch.setattr(view, "show_answer", lambda *_: None)

    def read(command: str) -> Configuration:
        program, *words = shlex.split(command)
        assert program == "archwright"
        with pytest.raises(ParsedError) as caught:
            cli.main(words, standalone_mode=False)
        found: Configuration = caught.value.args[0]
        return found

    return read


@pytest.mark.parametrize("method", NAMES)
def test_the_command_is_read_back_as_the_same_configuration(method: str, reads: Any) -> None:
    @settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(strategy(method))
    def there_and_back(asked: dict[str, Any]) -> None:
        made = asked_for(method, asked)
        assert reads(command_of(made.model_dump(mode="json"))) == made

    there_and_back()


@pytest.mark.parametrize("method", NAMES)
def test_every_setting_alone_is_read_back(method: str, reads: Any) -> None:
    """Each of them in its turn, so that none is left out by chance."""
    fields = fields_of(method)
    plans = [{}, {"plan": "paper"}, {"pretrained": "tiny"}, {"benchmark": "nb201"}, OWN, {"shards": 2}]

    @settings(max_examples=2, deadline=None)
    @given(st.data())
    def there_and_back(data: Any) -> None:
        for name in fields:
            value = data.draw(own_values(name, fields[name]), name)
            base = {"data": "digits"} | ({"executor": "ray"} if "executor" in fields else {})
            tried = (consistent(method, {**base, **plan, name: value}) for plan in plans)
            made = asked_for(method, next(asked for asked in tried if name in asked))
            assert {**made.model_dump(), **made.options}[name] != fields[name].get_default(call_default_factory=True)
            assert reads(command_of(made.model_dump(mode="json"))) == made, name

    there_and_back()


def test_the_command_of_a_finished_run_runs_in_a_shell(tmp_path: Path) -> None:
    images = tmp_path / "it's $HOME" / "images.npz"
    images.parent.mkdir()
    np.savez(images, x=np.arange(40 * 64, dtype=np.uint8).reshape(40, 8, 8), y=np.arange(40) % 2)
    asked = {"data": f"npz:{images}", "split": (60, 20, 20), "training": {"optimizer": "adamw", "momentum": 0.8}}
    engine.search("random", **asked, evaluations=1, epochs=1, final_epochs=1, channels=2, run=tmp_path / "first")
    first = Run.open(tmp_path / "first")
    program = tmp_path / "bin" / "archwright"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m archwright "$@"\n')
    program.chmod(0o755)
    line = f"{command_of(first.configuration)} --run {shlex.quote(str(tmp_path / 'second'))}"
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-c", line], env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    second = Run.open(tmp_path / "second")
    assert second.configuration == first.configuration
    assert second.stage_result("answer")["best"] == first.stage_result("answer")["best"]


def test_objects_of_a_program_have_no_command() -> None:
    assert only_in_memory({"data": "object:arrays", "space": "here:Mine-01", "augment": "off"}) == ["space", "data"]
    assert only_in_memory({"data": "digits", "space": "width:here:net-01"}) == ["space"]
    assert only_in_memory({"space": "darts", "evaluate": "ask-and-tell"}) == ["evaluate"]
    assert only_in_memory({"space": "choices:{}", "evaluate": "mine.py:score", "data": "npz:a.npz"}) == []
