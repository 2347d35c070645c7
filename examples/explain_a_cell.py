"""Why this cell? Width, depth, its place in the space, scores: python examples/explain_a_cell.py

On the command line: archwright analyze DARTS_V2 --compare enas --epochs 0
"""

# %% [markdown]
# Two published cells. A genotype, or a run whose best cell is taken, goes there as well.

# %%
from pathlib import Path

from archwright.analysis.named import find_cell
from archwright.analysis.page import AnalysisOptions, analyse, rows_of, write_page
from archwright.data.request import DataRequest
from archwright.runs.progress import Progress

cells = [find_cell("DARTS_V2"), find_cell("enas")]

# %% [markdown]
# `epochs=0` looks at structure and scores only, in seconds. With `epochs=4` a small network of each is trained, and its
# convergence, loss landscape and gradient variance are measured.

# %%
options = AnalysisOptions(DataRequest("digits", 0), epochs=0, channels=4, cells=3, sample=1000)
measured = analyse(cells, options, Progress())
for name, values in rows_of(measured).items():
    print(f"{name:<40}", *values, sep="  ")

# %% [markdown]
# The same as a page with the cells drawn, which opens from disk.

# %%
write_page(cells, measured, options, Path("cells.html"))
print("cells.html")
