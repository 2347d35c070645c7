"""Several trained networks that answer together: one classifier that predicts, saves, loads, exports and reports.

On disk an ensemble is a folder with a model file a member and ``ensemble.json``, which is written last and names them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from archwright.costs.measure import Timing, measure
from archwright.data import Preprocessing
from archwright.errors import InputError, RunError
from archwright.models import FORMAT, Classifier, Model, finite, load_member
from archwright.runs.files import Json, file_checksum, forget, inside, read_json, write_json
from archwright.solvers.svgd import (
    Floats,
    average_test_error,
    calibration_error,
    ensemble_error,
    pairwise_disagreement,
)
from archwright.spaces.base import Space
from archwright.spaces.registry import find_space
from archwright.strict import from_plain

MANIFEST = "ensemble.json"
MOST_MEMBERS = 1000
"""That a list may name."""
Mean = Literal["probabilities", "logits"]


class Averaged(nn.Module):
    """Members side by side in one graph: images (B, C, H, W) to logits (B, classes).

    For the mean of probabilities the logits are its logarithm, whose softmax it is.
    """

    def __init__(self, networks: Iterable[nn.Module], mean: Mean) -> None:
        super().__init__()
        self.members, self.mean = nn.ModuleList(networks), mean

    def forward(self, x: Tensor) -> Tensor:
        """The averaged answer to images (B, C, H, W): logits (B, classes)."""
        logits = torch.stack([member(x) for member in self.members])
        if self.mean == "logits":
            return logits.mean(dim=0)
        return torch.logsumexp(torch.log_softmax(logits, dim=2), dim=0) - float(np.log(len(self.members)))


@dataclass(frozen=True)
class EnsembleReport:
    """What the ensemble gains and costs; errors, disagreement and calibration in percent.

    Attributes:
        error: of the averaged answer.
        member_errors: of each member alone.
        ate: average test error, the mean of those.
        ppd: pairwise predictive disagreement.
        ece: calibration error of the averaged answer.
        params: of all members together; ``macs`` the same.
        latency_ms: of one image through all members, median; ``member_latency_ms`` of each alone; None if not timed.
    """

    error: float
    member_errors: tuple[float, ...]
    ate: float
    ppd: float
    ece: float
    images: int
    params: int
    macs: int
    latency_ms: float | None = None
    member_latency_ms: tuple[float, ...] | None = None

    def to_dict(self) -> dict[str, Json]:
        """For JSON; times that were not taken are left out."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass
