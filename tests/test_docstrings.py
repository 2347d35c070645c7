"""Docstrings say something: each argument of a public function by name, and more than three words of anything.

An argument is said by a line of an ``Args:`` section or between double backticks; what a method of a base class says of
it need not be said again. Of a command of the command line the help of an option says it, and of what is given without
an option the command's own text, in capitals.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import archwright
from archwright.cli.search import output_options

PACKAGE = Path(archwright.__file__).parent
FEWEST_WORDS = 4
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Documented(NamedTuple):
    """A function, class or module: where it is, what it says, and for methods the class it belongs to."""

    name: str
    node: Function | ast.ClassDef | ast.Module
    owner: ast.ClassDef | None

    @property
    def public(self) -> bool:
        return not re.search(r"(^|\.)_", self.name)

    @property
    def text(self) -> str:
        return ast.get_docstring(self.node) or ""


@cache
def documented(path: Path) -> list[Documented]:
    """The module and everything in it, but for what is inside functions."""

    def below(node: ast.Module | ast.ClassDef, prefix: str) -> Iterator[Documented]:
        for child in node.body:
            if isinstance(child, Function | ast.ClassDef):
                owner = node if isinstance(node, ast.ClassDef) else None
                yield Documented(prefix + child.name, child, owner)
            if isinstance(child, ast.ClassDef):
                yield from below(child, f"{prefix}{child.name}.")

    tree = ast.parse(path.read_text())
    return [Documented("module", tree, None), *below(tree, "")]


@cache
def classes() -> dict[str, ast.ClassDef]:
    """Every class of the package by its name."""
    every = (one.node for path in PACKAGE.rglob("*.py") for one in documented(path))
    return {node.name: node for node in every if isinstance(node, ast.ClassDef)}


def arguments(one: Documented) -> list[str]:
    """Names of a function's arguments but for self and cls."""
    assert isinstance(one.node, Function)
    given = one.node.args
    names = [argument.arg for argument in (*given.posonlyargs, *given.args)]
    static = any(isinstance(mark, ast.Name) and mark.id == "staticmethod" for mark in one.node.decorator_list)
    if one.owner is not None and not static:
        names = names[1:]
    rest = (given.vararg, *given.kwonlyargs, given.kwarg)
    return [*names, *(argument.arg for argument in rest if argument is not None)]


def said_of(one: Documented) -> str:
    """The docstring of a function and, for a method, those of the methods it takes the place of."""
    texts, waiting = [one.text], [one.owner] if one.owner is not None else []
    while waiting:
        bases = [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in waiting.pop().bases]
        for base in filter(None, map(classes().get, bases)):
            waiting.append(base)
            texts += [
                ast.get_docstring(inner) or ""
                for inner in base.body
                if isinstance(inner, Function) and inner.name == one.name.rpartition(".")[2]
            ]
    return "\n".join(texts)


@cache
def shared_options() -> dict[str, ast.expr]:
    """Options that several commands take, by the name they are declared under."""
    bodies = (ast.parse(path.read_text()).body for path in (PACKAGE / "cli").glob("*.py"))
    declared = (node for body in bodies for node in body if isinstance(node, ast.Assign))
    return {ast.unparse(node.targets[0]): node.value for node in declared}


def said_by_help(one: Documented) -> set[str]:
    """Arguments of a command that its ``--help`` says, and the context that click passes."""
    found = set[str]()
    marks = one.node.decorator_list if isinstance(one.node, Function) else []
    for mark in (shared_options().get(ast.unparse(mark), mark) for mark in marks):
        kind = ast.unparse(mark.func if isinstance(mark, ast.Call) else mark)
        if kind == "click.pass_context":
            found.add("ctx")
        if kind == "with_output":
            found |= {str(option.name) for option in output_options() if option.help}
        if kind not in ("click.option", "click.argument"):
            continue
        assert isinstance(mark, ast.Call)
        texts = [text.value for text in mark.args if isinstance(text, ast.Constant) and isinstance(text.value, str)]
        name = next((text for text in texts if not text.startswith("-")), texts[0].strip("-").replace("-", "_"))
        given = {word.arg: word.value for word in mark.keywords}
        metavar = ast.literal_eval(given.get("metavar", ast.Constant(name.upper())))
        if "help" in given or (kind == "click.argument" and metavar.strip("[].") in re.findall(r"[A-Z]+", one.text)):
            found.add(name)
    return found


def is_said(argument: str, text: str) -> bool:
    in_section = re.search(rf"^\s*\*{{0,2}}{argument}( \(.*\))?: \S", text, re.MULTILINE)
    return bool(in_section) or any(
        re.search(rf"\b{argument}\b", code) for code in re.findall(r"``(.+?)``", text, re.DOTALL)
    )


def unsaid(path: Path) -> list[str]:
    """Arguments that public functions of two or more do not say."""
    functions = [one for one in documented(path) if one.public and isinstance(one.node, Function)]
    return [
        f"{one.name}: {argument}"
        for one in functions
        for argument in arguments(one)
        if len(arguments(one)) > 1 and not is_said(argument, said_of(one)) and argument not in said_by_help(one)
    ]


PATHS = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_public_functions_say_their_arguments(path: Path) -> None:
    assert unsaid(path) == []


@pytest.mark.parametrize("path", PATHS, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_docstring_is_a_word_or_three(path: Path) -> None:
    assert [f"{one.name}: {one.text}" for one in documented(path) if 0 < len(one.text.split()) < FEWEST_WORDS] == []


def test_the_oracle_sees_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        '"""Some module of a test."""\n'
        'def said(a, b):\n    """``a + b``, nothing more than that."""\n'
        'def listed(first, *rest):\n    """Sums.\n\n    Args:\n        first: one.\n        rest: others.\n    """\n'
        'def mute(network, images):\n    """The network on its images."""\n'
        "def _private(x, y): ...\n"
        'class Thing:\n    """Some thing of a test."""\n    def do(self, x, y):\n        """``x`` is what is done."""\n'
        "class Other(Thing):\n    def do(self, x, y): ...\n"
        '@cli.command()\n@click.argument("run")\n@click.argument("names", metavar="NAME...")\n@click.option("--top")\n'
        '@click.option("--json", "as_json", help="One line.")\n@click.pass_context\n'
        'def show(ctx, run, names, top, as_json):\n    """Show RUN with some of its networks."""\n'
    )
    assert unsaid(path) == [
        *("mute: network", "mute: images", "Thing.do: y", "Other.do: x", "Other.do: y"),
        *("show: names", "show: top"),
    ]
