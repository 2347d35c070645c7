"""HNAS: few trainings, chosen by scores: python examples/tutorials/hnas.py

Training-free scores rank a pool of cells; Bayesian optimisation learns from a few real trainings how to weigh them.
"""

# %%
import archwright as aw

SETTINGS = {"evaluations": 3, "pool": 30, "probes": 2, "epochs": 2, "final_epochs": 4, "channels": 8, "cells": 1}

# %% [markdown]
# Scores alone take seconds, on any network.

# %%
cells = [
    aw.find_space("nasbench201").parse(f"|{op}~0|+|{op}~0|{op}~1|+|{op}~0|{op}~1|{op}~2|")
    for op in ("nor_conv_3x3", "nor_conv_1x1")
]
for cell in cells:
    print(cell)

# %%
found = aw.search("hnas", data="digits", **SETTINGS)
print(f"{found.best.accuracy:.1f} % after {found.evaluations} trainings: {found.best.architecture}")

# %%
print("beside:", {name: round(one.accuracy, 1) for name, one in found.beside.items()})
