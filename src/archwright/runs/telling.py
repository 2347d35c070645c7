"""Events of a run in sentences, for people: terminals, the dashboard and log files show these."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from archwright.runs.files import Json

LONGEST_NAME = 60
"""Characters of an architecture that a sentence names."""
PLACES = ("time", "kind", "stage", "training", "architecture", "epoch", "percent", "cells", "unit")
"""Fields that say of what and when a number is."""


def told(event: Mapping[str, Json]) -> str:
    """An event as one line for people: its time of day and what happened."""
    clock = time.strftime("%H:%M:%S", time.localtime(event["time"]))
    return f"{clock}  {happened(event)}"


def happened(event: Mapping[str, Json]) -> str:
    """What an event says, in a sentence; one of a kind that is not ours as its fields."""
    say = _SENTENCES.get(str(event.get("kind")))
    return _fields(event) if say is None else say(event)


def _fields(event: Mapping[str, Json]) -> str:
    rest = ", ".join(f"{key} {value}" for key, value in event.items() if key not in ("time", "kind"))
    return f"{event.get('kind')}  {rest}".rstrip()


def _numbers(event: Mapping[str, Json]) -> str:
    """``loss 1.23, accuracy 45.1 %``: what was measured."""
    found = []
    for key, value in event.items():
        if key not in PLACES and isinstance(value, int | float) and not isinstance(value, bool):
            found.append(f"{key.replace('_', ' ')} {value:.4g}{' %' if 'accuracy' in key else ''}")
    return ", ".join(found) or "done"


def _of(event: Mapping[str, Json]) -> str:
    """What was trained or evaluated."""
    name = str(event.get("architecture") or event.get("training") or event.get("stage") or "the search")
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 3]}..."


def _epoch(event: Mapping[str, Json]) -> str:
    number = event.get("epoch")
    shown = f"epoch {number + 1}" if isinstance(number, int) else "an epoch"
    return f"{_of(event)}: {shown}, {_numbers(event)}."


def _evaluated(event: Mapping[str, Json]) -> str:
    value, unit = event.get("accuracy"), event.get("unit")
    shown = f"{value:.6g}{' %' if unit == '%' else ''}" if isinstance(value, int | float) else "nothing"
    return f"{_of(event)} reached {shown}."


def _seconds(event: Mapping[str, Json]) -> str:
    value = event.get("seconds")
    return f" after {value:,.0f} s" if isinstance(value, int | float) else ""


def _percent(event: Mapping[str, Json]) -> str:
    value = event.get("percent")
    return f"{value:.0f} %" if isinstance(value, int | float) else "partly"


def _text(event: Mapping[str, Json], name: str) -> str:
    return str(event.get(name, "")).rstrip(".")


_SENTENCES: dict[str, Callable[[Mapping[str, Json]], str]] = {
    "said": lambda event: str(event.get("text", "")),
    "warning": lambda event: f"Warning: {_text(event, 'text')}.",
    "started": lambda event: f"Work begins, CPU threads: {event.get('threads', '?')}.",
    "stage": lambda event: f"Begins: {event.get('title') or event.get('name', '')}.",
    "epoch": _epoch,
    "part": lambda event: f"{_of(event)}: {_percent(event)} trained, {_numbers(event)}.",
    "evaluated": _evaluated,
    "failed": lambda event: f"{_of(event)} failed: {_text(event, 'why')}.",
    "changed": lambda event: f"{event.get('what')} was {event.get('before')} and is {event.get('now')} now.",
    "damaged": lambda event: f"{_text(event, 'what')}.",
    "accepted": lambda event: f"Changed settings were accepted: {event.get('settings')}.",
    "interrupted": lambda event: f"Stopped: {_text(event, 'why')}.",
    "finished": lambda event: f"Finished{_seconds(event)}.",
}
