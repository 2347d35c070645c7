"""Tabular benchmarks behind one interface."""
