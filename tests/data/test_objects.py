from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from archwright.data import Batches, ImageData, from_object, load
from archwright.data.kept import keep, load_kept
from archwright.data.request import DataRequest, load_data
from archwright.errors import InputError

RNG = np.random.default_rng(0)
X = RNG.integers(0, 256, (40, 8, 8, 3), dtype=np.uint8)
Y = np.arange(40) % 4


class Pictures(Dataset):
    """PIL images of different sizes, as torchvision's folders give them."""

    classes = ("ant", "bee", "cat", "dog")

    def __len__(self) -> int:
        return 20

    def __getitem__(self, number: int) -> tuple[Image.Image, int]:
        return Image.fromarray(X[number]).resize((16 + number, 20)), int(Y[number])


def all_pixels(data: ImageData) -> np.ndarray:
    return np.concatenate(
        [part.pixels(np.arange(len(part))).numpy() for part in (data.train, data.validation, data.test)]
    )


def test_arrays_are_what_an_archive_with_them_is(archive) -> None:
    ours, theirs = from_object((X, Y), seed=3), load(archive(x=X, y=Y), seed=3)
    assert ours.fingerprint == theirs.fingerprint
    assert np.array_equal(all_pixels(ours), all_pixels(theirs))
    assert (ours.mean, ours.std) == (theirs.mean, theirs.std)


def test_tensors_floats_and_lists_are_the_same_images() -> None:
    expected = from_object((X, Y)).fingerprint
    planar = X.transpose(0, 3, 1, 2)
    forms = [
        (torch.from_numpy(planar.copy()), torch.from_numpy(Y)),
        (planar.astype(np.float32) / 255, Y.tolist()),
        {"x": X, "y": Y},
        TensorDataset(torch.from_numpy(planar.copy()).float() / 255, torch.from_numpy(Y)),
    ]
    assert {from_object(form).fingerprint for form in forms} == {expected}


def test_a_second_pair_is_the_test_part() -> None:
    data = from_object((X, Y, X[:8], Y[:8]), split=(3, 1))
    assert (len(data.train), len(data.validation), len(data.test)) == (30, 10, 8)
    assert np.array_equal(data.test.pixels(np.arange(8)).numpy(), X[:8].transpose(0, 3, 1, 2))


def test_a_dataset_of_pictures_is_treated_like_a_folder(tmp_path: Path) -> None:
    pictures = Pictures()
    for number in range(len(pictures)):
        image, label = pictures[number]
        (tmp_path / Pictures.classes[label]).mkdir(exist_ok=True)
        image.save(tmp_path / Pictures.classes[label] / f"{number:02}.png")
    ours, theirs = from_object(pictures), load(f"folder:{tmp_path}")
    assert ours.class_names == theirs.class_names
    assert ours.image_size == theirs.image_size == 16
    key = lambda image: image.tobytes()  # noqa: E731 - both orders differ: folders are sorted by class
    assert sorted(map(key, all_pixels(ours))) == sorted(map(key, all_pixels(theirs)))
    both = from_object((pictures, pictures))
    assert len(both.test) == 20


def test_an_image_data_is_taken_as_it_is() -> None:
    data = load("digits")
    assert from_object(data) is data
    with pytest.raises(InputError):
        from_object(data, image_size=4)
    with pytest.raises(InputError):
        from_object(data, split=(1, 1, 1))


class Endless(IterableDataset):
    def __iter__(self):
        yield X[0], 0


class Odd(Dataset):
    def __init__(self, item: object) -> None:
        self.item = item

    def __len__(self) -> int:
        return 4

    def __getitem__(self, number: int) -> object:
        return self.item


@pytest.mark.parametrize(
    "bad",
    [
        3,
        None,
        "digits",
        X,
        (X,),
        (X, Y, X),
        (X, Y[:-1]),
        (X, Y + 0.5),
        (X, -Y),
        (X.astype(np.int64), Y),
        (X / 255.0 - 0.5, Y),
        (X[..., :2], Y),
        (X, ["a"] * 40),
        (X, Y, X[:4, :4], Y[:4]),
        ([[1, 2], [3]], [0, 1]),
        (object(), object()),
        {"images": X, "labels": Y},
        Endless(),
        Odd(X[0]),
        Odd((X[0], 0.5)),
        Odd((object(), 1)),
        TensorDataset(torch.zeros(0, 3, 8, 8), torch.zeros(0, dtype=torch.int64)),
        (Pictures(), Pictures(), Pictures(), Pictures()),
    ],
)
def test_anything_else_is_refused(bad: object) -> None:
    with pytest.raises(InputError):
        from_object(bad)


