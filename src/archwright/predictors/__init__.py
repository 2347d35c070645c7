"""Accuracy from measurements: conditional means, ridge, bilinear, quadratic, MLP, and how they compare.

Pure functions on numpy arrays; only ``mlp`` uses torch, on first use.
"""
