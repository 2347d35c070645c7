from __future__ import annotations

import errno
import json
import os
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors import safe_open

from archwright.errors import RunError
from archwright.runs.files import (
    JsonLines,
    load_tree,
    load_weights,
    read_json,
    read_metadata,
    save_tree,
    save_weights,
    share_file,
    stored_elements,
    write_atomic,
    write_json,
)

# --- atomic files and JSON -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("broken", ["os.fsync", "archwright.runs.disk.rename"])
def test_a_failed_write_keeps_the_old_file_and_leaves_nothing_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    path = tmp_path / "value.json"
    write_json(path, {"a": 1})

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(broken, full)
        with pytest.raises(OSError, match="No space left"):
            write_json(path, {"a": 2})
    assert read_json(path) == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["value.json"]


def test_write_atomic_makes_folders(tmp_path: Path) -> None:
    write_atomic(tmp_path / "a" / "b" / "c.bin", b"123")
    assert (tmp_path / "a" / "b" / "c.bin").read_bytes() == b"123"


@pytest.mark.parametrize("content", [b'{"a": ', b"\xff\xfe\x00"])
def test_damaged_json_is_an_error_that_names_the_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "stage.json"
    path.write_bytes(content)
    with pytest.raises(RunError, match=r"stage\.json"):
        read_json(path)


# --- logs ------------------------------------------------------------------------------------------------------------


def test_lines_come_back_in_order(tmp_path: Path) -> None:
    log = JsonLines(tmp_path / "sub" / "log.jsonl")
    assert list(log) == []
    records = [{"n": n, "text": "x" * n} for n in range(5)]
    for record in records:
        log.append(record)
    assert list(JsonLines(log.path)) == records


@pytest.mark.parametrize("torn", ['{"n": 1', '{"n": 1}', "\0" * 5000, '{"long": "' + "y" * 10_000])
def test_a_torn_last_line_is_dropped_and_then_cut_off(tmp_path: Path, torn: str) -> None:
    log = JsonLines(tmp_path / "log.jsonl")
    log.append({"n": 0})
    with log.path.open("a") as file:
        file.write(torn)  # no newline: the process died in the middle
    assert list(log) == [{"n": 0}]
    log.append({"n": 2})
    assert list(log) == [{"n": 0}, {"n": 2}]
    assert log.path.read_text() == '{"n": 0}\n{"n": 2}\n'


def test_a_log_of_one_torn_line_starts_anew(tmp_path: Path) -> None:
    log = JsonLines(tmp_path / "log.jsonl")
    log.path.write_text('{"n"')
    log.append({"n": 1})
    assert list(log) == [{"n": 1}]


@pytest.mark.parametrize("line", ["not json\n", b"\xff\xfe{}\n"])
def test_a_damaged_line_in_the_middle_is_an_error_that_names_it(tmp_path: Path, line: str | bytes) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"n": 0}\n' + (line.encode() if isinstance(line, str) else line) + b'{"n": 2}\n')
    with pytest.raises(RunError, match=r"line 2 of .*log\.jsonl"):
        list(JsonLines(path))


def test_a_failed_sync_leaves_the_log_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = JsonLines(tmp_path / "log.jsonl")
    log.append({"n": 0})

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            log.append({"n": 1})
    assert log.path.read_text() == '{"n": 0}\n'
    log.append({"n": 2})
    assert list(log) == [{"n": 0}, {"n": 2}]


def test_a_write_cut_short_by_the_system_leaves_the_log_whole(tmp_path: Path) -> None:
    """The kernel takes ten bytes of the line and refuses the rest, as a full disk does."""
    log = JsonLines(tmp_path / "log.jsonl")
    log.append({"n": 0})
    size = log.path.stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, hard))
    try:
        with pytest.raises(OSError) as caught:
            log.append({"text": "a line of more than ten bytes"})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.errno == errno.EFBIG
    assert log.path.stat().st_size == size
    assert list(log) == [{"n": 0}]


