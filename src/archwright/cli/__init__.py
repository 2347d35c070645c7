"""Thin commands over the public functions."""
