"""A latency table of an Android phone, over adb: python examples/phone_latency.py phone.json --classes 10

Not tried here: no phone was at hand, only a program that answers like one (``tests/test_phone.py``). What it needs:

1. ``adb`` on the PATH, and a phone with developer mode and USB debugging (``adb devices`` lists it).
2. ``onnxruntime_perf_test`` for the phone's processor, from ONNX Runtime's Android build, pushed once:
   ``adb push onnxruntime_perf_test /data/local/tmp/ && adb shell chmod +x /data/local/tmp/onnxruntime_perf_test``

Every part of the space is written as ONNX, pushed, timed there and removed. Then search here under the phone's limits:

    archwright search binas --data folder:photos --image-size 32 --latency-ms 5 --latency-table phone.json
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

from archwright.costs.tables import Entry, LatencyTable, Provenance, geometries
from archwright.quantise import to_onnx
from archwright.spaces.compact import Compact, scale_for

FOLDER = "/data/local/tmp"
AVERAGE = re.compile(r"Average inference time cost[^:]*:\s*([\d.]+)\s*ms")


def adb(*words: str) -> str:
    """What adb prints; an error ends the program with what it said."""
    done = subprocess.run(["adb", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"adb {' '.join(words)} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def time_on_phone(content: bytes, threads: int, repeats: int) -> float:
    """Milliseconds of one run of an ONNX graph on the phone."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "part.onnx"
        path.write_bytes(content)
        adb("push", str(path), f"{FOLDER}/part.onnx")
    command = f"{FOLDER}/onnxruntime_perf_test -e cpu -I -x {threads} -m times -r {repeats} {FOLDER}/part.onnx"
    said = adb("shell", command)
    adb("shell", f"rm {FOLDER}/part.onnx")
    found = AVERAGE.search(said)
    if found is None:
        raise SystemExit(f"expected an average time from onnxruntime_perf_test, got: {said.strip()[-300:]}")
    return float(found[1])


def make_table(space: Compact, time: Callable[[bytes], float], provenance: Provenance) -> LatencyTable:
    """The table of every different part of a space, each timed once by ``time``."""
    entries = {}
    parts = geometries(space)
    for number, (key, part) in enumerate(parts.items(), 1):
        image = torch.zeros(1, part.in_channels, part.size, part.size)
        ms = time(to_onnx(part.build().eval(), image))
        entries[key] = Entry(median_ms=ms, low_ms=ms, high_ms=ms)
        print(f"{number} of {len(parts)}: {key} {ms:.4f} ms", flush=True)
    return LatencyTable(provenance=provenance, entries=entries)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Write a latency table of an Android phone.")
    parser.add_argument("out", type=Path, help="the table, JSON")
    parser.add_argument("--image-size", type=int, default=32)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--image-channels", type=int, default=3, choices=(1, 3))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=50)
    chosen = parser.parse_args()
    model = adb("shell", "getprop ro.product.model").strip() or "an Android phone"
    provenance = Provenance(
        device=model,
        backend="onnxruntime",
        threads=chosen.threads,
        batch=1,
        dtype="float32",
        warm_up=1,
        repeats=chosen.repeats,
        versions={"onnxruntime": "on the phone"},
    )
    space = Compact(scale_for(chosen.image_size, chosen.classes, chosen.image_channels))
    table = make_table(space, lambda content: time_on_phone(content, chosen.threads, chosen.repeats), provenance)
    table.save(chosen.out)
    print(f"{chosen.out}: {len(table.entries)} parts on {model}")


if __name__ == "__main__":
    main()
