"""The answer of a search: a trained network in one safetensors file with everything needed to use it.

The file's header holds the space, the architecture, the network's scale, the preprocessing (image size, normalisation,
class names) and what was measured. Loading executes nothing; ``load_model(path)`` is the one line.
"""

from __future__ import annotations

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from PIL import Image, UnidentifiedImageError
from safetensors.torch import load_file
from safetensors.torch import save as safetensors_bytes
from torch import Tensor

from archwright.data import Preprocessing
from archwright.errors import InputError, RunError
from archwright.references import is_local
from archwright.runs.files import Json, read_metadata, write_atomic, write_json
from archwright.runs.run import Run
from archwright.spaces.base import Architecture, Network, Scale, Space
from archwright.spaces.choice_space import SPEC
from archwright.spaces.registry import find_space

FORMAT = 1


@dataclass(frozen=True)
class Prediction:
    """What a model says of one image."""

    image: str
    label: str
    probability: float
    top: tuple[tuple[str, float], ...]


class Classifier(ABC):
    """Anything that classifies image files: a network in PyTorch, or an ONNX file."""

    preprocessing: Preprocessing

    @abstractmethod
    def probabilities(self, images: Tensor) -> Tensor:
        """Preprocessed images (B, C, H, W) to class probabilities (B, classes)."""

    def predict(self, paths: Sequence[Path | str], top: int = 3, batch_size: int = 64) -> list[Prediction]:
        """Classify image files of any size; an unreadable one is an error that names it, before anything runs."""
        names = self.preprocessing.class_names
        inputs = [self._read(Path(path)) for path in paths]
        found: list[Prediction] = []
        for start in range(0, len(inputs), batch_size):
            part = slice(start, start + batch_size)
            values, order = self.probabilities(torch.cat(inputs[part])).sort(dim=1, descending=True)
            for path, probability, ranks in zip(paths[part], values.tolist(), order.tolist(), strict=True):
                best = tuple((names[rank], p) for rank, p in zip(ranks[:top], probability[:top], strict=True))
                found.append(Prediction(str(path), best[0][0], best[0][1], best))
        return found

    def _read(self, path: Path) -> Tensor:
        try:
            with Image.open(path) as image:
                return self.preprocessing.preprocess(image)
        except (OSError, UnidentifiedImageError, ValueError) as error:
            raise InputError("an image file", f"{path} ({error})") from error


@dataclass
class Model(Classifier):
    """A trained network with its preprocessing.

    Attributes:
        measured: facts about it, such as ``accuracy`` and what it was measured on.
    """

    network: Network
    space: str
    architecture: Architecture
    scale: Scale
    preprocessing: Preprocessing
    measured: dict[str, Json] = field(default_factory=dict)

    def facts(self) -> dict[str, Json]:
        """Everything but the weights, as JSON."""
        return {
            "format": FORMAT,
            "space": self.space,
            "architecture": str(self.architecture),
            "scale": self.scale.to_dict(),
            "preprocessing": self.preprocessing.to_dict(),
            "measured": self.measured,
        }

    def save(self, path: Path) -> None:
        """Write ``path`` (safetensors) and, beside it, the same facts as readable JSON."""
        facts = self.facts()
        state = {name: tensor.detach().cpu().contiguous() for name, tensor in self.network.state_dict().items()}
        write_atomic(path, safetensors_bytes(state, metadata={"archwright": json.dumps(facts)}))
        write_json(path.with_suffix(".json"), facts)

    @torch.no_grad()
    def probabilities(self, images: Tensor) -> Tensor:
        """Preprocessed images (B, C, H, W) to class probabilities (B, classes)."""
        self.network.eval()
        return torch.softmax(self.network(images), dim=1)

    def export(self, path: Path | str) -> float:
        """Write an ONNX file, checked against this network; gives the largest difference of a probability."""
        from archwright.export import export_onnx

        return export_onnx(self, Path(path))


def load_classifier(path: Path | str) -> Classifier:
    """What is saved at ``path``: an ``.onnx`` file, or anything :func:`load_model` takes."""
    from archwright.export import OnnxClassifier

    return OnnxClassifier(Path(path)) if Path(path).suffix == ".onnx" else load_model(path)


def load_model(path: Path | str, space: Space[Any] | None = None) -> Model:
    """The model saved at ``path``: a ``.safetensors`` file, or a run folder whose answer is taken.

    Loading imports nothing that a file names: a space of your own is given as ``space``, unless it is registered or its
    module is already imported.
    """
    path = Path(path)
    if (path / "run.json").is_file():
        path = _model_of_run(Run.open(path))
    if not path.is_file():
        raise InputError("a model file (.safetensors) or a finished run with a trained model", str(path))
    metadata = read_metadata(path)
    if "archwright" not in metadata:
        raise InputError("a model saved by archwright", f"{path} without its facts in the header")
    facts: dict[str, Any] = json.loads(metadata["archwright"])
    if facts.get("format") != FORMAT:
        raise RunError(f"expected a model of format {FORMAT}, got {facts.get('format')} in {path}.")
    space = _space_of(facts["space"], path) if space is None else space
    scale = space.scale_from(facts["scale"])
    architecture = space.at_scale(scale).parse(facts["architecture"])
    network = space.build(architecture, scale)
    network.load_state_dict(load_file(path))
    network.eval()
    preprocessing = Preprocessing.from_dict(facts["preprocessing"])
    return Model(network, facts["space"], architecture, scale, preprocessing, facts["measured"])


def _space_of(text: str, path: Path) -> Space[Any]:
    """The space that a file names, as far as this process knows it."""
    module, _, _ = text.rpartition(":")
    if ":" in text and not text.startswith(SPEC) and not is_local(text) and module not in sys.modules:
        raise InputError(
            f"the space {text} of the model in {path}",
            "a process that has not imported it",
            "Give it: archwright.load_model(path, space=...)",
        )
    return find_space(text)


def _model_of_run(run: Run) -> Path:
    """The model file of a run; where there is none the error says why."""
    path = run.folder / "artifacts" / "best.safetensors"
    if not path.is_file():
        if run.configuration.get("data") is None:
            why, do = "looked accuracies up in a table and trained no network", "Search with --data to get a model."
        else:
            why, do = "has not trained its network yet", f"Continue it with: archwright runs resume {run.folder}"
        raise InputError("a run with a trained model", f"{run.folder}, which {why}", do)
    return path
