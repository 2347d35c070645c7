"""Loading executes nothing: what a file names is imported only where its reader allows it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from archwright.data.preprocessing import Preprocessing
from archwright.ensembles import Ensemble
from archwright.errors import InputError
from archwright.imports import check_shape, file_of
from archwright.models import Model, load_model
from archwright.references import ObjectRef
from archwright.spaces.base import Scale
from archwright.spaces.registry import find_space
from helpers.hostile_files import NET, saved_model


def with_space(path: Path, space: str) -> None:
    """Another space in the header of the model at ``path``."""
    facts = {**json.loads(path.with_suffix(".json").read_text()), "space": space}
    save_file(load_file(path), path, metadata={"archwright": json.dumps(facts)})


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The program in a process of its own, in ``folder``."""
    command = [sys.executable, "-m", "archwright", *arguments]
    return subprocess.run(command, cwd=folder, env=os.environ, capture_output=True, text=True, check=False)


@pytest.fixture
def thinned(tmp_path: Path) -> Path:
    """A folder with a model of a user's own thinned network, ``net.py`` that makes it, and an image."""
    (tmp_path / "net.py").write_text(NET.format(mark=str(tmp_path / "ran")))
    space = find_space(f"width:{tmp_path / 'net.py'}:make").at_scale(
        Scale(channels=1, cells=1, classes=2, image_size=8, image_channels=1)
    )
    how = Preprocessing(8, 1, (0.5,), (0.2,), ("a", "b"))
    Model(space.build(space.full, space.scale), "width:net.py:make", space.full, space.scale, how).save(
        tmp_path / "m.safetensors"
    )
    Image.new("L", (8, 8), 100).save(tmp_path / "image.png")
    (tmp_path / "ran").unlink()
    return tmp_path


def test_predict_imports_what_a_model_names_only_when_it_may(thinned: Path) -> None:
    refused = run(thinned, "predict", "m.safetensors", "image.png")
    assert refused.returncode == 2, refused.stderr
    assert f"permission to run {thinned / 'net.py'}" in refused.stderr
    assert "--allow-import" in refused.stderr
    assert not (thinned / "ran").exists()
    allowed = run(thinned, "predict", "m.safetensors", "image.png", "--allow-import")
    assert allowed.returncode == 0, allowed.stderr
    assert "Importing net.py:make, which the model in m.safetensors names" in allowed.stderr
    assert (thinned / "ran").exists()


def test_a_member_of_an_ensemble_is_held_to_the_same(thinned: Path) -> None:
    code = (
        "import sys, archwright as aw; m = aw.load_model('m.safetensors', allow_import=True); "
        "aw.Ensemble((m, m)).save('both')"
    )
    subprocess.run([sys.executable, "-c", code], cwd=thinned, env=os.environ, check=True)
    (thinned / "ran").unlink()
    refused = run(thinned, "predict", "both", "image.png")
    assert (refused.returncode, (thinned / "ran").exists()) == (2, False), refused.stderr
    assert run(thinned, "predict", "both", "image.png", "--allow-import").returncode == 0


def test_what_the_user_named_in_this_process_needs_no_second_permission(thinned: Path) -> None:
    text = f"width:{thinned / 'net.py'}:make"
    find_space(text).at_scale(Scale(channels=1, cells=1, classes=2, image_size=8, image_channels=1)).whole()
    with_space(thinned / "m.safetensors", text)
    assert isinstance(load_model(thinned / "m.safetensors"), Model)


@pytest.mark.parametrize(
    "space",
    [
        "width:os:abort",
        "width:os:_exit",
        "width:subprocess:run",
        "os:abort",
        "width:os.path:join",
        "width:builtins:exit",
    ],
)
@pytest.mark.parametrize("allow", [False, True])
def test_the_standard_library_is_refused_by_shape(space: str, allow: bool, tmp_path: Path) -> None:
    saved_model(tmp_path / "m.safetensors")
    with_space(tmp_path / "m.safetensors", space)
    with pytest.raises(InputError, match="of Python's standard library"):
        load_model(tmp_path / "m.safetensors", allow_import=allow)


@pytest.mark.parametrize("text", ["", ":", "a:", ":b", "a b:c", "a:b c", "a-b:c", "../x:y", "a:b()", "a\0.py:b", "1:2"])
def test_other_shapes_are_refused(text: str) -> None:
    with pytest.raises(InputError):
        check_shape(ObjectRef.find(text) or ObjectRef("", ""), "network")


def test_a_command_refuses_a_network_of_the_standard_library(tmp_path: Path) -> None:
    refused = run(
        tmp_path, "search", "rarts-width", "--network", "os:abort", "--data", "digits", "--keep-channels", "0.5"
    )
    assert refused.returncode == 2, refused.stderr
    assert "standard library" in refused.stderr


def test_the_file_that_would_run_is_named_without_running_it(tmp_path: Path, monkeypatch: Any) -> None:
    package = tmp_path / "owner" / "inner"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").write_text("raise SystemExit('imported')")
    (package / "nets.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    assert file_of("owner.inner.nets") == str(package / "nets.py")
    assert file_of("owner") == str(tmp_path / "owner" / "__init__.py")
    assert file_of("nets.py") == str(tmp_path / "nets.py")
    assert "not found here" in file_of("owner.other")
    assert "not found here" in file_of("no_such_module_at_all")


def test_an_ensemble_in_memory_is_as_before(tmp_path: Path) -> None:
    model = saved_model(tmp_path / "m.safetensors")
    Ensemble((model, model)).save(tmp_path / "both")
    both = load_model(tmp_path / "both")
    x = torch.zeros(1, 1, 8, 8)
    assert torch.allclose(both.probabilities(x), model.probabilities(x))
