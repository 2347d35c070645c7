"""What files and arguments say is shown, and never obeyed."""

from __future__ import annotations

import pytest

from archwright.terminal import say, shortened, show_table, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("x [/photo].jpg", "x [/photo].jpg"),
        ("[red]a[/red] :smile:", "[red]a[/red] :smile:"),
        ("größe 猫 🐈", "größe 猫 🐈"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("two\nlines\tand\rmore\x00", "two\\nlines\\tand\\rmore\\x00"),
        ("\udcff", "\\udcff"),
        ("photo\u202egnp.exe", "photo\\u202egnp.exe"),
        ("\x9b31m", "\\x9b31m"),
    ],
)
def test_names_are_printed_as_they_are_and_escapes_made_visible(
    text: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert visible(text) == shown
    say(text)
    assert capsys.readouterr().out == shown + "\n"
    show_table(("name", "[b]head"), [(text, "x")], title=text)
    out = capsys.readouterr().out
    assert out.count(shown) == 2
    assert "[b]head" in out


def test_a_table_is_never_cut(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["a" * 300, "b" * 90]
    show_table(("run", "status"), [(name, "finished") for name in names])
    out = capsys.readouterr().out
    assert all(any(name in line for line in out.splitlines()) for name in names)
    assert "…" not in out


def test_long_messages_are_one_screen() -> None:
    lines = shortened("\n".join(f"line {number}" for number in range(100))).splitlines()
    assert len(lines) == 8
    assert lines[-1] == "... and 93 more lines"
    long = shortened("a" * 100_000)
    assert len(long) < 1600
    assert "98,500 characters left out" in long
    assert shortened("short") == "short"
