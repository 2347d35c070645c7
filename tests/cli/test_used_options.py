"""Every option that a method shows is one that it uses, and every other one is refused before anything is loaded."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import archwright as aw
import archwright.methods
from archwright.cli.main import cli, main
from archwright.costs.limits import RESOURCES
from archwright.data import request
from archwright.errors import ArchwrightError, InputError
from archwright.search.configuration import SETTINGS, Configuration
from archwright.search.flags import flag_of, limit_flag
from archwright.search.registry import methods
from archwright.spaces.choice_space import ChoiceSpace

NAMES = [entry.name for entry in methods]
WORDS = {
    "executor": "here",
    "address": "localhost:1",
    "device": "cpu",
    "scale": "small",
    "recipe": "short",
    "space": "darts",
    "dataset": "cifar10",
    "benchmark": "nb201",
    "evaluate": "json:dumps",
    "augment": "off",
    "data": "digits",
    "split": "60,20,20",
    "training": "optimizer=adamw",
}
"""Texts of settings that are no numbers."""


@pytest.fixture
def nothing_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading images is a mistake here."""

    def load(*_: Any, **__: Any) -> None:
        raise AssertionError("images were loaded")

    monkeypatch.setattr(request, "load", load)
    monkeypatch.setattr(request, "LOADED", {})


def shown(method: str) -> set[str]:
    """Flags in the help of a method."""
    text = CliRunner().invoke(cli, ["search", method, "--help"]).output
    return {word.strip(",/") for word in text.split() if word.startswith("--")}


def given(name: str) -> list[str]:
    """The words that give a setting."""
    kind = Configuration.model_fields[name].annotation
    return [flag_of(name)] if kind is bool else [flag_of(name), WORDS.get(name, "2")]


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """One sentence, and exit code 2."""
    with pytest.raises(SystemExit) as leaving:
        main(["search", *arguments])
    told = capsys.readouterr()
    assert leaving.value.code == 2, told.err
    assert told.err.count("\n") == 1
    assert told.out == ""
    return told.err


