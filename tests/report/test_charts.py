from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from archwright.report.charts import MOST_POINTS, Mark, bars, lines, scatter, ticks


def picture(text: str) -> ET.Element:
    return ET.fromstring(text[text.index("<svg") : text.index("</svg>") + 6])


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-3.2, 7.9), (93.1, 93.2), (1e-6, 3e-6), (0, 123456)])
def test_ticks_are_round_and_inside(low: float, high: float) -> None:
    found = ticks(low, high)
    assert 3 <= len(found) <= 8
    assert all(low - 1e-9 <= value <= high + 1e-9 for value in found)
    step = found[1] - found[0]
    assert f"{step:e}"[0] in "1259"  # 1, 2 or 5 times a power of ten, but for rounding


def test_points_stand_where_their_numbers_are_and_say_them() -> None:
    root = picture(scatter("t", [Mark(1, 10, "a <b>"), Mark(3, 30, "c", "chosen"), Mark(2, 20, "d")], "x", "y"))
    circles = root.findall("circle")
    assert [one.get("aria-label") for one in circles] == ["a <b>", "d", "c"]  # chosen ones last, so on top
    xs, ys = ([float(one.get(key)) for one in circles] for key in ("cx", "cy"))
    assert xs[0] < xs[1] < xs[2]
    assert ys[0] > ys[1] > ys[2]
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.2)
    assert all(one.get("tabindex") == "0" for one in circles)


def test_limits_are_lines_within_the_picture_and_said_aloud() -> None:
    root = picture(scatter("t", [Mark(1, 10, "a"), Mark(1.5, 12, "b", "beside")], "ms", "y", limits=[1.2, 4.0]))
    (a, b), (near, far) = (
        [float(one.get(key)) for one in root.findall(kind) if one.get("class") != "grid"]
        for kind, key in (("circle", "cx"), ("line", "x1"))
    )
    assert a < near < b < far < 640
    assert [one.text for one in root.findall("text") if "limit" in (one.text or "")] == ["limit 1.2", "limit 4"]
    assert root.get("aria-label") == "t: 2 points, ms from 1 to 1.5, y from 10 to 12, limits at 1.2, 4"


def test_lines_are_said_aloud() -> None:
    root = picture(lines("losses", {"one": [(1, 5.0), (2, 4.0)]}, "epoch", "loss"))
    assert root.get("aria-label") == "losses: loss by epoch; one: 4 at 2"


def test_long_lines_are_thinned_and_keep_their_ends() -> None:
    points = [(float(n), float(n % 7)) for n in range(5000)]
    root = picture(lines("t", {"one": points, "two": points[:2], "empty": []}, "x", "y"))
    drawn = [line.get("points").split() for line in root.findall("polyline")]
    assert [len(one) for one in drawn] == [MOST_POINTS, 2]
    assert [one.get("aria-label").partition(":")[0] for one in root.findall("circle")] == ["one", "two", "two"]


def test_an_axis_of_accuracies_makes_little_of_little() -> None:
    root = picture(scatter("t", [Mark(1, 99.6, "a"), Mark(2, 99.7, "b")], "ms", "test accuracy (%)"))
    low, high = (float(one.get("cy")) for one in root.findall("circle"))
    assert 0 < low - high < 20  # a tenth of two points, of a picture some 240 high
    numbers = [float(one.text) for one in root.findall("text") if one.get("text-anchor") == "end"]
    assert max(numbers) == 100
    wide = picture(scatter("t", [Mark(1, 50, "a"), Mark(2, 90, "b")], "ms", "test accuracy (%)"))
    low, high = (float(one.get("cy")) for one in wide.findall("circle"))
    assert low - high > 200


def test_constant_and_single_values_have_axes() -> None:
    assert "nan" not in lines("t", {"one": [(1.0, 5.0)]}, "x", "y").lower()
    assert "nan" not in scatter("t", [Mark(0, 0, "zero")], "x", "y").lower()


def test_bars_are_shares_of_the_most() -> None:
    text = bars([("a", 50.0, "50 %", True), ("<b>", 200.0, "", False)], 100.0)
    assert "width:50.0%" in text
    assert "width:100.0%" in text
    assert "<b>" not in text
    assert "interval" not in text
    text = bars([("a", 50.0, "50 %", True)], 100.0, [(40.0, 65.0)])
    assert 'class="interval" style="left:40.0%;width:25.0%"' in text


def test_whole_numbers_have_whole_ticks() -> None:
    root = picture(lines("t", {"one": [(1, 5.0), (2, 6.0)]}, "epoch", "loss"))
    below = [text.text for text in root.findall("text") if text.get("text-anchor") == "middle"]
    assert below == ["1", "2", "epoch", "loss"]


def test_percents_end_at_all() -> None:
    root = picture(scatter("t", [Mark(1, 99.0, "a"), Mark(2, 99.9, "b")], "x", "accuracy (%)"))
    numbers = [float(text.text) for text in root.findall("text") if text.get("text-anchor") == "end"]
    assert max(numbers) <= 100
    beyond = picture(scatter("t", [Mark(1, 99.0, "a"), Mark(2, 250.0, "b")], "x", "accuracy (%)"))
    assert any(float(text.text) > 100 for text in beyond.findall("text") if text.get("text-anchor") == "end")
