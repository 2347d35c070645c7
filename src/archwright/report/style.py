"""The page's looks and its little script: light and dark, phone and wide screen, print, keyboard."""

from __future__ import annotations

import base64
import hashlib

CSS = """
:root { color-scheme: light dark; --ink: #17212b; --soft: #50606f; --paper: #f6f8fb; --card: #ffffff; --line: #d5dde6;
  --accent: #0b63c4; --good: #1d7f3f; --warn: #9a4b00; --s0: #0b63c4; --s1: #b3441e; --s2: #1d7f3f; --s3: #7a3db8;
  --s4: #8a6a00; --s5: #0b7a83; }
@media screen and (prefers-color-scheme: dark) { :root { --ink: #e8eef5; --soft: #a9b8c7; --paper: #10161d;
  --card: #1a232d; --line: #33404e; --accent: #7db7ff;
  --good: #6fd08c; --warn: #ffb066; --s0: #7db7ff; --s1: #ff9d7a; --s2: #6fd08c;
  --s3: #c9a1ff; --s4: #e5c95c; --s5: #63d4dd; }
  .drawing > svg, .plot { filter: invert(1) hue-rotate(180deg); mix-blend-mode: screen; } }
* { box-sizing: border-box; }
body { font: 16px/1.55 system-ui, -apple-system, "Segoe UI", sans-serif; color: var(--ink); background: var(--paper);
  margin: 0; }
main { max-width: 68rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.5rem; margin: .5rem 0; } h2 { font-size: 1.15rem; margin: 0 0 .6rem; }
h3 { font-size: 1rem; margin: 1rem 0 .4rem; } p { margin: .5rem 0; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 1rem; margin: 1rem 0; }
.big { font-size: 2.1rem; font-weight: 650; line-height: 1.1; } .soft { color: var(--soft); font-size: .92rem; }
.facts { display: flex; flex-wrap: wrap; gap: 1rem 2.2rem; margin: .6rem 0; }
.facts div span { display: block; color: var(--soft); font-size: .85rem; }
.warn { border-left: 4px solid var(--warn); padding-left: .8rem; } .wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .95rem; } th, td { text-align: left; padding: .3rem .9rem .3rem 0;
  border-bottom: 1px solid var(--line); vertical-align: top; } .rows th, .rows td { white-space: nowrap; }
th { font-weight: 600; } .bars { width: 100%; } .bars th { min-width: 7rem; } .barcell { width: 55%; }
.bar { display: inline-block; height: .8rem; background: var(--soft); border-radius: 3px; }
.chosen-bar { background: var(--accent); } .raise-bar { background: var(--s1); }
.middle { background: linear-gradient(var(--line), var(--line)) center / 1px 100% no-repeat; }
.bars .barcell { line-height: 1; vertical-align: middle; padding: .3rem 0; position: relative; }
.interval { position: absolute; top: calc(50% - 1px); height: 2px; background: var(--s1); }
.bars td:last-child { padding-left: .9rem; }
pre { background: var(--paper); border: 1px solid var(--line); border-radius: 6px; padding: .7rem; overflow-x: auto; }
code { font-family: ui-monospace, "Cascadia Mono", Menlo, monospace; font-size: .9rem; overflow-wrap: anywhere; }
a { color: var(--accent); } .drawing { border-radius: 6px; margin: 0; overflow-x: auto; }
.drawing img, .plot { max-width: 100%; } .chart { width: 100%; max-width: 46rem; min-width: 22rem; height: auto; }
.chart text { fill: var(--soft); font-size: 12px; } .grid { stroke: var(--line); stroke-width: 1; }
.point { fill: var(--soft); opacity: .75; } .chosen { fill: var(--accent); stroke: var(--card); stroke-width: 2; }
.chart .named { paint-order: stroke; stroke: var(--card); stroke-width: 5px; }
.beside { fill: var(--card); stroke: var(--s1); stroke-width: 2.5; }
.limit { stroke: var(--s1); stroke-width: 1.5; stroke-dasharray: 2 4; }
.front { fill: none; stroke: var(--soft); stroke-width: 1.5; stroke-dasharray: 4 3; }
.behind { fill: none; stroke: var(--line); stroke-width: 1.2; }
.line { fill: none; stroke-width: 2; } .s0 { stroke: var(--s0); fill: var(--s0); }
.s1 { stroke: var(--s1); fill: var(--s1); }
.s2 { stroke: var(--s2); fill: var(--s2); } .s3 { stroke: var(--s3); fill: var(--s3); }
.s4 { stroke: var(--s4); fill: var(--s4); } .s5 { stroke: var(--s5); fill: var(--s5); } .line.s0, .line.s1, .line.s2,
.line.s3, .line.s4, .line.s5 { fill: none; }
circle:focus-visible { outline: none; stroke: var(--ink); stroke-width: 3; }
.chart circle { cursor: default; }
.legend { display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; list-style: none; padding: 0; margin: .2rem 0; }
p, li { overflow-wrap: anywhere; }
.legend li { min-width: 0; }
.key { display: inline-block; width: .9rem; height: .9rem; border-radius: 3px; margin-right: .4rem; }
.key.s0 { background: var(--s0); } .key.s1 { background: var(--s1); } .key.s2 { background: var(--s2); }
.key.s3 { background: var(--s3); } .key.s4 { background: var(--s4); } .key.s5 { background: var(--s5); }
.matrix td, .matrix th { padding: .15rem .4rem; text-align: right; border: 1px solid var(--line); min-width: 2rem; }
.matrix { font-size: .85rem; font-variant-numeric: tabular-nums; } .matrix tbody th { text-align: left; }
.matrix th span { display: inline-block; max-width: 7rem; overflow: hidden; text-overflow: ellipsis; }
.hit { background: color-mix(in srgb, var(--good) calc(40% * var(--share)), transparent); }
.miss { background: color-mix(in srgb, var(--s1) calc(14% + 40% * min(1, 2 * var(--share))), transparent); }
.thumbs { display: grid; grid-template-columns: repeat(auto-fill, minmax(9rem, 1fr)); gap: .9rem; }
.thumb { margin: 0; font-size: .88rem; overflow-wrap: anywhere; } .thumb span { display: block; }
.thumb img { width: 96px; height: 96px; object-fit: contain; image-rendering: pixelated; border-radius: 6px;
  border: 1px solid var(--line); display: block; margin-bottom: .3rem; }
.said { min-height: 1.4rem; margin: .1rem 0; color: var(--soft); font-size: .92rem; } summary { cursor: pointer; }
@media print { body { background: #fff; } section { break-inside: avoid; border: 0; padding: 0; }
  pre { white-space: pre-wrap; } .bar { print-color-adjust: exact; } }
@media (max-width: 40rem) { .chart { min-width: 20rem; } .chart text { font-size: 18px; }
  main { padding: .5rem; } section { padding: .8rem; } .barcell { width: 30%; } th, td { padding-right: .5rem; } }
"""

