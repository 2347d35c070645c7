from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from archwright.errors import InputError
from archwright.references import DataRef, ObjectRef, SpaceRef, refer, resolve


def test_importable_objects_are_named_by_their_module() -> None:
    assert refer(json.dumps) == "json:dumps"
    assert resolve("json:dumps", "function") is json.dumps
    assert resolve("json:JSONEncoder.encode", "function") is json.JSONEncoder.encode


def test_other_objects_are_found_in_this_process_only() -> None:
    own = lambda x: x  # noqa: E731
    text = refer(own)
    named = ObjectRef.find(text)
    assert named is not None
    assert named.is_local
    assert refer(own) == text
    assert resolve(text, "function") is own
    code = f"from archwright.references import resolve; resolve({text!r}, 'function')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "InputError" in done.stderr
    assert "Give it again" in done.stderr


def test_a_file_is_run_once_and_its_objects_are_named_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text("count = [0]\ncount[0] += 1\ndef score(a):\n    return count[0]\n")
    score = resolve(f"{path}:score", "function")
    assert score(None) == 1
    assert resolve(f"{path}:score", "function") is score
    assert refer(score) == f"{path}:score"


@pytest.mark.parametrize(
    "text",
    ["", "json", ":dumps", "json:", "json:no_such", "no_such_module:f", "json:1+1", "no/such.py:f", "broken.py:f"],
)
def test_what_cannot_be_found_is_an_input_error(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError):
        resolve(text, "function")


CHOICES = 'choices:{"a": [1, 2], "b": ["x.py:y"]}'
SPACES = [  # text, kind, file, what is imported, whether it lives here alone
    ("nasbench201", "name", None, None, False),
    (CHOICES, "choices", None, None, False),
    ("choices:space.json", "choices", "space.json", None, False),
    ("width:resnet20", "width", None, None, False),
    ("width:my.nets:plain", "width", None, "my.nets", False),
    ("width:nets.py:plain", "width", "nets.py", "nets.py", False),
    ("width:here:plain-0123", "width", None, None, True),
    ("my.spaces:Mine", "object", None, "my.spaces", False),
    ("sub/mine.py:Outer.Mine", "object", "sub/mine.py", "sub/mine.py", False),
    ("here:Mine-0123", "object", None, None, True),
]


@pytest.mark.parametrize(("text", "kind", "path", "imported", "local"), SPACES)
def test_a_space_says_its_file_and_what_it_imports(
    text: str, kind: str, path: str | None, imported: str | None, local: bool
) -> None:
    named = SpaceRef.parse(text)
    assert str(named) == text
    assert (named.kind, named.imports, named.is_local) == (kind, imported, local)
    assert named.path == (None if path is None else Path(path))
    absolute = text if path is None else text.replace(path, str(Path.cwd() / path))
    assert str(named.absolute()) == absolute
    assert named.absolute().absolute() == named.absolute()


DATA = [
    ("digits", "digits", None, False),
    ("random:classes=10,size=16", "random", None, False),
    ("folder:~/my photos", "folder", "~/my photos", False),
    ("npz:a:b.npz", "npz", "a:b.npz", False),
    ("kept:/runs/one/data.npz", "kept", "/runs/one/data.npz", False),
    ("object:ndarray", "object", None, True),
    ("nb201", "nb201", None, False),
    ("nb101:table.npz", "nb101", "table.npz", False),
    ("nats:tables", "nats", "tables", False),
]


@pytest.mark.parametrize(("text", "kind", "path", "local"), DATA)
def test_images_and_tables_say_their_path(text: str, kind: str, path: str | None, local: bool) -> None:
    named = DataRef.parse(text)
    assert str(named) == text
    assert (named.kind, named.imports, named.is_local) == (kind, None, local)
    assert named.path == (None if path is None else Path(path))
    absolute = text if path is None else f"{kind}:{Path(path).expanduser().absolute()}"
    assert str(named.absolute()) == absolute


def test_words_name_no_object() -> None:
    assert ObjectRef.find("default") is None
    assert ObjectRef.find("crop=4,flip") is None
    named = ObjectRef.find("sub/mine.py:noise")
    assert named == ObjectRef("sub/mine.py", "noise")
    assert (named.path, named.imports) == (Path("sub/mine.py"), "sub/mine.py")


def test_what_is_imported_already_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own.py").write_text("value = 1\n")
    monkeypatch.chdir(tmp_path)
    own, whole = ObjectRef("own.py", "value"), ObjectRef(f"{tmp_path}/own.py", "value")
    assert ObjectRef("json", "dumps").is_imported
    assert not ObjectRef("no_such_module", "f").is_imported
    assert not own.is_imported
    resolve("own.py:value", "number")
    assert own.is_imported
    assert whole.is_imported
