"""CoNAS: a supernet's loss as a polynomial: python examples/tutorials/conas.py

One supernet, many measurements of what is on in it, a sparse polynomial of them, and its exact minimum.
"""

# %%
import archwright as aw

SETTINGS = {
    "supernet_epochs": 2,
    "measurements": 60,
    "rounds": 1,
    "images": 64,
    "epochs": 2,
    "final_epochs": 4,
    "channels": 8,
    "cells": 1,
}

# %%
found = aw.search("conas", space="nasbench201", data="digits", **SETTINGS)
print(found.best.architecture)

# %% [markdown]
# The strongest terms say what the loss depends on.

# %%
for term in found.loss_rounds[0].terms[:5]:
    print(f"{term.coefficient:+.4f}", " and ".join(term.bits))
