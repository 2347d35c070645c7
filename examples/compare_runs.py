"""Two searches side by side, in numbers and in one page: python examples/compare_runs.py"""

# %% [markdown]
# The same question to two methods: what is a good cell for these images, in so many evaluations?

# %%
from pathlib import Path

import archwright as aw
from archwright.report import report_comparison

small = {"space": "nasbench201", "data": "digits", "channels": 4, "cells": 1, "epochs": 1, "final_epochs": 1}
chance = aw.search("random", run="by-chance", evaluations=2, **small)
evolved = aw.search("evolution", run="evolved", evaluations=3, population=2, sample=2, **small)

# %% [markdown]
# Answers are typed: what is not known is None. Test accuracies carry an interval, so that a difference can be judged.

# %%
for found in (chance, evolved):
    low, high = found.best.accuracy_interval
    print(f"{found.method:<10} {found.best.accuracy:.1f} % ({low:.1f} to {high:.1f}), {found.seconds:.0f} s")
    print(" " * 10, found.best.architecture)

# %% [markdown]
# A finished run is not done again: resuming it gives its answer.

# %%
assert aw.resume("evolved").best == evolved.best

# %% [markdown]
# One page that compares runs (`archwright runs report by-chance evolved`); every run has a page of its own, too.

# %%
page = report_comparison([chance.folder, evolved.folder], Path("comparison.html"))
print(page, chance.folder / "report.html")
