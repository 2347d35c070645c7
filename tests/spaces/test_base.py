import numpy as np
import pytest

from archwright.errors import InputError
from archwright.spaces.base import Scale, check_one_hot
from archwright.spaces.darts import DARTS
from archwright.spaces.nasbench201 import NASBENCH201


def test_a_scale_round_trips_and_changes():
    scale = Scale(channels=16, cells=5, classes=7)
    assert Scale(**scale.to_dict()) == scale
    assert scale.changed(cells=2, image_size=None) == Scale(channels=16, cells=2, classes=7)
    with pytest.raises(InputError, match="image_size"):
        scale.changed(image_siz=3)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"channels": 0}, "channels"),
        ({"channels": 7}, "even"),
        ({"cells": 0}, "cells"),
        ({"classes": 0}, "classes"),
        ({"image_channels": 0}, "image_channels"),
        ({"image_size": 3}, "4 px"),
    ],
)
@pytest.mark.parametrize("space", [NASBENCH201, DARTS], ids=lambda space: space.name)
def test_an_impossible_scale_is_refused_before_building(space, change, named):
    architecture = space.sample(np.random.default_rng(0))
    scale = space.scales["small"].changed(**change)
    for action in (space.build, space.cost):
        with pytest.raises(InputError, match=named):
            action(architecture, scale)


def test_stems_and_image_sizes():
    small = DARTS.scales["small"]
    with pytest.raises(InputError, match="32 px"):
        DARTS.check_scale(small.changed(stem="imagenet", image_size=31))
    with pytest.raises(InputError, match="stem"):
        NASBENCH201.check_scale(small.changed(stem="imagenet", image_size=224))


def test_one_hot_arrays_are_checked():
    good = np.array([[1.0, 0.0]])
    assert check_one_hot("d", good, (1, 2)).dtype == np.int8
    for bad in (good.T, good * 0.5, good * np.nan, good * 2):
        with pytest.raises(InputError, match="'d'"):
            check_one_hot("d", bad, (1, 2))
