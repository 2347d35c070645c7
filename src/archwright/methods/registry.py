"""The registered methods; listing them imports no torch."""

from __future__ import annotations

from archwright.registry import Entry, Registry

methods = Registry(
    "method",
    Entry("random", "archwright.methods.baselines:RandomSearch", "distinct random architectures, the best one wins"),
    Entry("evolution", "archwright.methods.baselines:Evolution", "regularised evolution: mutate the young and fit"),
)