class Ensemble(Classifier):
    """Members that answer together by the mean of their probabilities (or of their logits).

    Example:
        >>> both = Ensemble((load_model("a.safetensors"), load_model("b.safetensors")))  # doctest: +SKIP
        >>> both.predict(["cat.png"]); both.save("both"); both.export("both.onnx")  # doctest: +SKIP
    """

    members: tuple[Model, ...]
    mean: Mean = "probabilities"
    measured: dict[str, Json] = field(default_factory=dict)
    preprocessing: Preprocessing = field(init=False)

    def __post_init__(self) -> None:
        self.members = tuple(self.members)
        if len(self.members) < 2:
            raise InputError("at least two members of an ensemble", str(len(self.members)))
        if self.mean not in ("probabilities", "logits"):
            raise InputError("the mean of 'probabilities' or of 'logits'", repr(self.mean))
        self.preprocessing = self.members[0].preprocessing
        for member in self.members[1:]:
            if member.preprocessing != self.preprocessing:
                raise InputError(
                    "members with the same image size, normalisation and classes",
                    "others",
                    "Train them on one data set.",
                )

    @cached_property
    def network(self) -> Averaged:
        """All members as one module; a member in int8 answers by its file."""
        return Averaged([member.answers for member in self.members], self.mean).eval()

    @torch.no_grad()
    def probabilities(self, images: Tensor) -> Tensor:
        """Preprocessed images (B, C, H, W) to class probabilities (B, classes)."""
        return finite(torch.softmax(self.network.eval()(images), dim=1))

    @property
    def architecture(self) -> str:
        """The members' texts as a JSON list."""
        return json.dumps([str(member.architecture) for member in self.members])

    def facts(self) -> dict[str, Json]:
        """Everything but the weights, in the form of one model's."""
        how = self.preprocessing
        return {
            "format": FORMAT,
            "space": ", ".join(dict.fromkeys(member.space for member in self.members)),
            "architecture": self.architecture,
            "scale": {
                "image_size": how.image_size,
                "image_channels": how.image_channels,
                "classes": len(how.class_names),
            },
            "preprocessing": how.to_dict(),
            "measured": self.measured,
        }

    def save(self, folder: Path | str) -> None:
        """Write every member, then the list of them, which makes it an ensemble: never one of old and new members."""
        forget(Path(folder) / MANIFEST)
        names = [f"{number}.safetensors" for number in range(len(self.members))]
        for name, member in zip(names, self.members, strict=True):
            member.save(Path(folder) / name)
        left = {name: file_checksum(Path(folder) / name) for name in names}
        listed = {"format": FORMAT, "mean": self.mean, "members": names, "measured": self.measured, "checksums": left}
        write_json(Path(folder) / MANIFEST, listed)

    def export(self, path: Path | str, overwrite: bool = False) -> float:
        """Write one file with all members, checked against PyTorch; the largest difference of a probability.

        Args:
            path: of the file; its ending says the format, as in :meth:`archwright.models.Model.export`.
            overwrite: whether another file than one that this wrote may be replaced.
        """
        from archwright.formats import export

        return export(self, path, overwrite)

    def report(self, batches: Iterable[tuple[Tensor, Tensor]], timing: Timing | None = None) -> EnsembleReport:
        """What ensemble and members do on ``batches`` of preprocessed images and labels, and what they cost.

        Args:
            batches: images (B, C, H, W) and labels (B,).
            timing: how to time ensemble and members; None does not.
        """
        parts, labels = [], []
        for images, targets in batches:
            parts.append(np.stack([member.probabilities(images).numpy() for member in self.members]).astype(np.float64))
            labels.append(targets.numpy())
        if not parts:
            raise InputError("at least one image to report on", "none")
        of_members, truth = list(np.concatenate(parts, axis=1)), np.concatenate(labels)
        costs = [find_space(one.space).at_scale(one.scale).cost(one.architecture, one.scale) for one in self.members]
        mean, times = self._mean_of(of_members), self._times(timing)
        return EnsembleReport(
            error=ensemble_error([mean], truth),
            member_errors=tuple(ensemble_error([one], truth) for one in of_members),
            ate=average_test_error(of_members, truth),
            ppd=pairwise_disagreement(of_members),
            ece=calibration_error(mean, truth),
            images=len(truth),
            params=sum(cost.params for cost in costs),
            macs=sum(cost.macs for cost in costs),
            latency_ms=times[0] if times else None,
            member_latency_ms=times[1:] if times else None,
        )

    def _mean_of(self, probabilities: list[Floats]) -> Floats:
        """The answer from the members' (images, classes); the softmax of mean logits is the geometric mean."""
        if self.mean == "probabilities":
            return np.asarray(np.mean(probabilities, axis=0))
        together = np.exp(np.mean(np.log(np.maximum(probabilities, 1e-300)), axis=0))
        return np.asarray(together / together.sum(axis=1, keepdims=True))

    def _times(self, timing: Timing | None) -> tuple[float, ...]:
        """Median milliseconds of the ensemble, then of each member; none without ``timing``."""
        if timing is None:
            return ()
        how = self.preprocessing
        shape = (how.image_channels, how.image_size, how.image_size)
        networks: list[nn.Module] = [self.network, *(member.answers for member in self.members)]
        return tuple(measure(network, shape, timing).median_ms for network in networks)


@dataclass(frozen=True)
class _Manifest:
    format: int
    mean: Mean
    members: tuple[str, ...]
    measured: dict[str, Json]
    checksums: dict[str, str]


def load_ensemble(folder: Path, space: Space[Any] | None = None, allow_import: bool = False) -> Ensemble:
    """The ensemble saved in ``folder``; a missing member is an error that names it.

    Args:
        folder: with the members' files and their list.
        space: of all members, as in :func:`archwright.load_model`.
        allow_import: as in :func:`archwright.load_model`.
    """
    try:
        read = read_json(folder / MANIFEST)
        known = {"checksums": {}, **read} if isinstance(read, dict) else read  # older lists have none
        listed = from_plain(_Manifest, known, "an ensemble")
    except InputError as error:
        raise RunError(f"expected an ensemble in {folder}, got another {MANIFEST}: {error}") from error
    if len(listed.members) > MOST_MEMBERS or len(set(listed.members)) < len(listed.members):
        got = f"{len(listed.members):,}" if len(listed.members) > MOST_MEMBERS else "one of them twice"
        raise RunError(f"expected up to {MOST_MEMBERS} different members of the ensemble in {folder}, got {got}.")
    if listed.format != FORMAT:
        raise RunError(f"expected an ensemble of format {FORMAT} in {folder}, got format {listed.format}.")
    missing = [
        name for name in {**dict.fromkeys(listed.members), **listed.checksums} if not inside(folder, name).is_file()
    ]
    if missing:
        raise InputError(
            f"all {len(listed.members)} members of the ensemble in {folder}",
            f"no file {', '.join(missing)}",
            "Copy the whole folder.",
        )
    other = [name for name, left in listed.checksums.items() if file_checksum(inside(folder, name)) != left]
    if other:
        raise RunError(f"expected the members that the ensemble in {folder} was saved with, got another {other[0]}.")
    members = tuple(load_member(inside(folder, name), space, allow_import) for name in listed.members)
    return Ensemble(members, listed.mean, listed.measured)
