"""Table 7.2 of the thesis: width, depth, trace and kappa of published cells, beside the widest and the deepest."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from archwright.data import Batches
from archwright.data.request import load_data
from archwright.proxies.score import score
from archwright.reproduce.base import Outcome, Row, Settings, needs
from archwright.reproduce.thesis4 import NAMES, widest_and_deepest
from archwright.spaces.base import Scale
from archwright.spaces.cells import build_cells
from archwright.spaces.gallery import GALLERY
from archwright.spaces.topology import cell_topology

TABLE_7_2 = {
    "NASNet": (5.0, 2, 31, 118),
    "AmoebaNet": (4.0, 4, 36, 110),
    "ENAS": (5.0, 2, 36, 98),
    "DARTS": (3.5, 3, 33, 122),
    "SNAS": (4.0, 2, 31, 126),
    "WIDE": (4.0, 2, 27, 141),
    "DEEP": (1.5, 5, 131, 209),
}
"""Width, depth, trace, kappa."""
CHANNELS, CELLS, IMAGE_SIZE, BATCH, DRAWS = 8, 5, 16, 64, 5


@needs()
def table_7_2(settings: Settings) -> Outcome:
    """Widths and depths exactly; trace and kappa of small networks, over draws of weights and images."""
    pairs = {NAMES[name]: GALLERY[name] for name in NAMES} | widest_and_deepest()
    data = load_data(replace(settings.images(), image_size=IMAGE_SIZE))
    scale = Scale(CHANNELS, CELLS, data.classes, data.image_size, data.image_channels)
    batches = Batches(data, "train", BATCH, seed=0)
    draws = settings.seeds or DRAWS
    values: dict[str, list[tuple[float, float]]] = {name: [] for name in pairs}
    with settings.progress.task("scoring cells", draws * len(pairs)) as bar:
        for draw in range(draws):
            images, labels = batches.get(draw, 0)
            for name, pair in pairs.items():
                torch.manual_seed(draw)
                found = score(build_cells(pair, scale), (images, labels), ("trace", "kappa"), seed=draw)
                values[name].append((float(found["trace"][0]), float(found["kappa"][0])))
                bar.advance()
    rows = []
    for name, (width, depth, paper_trace, paper_kappa) in TABLE_7_2.items():
        topology = cell_topology(pairs[name].normal)
        rows.append(Row.of(f"{name} width", "c", width, [topology.width]))
        rows.append(Row.of(f"{name} depth", "connections", depth, [float(topology.depth)]))
        rows.append(Row.of(f"{name} trace", "M_trace", paper_trace, [one[0] for one in values[name]]))
        rows.append(Row.of(f"{name} kappa", "condition number", paper_kappa, [one[1] for one in values[name]]))
    trace, kappa = ({name: float(np.mean([one[k] for one in values[name]])) for name in values} for k in (0, 1))
    lower = [name for name in values if trace[name] < trace["DEEP"] and kappa[name] < kappa["DEEP"]]
    notes = [
        f"Lower than DEEP on both, as the thesis says of all: {', '.join(lower) or 'none'} of {len(values) - 1}.",
        "The numbers belong to the scale and cannot be compared with the paper's; their order can.",
        settings.images_note(),
    ]
    return Outcome(f"{CELLS} cells of {CHANNELS} channels, {IMAGE_SIZE} px, batch {BATCH}, {draws} draws", rows, notes)
