"""What scores of channels keep right after removal, before any tuning: accuracy on test by score and share of the work.

``python benchmarks/thinned.py --network FILE --data folder:PATH --json`` prints one JSON object as the last line of
stdout. The network comes with weights, as in ``archwright search rarts-width``; widths lie on steps of 8.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from archwright.data import Batches
from archwright.data.request import DataRequest, load_data
from archwright.methods.width_given import Given, shown_as
from archwright.methods.width_removal import Removal
from archwright.methods.width_scores import Looked, PassScore, scores
from archwright.search.jobs import measure
from archwright.spaces.registry import find_space
from archwright.spaces.width import WidthSpace
from archwright.supernets.scored import Scores

SHARES = (0.8, 0.65, 0.5)
NAMES = ("fisher", "taylor", "l1", "random")
LOOKED_AT = 512


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", required=True, help="a model file of Archwright, or FILE.py:FUNCTION")
    parser.add_argument("--data", required=True, help="images, as in a search")
    parser.add_argument("--keep", type=float, default=0.2, help="least share of a group's channels that stays")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line of stdout")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    log = sys.stderr if chosen.json else sys.stdout
    given = Given(chosen.network)
    space = find_space(given.space_text)
    assert isinstance(space, WidthSpace)
    data = load_data(DataRequest(chosen.data, 0))
    own = space.at_scale(space.named_scale("small", data.classes, data.image_size, data.image_channels))
    said = given.said(nn.Identity() if given.file else own.whole())
    data = load_data(DataRequest(chosen.data, 0, said.get("image_size")))
    data = replace(data, preprocessing=shown_as(data.preprocessing, said))
    space = space.at_scale(space.named_scale("small", data.classes, data.image_size, data.image_channels))
    network, where = given.network(space).eval(), Scores(space.structure)
    whole = measure(network, data, "test", "cpu").percent
    results = [{"label": "whole", "value": whole, "unit": "% on test"}]
    looked = np.unique(np.linspace(0, len(data.train) - 1, min(LOOKED_AT, len(data.train))).astype(np.int64))
    for name in NAMES:
        score = scores.get(name)()
        assert isinstance(score, PassScore)
        batches = Batches(data, "train", 32, shuffle=False, drop_last=False, indices=looked)
        worth = score(Looked(network, where, batches, np.random.default_rng(0)))
        removal = Removal(space, where, worth, score.by_resource, chosen.keep, 8)
        for share in SHARES:
            width = removal.best({"macs": share * removal.costs(removal.full)["macs"]}).width
            accuracy = measure(space.removed(network, width), data, "test", "cpu").percent
            results.append({"label": f"{name} {100 * share:.0f} % MACs", "value": accuracy, "unit": "% on test"})
    for entry in results:
        print(f"{entry['label']}: {entry['value']:.1f} {entry['unit']}", file=log)
    if chosen.json:
        print(json.dumps({"benchmark": "thinned", "results": results, "ratios": []}))


if __name__ == "__main__":
    main()