def test_kept_images_come_back_the_same(tmp_path: Path) -> None:
    data = from_object((X, Y, X[:8], Y[:8]), seed=2)
    keep(data, tmp_path / "data.npz")
    again = load_kept(tmp_path / "data.npz")
    assert again.fingerprint == data.fingerprint
    assert again.preprocessing == data.preprocessing
    assert np.array_equal(all_pixels(again), all_pixels(data))
    for split in ("train", "validation", "test"):
        ours, theirs = (Batches(one, split, 8, seed=5).get(1, 0) for one in (data, again))
        assert torch.equal(ours[0], theirs[0])
        assert torch.equal(ours[1], theirs[1])
    assert load_data(DataRequest(f"kept:{tmp_path / 'data.npz'}", 9)).fingerprint == data.fingerprint
    assert [path.name for path in tmp_path.iterdir()] == ["data.npz"]


def test_other_files_are_not_taken_for_kept_images(tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", x=X)
    for name in ("other.npz", "none.npz"):
        with pytest.raises(InputError, match=name.partition(".")[0]):
            load_kept(tmp_path / name)


def test_images_that_are_read_as_they_are_used_are_not_copied(image_folder, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr("archwright.data.image_files.MEMORY_LIMIT_BYTES", 0)
    data = load(f"folder:{image_folder({'a': 5, 'b': 5})}")
    with pytest.raises(InputError, match="folder:"):
        keep(data, tmp_path / "data.npz")


# --- objects of other packages ---


class FolderObject(Dataset):
    """As torchvision's ImageFolder, which this machine may not have: files, labels, a loader, and a transform."""

    def __init__(self, root: Path) -> None:
        self.root, self.classes = str(root), ["cat", "dog"]
        self.samples = [
            (str(path), label) for label, name in enumerate(self.classes) for path in sorted((root / name).iterdir())
        ]
        self.transform = lambda image: torch.full((3, 4, 4), 7.0)

    def loader(self, path: str) -> Image.Image:
        return Image.open(path).convert("RGB")

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        path, label = self.samples[number]
        return self.transform(self.loader(path)), label


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for number in range(12):
            pixels = rng.integers(0, 255, (20, 24, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "pets" / name / f"{number:02}.png")
    return tmp_path / "pets"


def test_an_image_folder_is_read_raw_as_the_folder_itself(pets: Path) -> None:
    """Its transform would have made every image the same."""
    found, folder = from_object(FolderObject(pets)), load(f"folder:{pets}")
    assert found.class_names == folder.class_names == ("cat", "dog")
    assert found.image_size == folder.image_size
    for part in ("train", "validation", "test"):
        one, other = (getattr(data, part) for data in (found, folder))
        numbers = np.arange(len(one))
        assert sorted(map(bytes, one.pixels(numbers).numpy())) == sorted(map(bytes, other.pixels(numbers).numpy()))


def test_hugging_face_tables_are_the_same_images(pets: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="needs the package datasets")
    paths = [str(path) for name in ("cat", "dog") for path in sorted((pets / name).iterdir())]
    kinds = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])})
    table = datasets.Dataset.from_dict({"image": paths, "label": [0] * 12 + [1] * 12}, features=kinds)
    found = from_object(table)
    assert found.fingerprint == from_object(FolderObject(pets)).fingerprint
    assert found.class_names == ("cat", "dog")
    parts = table.train_test_split(test_size=8, seed=0)
    assert isinstance(parts, datasets.DatasetDict)
    both = from_object(parts)
    assert len(both.test) == 8
    assert from_object((parts["train"], parts["test"])).fingerprint == both.fingerprint
    with pytest.raises(InputError, match="rename_column"):
        from_object(table.rename_column("label", "what").cast_column("what", datasets.Value("int64")))
    with pytest.raises(InputError, match="DatasetDict with train"):
        from_object(datasets.DatasetDict({"validation": table}))
