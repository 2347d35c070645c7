from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from archwright.errors import InputError
from archwright.references import is_local, refer, resolve


def test_importable_objects_are_named_by_their_module() -> None:
    assert refer(json.dumps) == "json:dumps"
    assert resolve("json:dumps", "function") is json.dumps
    assert resolve("json:JSONEncoder.encode", "function") is json.JSONEncoder.encode


def test_other_objects_are_found_in_this_process_only() -> None:
    own = lambda x: x  # noqa: E731
    text = refer(own)
    assert is_local(text)
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