# --- trees -----------------------------------------------------------------------------------------------------------

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool]
shapes = st.lists(st.integers(0, 3), max_size=3).map(tuple)
tensors = st.builds(
    lambda shape, dtype, seed, transposed: (
        torch.randint(0, 9, shape, generator=torch.Generator().manual_seed(seed)).to(dtype).T
        if transposed and len(shape) == 2
        else torch.randint(0, 9, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
    ),
    shapes,
    st.sampled_from(DTYPES),
    st.integers(0, 99),
    st.booleans(),
)
arrays = hnp.arrays(st.sampled_from([np.float64, np.float32, np.int64, np.uint8, np.bool_]), shapes)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
keys = st.text(max_size=5) | st.integers(-3, 9) | st.sampled_from(["__tensor__", "__array__", "__tuple__", "__pairs__"])
trees = st.recursive(
    scalars | tensors | arrays,
    lambda inner: (
        st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple) | st.dictionaries(keys, inner, max_size=3)
    ),
    max_leaves=12,
)


def same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and bool(torch.equal(a, b))
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(tree=trees)
def test_a_tree_comes_back_as_it_was(tmp_path: Path, tree: Any) -> None:
    path = tmp_path / "tree.safetensors"
    save_tree(path, tree)
    assert same(load_tree(path), tree)


def test_a_tree_does_not_share_memory_with_what_was_saved(tmp_path: Path) -> None:
    shared = torch.zeros(4)
    save_tree(tmp_path / "t.safetensors", {"a": shared, "b": shared[:2]})
    loaded = load_tree(tmp_path / "t.safetensors")
    loaded["a"] += 1
    assert loaded["b"].tolist() == [0, 0]


def test_numpy_scalars_become_plain_ones(tmp_path: Path) -> None:
    save_tree(tmp_path / "t.safetensors", {"a": np.int64(3), "b": np.float32(0.5), "c": np.bool_(True)})
    assert load_tree(tmp_path / "t.safetensors") == {"a": 3, "b": 0.5, "c": True}


def test_other_objects_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="not set"):
        save_tree(tmp_path / "t.safetensors", {"a": {1, 2}})
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_truncated_or_altered_tree_is_an_error_that_names_it(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "tree.safetensors"
    save_tree(path, {"weight": torch.arange(12.0).reshape(3, 4), "step": 7, "history": [{"loss": 0.5}]})
    content = bytearray(path.read_bytes())
    position = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        path.write_bytes(content[:position])
    else:
        content[position] ^= 1 << data.draw(st.integers(0, 7))
        path.write_bytes(content)
    with pytest.raises(RunError, match=r"tree\.safetensors"):
        load_tree(path)


def test_weights_with_the_same_metadata_are_the_same_bytes(tmp_path: Path) -> None:
    facts = {f"key {number}": "ä" * number for number in range(9)}
    state = {
        "weight": torch.arange(6.0).reshape(2, 3),
        "count": torch.tensor(3),
        "none": torch.zeros(0, dtype=torch.int8),
    }
    files = [tmp_path / f"{number}.safetensors" for number in range(4)]
    for number, file in enumerate(files):
        turned = dict(list(facts.items())[:: -1 if number % 2 else 1])
        save_weights(file, state, turned)
    assert len({file.read_bytes() for file in files}) == 1
    assert read_metadata(files[0]) == facts
    assert stored_elements(files[0]) == 7
    with safe_open(files[0], framework="pt") as opened:
        assert torch.equal(opened.get_tensor("weight"), state["weight"])
        assert opened.get_tensor("count") == 3
    module = torch.nn.Module()
    module.register_parameter("weight", torch.nn.Parameter(torch.zeros(2, 3)))
    module.register_buffer("count", torch.tensor(0))
    module.register_buffer("none", torch.ones(0, dtype=torch.int8))
    load_weights(module, files[0])
    assert module.get_buffer("count") == 3


def test_metadata_of_something_else_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "notes.safetensors"
    path.write_text(json.dumps({"a": 1}))
    with pytest.raises(RunError, match=r"notes\.safetensors"):
        read_metadata(path)


def test_a_shared_file_is_one_file_or_else_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "source"
    source.write_text("first")
    share_file(source, tmp_path / "new" / "linked")
    assert source.samefile(tmp_path / "new" / "linked")

    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    share_file(source, tmp_path / "copied")
    assert (tmp_path / "copied").read_text() == "first"
    assert not source.samefile(tmp_path / "copied")


def test_sharing_leaves_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "source").write_text("new")
    (tmp_path / "target").write_text("old")
    share_file(tmp_path / "source", tmp_path / "target")
    assert (tmp_path / "target").read_text() == "old"
