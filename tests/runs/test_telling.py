from __future__ import annotations

import pytest

from archwright.runs.telling import happened, told


@pytest.mark.parametrize(
    ("event", "sentence"),
    [
        ({"kind": "started", "threads": 2}, "Work begins, CPU threads: 2."),
        ({"kind": "stage", "name": "train", "title": "train the answer"}, "Begins: train the answer."),
        ({"kind": "epoch", "stage": "train", "epoch": 0, "loss": 1.25}, "train: epoch 1, loss 1.25."),
        ({"kind": "part", "training": "a", "percent": 5.0, "loss": 2}, "a: 5 % trained, loss 2."),
        ({"kind": "evaluated", "architecture": "x", "accuracy": 93.25, "unit": "%"}, "x reached 93.25 %."),
        ({"kind": "evaluated", "architecture": "x", "accuracy": -3.5, "unit": ""}, "x reached -3.5."),
        ({"kind": "failed", "architecture": "x", "why": "no memory."}, "x failed: no memory."),
        ({"kind": "finished", "seconds": 1234.5}, "Finished after 1,234 s."),
        ({"kind": "interrupted", "why": "Ctrl-C"}, "Stopped: Ctrl-C."),
        ({"kind": "from elsewhere", "x": 1}, "from elsewhere  x 1"),
        ({"kind": "epoch", "epoch": "?", "loss": None}, "the search: an epoch, done."),  # somebody else's
    ],
)
def test_events_are_sentences(event: dict, sentence: str) -> None:
    assert happened(event) == sentence
    assert told({"time": 0.0, **event}).endswith(f"  {sentence}")


def test_long_architectures_are_cut() -> None:
    said = happened({"kind": "evaluated", "architecture": "x" * 500, "accuracy": 1.0})
    assert said == "x" * 57 + "... reached 1."
