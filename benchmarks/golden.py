"""Golden runs: small searches whose weights stay the same, byte for byte, while the code behind them is rebuilt.

    python benchmarks/golden.py record FOLDER      # at the commit to compare with
    python benchmarks/golden.py compare FOLDER     # at another one, on the same machine
    python benchmarks/golden.py teams              # one process, two by torchrun, two by --ranks: the same files

Each search is a command line with fixed seeds whose times are not measured: plans and latency tables are the counted
ones in ``golden/``. What is compared: the bytes of all weights of every file (a file may be moved), and
``result.json`` but for what is named in ``NOT_COMPARED`` and ``ON_PURPOSE``: times, paths and fields that were changed
on purpose. With ``teams`` every search has two shards, and all weights files are equal as files. Weights depend on the
processor and on versions of libraries, so nothing recorded is kept in the repository. Exit code 1 where
something differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from safetensors.numpy import load_file
from sklearn.datasets import load_digits

HERE = Path(__file__).parent / "golden"
NOT_COMPARED = {
    "format": "raised when fields of their own took what was in details",
    "seconds": "time of the run",
    "run": "where it lies",
    "data": "where the images lie",
    "plan": "in details: what the stage `plan` holds, which has its own tests",
    "insights": "sentences, moved from details to a field of their own",
    "verdict": "a sentence, moved from details to a field of its own",
    "reachable_ms": "moved from details to a field of its own",
    "latency_on": "moved from details to a field of its own",
    "front_points": "moved from details to a field of its own",
    "image_size": "in details: added to every model",
    "precision": "added to every model",
}
"""Fields of result.json that may differ at any depth, and why."""
BESIDE = {"beside": "guessing and logistic regression: added to methods that train one answer"}
ON_PURPOSE = {
    "paper": {"network": "added to details", "steps": "in details: training steps, not steps down a front"},
    **dict.fromkeys(("conas", "darts", "gdas", "rarts", "nasi", "nesbs"), BESIDE),
}
"""The same for single searches."""
SMALL = ("--threads", "1", "--seed", "3", "--json")
COMMANDS: dict[str, tuple[str, ...]] = {
    "fast": (
        *("binas", "--data", "digits", "--no-verify", "--plan-from", "{golden}/fast", "--pretrained", "none"),
        *("--minutes-of", "processor"),
    ),
    "fast-limits": (
        *("binas", "--data", "digits", "--no-verify", "--plan-from", "{golden}/fast", "--minutes-of", "processor"),
        *("--latency-ms", "0.25", "--latency-ms", "1.5"),
    ),
    "paper": (
        *("binas", "--plan", "paper", "--data", "digits", "--no-verify", "--latency-table", "{golden}/paper.json"),
        *("--epochs", "1", "--supernet-epochs", "1", "--final-epochs", "1", "--rows", "2000", "--rank-networks", "4"),
    ),
    "pretrained": (
        *("binas", "--data", "folder:{images}", "--no-verify", "--pretrained", "efficientnet-lite0"),
        *("--plan-from", "{golden}/pretrained"),
    ),
    "conas": (
        *("conas", "--data", "digits", "--channels", "4", "--cells", "1", "--supernet-epochs", "1"),
        *("--measurements", "40", "--images", "64", "--epochs", "1", "--final-epochs", "1"),
    ),
    "nesbs": (
        *("nesbs", "--data", "digits", "--channels", "4", "--cells", "1", "--supernet-epochs", "1"),
        *("--posterior-epochs", "1", "--size", "2", "--svgd-steps", "20", "--epochs", "1", "--final-epochs", "1"),
    ),
    "rarts-width": (
        *("rarts-width", "--data", "digits", "--network", "resnet20", "--keep-channels", "0.6", "--no-timing"),
        *("--search-epochs", "1", "--search-images", "64", "--final-epochs", "1"),
    ),
    **{
        name: (
            *(name, "--data", "digits", "--channels", "4", "--cells", "1", "--search-epochs", "2"),
            *("--search-images", "128", "--epochs", "1", "--final-epochs", "1"),
        )
        for name in ("darts", "gdas", "rarts")
    },
    "nasi": (
        *("nasi", "--data", "digits", "--channels", "4", "--cells", "1", "--steps", "4", "--proxy-batch", "16"),
        *("--proxy-channels", "4", "--nu-samples", "2", "--epochs", "1", "--final-epochs", "1"),
    ),
}

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python", "--")
WAYS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "one process": ((), ()),
    "torchrun": (TORCHRUN, ()),
    "ranks": ((), ("--ranks", "2")),
}
"""What starts a search, and options that go with it."""


def write_images(folder: Path) -> None:
    """Four classes of forty digits in colour, 48 px: enough for a plan that starts from published weights."""
    digits = load_digits()
    for label in range(4):
        place = folder / str(label)
        place.mkdir(parents=True)
        for number, index in enumerate(np.flatnonzero(digits.target == label)[:40]):
            grey = (digits.images[index] * 255 / 16).astype(np.uint8)
            coloured = Image.fromarray(np.stack([grey, grey[::-1], 255 - grey], -1))
            coloured.resize((48, 48), Image.Resampling.BICUBIC).save(place / f"{number:02d}.png")


def digest(file: Path) -> str:
    """SHA-256 of the names and bytes of all weights in a file; what the file says of them does not count."""
    found = hashlib.sha256()
    for name, array in sorted(load_file(file).items()):
        found.update(f"{name} {array.dtype} {array.shape}".encode())
        found.update(array.tobytes())
    return found.hexdigest()


def compared(value: Any, left_out: set[str]) -> Any:
    """A value of result.json without the fields that may differ, and without empty ones."""
    if isinstance(value, dict):
        kept = {name: compared(one, left_out) for name, one in value.items() if name not in left_out}
        return {name: one for name, one in kept.items() if one not in ({}, [], None)}
    return [compared(one, left_out) for one in value] if isinstance(value, list) else value


def run_one(name: str, work: Path, way: str = "one process", further: tuple[str, ...] = ()) -> dict[str, Any]:
    """Run one command in processes of its own; what it is compared by.

    Args:
        name: of the command.
        work: folder for images and runs.
        way: how it is started, one of ``WAYS``.
        further: options that are added.
    """
    places = {"golden": str(HERE.absolute()), "images": str(work / "images")}
    command = [part.format(**places) for part in COMMANDS[name]]
    run, (starter, more) = work / way / name, WAYS[way]
    archwright = [sys.executable, "-m", "archwright", "search"]
    done = subprocess.run(
        [*starter, *archwright, *command, *SMALL, *further, *more, "--run", str(run)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{name} ended with {done.returncode}:\n{done.stderr[-8000:]}")
    result = json.loads((run / "artifacts" / "result.json").read_text())
    files = {str(file.relative_to(run)): file for file in sorted(run.glob("artifacts/**/*.safetensors"))}
    whole = {place: hashlib.sha256(file.read_bytes()).hexdigest() for place, file in files.items()}
    return {"weights": {place: digest(file) for place, file in files.items()}, "files": whole, "result": result}


def recorded(file: Path) -> dict[str, Any]:
    """A record; an answer of the first form under the names that its fields have now."""
    from archwright.search.answer import from_first_form  # not known to commits that are recorded

    found: dict[str, Any] = json.loads(file.read_text())
    if found["result"]["format"] == 1:
        found["result"] = from_first_form(found["result"])
    return found


def differences(before: Any, now: Any, where: str = "") -> list[str]:
    """Where two values differ, in words; numbers must be equal to the last digit."""
    if isinstance(before, dict) and isinstance(now, dict):
        names = sorted({*before, *now})
        return [text for one in names for text in differences(before.get(one), now.get(one), f"{where}/{one}")]
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        pairs = enumerate(zip(before, now, strict=True))
        return [text for number, pair in pairs for text in differences(*pair, f"{where}/{number}")]
    return [] if before == now else [f"{where}: {before} -> {now}"]


def told(name: str, before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What differs between two runs of one search, in words."""
    there = set(now["weights"].values())
    lost = [f"weights of {file} are nowhere" for file, known in before["weights"].items() if known not in there]
    left_out = {*NOT_COMPARED, *ON_PURPOSE.get(name, ())}
    return lost + differences(*(compared(one["result"], left_out) for one in (before, now)))


