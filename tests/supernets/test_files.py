"""A supernet's file comes back whole, and does not fit anywhere else."""

import pytest
import torch

from archwright.errors import InputError, RunError
from archwright.spaces.base import Scale
from archwright.spaces.darts import DARTS
from archwright.spaces.nasbench201 import NASBENCH201
from archwright.supernets.cell import CellSupernet
from archwright.supernets.files import load_supernet, save_supernet

SCALE = Scale(channels=4, cells=1, image_size=8)


def test_a_cell_supernet_comes_back(tmp_path):
    torch.manual_seed(0)
    supernet, fresh = CellSupernet(NASBENCH201, SCALE), CellSupernet(NASBENCH201, SCALE)
    save_supernet(supernet, "images", tmp_path / "one.safetensors")
    load_supernet(tmp_path / "one.safetensors", fresh, "images")
    x, weights = torch.randn(4, 3, 8, 8), {"cell": torch.rand(6, 5)}
    assert torch.equal(supernet(x, weights), fresh(x, weights))


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (lambda: CellSupernet(NASBENCH201, SCALE.changed(channels=8)), "channels=8"),
        (lambda: CellSupernet(NASBENCH201, SCALE.changed(classes=3)), "classes=3"),
        (lambda: CellSupernet(NASBENCH201, SCALE, statistics="running"), "statistics=running"),
        (lambda: CellSupernet(NASBENCH201, SCALE, operations=["skip_connect", "nor_conv_3x3"]), "operations="),
        (lambda: CellSupernet(DARTS, SCALE.changed(cells=3)), "space=darts"),
    ],
)
def test_another_supernet_is_refused(other, words, tmp_path):
    save_supernet(CellSupernet(NASBENCH201, SCALE), "images", tmp_path / "one.safetensors")
    with pytest.raises(InputError, match=words):
        load_supernet(tmp_path / "one.safetensors", other(), "images")


def test_other_images_and_missing_or_damaged_files_are_refused(tmp_path):
    path = tmp_path / "one.safetensors"
    with pytest.raises(InputError, match="no file"):
        load_supernet(path, CellSupernet(NASBENCH201, SCALE), "images")
    save_supernet(CellSupernet(NASBENCH201, SCALE), "images", path)
    with pytest.raises(InputError, match="other images"):
        load_supernet(path, CellSupernet(NASBENCH201, SCALE), "others")
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(RunError, match="safetensors"):
        load_supernet(path, CellSupernet(NASBENCH201, SCALE), "images")
