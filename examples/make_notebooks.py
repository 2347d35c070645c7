"""The examples as notebooks: python examples/make_notebooks.py writes examples/notebooks/NAME.ipynb anew.

A script with ``# %%`` lines is a row of cells; notebooks have the same cells, and no outputs.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
KERNEL = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}


def scripts() -> list[Path]:
    """Examples that are rows of cells."""
    every = [*HERE.glob("*.py"), *HERE.glob("tutorials/*.py")]
    return sorted(path for path in every if "\n# %%\n" in path.read_text() and path != Path(__file__))


def place_of(script: Path) -> Path:
    """Where its notebook lies."""
    return HERE / "notebooks" / script.relative_to(HERE).with_suffix(".ipynb")


def notebook(script: str) -> dict[str, Any]:
    """The notebook of a script's text, as JSON."""
    head, *parts = re.split(r"^# %%( \[markdown\])?\n", script, flags=re.MULTILINE)
    cells = [_cell(0, "markdown", _title(head))]
    for number, (kind, text) in enumerate(zip(parts[::2], parts[1::2], strict=True), 1):
        if kind:
            cells.append(_cell(number, "markdown", re.sub(r"^# ?", "", text.strip(), flags=re.MULTILINE)))
        else:
            cells.append(_cell(number, "code", text.strip()))
    return {"cells": cells, "metadata": KERNEL, "nbformat": 4, "nbformat_minor": 5}


def _title(head: str) -> str:
    """The docstring: its first line as a heading, without the command that runs the script."""
    first, _, rest = head.strip().strip('"').partition("\n")
    return f"# {first.partition(': python ')[0].rstrip('.')}\n{rest}".strip()


def _cell(number: int, kind: str, text: str) -> dict[str, Any]:
    cell = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": text.splitlines(keepends=True)}
    return cell if kind == "markdown" else {**cell, "execution_count": None, "outputs": []}


def written(script: Path) -> str:
    """The file's text of a script's notebook."""
    return json.dumps(notebook(script.read_text()), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for path in scripts():
        place = place_of(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(written(path))
        print(place)
