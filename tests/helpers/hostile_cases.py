"""Hostile input by kind: numbers and texts of every option, files in the place of every file, runs from somebody else.

Cases are generated, not picked: a new command, method, option or file is part of the catalogue without a change here.
``python benchmarks/hostile.py`` runs them all, the default tests a part.
"""

from __future__ import annotations

import io
import itertools
import json
import math
import os
import shutil
import socket
import stat
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from PIL import Image
from safetensors.torch import load_file, save_file

from archwright.runs.files import Sealed, read_sealed, write_sealed
from archwright.runs.run import Run
from archwright.search.registry import methods
from archwright.spaces.registry import spaces
from helpers import hostile_code
from helpers.hostile_judge import Case
from helpers.wrong_data import GOOD, PICTURES, architecture_cases, array_cases
from helpers.wrong_files import DAMAGE, FACTS, altered, fact_cases, header_cases, other_types, table_cases
from helpers.wrong_options import CELL, COMMANDS, NONSENSE, SOUND, command_cases, flag_of, option_cases

Prepare = Callable[[Path], object]


def catalogue() -> Iterator[Case]:
    """All cases."""
    for generate in (
        *(sound, options, words, numbers, texts, contradictions, too_much, outputs, inputs),
        *(facts, references, weights, ensembles, onnx_files, images, archives, choices, architectures, tables),
        *(run_headers, run_plans, run_events, run_items, run_stages, run_answers, run_files, run_places),
        *(own_networks, own_functions, modules, requests, streams),
    ):
        yield from generate()


# --- good input, so that the judge is judged too ----------------------------------------------------------------------


def sound() -> Iterator[Case]:
    """What must be accepted."""
    for line in (
        *("predict model.safetensors image.png", "predict model.onnx image.png --json", "predict both image.png"),
        *("predict model.safetensors data --csv new.csv", "runs list", "runs list --json", "runs show whole"),
        *("runs report whole", "runs resume whole", "runs resume half", "search random --data folder:data"),
        *("search random --data npz:data.npz", "search random --data digits", "latency --data digits", "spaces"),
        *("search random --space choices:choices.json --evaluate helpers.hostile_code:nan", "score --file cells.txt"),
        *("search binas --data digits --latency-ms 3", "latency --space mbconv", "methods", "--help", "search --help"),
    ):
        yield Case("sound", line, tuple(line.split()), wanted="accepted")


# --- words -----------------------------------------------------------------------------------------------------------


def options() -> Iterator[Case]:
    """Every option with values that its type or its bounds forbid."""
    for case in option_cases():
        yield Case("options", str(case.id), tuple(case.values[0]))


def words() -> Iterator[Case]:
    """Commands, options and arguments that are not there, and too few or too many of them."""
    for case in command_cases():
        yield Case("words", str(case.id), tuple(case.values[0]))


NUMBERS = (
    *("0", "-1", "1000000000", "2147483648", "9223372036854775808", "1e308", "5e-324", "-0.0", "1_000", "+7"),
    *("\N{ARABIC-INDIC DIGIT THREE}", "1e400", " 5 ", "5.0", "0x1p4", "0.1e-9"),
)


def numbers() -> Iterator[Case]:
    """Every option that takes a number, with numbers at the ends of what a number can be: four kinds each, in turn."""
    turn = itertools.cycle(NUMBERS)
    for path, option in _options():
        if isinstance(option.type, click.types.IntRange | click.types.FloatRange) or option.type in (
            click.INT,
            click.FLOAT,
        ):
            for value in itertools.islice(turn, 4):
                name = f"{'-'.join(path)} {flag_of(option)} {value!r}"
                words = (*path, *SOUND.get(path, ()), flag_of(option), value)
                yield Case("numbers", name, words, wanted="either", much=True)


TEXTS = (
    *("a" * 100_000, "\0", "a\nb", "\x1b]0;x\x07", "\N{RIGHT-TO-LEFT OVERRIDE}abc", "\udcff", "../../etc/passwd", "-"),
    *("~nosuchuser/x", "/dev/zero", "os:abort", "width:os:abort", "choices:{}", "choices:" + "[" * 50_000, "here:f-1"),
    *("a:b:c", "builtins:exit", "__main__:main", "helpers.hostile_code:raises", "{}", "[]", "null", "%s%n", "$(id)"),
    *("folder:~nosuchuser", "npz:/dev/zero", "random:count=1e9", "random:size=1,size=2", "kept:/etc/passwd"),
    *("object:x", "nb201:/dev/zero", "model.safetensors", "a-folder", "runs/whole", "last", "whole", "a=b,a=c", ","),
)


