"""The contract of a method, by the example of its docstring."""

from __future__ import annotations

import inspect
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import pytest

import archwright as aw
from archwright.errors import RunError
from archwright.runs.run import Run
from archwright.search import method
from archwright.search.registry import methods
from archwright.search.values import Choice, StageResult


@pytest.fixture
def first(monkeypatch: pytest.MonkeyPatch) -> type[method.SearchMethod]:
    """The class of the docstring, as a module of its own."""
    text = inspect.cleandoc(method.Method.__doc__ or "").partition("Example:")[2]
    code = textwrap.dedent(text.partition("\n")[2])
    module = ModuleType("docstring_example")
    module.__dict__.update(SearchMethod=method.SearchMethod, Options=method.Options, Stage=method.Stage, Choice=Choice)
    exec(compile(code, "docstring", "exec"), module.__dict__)  # noqa: S102 - our own example
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(
        methods.entries, "first", methods.entries["random"].__class__("first", "docstring_example:First", "x")
    )
    found: type[method.SearchMethod] = module.First
    return found


def test_the_example_of_the_docstring_is_a_method(first: type[method.SearchMethod], tmp_path: Path) -> None:
    tiny = {"data": "digits", "channels": 4, "cells": 1, "epochs": 1, "final_epochs": 1}
    found = aw.search("first", run=tmp_path / "run", **tiny)
    assert found.best.accuracy > 0
    assert found.evaluations == 0
    assert Run.open(tmp_path / "run").header["plan"][0]["title"] == "draw one architecture"


class Number(StageResult):
    number: int


def test_a_result_of_another_form_is_an_error(tmp_path: Path) -> None:
    class Reader:
        class context:
            run = Run.create(tmp_path / "run", {}, {})

    Reader.context.run.finish_stage("one", {"number": 3, "more": "passed over"})
    Reader.context.run.finish_stage("two", {"number": "three"})
    assert method.Method.result(Reader, "one", Number).number == 3  # type: ignore[arg-type]
    with pytest.raises(RunError, match="result of stage 'two'"):
        method.Method.result(Reader, "two", Number)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="'three' has not finished"):
        method.Method.result(Reader, "three", Number)  # type: ignore[arg-type]