def check_teams(name: str, work: Path) -> list[str]:
    """Run a search of two shards in every way; where its files differ, in words."""
    found = {way: run_one(name, work, way, ("--shards", "2"))["files"] for way in WAYS}
    one, *others = found
    return [text for way in others for text in differences(found[one], found[way], way)]


def check_record(name: str, work: Path, file: Path, record: bool) -> list[str]:
    """Record a search, or say where it differs from what was recorded.

    Args:
        name: of the search.
        work: folder for images and runs.
        file: of the record.
        record: whether to write it.
    """
    found = run_one(name, work)
    if not record:
        return told(name, recorded(file), found)
    file.write_text(json.dumps(found, indent=1))
    return []


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("record", "compare", "teams"))
    parser.add_argument("folder", type=Path, nargs="?", help="where the record is, one JSON file a search")
    parser.add_argument("--only", choices=tuple(COMMANDS), action="append", help="one search; may be given again")
    asked = parser.parse_args()
    if (asked.folder is None) != (asked.what == "teams"):
        parser.error("record and compare take a folder, teams takes none")
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        write_images(work / "images")
        if asked.folder is not None:
            asked.folder.mkdir(parents=True, exist_ok=True)
        for name in asked.only or COMMANDS:
            if asked.folder is None:
                texts = check_teams(name, work)
            else:
                texts = check_record(name, work, asked.folder / f"{name}.json", asked.what == "record")
            failed += bool(texts)
            said = "recorded" if asked.what == "record" else "equal"
            print(f"{name}: " + (said if not texts else f"{len(texts)} differences"), flush=True)
            for text in texts[:20]:
                print(f"  {text[:300]}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
