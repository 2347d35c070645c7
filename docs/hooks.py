"""What the site has beside the files of this folder: CONTRIBUTING, CHANGELOG, a page an example, a table of columns.

Pages link to these where they lie in the repository (``../CONTRIBUTING.md``, ``../examples/NAME.py``), so that links
work in the repository, too; here they are pointed at the site's pages.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from archwright.formats import FORMATS, INT8
from archwright.report.columns import COLUMNS

ROOT = Path(__file__).parents[1]
OUTSIDE = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
TOOLS = {"make_notebooks.py"}
"""Scripts in the folder of examples that are none."""

FORMATS_HERE = "<!-- the formats -->"
"""Where a page has a row for each format of an exported file."""
COLUMNS_HERE = "<!-- the columns of the table of models -->"
"""Where a page has a row for each of them."""


def example_pages() -> dict[str, str]:
    """Page of the site -> text, for each example that is a script."""
    pages = {}
    every = {*(ROOT / "examples").glob("*.py"), *(ROOT / "examples" / "tutorials").glob("*.py")}
    for path in sorted(every - {ROOT / "examples" / name for name in TOOLS}):
        code, name = path.read_text(), path.relative_to(ROOT).with_suffix("")
        summary = (ast.get_docstring(ast.parse(code)) or path.name).splitlines()[0].partition(": python")[0]
        pages[f"{name}.md"] = f"# {summary}\n\n`{name}.py`\n\n```python\n{code}```\n"
    return pages


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie elsewhere."""
    outside = {page: (ROOT / name).read_text() for name, page in OUTSIDE.items()}
    for page, text in {**outside, **example_pages()}.items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links out of ``docs/``, and into it from outside, at the site's pages; list what the program declares."""
    if page.file.src_uri in OUTSIDE.values():
        return markdown.replace("](docs/", "](")
    for name, target in OUTSIDE.items():
        markdown = markdown.replace(f"](../{name}", f"]({target}")
    for target in example_pages():
        markdown = markdown.replace(f"](../{target.removesuffix('.md')}.py", f"]({target}")
    columns = "".join(f"| {one.head} | {one.meaning} |\n" for one in COLUMNS)
    formats = "".join(
        f"| `{suffix}` | {one.name} | {one.runs} | {'yes' if suffix in INT8 else 'no'} | "
        f"{f'`archwright[{one.needs}]`' if one.needs else 'nothing'} |\n"
        for suffix, one in FORMATS.items()
    )
    head = "| ending | format | runs in | int8 | writing needs |\n|---|---|---|---|---|\n"
    markdown = markdown.replace(FORMATS_HERE, head + formats)
    return markdown.replace(COLUMNS_HERE, f"| column | what it says |\n|---|---|\n{columns}")


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Docstrings without what only other tools read: roles (``:func:``) and flags of doctests."""
    html = re.sub(r":(?:func|class|meth|mod|attr|data):<code>~?([^<]*)</code>", r"<code>\1</code>", html)
    return re.sub(r"\s*<span class=\"c1\"># doctest: \+SKIP</span>|\s+# doctest: \+SKIP", "", html)