def texts() -> Iterator[Case]:
    """Every option that takes a text or a path, with texts that nobody means: five kinds each, in turn."""
    turn = itertools.cycle(TEXTS)
    for path, option in _options():
        if isinstance(option.type, click.types.StringParamType | click.Path):
            for value in itertools.islice(turn, 5):
                name = f"{'-'.join(path)} {flag_of(option)} {value[:40]!r}"
                yield Case("texts", name, (*path, *SOUND.get(path, ()), flag_of(option), value), wanted="either")


def _options() -> Iterator[tuple[tuple[str, ...], click.Option]]:
    """Every option that takes a value, with the command it is of; what searches share is dealt to them in turn."""
    names = [entry.name for entry in methods]
    turn = itertools.cycle(names)
    for path, command in COMMANDS.items():
        for option in command.params:
            if not isinstance(option, click.Option) or option.is_flag or option.count:
                continue
            if path[0] != "search" or option.name in methods.get(path[1]).Options.model_fields:
                yield path, option
            elif path[1] == names[0]:
                yield ("search", next(turn)), option


def contradictions() -> Iterator[Case]:
    """Two answers to one question, and options that do nothing beside the others."""
    for line in (
        *(
            "random --training optimizer=adamw,optimizer=sgd",
            "random --augment crop=1,crop=2",
            "random --split 1e-300,1,1",
        ),
        *("random --device cpu:7", "random --workers 2", "random --address x:1", "random --dataset cifar10"),
        *("binas --executor processes", "darts --workers 2", "nesbs --failures 3", "nasi --executor processes"),
        *("random --latency-ms 3 --latency-ms 4", "binas --latency-ms 3 --latency-ms 3", "darts --params 5"),
        *("random --evaluate helpers.hostile_code:nan --epochs 3", "binas --plan fast --training schedule=cosine"),
        *("random --evaluate helpers.hostile_code:nan --lr 0.1", "random --benchmark nb201 --timeout 3"),
        *("random --space choices:choices.json --data digits", "darts --space choices:choices.json"),
    ):
        yield Case("contradictions", line, ("search", *line.split()))
    for line in (
        *("rarts --w-lr 1e6", "darts --w-weight-decay 1e6", "gdas --temperature 1e-9"),
        *("darts --w-lr 0.1 --w-lr-min 0.2", "conas --supernet-lr 0.1 --supernet-lr-min 0.2", "darts --w-lr 1e-300"),
    ):
        yield Case("contradictions", line, ("search", *line.split(), "--data", "digits"))
    for line in (
        *("latency --data digits --classes 5", "latency --data digits --image-size 8", "runs report whole whole"),
        *(
            "score --network x.py:f --space darts",
            "score --network x.py:f --workers 2",
            "runs report whole --overwrite",
        ),
        *(
            "predict model.safetensors image.png --overwrite",
            "analyze darts-v2 --epochs 0 --lr 1",
            "score --file cells.txt x",
        ),
        *("predict model.onnx image.png --space nasbench201", "latency --device cpu:7", "runs resume half --limit 3"),
    ):
        yield Case("contradictions", line, tuple(line.split()))


def too_much() -> Iterator[Case]:
    """Work of days and memory that nobody has."""
    large = ("1000000000", "999999999")
    for line in (
        *(f"latency --{name} {count}" for name in ("repeats", "warm-up", "networks") for count in large),
        *(
            "latency --batch 1000000",
            "latency --image-size 4096",
            "latency --space mbconv --width 64 --image-size 1024",
        ),
        *(f"score --file cells.txt --replicates {count}" for count in large),
        *(
            "score --file cells.txt --channels 16384 --cells 1000",
            "analyze enas --epochs 1000 --channels 256 --cells 100",
        ),
        *(f"search random --data digits --evaluations {count}" for count in large),
        *(f"search {name} --data digits --epochs 1000000000" for name in ("random", "evolution", "darts", "nesbs")),
        *(f"search {name} --data digits --minutes 100000" for name in ("random", "binas", "hnas")),
        *(f"search {name} --data digits --channels 16384 --cells 1000" for name in ("random", "gdas")),
        "search binas --data digits" + "".join(f" --latency-ms {n} --params {n} --macs {n}" for n in range(1, 12)),
    ):
        yield Case("too much", line[:80], tuple(line.split()))


# --- files to write and to read --------------------------------------------------------------------------------------


def _link(path: Path, target: str) -> None:
    path.symlink_to(target)


def _device(path: Path, minor: int) -> None:
    if os.geteuid() == 0:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, minor))
    else:  # nobody else makes devices
        path.symlink_to("/dev/full" if minor == 7 else "/dev/zero")


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


def _sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 2**40)


