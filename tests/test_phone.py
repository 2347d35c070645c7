"""The phone example with a program in the place of adb that answers like a phone: a table that a search takes."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

import pytest

from archwright.costs.tables import LatencyTable
from archwright.spaces.compact import Compact, scale_for

pytest.importorskip("onnx")
SCRIPT = Path(__file__).parents[1] / "examples" / "phone_latency.py"
ADB = """#!/bin/sh
case "$*" in
  push*) cp "$2" "$PHONE/part.onnx"; echo "1 file pushed" ;;
  *getprop*) echo "Test Phone 3" ;;
  *perf_test*) size=$(wc -c < "$PHONE/part.onnx"); echo "Average inference time cost total: $((size / 1000)).5 ms" ;;
  *rm*) rm "$PHONE/part.onnx" ;;
esac
"""


def test_a_table_of_a_phone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    (tmp_path / "adb").write_text(ADB)
    (tmp_path / "adb").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PHONE", str(tmp_path))
    size = ["--image-size", "8", "--classes", "2", "--image-channels", "1"]
    monkeypatch.setattr(sys, "argv", ["phone_latency.py", str(tmp_path / "phone.json"), *size])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    table = LatencyTable.load(tmp_path / "phone.json")
    table.check(Compact(scale_for(8, 2, 1)))  # every part is there
    assert table.provenance.device == "Test Phone 3"
    assert all(entry.median_ms % 1 == 0.5 for entry in table.entries.values())
    assert not (tmp_path / "part.onnx").exists()
    assert "parts on Test Phone 3" in capsys.readouterr().out


def test_a_phone_that_says_nothing_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "adb").write_text("#!/bin/sh\necho no devices >&2\nexit 1\n")
    (tmp_path / "adb").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(sys, "argv", ["phone_latency.py", str(tmp_path / "phone.json")])
    with pytest.raises(SystemExit, match="no devices"):
        runpy.run_path(str(SCRIPT), run_name="__main__")
