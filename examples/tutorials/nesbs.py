"""NESBS: an ensemble of different architectures: python examples/tutorials/nesbs.py

Members are drawn from a posterior so that they are good alone and different from each other.
"""

# %%
import archwright as aw

SETTINGS = {
    "size": 2,
    "candidates": 2,
    "supernet_epochs": 2,
    "posterior_epochs": 1,
    "epochs": 2,
    "final_epochs": 3,
    "channels": 8,
    "cells": 1,
}

# %%
found = aw.search("nesbs", space="nasbench201", data="digits", **SETTINGS)
print(f"together {found.best.accuracy:.1f} %, alone {[round(one.accuracy, 1) for one in found.members]}")

# %%
errors = found.ensemble
print(f"two members disagree on {errors.ppd:.1f} % of the test images; calibration error {errors.ece:.1f} %")
print(found.insights[0])