ODD: dict[str, Prepare] = {
    "a link": partial(_link, target="a-file"),
    "a link to nothing": partial(_link, target="nothing"),
    "a link to itself": _loop,
    "a folder": Path.mkdir,
    "a pipe": os.mkfifo,
    "a full device": partial(_device, minor=7),
    "an endless device": partial(_device, minor=5),
    "a link to an endless device": partial(_link, target="/dev/zero"),
    "a socket": _socket,
}
OUTPUTS = {
    "a table of predictions": "predict model.safetensors image.png --csv {}",
    "a latency table": "latency --out {}",
    "a page": "analyze darts-v2 --epochs 0 --out {}",
    "a report": "runs report whole --out {}",
    "a comparison": "runs report whole runs/other --out {}",
}


def outputs() -> Iterator[Case]:
    """Something else in the place of a file that is to be written."""
    for (what, line), overwrite in itertools.product(OUTPUTS.items(), ("", " --overwrite")):
        for kind, make in ODD.items():
            yield Case(
                "outputs",
                f"{what}: {kind}{overwrite}",
                tuple((line.format("odd") + overwrite).split()),
                partial(_make, make=make),
            )
        name = f"{what}: an input{overwrite}"
        yield Case(
            "outputs", name, tuple((line.format("model.safetensors") + overwrite * ("csv" in line)).split()), _other
        )
        for place in ("a-file/below", "/proc/none/x", "x" * 300):
            words = tuple((line.format(place) + overwrite).split())
            yield Case("outputs", f"{what}: {place[:12]}{overwrite}", words, _other)
        if not overwrite:
            yield Case("outputs", f"{what}: a foreign file", tuple(line.format("a-file").split()), _other)


def _other(folder: Path) -> None:
    shutil.copytree(folder / "runs" / "whole", folder / "runs" / "other")


def _make(folder: Path, make: Prepare, name: str = "odd") -> None:
    _other(folder)
    make(folder / name)


INPUTS = {
    "an image": ("predict model.safetensors {}", "odd.png"),
    "an image among others": ("predict model.safetensors image.png {} --skip-bad --csv x.csv", "odd"),
    "a model": ("predict {} image.png", "odd.safetensors"),
    "an ONNX file": ("predict {} image.png", "odd.onnx"),
    "a latency table": ("search binas --data digits --latency-ms 1 --latency-table {}", "odd"),
    "a table of operations": ("search rarts --data digits --latency-weight 1 --latency-table {}", "odd"),
    "choices": ("score --space choices:{} {{}}", "odd"),
    "a list of architectures": ("score --file {}", "odd"),
    "an archive": ("search random --data npz:{}", "odd.npz"),
    "a folder of images": ("search random --data folder:{}", "odd"),
    "a module": ("search random --data digits --augment {}:f", "odd.py"),
    "a network": ("score --network {}:f", "odd.py"),
    "weights": ("search binas --data digits --pretrained {}", "efficientnet_lite0.safetensors"),
    "a run": ("runs show {}", "odd"),
    "a run of a supernet": ("search darts --data digits --supernet {}", "odd"),
    "a run of a plan": ("search binas --data digits --plan-from {}", "odd"),
    "a benchmark": ("search random --benchmark nb201:{}", "odd.npz"),
}


def inputs() -> Iterator[Case]:
    """Something else in the place of a file that is to be read."""
    more: dict[str, Prepare] = {"empty": Path.touch, "a terabyte of nothing": _sparse}
    more |= {f"damaged: {kind}": partial(_damaged, damage=damage) for kind, damage in DAMAGE.items()}
    for what, (line, name) in INPUTS.items():
        for kind, make in {**ODD, **more}.items():
            wanted = "either" if what == "an image among others" else "refused"
            prepare = partial(_make, make=make, name=name)
            yield Case("inputs", f"{what}: {kind}", tuple(line.format(name).split()), prepare, wanted)  # type: ignore[arg-type]


def _damaged(path: Path, damage: Callable[[bytes], bytes]) -> None:
    source = {".png": "image.png", ".safetensors": "model.safetensors", ".onnx": "model.onnx", ".npz": "data.npz"}
    path.write_bytes(damage((path.parent / source.get(path.suffix, "table.json")).read_bytes()))


# --- models ----------------------------------------------------------------------------------------------------------


