"""NASI: a cell without any training: python examples/tutorials/nasi.py

The search looks at networks with random weights: gradients at initialisation say which operations will learn quickly.
"""

# %%
import archwright as aw

SETTINGS = {"steps": 10, "nu_samples": 6, "epochs": 2, "final_epochs": 6, "channels": 8, "cells": 1}

# %% [markdown]
# The search takes seconds and trains nothing. Only the cell that it found is trained, to have a model at the end.

# %%
found = aw.search("nasi", space="nasbench201", data="digits", **SETTINGS)
print("found:", found.best.architecture)
print(f"{found.best.accuracy:.1f} % on {found.best.accuracy_on}")

# %% [markdown]
# Simple models on the same images show what the cell is worth.

# %%
for name, one in found.beside.items():
    print(f"{name}: {one.accuracy:.1f} %")
