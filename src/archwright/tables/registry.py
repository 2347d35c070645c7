"""The registered tabular benchmarks; listing them imports no torch."""

from __future__ import annotations

from archwright.registry import Entry, Registry

benchmarks = Registry(
    "benchmark",
    Entry("nb201", "archwright.tables.nasbench201:load_compact", "NAS-Bench-201, all 15,625 cells, compact array"),
    Entry("nb101", "archwright.tables.nasbench101:load_compact", "NAS-Bench-101, all 423,624 cells, compact array"),
    Entry("nats", "archwright.tables.nasbench201:load_nats", "NAS-Bench-201 from NATS-Bench's files (nats:PATH)"),
)
