"""CoNAS' appendix A.4 and figure 3: does the one-shot model order cells of the DARTS space as training them does?

The paper trains 32 random cells for 160 epochs each. Here the cells are the 500 whose accuracies are known, so nothing
is trained but the one-shot model, by random sub-graphs as in table 1, and many cells can be asked; what 32 of them can
tell is a row of its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kendalltau

from archwright.methods.conas import Rsps
from archwright.reproduce.base import Outcome, Row, Settings, needs
from archwright.reproduce.conas import PAPER_TAU, TABLE_1_SETTINGS
from archwright.reproduce.proxies import counted_scores, darts_table
from archwright.reproduce.searches import finished
from archwright.runs.run import Run
from archwright.runs.stop import Stop
from archwright.search.engine import reopened
from archwright.spaces.cells import CellPair
from archwright.spaces.darts import DARTS, EDGES
from archwright.spaces.subgraphs import Subgraphs

EPOCHS = (5, 40)
"""Of the one-shot model's training: table 1's here, and eight times as many."""
MEASURED: dict[str, Any] = {"supernet_batch": 128, "measurements": 2, "images": 1000, "measure_batch": 250}
PAPERS_CELLS, RESAMPLES, SEEDS = 32, 1000, 2


def bits_of(pair: CellPair) -> NDArray[np.int8]:
    """The sub-graph of a cell of the table, (196,); edges with ``none`` stay off, and a repeated edge counts once."""
    bits, on = Subgraphs(DARTS), set[tuple[str, int, str]]()
    for name, cell in (("normal", pair.normal), ("reduce", pair.reduce)):
        for number, node in enumerate(cell.nodes, 2):
            on |= {(name, EDGES.index((source, number)), operation) for operation, source in node}
    named = [(name, row, DARTS.columns(name)[column]) for name, row, column in bits.places]
    return np.array([1 if place in on else -1 for place in named], dtype=np.int8)


def tau(losses: NDArray[np.float64], accuracy: NDArray[np.float64]) -> float:
    """Kendall's tau of falling ``losses`` (n,) and ``accuracy`` (n,), over the finite ones."""
    finite = np.isfinite(losses)
    return float(kendalltau(-losses[finite], accuracy[finite]).statistic)


def of_some(losses: NDArray[np.float64], accuracy: NDArray[np.float64], count: int) -> float:
    """Deviation of tau over random choices of cells.

    Args:
        losses: of all cells, (n,).
        accuracy: of all cells, (n,).
        count: cells of a choice.
    """
    rng = np.random.default_rng(0)
    chosen = (rng.choice(len(losses), min(count, len(losses)), replace=False) for _ in range(RESAMPLES))
    return float(np.std([tau(losses[some], accuracy[some]) for some in chosen]))


def one_shot_losses(settings: Settings, cells: list[CellPair], epochs: int, seed: int) -> NDArray[np.float64]:
    """Validation loss of every cell with the weights of one one-shot model, (cells,); measured once.

    Args:
        settings: images, folder and progress.
        cells: n of them.
        epochs: of the model's training.
        seed: of the model.
    """
    folder = settings.folder / f"supernet-{epochs}-{seed}"
    given = {**TABLE_1_SETTINGS, **MEASURED, "final_epochs": 1, "space": "darts", "data": settings.images().spec}
    finished(folder, "rsps", settings.progress, **given, supernet_epochs=epochs, seed=seed)
    method = reopened(Run.open(folder), Stop(), settings.progress)
    assert isinstance(method, Rsps)
    return method.losses(np.stack([bits_of(one) for one in cells]))


@needs()
def conas_a4(settings: Settings) -> Outcome:
    """Kendall's tau of one-shot loss and real accuracy over cells of the DARTS space."""
    seeds = settings.seeds or SEEDS
    cells, accuracy = darts_table(settings.architectures)
    sized = counted_scores(cells)["params"]
    on = np.array([(bits_of(one) > 0).sum() for one in cells], dtype=float)
    rows = [
        Row("parameters alone", "tau", None, tau(-sized, accuracy)),
        Row("operations that are on, alone", "tau", None, tau(-on, accuracy)),
    ]
    for epochs in EPOCHS:
        found = []
        for seed in range(seeds):
            losses = one_shot_losses(settings, cells, epochs, seed)
            found.append((tau(losses, accuracy), of_some(losses, accuracy, PAPERS_CELLS), tau(losses, -on)))
            settings.progress.say(f"conas-a4, {epochs} epochs, seed {seed}: tau {found[-1][0]:.3f}")
        taus, spread, with_on = zip(*found, strict=True)
        rows += [
            Row.of(f"one-shot model of {epochs} epochs", "tau", PAPER_TAU, taus),
            Row.of(f"one-shot model of {epochs} epochs, deviation over {PAPERS_CELLS} cells", "tau", None, spread),
            Row.of(f"one-shot model of {epochs} epochs, with fewer operations", "tau", None, with_on),
        ]
    notes = [
        settings.images_note(),
        "truth: validation accuracies of the publisher's small networks, in which both cells are the same",
        f"the paper: {PAPERS_CELLS} cells trained for 160 epochs, one model of 100 epochs, p = .23",
        "deviation: how much tau varies between choices of as many cells as the paper's",
    ]
    c = TABLE_1_SETTINGS
    scale = f"{c['channels']} channels, {c['cells']} cells, {c['image_size']} px; {len(cells)} cells, {seeds} models"
    return Outcome(scale, rows, notes)
