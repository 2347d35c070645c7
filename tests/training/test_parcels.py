"""What is sent to other processes arrives as it was, also in memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from archwright.data import Batches
from archwright.data.request import DataRequest, load_data
from archwright.training.parcels import packed, unpacked

BLOCK = np.arange(2 * 8 * 8 * 3, dtype=np.uint8)


@pytest.mark.parametrize(
    "array",
    [
        BLOCK.reshape(2, 8, 8, 3).transpose(0, 3, 1, 2),
        BLOCK[:128].reshape(2, 8, 8, 1).transpose(0, 3, 1, 2),
        BLOCK.reshape(2, 3, 8, 8),
        BLOCK[::3],
        np.broadcast_to(BLOCK[:3], (4, 3)),
        np.zeros((0, 3)),
    ],
)
def test_arrays_keep_what_they_are_and_dense_ones_how_they_lie(array: np.ndarray) -> None:
    found = unpacked(packed(array))
    assert np.array_equal(found, array)
    if array.nbytes and array.base is not None and array.size == array.base.size:
        assert found.strides == array.strides


def test_batches_are_sent_without_their_images_which_lie_as_they_did() -> None:
    batches = Batches(load_data(DataRequest("digits", 0)), "train", 32, seed=1, indices=np.arange(64))
    data = packed(batches)
    assert len(data) < 10_000
    images, labels = batches.get(1, 1)
    there, same = unpacked(data).get(1, 1)
    assert torch.equal(images, there)
    assert torch.equal(labels, same)
    assert images.stride() == there.stride()