SCRIPT = """
'use strict';
(function () {
  function say(event) {
    var mark = event.target.closest ? event.target.closest('.chart circle') : null;
    var said = mark && mark.closest('.wide').nextElementSibling;
    if (said) said.textContent = mark.getAttribute('aria-label');
  }
  document.addEventListener('mouseover', say);
  document.addEventListener('focusin', say);
  addEventListener('beforeprint', function () {
    document.querySelectorAll('details').forEach(function (one) { one.open = true; });
  });
})();
"""
"""Writes what a hovered or focused point says below its chart; without it the browser's own tooltips remain. Paper
shows what is folded away on the screen.
"""

_HASH = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
POLICY = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{_HASH}'; base-uri 'none'"
"""The browser lets a page load nothing and run no script but ours, whatever the files of its run say."""


GENERATOR = '<meta name="generator" content="Archwright">'
"""In the head of every page that we write."""
MARK = GENERATOR.encode()


def page(title: str, body: str) -> str:
    """A whole document without outside parts; ``title`` and ``body`` are HTML.

    Names of files that are no UTF-8 are shown with their escapes.
    """
    text = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"{GENERATOR}"
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>{title}</title><style>{CSS}</style></head><body><main>{body}</main><script>{SCRIPT}</script></body></html>"
    )
    return text.encode(errors="backslashreplace").decode()