@pytest.mark.parametrize("method", NAMES)
@pytest.mark.usefixtures("nothing_loads")
def test_what_is_not_shown_is_refused(method: str, runs_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chosen, flags = methods.get(method), shown(method)
    for name in sorted(SETTINGS):
        assert (flag_of(name) in flags) == (name in chosen.uses), name
        if name not in chosen.uses:
            told = refused([method, "--data", "digits", *given(name)], capsys)
            assert f"{flag_of(name)} with the method '{method}'." in told
    for name in RESOURCES:
        kept = name in chosen.resources
        assert (limit_flag(name) in flags) == kept
        if not kept:
            assert "limit" in refused([method, "--data", "digits", limit_flag(name), "2"], capsys)
    for name in chosen.Options.model_fields:
        assert flag_of(name) in flags
    assert not runs_folder.exists()


def attributes(module: str) -> Iterator[str]:
    """Names that the code of a module reads as attributes, or by ``self.setting(NAME)``, which knows presets."""
    for node in ast.walk(ast.parse(inspect.getsource(sys.modules[module]))):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield node.attr
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(node, ast.Call) and isinstance(called, ast.Attribute) and called.attr == "setting":
            yield from (one.value for one in node.args if isinstance(one, ast.Constant))


@pytest.mark.parametrize("method", NAMES)
def test_every_option_of_a_method_is_read_by_its_code(method: str) -> None:
    chosen = methods.get(method)
    owners = {one.__module__ for one in (*chosen.__mro__, *chosen.Options.__mro__)} - {"abc", "builtins"}
    owners |= {"binas": {"archwright.methods.binas."}, "rarts-width": {"archwright.methods.width_"}}.get(method, set())
    own = [name for name in sys.modules if any(name.startswith(owner) for owner in owners) and "archwright" in name]
    read = {name for module in own for name in attributes(module)}
    assert not set(chosen.Options.model_fields) - read


SPACE = ChoiceSpace({"x": list(range(9))})


@pytest.mark.parametrize("method", [name for name in NAMES if "evaluate" in methods.get(name).uses])
def test_methods_that_show_evaluate_and_failures_use_them(method: str, tmp_path: Path) -> None:
    asked: list[Any] = []

    def broken(architecture: Any) -> float:
        asked.append(architecture)
        raise ValueError("no")

    space = SPACE if method != "hnas" else "nasbench201"
    few = {"proxy_channels": 2, "proxy_size": 4, "pool": 4, "replicates": 1}
    small = {"hnas": few, "nsga2": {"objectives": ("accuracy", "-seconds")}}.get(method, {})
    with pytest.raises(ArchwrightError, match="at most 1 evaluations to fail"):
        aw.search(method, space=space, evaluate=broken, evaluations=9, failures=1, run=tmp_path / "run", **small)
    assert asked


# --- what depends on the other settings -------------------------------------------------------------------------------

OWN = {"evaluate": "json:dumps", "space": "nasbench201"}


@pytest.mark.parametrize(
    ("method", "beside", "idle"),
    [
        ("random", OWN, ("recipe", "epochs", "batch_size", "lr", "training", "channels", "cells")),
        (
            "evolution",
            {"benchmark": "nb201"},
            ("recipe", "epochs", "batch_size", "lr", "training", "channels", "scale"),
        ),
        ("hnas", {"benchmark": "nb201", "data": "digits"}, ("recipe", "epochs", "lr", "training", "onnx")),
        ("darts", {"benchmark": "nb201", "data": "digits"}, ("recipe", "epochs", "batch_size", "lr", "onnx")),
        ("binas", {"data": "digits"}, ("epochs", "final_epochs")),
        ("binas", {"data": "digits", "pretrained": "tiny"}, ("epochs", "final_epochs", "recipe", "training", "scale")),
    ],
)
@pytest.mark.usefixtures("nothing_loads")
def test_settings_that_do_nothing_beside_others_are_refused(
    method: str, beside: dict[str, str], idle: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    words = [word for name, text in beside.items() for word in (flag_of(name), text)]
    for name in idle:
        told = refused([method, *words, *given(name)], capsys)
        assert f"expected only options that do something, got {flag_of(name)} " in told


@pytest.mark.parametrize(
    ("plan", "fields", "refused_ones"),
    [
        ("fast", "schedule=linear,clip=1", ["schedule"]),
        ("fast", "warmup_epochs=1,label_smoothing=0.2,momentum=0.8", ["warmup_epochs", "label_smoothing"]),
        ("paper", "schedule=linear,label_smoothing=0.2", ["label_smoothing"]),
    ],
)
@pytest.mark.usefixtures("nothing_loads")
def test_fields_of_the_recipe_that_a_plan_sets_itself_are_refused(
    plan: str, fields: str, refused_ones: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    told = refused(["binas", "--data", "digits", "--plan", plan, "--training", fields], capsys)
    assert [word for word in fields.replace(",", "=").split("=") if f"--training {word}=" in told] == refused_ones


def test_what_is_trained_may_be_told_how(tmp_path: Path) -> None:
    """Beside a function of the user's, or a table, an answer that is trained is trained as asked."""
    small = {"epochs": 1, "channels": 2, "cells": 1, "run": tmp_path / "run"}
    found = aw.search("random", evaluate=lambda _: 1.0, data="digits", evaluations=1, final_epochs=1, **small)
    assert found.best.epochs == 1


def test_the_sentence_of_the_executor(capsys: pytest.CaptureFixture[str]) -> None:
    told = refused(["binas", "--data", "digits", "--executor", "processes"], capsys)
    sentence = "expected only options that do something, got --executor with the method 'binas'. Leave it out."
    assert told == f"error: {sentence}\n"


def test_a_run_is_not_resumed_with_failures_that_its_method_does_not_count(tmp_path: Path) -> None:
    small = {"data": "digits", "supernet_epochs": 1, "measurements": 2, "final_epochs": 1, "epochs": 1}
    aw.search("rsps", channels=2, cells=1, run=tmp_path / "run", **small)
    with pytest.raises(InputError, match="--failures"):
        aw.resume(tmp_path / "run", failures=3)
