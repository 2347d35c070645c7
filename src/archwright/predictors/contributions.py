"""What each design decision of the mbconv space is worth, read off a predictor's terms (BINAS, Fig. 6)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from archwright.predictors.staged import StagedEstimate

if TYPE_CHECKING:
    from archwright.runs.files import Json
    from archwright.spaces.mbconv_scale import MbConvScale

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Contributions:
    """Gains in accuracy points, each with its standard error.

    Attributes:
        depth: by the change of depth ("3 blocks instead of 2"), gains and errors (S,).
        blocks: by the change of a block ("squeeze-excite", "5x5 instead of 3x3", ...), gains and errors (S, D).
        latency_ms: by either, what the change costs, (S,) or (S, D).
    """

    depth: dict[str, tuple[Floats, Floats]]
    blocks: dict[str, tuple[Floats, Floats]]
    latency_ms: dict[str, Floats]

    @classmethod
    def of(cls, estimate: StagedEstimate, scale: MbConvScale, latency_ms: Floats) -> Contributions:
        """From the terms Delta^s_d and Delta^s_{b,c} of a predictor.

        Args:
            estimate: in percent.
            scale: whose depths and configurations the terms are of.
            latency_ms: of each block with each configuration, (S, D, C).
        """
        depth, latency = {}, {}
        for less, more in itertools.pairwise(scale.depths):
            latency[f"{more} blocks instead of {less}"] = latency_ms[:, less:more].mean(-1).sum(1)
            gain = estimate.depth_values[:, more - 1] - estimate.depth_values[:, less - 1]
            error = np.hypot(estimate.depth_errors[:, more - 1], estimate.depth_errors[:, less - 1])
            depth[f"{more} blocks instead of {less}"] = gain, error
        configurations = np.array(scale.configurations, dtype=int)  # (C, 3): expansion, kernel, squeeze-excite
        changes = [("squeeze-excite", 2, 0, 1)] if len(scale.squeeze_excite) == 2 else []
        changes += [(f"{b}x{b} instead of {a}x{a}", 1, a, b) for a, b in itertools.pairwise(scale.kernels)]
        changes += [(f"expansion {b} instead of {a}", 0, a, b) for a, b in itertools.pairwise(scale.expansions)]
        blocks = {}
        for name, column, less, more in changes:
            having, lacking = configurations[:, column] == more, configurations[:, column] == less
            blocks[name] = _contrast(estimate, having, lacking)
            latency[name] = latency_ms[..., having].mean(-1) - latency_ms[..., lacking].mean(-1)
        return cls(depth, blocks, latency)

    def by_stage(self) -> dict[str, tuple[Floats, Floats]]:
        """All gains and errors by stage, (S,); those of blocks averaged over the blocks."""
        averaged = {
            name: (gain.mean(1), np.sqrt((error**2).sum(1)) / gain.shape[1])
            for name, (gain, error) in self.blocks.items()
        }
        return {**self.depth, **averaged}

    def latency_by_stage(self) -> dict[str, Floats]:
        """What each decision costs in milliseconds by stage, (S,); those of blocks averaged over the blocks."""
        return {name: ms.mean(1) if ms.ndim == 2 else ms for name, ms in self.latency_ms.items()}

    def sentences(self) -> list[str]:
        """One a decision: where it helps most and what it costs; a gain below two standard errors is called noise."""
        found, latency = [], self.latency_by_stage()
        for name, (gain, error) in self.by_stage().items():
            best = int(gain.argmax())
            subject = name[0].upper() + name[1:]
            mean, mean_error = float(gain.mean()), float(np.sqrt((error**2).sum())) / len(gain)
            if gain[best] <= 2 * error[best]:
                found.append(
                    f"{subject}: no stage gains more than the noise ({mean:+.2f} ± {mean_error:.2f} points and "
                    f"{latency[name].mean():+.3g} ms on average)."
                )
            else:
                found.append(
                    f"{subject} helps most in stage {best + 1}: {gain[best]:+.2f} ± {error[best]:.2f} points for "
                    f"{latency[name][best]:+.3g} ms ({mean:+.2f} ± {mean_error:.2f} for {latency[name].mean():+.3g} ms "
                    "on average)."
                )
        return found

    def to_json(self) -> Json:
        """Gains, errors and latencies by decision: per stage for depths, per stage and block for the others."""
        return {
            kind: {
                name: {"gain": gain.tolist(), "error": error.tolist(), "latency_ms": self.latency_ms[name].tolist()}
                for name, (gain, error) in table.items()
            }
            for kind, table in (("depth", self.depth), ("blocks", self.blocks))
        }

    def plot(self, path: Path) -> None:
        """A column a decision: the gain of every stage with two standard errors, single blocks as points; its cost."""
        import matplotlib as mpl

        mpl.use("Agg")
        import matplotlib.pyplot as plt

        from archwright.runs.files import save_figure  # brings torch, which predicting needs nothing of

        tables, latency = self.by_stage(), self.latency_by_stage()
        shape = (2.6 * len(tables), 4.4)
        figure, axes = plt.subplots(2, len(tables), figsize=shape, sharex=True, sharey="row", squeeze=False)
        for (axis, below), (name, (gain, error)) in zip(axes.T, tables.items(), strict=True):
            stages = np.arange(1, len(gain) + 1)
            axis.bar(stages, gain, yerr=2 * error, capsize=2, color="tab:blue", alpha=0.7)
            if name in self.blocks:
                axis.plot(stages, self.blocks[name][0], ".", color="black", markersize=3)
            below.bar(stages, latency[name], color="tab:orange")
            axis.set_title(name, fontsize=8)
            below.set_xlabel("stage", fontsize=8)
            for one in (axis, below):
                one.axhline(0, color="black", linewidth=0.6)
        axes[0, 0].set_ylabel("accuracy points", fontsize=8)
        axes[1, 0].set_ylabel("latency, ms", fontsize=8)
        figure.tight_layout()
        save_figure(figure, path)
        plt.close(figure)


def _contrast(estimate: StagedEstimate, having: NDArray[np.bool_], lacking: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Mean term of the configurations that have something minus that of those that lack it, (S, D), and its error."""
    gain = estimate.block_values[..., having].mean(-1) - estimate.block_values[..., lacking].mean(-1)
    variances = [(estimate.block_errors[..., part] ** 2).sum(-1) / part.sum() ** 2 for part in (having, lacking)]
    error: Floats = np.sqrt(variances[0] + variances[1])
    return gain, error