def _facts(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    path = folder / "model.safetensors"
    save_file(load_file(path), path, metadata={"archwright": json.dumps(change(json.loads(json.dumps(FACTS))))})


PREDICT = ("predict", "model.safetensors", "image.png")


def facts() -> Iterator[Case]:
    """Every fact of a model, missing, of another type and absurd."""
    for case in fact_cases():
        place, new = case.values
        change = partial(altered, place=place, new=new)
        yield Case("facts", str(case.id), PREDICT, partial(_facts, change=change))


SPACES = (
    *(
        "os:abort",
        "width:os:abort",
        "width:os:_exit",
        "width:builtins:exit",
        "width:mine.py:f",
        "mine.py:SPACE",
        "here:x-1",
    ),
    *(
        "width:here:x-1",
        "width:subprocess:run",
        "width::",
        "width:",
        ":",
        "choices:{}",
        "choices:/dev/zero",
        "a b:c",
        "1:2",
    ),
    *(
        "width:../mine.py:f",
        "helpers.hostile_code:sound",
        "width:helpers.hostile_code:leaving",
        "width:a.b.c:d",
        "x" * 10_000,
    ),
)


def references() -> Iterator[Case]:
    """Spaces that a model names, which would run code, with and without permission."""
    for space, flags in itertools.product(SPACES, ((), ("--allow-import",))):

        def prepare(folder: Path, space: str = space, flags: tuple[str, ...] = flags) -> None:
            (folder / "mine.py").write_text(("" if flags else "open('ran', 'w').close()\n") + "raise SystemExit(0)\n")
            _facts(folder, lambda known: {**known, "space": space})

        yield Case("references", f"{space[:40]} {' '.join(flags)}", (*PREDICT, *flags), prepare)


def weights() -> Iterator[Case]:
    """Weights that are not those of the network, or no numbers."""
    import torch

    changes: dict[str, Callable[[Any], Any]] = {
        **{f"{value:g}": lambda t, value=value: torch.full_like(t, value) for value in (math.nan, math.inf, 3e38)},
        **{str(kind): lambda t, kind=kind: t.to(kind) for kind in (torch.int8, torch.bool, torch.complex64)},
        "float64": lambda t: t.double() * 1e300,
        "flat": lambda t: t.flatten(),
        "empty": lambda t: t[:0],
    }
    for kind, change in changes.items():

        def prepare(folder: Path, change: Callable[[Any], Any] = change) -> None:
            path = folder / "model.safetensors"
            state = {name: change(t) if t.ndim == 4 else t for name, t in load_file(path).items()}
            save_file(state, path, metadata={"archwright": json.dumps(FACTS)})

        yield Case("weights", kind, PREDICT, prepare)


def ensembles() -> Iterator[Case]:
    """Lists of members that are none."""
    good: dict[str, Any] = {
        "format": 1,
        "mean": "probabilities",
        "members": ["0.safetensors", "1.safetensors"],
        "measured": {},
    }
    changed = {
        f"{name} {kind}": altered(good, (name,), new) for name in good for kind, new in other_types(good[name], name)
    }
    changed |= {f"members {one!r:.60}": {**good, "members": one} for one in (
        *([], ["0.safetensors"], ["0.safetensors"] * 2, ["0.safetensors"] * 100_000, ["../model.safetensors"] * 2),
        *(["/etc/passwd", "x"], ["0.safetensors", "/dev/zero"]),
        *(["\0", "0.safetensors"], ["1.safetensors", "no"], ["0.json", "1.json"]),
    )}  # fmt: skip
    changed |= {
        "another mean": {**good, "mean": "median"},
        "another format": {**good, "format": 9},
        "more": {**good, "x": 1},
    }
    for name, value in changed.items():
        text = json.dumps(value)
        write = partial(lambda folder, text: (folder / "both" / "ensemble.json").write_text(text), text=text)
        yield Case("ensembles", name, ("predict", "both", "image.png"), write)
    for kind, make in ODD.items():
        for member in ("ensemble.json", "0.safetensors"):
            odd = partial(_instead, name=f"both/{member}", make=make)
            wanted = "either" if kind == "a link" and member != "ensemble.json" else "refused"
            yield Case("ensembles", f"{member}: {kind}", ("predict", "both", "image.png"), odd, wanted)  # type: ignore[arg-type]


def _instead(folder: Path, name: str, make: Prepare) -> None:
    """Something else at ``name``."""
    path = folder / name
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    here = Path.cwd()
    os.chdir(path.parent)  # names of sockets are short
    make(path)
    os.chdir(here)


def _flipped(data: bytes, seed: int) -> bytes:
    """Some bytes changed, some taken away, by the seed."""
    rng = np.random.default_rng(seed)
    changed = bytearray(data)
    for place in rng.integers(len(data), size=1 + seed % 7):
        changed[int(place)] = int(rng.integers(256))
    return bytes(changed[: len(changed) - int(rng.integers(len(data))) * (seed % 3 == 0)])


def onnx_files() -> Iterator[Case]:
    """ONNX files with other bytes."""
    for seed in range(40):
        change = partial(_rewritten, name="model.onnx", change=partial(_flipped, seed=seed))
        yield Case("ONNX files", f"bytes {seed}", ("predict", "model.onnx", "image.png"), change, "either")
    for kind, damage in DAMAGE.items():
        yield Case(
            "ONNX files",
            kind,
            ("predict", "model.onnx", "image.png"),
            partial(_rewritten, name="model.onnx", change=damage),
        )


def _rewritten(folder: Path, name: str, change: Callable[[bytes], bytes]) -> None:
    (folder / name).write_bytes(change((folder / name).read_bytes()))


# --- data ------------------------------------------------------------------------------------------------------------

FOREIGN = ("EPS", "PDF", "TGA", "ICO", "PCX", "SGI", "DDS", "JPEG2000", "MSP", "IM", "XBM")


def _encoded(kind: str) -> bytes:
    pixels = np.random.default_rng(1).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    picture, made = Image.fromarray(pixels), io.BytesIO()
    picture.convert("1" if kind in ("MSP", "XBM") else "RGB").save(made, format=kind)
    return made.getvalue()


def images() -> Iterator[Case]:
    """Pictures with other bytes, of other formats, and none at all; as one file and in a folder."""
    for kind in ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP"):
        data = _encoded(kind)
        for seed in range(12):
            write = partial(_put, name="odd.png", content=_flipped(data, seed))
            yield Case("images", f"{kind} {seed}", ("predict", "model.safetensors", "odd.png"), write, "either")
    for kind, content in {**PICTURES, **{one: _encoded(one) for one in FOREIGN}}.items():
        yield Case(
            "images",
            f"{kind} alone",
            ("predict", "model.safetensors", "odd.png"),
            partial(_put, name="odd.png", content=content),
        )
        write = partial(_put, name="data/cat/odd.png", content=content)
        yield Case("images", f"{kind} in a folder", ("search", "random", "--data", "folder:data"), write)


def _put(folder: Path, name: str, content: bytes) -> None:
    (folder / name).write_bytes(content)


def archives() -> Iterator[Case]:
    """Arrays that are no images or labels, and archives with other bytes."""
    search = ("search", "random", "--data", "npz:data.npz")
    for case in array_cases():
        key, array = case.values
        arrays = {name: value for name, value in {**GOOD, key: array}.items() if value is not None}
        write = partial(
            lambda folder, arrays: np.savez(folder / "data.npz", allow_pickle=True, **arrays), arrays=arrays
        )
        yield Case("archives", str(case.id), search, write)
    for extra in (("x",), ("y",), ("x", "y")):
        arrays = GOOD | {name: GOOD[f"{name}_test"] for name in extra}
        write = partial(lambda folder, arrays: np.savez(folder / "data.npz", **arrays), arrays=arrays)
        yield Case("archives", f"also {extra}", search, write)
    for seed in range(40):
        change = partial(_rewritten, name="data.npz", change=partial(_flipped, seed=seed))
        yield Case("archives", f"bytes {seed}", search, change, "either")


CHOICES = (
    *(
        "{}",
        "[]",
        "null",
        "3",
        '""',
        "{",
        '{"x": []}',
        '{"x": 3}',
        '{"x": "ab"}',
        '{"x": [1]}',
        '{"x": [1, 1]}',
        '{"x": {}}',
    ),
    *('{"x": [1, 1.0]}', '{"x": [1, true]}', '{"x": [NaN, 1]}', '{"x": [Infinity, 1]}', '{"x": [1, 2], "x": [3, 4]}'),
    *(
        '{"x": ' + "[" * 50_000 + "]" * 50_000 + "}",
        '{"x": [' + "1" * 5000 + ", 2]}",
        "[" * 100_000,
        '{"x": [1, 2]} x',
        "\0",
    ),
)


def choices() -> Iterator[Case]:
    """Choices that are none, as a text and in a file."""
    for text in CHOICES:
        score = ("score", "--space", "choices:odd.json", "--", "{}")
        yield Case("choices", f"in a file: {text[:40]!r}", score, partial(_put, name="odd.json", content=text.encode()))
        if "\0" not in text:
            yield Case("choices", f"as a text: {text[:40]!r}", ("score", "--space", f"choices:{text}", "--", "{}"))


def architectures() -> Iterator[Case]:
    """Texts that are no architecture of a space."""
    for case in architecture_cases():
        space, text = case.values
        yield Case("architectures", str(case.id), ("score", "--space", space, "--", text))
    for space in (*(entry.name for entry in spaces), "width:resnet20"):
        for number, text in enumerate(
            ('{"a": "0-99999999999"}', '{"blocks.0.conv1": "9-0"}', "{}" * 1000, '{"a":' * 50_000)
        ):
            yield Case("architectures", f"{space} more {number}", ("score", "--space", space, "--", text))


def tables() -> Iterator[Case]:
    """Latency tables with other fields."""
    for case in table_cases():
        place, new = case.values

        def prepare(folder: Path, place: Any = place, new: Any = new) -> None:
            table = json.loads((folder / "table.json").read_text())
            table["correction"] = {"slope": 1.0, "intercept_ms": 0.0, "networks": 20, "validation_networks": 0}
            real = ("entries", next(iter(table["entries"])), *place[2:]) if place[:2] == ("entries", 0) else place
            (folder / "table.json").write_text(json.dumps(altered(table, real, new)))

        yield Case("tables", str(case.id), ("search", "binas", "--latency-table", "table.json"), prepare)


# --- runs ------------------------------------------------------------------------------------------------------------


def run_headers() -> Iterator[Case]:
    """Every field of run.json and every setting, missing and of another type."""
    for case in header_cases():
        place, new = case.values
        change = partial(_json, name="runs/half/run.json", change=partial(altered, place=place, new=new))
        yield Case("run headers", str(case.id), ("runs", "resume", "half"), change)
    for name, value in {
        "epochs": 5,
        "lr": 0.5,
        "recipe": "darts",
        "scale": "paper",
        "channels": 8,
        "evaluate": "os:abort",
    }.items():
        change = partial(
            _json, name="runs/half/run.json", change=partial(altered, place=("configuration", name), new=value)
        )
        yield Case("run headers", f"edited {name}", ("runs", "resume", "half"), change)


def _json(folder: Path, name: str, change: Callable[[Any], Any]) -> None:
    path = folder / name
    path.write_text(json.dumps(change(json.loads(path.read_text()))))


def run_plans() -> Iterator[Case]:
    """Plans of stages that are none."""
    plans: tuple[Any, ...] = (
        ["x"],
        "x",
        3,
        {"a": 1},
        [None],
        [{"name": 1, "title": "x"}],
        [{"name": "a"}],
        [{"title": "a"}],
        [[]],
    )
    plans += (
        [{"name": "../../x", "title": "x"}],
        [{"name": "a\0b", "title": "x"}],
        [{"name": "x" * 5000, "title": "y"}],
    )
    for plan, command in itertools.product(plans, ("show", "report")):
        change = partial(_json, name="runs/whole/run.json", change=lambda header, plan=plan: {**header, "plan": plan})
        yield Case("run plans", f"{plan!r:.40} {command}", ("runs", command, "whole"), change)


EVENTS: dict[str, dict[str, Any]] = {
    "stage": {"name": "search", "title": "x"},
    "epoch": {"stage": "train", "epoch": 1},
    "diagnostics": {"epoch": 1},
    "evaluated": {"stage": "search", "architecture": "x"},
    "failed": {"stage": "search", "architecture": "x", "why": "y"},
    "said": {"text": "x"},
}


def run_events() -> Iterator[Case]:
    """Events without what their kind says, or with something else; lines that are no JSON."""
    lines: dict[str, str] = {}
    for kind, fields in EVENTS.items():
        good = {"time": 1.0, "kind": kind, **fields}
        for name in good:
            for how, new in other_types(good[name], name):
                lines[f"{kind} {name} {how}"] = json.dumps(altered(good, (name,), new))
    lines |= {
        text[:20]: text
        for text in ("{", "[]", "3", "null", '{"time": NaN, "kind": "x"}', "[" * 100_000, '{"time": 1e99, "kind": "x"}')
    }
    for (name, line), command in itertools.product(lines.items(), ("show", "report")):
        add = partial(_appended, name="runs/whole/events.jsonl", line=line)
        yield Case("run events", f"{name} {command}", ("runs", command, "whole"), add)


def _appended(folder: Path, name: str, line: str) -> None:
    with (folder / name).open("a") as file:
        file.write(line + "\n")


ITEMS: tuple[Any, ...] = (
    *({}, [], None, 3, "x", True, {"accuracy": "high"}, {"accuracy": None}, {"accuracy": 170.0}, {"accuracy": -1}),
    *({"accuracy": True}, {"accuracy": [1]}, {"failure": 3}, {"accuracy": None, "failure": None}, {"accuracy": 1e308}),
)


def run_items() -> Iterator[Case]:
    """Finished work of another shape, with a checksum that is right."""
    for result in ITEMS:

        def prepare(folder: Path, result: Any = result) -> None:
            run = folder / "runs" / "half"
            shutil.rmtree(run / "stages")
            (run / "items" / "search.jsonl").unlink()
            Run.open(run).items("search").record(CELL, result)

        yield Case("run items", f"{result!r}", ("runs", "resume", "half"), prepare, starts=True)


def run_stages() -> Iterator[Case]:
    """Results of stages with other fields, with a checksum that is right."""
    values = {"architecture": "x", "accuracy": 50.0, "accuracy_on": "x", "evaluations": 2}
    for name, value in values.items():
        for kind, new in (*other_types(value, name), ("absurd", -1e9 if isinstance(value, float) else NONSENSE)):

            def prepare(folder: Path, name: str = name, new: Any = new) -> None:
                path = folder / "runs" / "half" / "stages" / "search.json"
                kept = read_sealed(path)
                write_sealed(path, Sealed(altered(kept.value, (name,), new), kept.made_with, kept.files))

            wanted = "either" if (name, kind) in (("accuracy_on", "absurd"), ("accuracy", "null")) else "refused"
            yield Case("run stages", f"{name} {kind}", ("runs", "resume", "half"), prepare, wanted, starts=True)  # type: ignore[arg-type]


def run_answers() -> Iterator[Case]:
    """Every field of an answer, missing, of another type and absurd."""
    good = {
        "format": 2,
        "method": "random",
        "space": "x",
        "seed": 0,
        "best": {},
        "evaluations": 1,
        "seconds": 1.0,
        "front": [],
    }
    best = {
        "architecture": "x",
        "accuracy": 50.0,
        "accuracy_interval": [1.0, 2.0],
        "params": 3,
        "model": "artifacts/best.safetensors",
    }
    places: list[tuple[tuple[str, ...], Any]] = [((name,), value) for name, value in good.items()]
    places += [(("best", name), value) for name, value in best.items()]
    for place, value in places:
        kinds = [*other_types(value, place[-1]), ("absurd", 1e9 if isinstance(value, float) else "../../etc/passwd")]
        for (kind, new), command in itertools.product(kinds, ("resume", "report")):
            change = partial(altered, place=place, new=new)
            yield Case(
                "run answers",
                f"{'.'.join(place)} {kind} {command}",
                ("runs", command, "whole"),
                partial(_json, name="runs/whole/artifacts/result.json", change=change),
                "refused" if (place[-1], kind) == ("model", "absurd") else "either",
            )


PLACES = (
    *("run.json", "events.jsonl", "lock", "artifacts", "artifacts/result.json", "artifacts/best.safetensors", "items"),
    *(
        "items/search.jsonl",
        "stages",
        "stages/answer.json",
        "checkpoints",
        "artifacts/more.png",
        "progress.json",
        "stop",
    ),
)
COMMANDS_ON_RUNS = {
    **{name: ("runs", name, "whole") for name in ("show", "report", "resume", "stop", "time")},
    "predict": ("predict", "whole", "image.png"),
    "analyze": ("analyze", "whole", "--epochs", "0"),
    "compare": ("runs", "report", "whole", "half"),
}


def run_files() -> Iterator[Case]:
    """Links, pipes, devices, sockets and folders in the place of a run's files, for every command; a list beside."""
    for place, (kind, make) in itertools.product(PLACES, ODD.items()):
        if kind == "a folder" and "." not in place and place not in ("lock", "stop"):
            make = Path.touch  # a file in the place of a folder
        odd = partial(_instead, name=f"runs/whole/{place}", make=make)
        turn = itertools.cycle(COMMANDS_ON_RUNS.items())
        for _ in range(zlib.crc32(f"{place} {kind}".encode()) % len(COMMANDS_ON_RUNS)):
            next(turn)
        wanted = (
            "either" if (place, kind) == ("artifacts/more.png", "a folder") else "refused"
        )  # artifacts have folders
        for command, line in itertools.islice(turn, 3):
            yield Case("run files", f"{place}: {kind} {command}", line, odd, wanted)  # type: ignore[arg-type]
        yield Case("run files", f"{place}: {kind} list", ("runs", "list"), odd, "accepted")


def run_places() -> Iterator[Case]:
    """Runs that are none, by every command, and runs to be removed that are links."""
    for name, (command, line) in itertools.product(
        ("", " ", "\0", "nothing", "a-file", "a-folder", "/", "..", "x" * 5000, "\udcff", "~nosuch", NONSENSE),
        COMMANDS_ON_RUNS.items(),
    ):
        yield Case("run places", f"{name[:20]!r} {command}", tuple(name if word == "whole" else word for word in line))
    yield Case(
        "run places",
        "delete a link",
        ("runs", "delete", "alias", "--yes"),
        lambda folder: (folder / "runs" / "alias").symlink_to("whole"),
    )
    yield Case("run places", "delete unasked", ("runs", "delete", "whole"))


# --- a user's own code -----------------------------------------------------------------------------------------------


def own_networks() -> Iterator[Case]:
    """Networks that cannot be scored or thinned."""
    for name in hostile_code.NETWORKS:
        yield Case("own networks", f"score {name}", ("score", "--network", f"helpers.hostile_code:{name}"))
        if name not in ("frozen", "detached"):
            thin = (
                "search",
                "rarts-width",
                "--data",
                "digits",
                "--keep-channels",
                "0.5",
                "--network",
                f"helpers.hostile_code:{name}",
            )
            yield Case("own networks", f"thin {name}", thin)


def own_functions() -> Iterator[Case]:
    """Functions that fail: each a recorded failure, and too many of them a sentence."""
    for name, executor in itertools.product((*hostile_code.FUNCTIONS, "hangs"), ("here", "processes")):

        def call(_: Path, name: str = name, executor: str = executor) -> int:
            from archwright.errors import ArchwrightError
            from archwright.search.engine import search

            settings = {"evaluations": 3, "failures": 1, "timeout": 0.5, "executor": executor, "run": "own"}
            try:
                search("random", space='choices:{"x": [1, 2, 3]}', evaluate=f"helpers.hostile_code:{name}", **settings)
            except ArchwrightError as error:
                print(f"error: {error}", file=sys.stderr)
                shutil.rmtree("own")
                return 2
            return 0

        yield Case("own functions", f"{name} {executor}", call=call, starts=True)


MODULES = (
    *(
        "import sys; sys.exit(4)",
        "1 / 0",
        "raise KeyError",
        "x = (",
        "import no_such_module",
        "f = 3",
        "",
        "def g(): pass",
    ),
    *("raise KeyboardInterrupt", "def f(*a): return f()\nf()", "import os; os.chdir('/')\nraise ValueError", "\0"),
)


def modules() -> Iterator[Case]:
    """Modules that cannot be imported, or lack what is asked of them."""
    for body, (what, line) in itertools.product(MODULES, {
        "a function": "search random --space choices:choices.json --evaluate mine.py:f",
        "a space": "search random --data digits --space mine.py:f",
        "a network": "score --network mine.py:f",
        "an augmentation": "search random --data digits --augment mine.py:f",
    }.items()):  # fmt: skip
        yield Case(
            "modules",
            f"{what}: {body[:30]!r}",
            tuple(line.split()),
            partial(_put, name="mine.py", content=body.encode()),
        )


# --- the dashboard, and the program's streams -------------------------------------------------------------------------

NAMES = (
    *(
        "n" * 5000,
        "..",
        ".",
        "%2e%2e",
        "..%2f..%2fetc%2fpasswd",
        "%00",
        "%ff",
        "a%0ab",
        "whole%2f..%2fhalf",
        "no",
        "%F0%9F%98%80",
    ),
    *("run.json", "whole/..%2fhalf", "~", "*", "'", '"><script>', "{}", "con", "x" * 255, "%25", "whole%20"),
)
ROUTES = (
    *(
        "/runs/{}/report.html",
        "/runs/{}/log.txt",
        "/runs/{}/artifacts/x",
        "/runs/whole/artifacts/{}",
        "/api/runs/{}/stop",
    ),
    *("/api/runs/{}/resume", "/{}", "/api/{}"),
)


def requests() -> Iterator[Case]:
    """Requests with names that are none; of dots alone a browser itself makes the page above."""
    for name, route in itertools.product(NAMES, ROUTES):
        wanted = "either" if route == "/{}" and name in (".", "..") else "refused"
        yield Case("requests", f"{route} {name[:30]}", wanted=wanted, call=partial(_asked, path=route.format(name)))  # type: ignore[arg-type]


def _asked(folder: Path, path: str) -> int:
    """2 where the dashboard refuses a request, 0 where it answers, 1 where it fails."""
    from fastapi.testclient import TestClient

    from archwright.report import server

    base = "http://127.0.0.1:8765"
    client = TestClient(server.dashboard(folder / "runs", 8765, "token"), base_url=base, raise_server_exceptions=False)
    client.get("/?token=token")
    kind = client.post if path.startswith("/api/") else client.get
    answer = kind(path, headers={"Origin": base})
    print(answer.text[:200].replace("\n", " "), file=sys.stderr)
    return 1 if answer.status_code >= 500 else 2 if answer.status_code >= 400 else 0


def streams() -> Iterator[Case]:
    """Closed and full streams, in processes of their own."""
    for words, closed in itertools.product(
        ("runs list", "spaces", "runs list --json"), (">&-", ">&- 2>&-", "<&- >&- 2>&-")
    ):
        yield Case("streams", f"{words} {closed}", call=partial(_piped, line=f"{words} {closed}"), wanted="accepted")
    for words in ("runs list", "spaces"):
        yield Case(
            "streams", f"{words} to a full device", call=partial(_piped, line=f"{words} >/dev/full"), wanted="either"
        )
        yield Case(
            "streams", f"{words} to nobody", call=partial(_piped, line=f"{words} | head -n 0"), wanted="accepted"
        )


def _piped(_: Path, line: str) -> int:
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m archwright {line}"], capture_output=True, text=True, check=False
    )
    print(done.stderr, file=sys.stderr)
    return 2 if "No space left" in done.stderr or "the disk is full" in done.stderr else done.returncode
