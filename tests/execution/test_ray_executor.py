"""Ray: same results as here, a killed worker loses nothing, an address without a cluster is an error."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from archwright.errors import InputError
from archwright.execution.base import Item, make_executor, run_items
from archwright.runs.run import ItemLog
from archwright.runs.stop import Stop


def double(payload: Any, stop: Stop) -> Any:
    """Kills its own worker the first time it meets the marked item."""
    marker = Path(payload["marker"])
    with marker.open("a") as file:
        file.write(f"{payload['value']}\n")
    if payload["value"] == 3 and marker.read_text().split().count("3") == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * payload["value"]


@pytest.mark.filterwarnings("ignore")
def test_a_killed_worker_loses_nothing(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    items = [Item(str(i), {"value": i, "marker": str(tmp_path / "calls")}) for i in range(8)]
    log = ItemLog(tmp_path / "log.jsonl")
    found = run_items(make_executor("ray", 2), double, items, log, Stop())
    assert found == {str(i): 2 * i for i in range(8)}
    calls = (tmp_path / "calls").read_text().split()
    assert calls.count("3") == 2
    assert ItemLog(tmp_path / "log.jsonl").done == found
    assert run_items(make_executor("here"), double, items, log, Stop()) == found
    assert len((tmp_path / "calls").read_text().split()) == len(calls)  # nothing was run again


def test_an_address_that_does_not_answer() -> None:
    with pytest.raises(InputError, match="no answer"):
        make_executor("ray", 1, "127.0.0.1:9")
    with pytest.raises(InputError, match="HOST:PORT"):
        make_executor("ray", 1, "nowhere")
