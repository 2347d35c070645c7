from __future__ import annotations

from pathlib import Path

import torch

from archwright.runs.checkpoints import Checkpoints, CheckpointStore


def saved(folder: Path, positions: range, keep: int = 2) -> Checkpoints:
    store = Checkpoints(folder, keep)
    for position in positions:
        store.save(position, {"step": position, "weight": torch.full((3,), float(position))})
    return store


def test_it_is_a_checkpoint_store(tmp_path: Path) -> None:
    assert isinstance(Checkpoints(tmp_path), CheckpointStore)


def test_nothing_is_found_in_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "none").latest() is None


def test_the_newest_is_found_and_the_oldest_are_dropped(tmp_path: Path) -> None:
    saved(tmp_path, range(8, 12))  # 9 and 10 sort as numbers, not as text
    found = Checkpoints(tmp_path).latest()
    assert found is not None
    position, tree = found
    assert position == 11
    assert tree["weight"].tolist() == [11, 11, 11]
    assert sorted(int(path.stem) for path in tmp_path.iterdir()) == [10, 11]


def test_a_truncated_newest_one_falls_back_to_the_one_before_and_says_so(tmp_path: Path) -> None:
    saved(tmp_path, range(1, 3))
    newest = tmp_path / "000000002.safetensors"
    newest.write_bytes(newest.read_bytes()[:-20])
    store = Checkpoints(tmp_path)
    found = store.latest()
    assert found is not None
    assert found[0] == 1
    assert len(store.warnings) == 1
    assert "000000002.safetensors" in store.warnings[0]
    assert "The one before it is used" in store.warnings[0]


def test_nothing_whole_is_nothing(tmp_path: Path) -> None:
    saved(tmp_path, range(1, 3))
    for path in tmp_path.iterdir():
        path.write_bytes(b"")
    store = Checkpoints(tmp_path)
    assert store.latest() is None
    assert len(store.warnings) == 2


def test_what_a_kill_left_aside_is_no_checkpoint_and_is_swept(tmp_path: Path) -> None:
    store = saved(tmp_path, range(1, 2))
    aside = tmp_path / ".000000002.safetensors.4711.tmp"
    aside.write_bytes(b"half")
    found = store.latest()
    assert found is not None
    assert found[0] == 1
    store.save(3, {"step": 3})
    assert not aside.exists()


def test_clear_forgets_all(tmp_path: Path) -> None:
    store = saved(tmp_path, range(1, 4))
    store.clear()
    assert store.latest() is None
