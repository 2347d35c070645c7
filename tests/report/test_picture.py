from __future__ import annotations

import itertools
import xml.etree.ElementTree as ET
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from PIL import Image

from archwright.errors import InputError
from archwright.report.picture import MARK, _apart, draw_front
from archwright.search.engine import search


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictured") / "run"
    search("random", data="digits", run=folder, evaluations=3, epochs=1, final_epochs=1, channels=2, cells=1)
    return folder


def test_a_picture_has_every_network_and_says_who_drew_it(run: Path, tmp_path: Path) -> None:
    drawn = draw_front(run, tmp_path / "front.svg")
    text = drawn.read_text()
    assert MARK in text
    assert ET.fromstring(text).tag.endswith("svg")
    image = Image.open(draw_front(run, tmp_path / "front.png"))
    assert image.info["Software"] == MARK
    assert image.size == (1080, 540)
    draw_front(run, tmp_path / "front.png")  # one of ours is drawn again


def test_what_is_something_else_is_not_replaced_and_formats_are_known(run: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.png").write_bytes(b"mine")
    with pytest.raises(InputError, match="overwrite"):
        draw_front(run, tmp_path / "mine.png")
    assert (tmp_path / "mine.png").read_bytes() == b"mine"
    draw_front(run, tmp_path / "mine.png", overwrite=True)
    with pytest.raises(InputError, match=r"\.svg"):
        draw_front(run, tmp_path / "front.gif")


def test_labels_do_not_lie_over_each_other() -> None:
    figure, axis = plt.subplots(figsize=(4, 3))
    axis.set_xlim(0, 10)
    axis.set_ylim(0, 1)
    own = {"xytext": (0, 8), "textcoords": "offset points", "ha": "center"}
    labels = [axis.annotate("99.4 % on test", (x, 0.5), **own) for x in (5.2, 5.0, 5.1, 0.5)]
    renderer = figure.canvas.get_renderer()
    _apart(labels, renderer)
    extents = [one.get_window_extent(renderer) for one in labels]
    assert not any(one.overlaps(other) for one, other in itertools.combinations(extents, 2))
    assert labels[1].xyann == labels[3].xyann == (0, 8), "the first from the left, and one apart, stay"
    plt.close(figure)
