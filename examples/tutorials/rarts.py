"""RARTS: a differentiable search that does not collapse: python examples/tutorials/rarts.py

Every operation of a cell gets a weight; weights and network learn together, and the cell is read off.
"""

# %%
import archwright as aw

SETTINGS = {"search_epochs": 2, "epochs": 2, "final_epochs": 4, "channels": 8, "cells": 1}

# %%
found = aw.search("rarts", space="nasbench201", data="digits", **SETTINGS)
print(found.best.architecture)

# %% [markdown]
# A cell of skip connections is the known failure of such searches: the share of skips is watched each epoch.

# %%
print("skips in the cell:", found.best.architecture.count("skip_connect"))
print(f"accuracy: {found.best.accuracy:.1f} %")
print(found.verdict)
