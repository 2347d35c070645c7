"""The answer of a search: a trained network in one safetensors file with everything needed to use it.

The file's header holds the space, the architecture, the network's scale, the preprocessing (image size, normalisation,
class names) and what was measured. Loading executes nothing; ``load_model(path)`` is the one line.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save as safetensors_bytes
from torch import Tensor, nn

from archwright.data import Preprocessing
from archwright.data.arrays import as_pixels
from archwright.data.images import BAD_IMAGE, opened, resize_arrays
from archwright.errors import InputError, RunError
from archwright.imports import require_permission
from archwright.paths import refuse_foreign
from archwright.quantise import OnnxNetwork
from archwright.references import SpaceRef, was_resolved
from archwright.runs.files import (
    Json,
    inside,
    load_weights,
    read_metadata,
    stored_elements,
    write_atomic,
    write_json,
)
from archwright.runs.run import Run
from archwright.spaces.base import Architecture, Network, Scale, Space
from archwright.spaces.registry import find_space
from archwright.strict import from_plain, parse_json
from archwright.terminal import say

if TYPE_CHECKING:
    from archwright.ensembles import Ensemble

FORMAT = 1


@dataclass(frozen=True)
class Prediction:
    """What a model says of one image."""

    image: str
    label: str
    probability: float
    top: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Facts:
    """Everything that a model file or an ONNX file says beside its weights."""

    format: int
    space: str
    architecture: str
    scale: dict[str, Json]
    preprocessing: dict[str, Json]
    measured: dict[str, Json]

    @classmethod
    def read(cls, text: str) -> Facts:
        """From JSON; other formats, missing fields and other types are errors."""
        try:
            values = parse_json(text)
        except ValueError as error:
            raise InputError("facts as JSON", str(error)) from error
        if isinstance(values, dict) and values.get("format", FORMAT) != FORMAT:
            raise InputError(f"a model of format {FORMAT}", f"format {values['format']}")
        return from_plain(cls, values, "a model")

    def preprocessing_of(self, path: Path) -> Preprocessing:
        """The preprocessing, which must be that of the network's images and classes."""
        try:
            how = Preprocessing.from_dict(self.preprocessing)
        except InputError as error:
            raise RunError(f"expected the preprocessing of a model in {path}, got another: {error}") from error
        found = (how.image_size, how.image_channels, len(how.class_names))
        wanted = tuple(self.scale.get(name) for name in ("image_size", "image_channels", "classes"))
        if found != wanted:
            raise RunError(
                f"expected preprocessing to the image size, channels and classes of the network {wanted} in {path}, "
                f"got {found}."
            )
        return how


def finite(probabilities: Tensor) -> Tensor:
    """``probabilities`` (B, classes), unless one is NaN: then weights or preprocessing are broken, and no class is."""
    if not probabilities.isfinite().all():
        raise RunError("expected finite class probabilities from the model, got NaN: its weights cannot be used.")
    return probabilities


class Classifier(ABC):
    """Anything that classifies image files: a network in PyTorch, several of them, or an ONNX file."""

    preprocessing: Preprocessing

    @abstractmethod
    def probabilities(self, images: Tensor) -> Tensor:
        """Preprocessed images (B, C, H, W) to class probabilities (B, classes)."""

    def predict(self, paths: Sequence[Path | str], top: int = 3, batch_size: int = 64) -> list[Prediction]:
        """Classify image files of any size; an unreadable one is an error that names it.

        Args:
            paths: of the images.
            top: classes to say of each, the likeliest first.
            batch_size: images that go through the network at once.
        """
        found = []
        for one in self.predictions(paths, top, batch_size):
            if isinstance(one, InputError):
                raise one
            found.append(one)
        return found

    def predictions(
        self, paths: Sequence[Path | str], top: int = 3, batch_size: int = 64
    ) -> Iterator[Prediction | InputError]:
        """As :meth:`predict`, batch by batch, so that any number of files fits into memory.

        A file that is no readable image gives its error in its place.

        Args:
            paths: of the images.
            top: classes to say of each, the likeliest first.
            batch_size: images that go through the network at once.
        """
        if top < 1:
            raise InputError("at least one class to show", str(top))
        for start in range(0, len(paths), batch_size):
            part = [(str(path), self._read(Path(path))) for path in paths[start : start + batch_size]]
            good = [pixels for _, pixels in part if isinstance(pixels, Tensor)]
            answers = iter(self.probabilities(torch.cat(good))) if good else iter(())
            for path, pixels in part:
                yield self._prediction(path, next(answers), top) if isinstance(pixels, Tensor) else pixels

    def predict_proba(self, images: NDArray[np.uint8], batch_size: int = 256) -> NDArray[np.float32]:
        """Class probabilities (n, classes) of images in memory, resized as the training images were.

        Args:
            images: 8-bit, (n, H, W), (n, H, W, C) or (n, C, H, W), grey or colour as the model wants them.
            batch_size: images that go through the network at once.
        """
        how, pixels = self.preprocessing, as_pixels(np.asarray(images), "images")
        if pixels.shape[1] != how.image_channels:
            raise InputError(f"images of {how.image_channels} channel(s)", f"{pixels.shape[1]}")
        found = []
        for start in range(0, len(pixels), batch_size):
            part = resize_arrays(pixels[start : start + batch_size], how.image_size)
            found.append(self.probabilities(how.normalise(torch.from_numpy(part))).numpy())
        return np.concatenate(found)

    def _prediction(self, path: str, probabilities: Tensor, top: int) -> Prediction:
        """Of one image with probabilities (classes,)."""
        values, order = probabilities.sort(descending=True)
        names = self.preprocessing.class_names
        best = tuple((names[rank], p) for rank, p in zip(order[:top].tolist(), values[:top].tolist(), strict=True))
        return Prediction(path, best[0][0], best[0][1], best)

    def _read(self, path: Path) -> Tensor | InputError:
        try:
            with opened(path) as image:
                return self.preprocessing.preprocess(image)
        except BAD_IMAGE as error:
            return InputError("an image file", f"{path} ({error})")


@dataclass
class Model(Classifier):
    """A trained network with its preprocessing.

    Attributes:
        measured: facts about it, such as ``accuracy`` and what it was measured on.
        int8: the ONNX file that answers in the place of the float network, where int8 was chosen.
    """

    network: Network
    space: str
    architecture: Architecture
    scale: Scale
    preprocessing: Preprocessing
    measured: dict[str, Json] = field(default_factory=dict)
    int8: bytes | None = None

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

    def save(self, path: Path, overwrite: bool = False) -> None:
        """Write ``path`` (safetensors) and, beside it, readable facts as JSON, and the int8 file if it has one.

        Args:
            path: of the file.
            overwrite: whether other files than a model's may be replaced in these two places.
        """
        refuse_foreign(path, b'"archwright"', overwrite)
        refuse_foreign(path.with_suffix(".json"), b'"preprocessing"', overwrite)
        facts = self.facts()
        state = {name: tensor.detach().cpu().contiguous() for name, tensor in self.network.state_dict().items()}
        if self.int8 is not None:
            self.export(path.with_suffix(".onnx"), overwrite)
        write_atomic(path, safetensors_bytes(state, metadata={"archwright": json.dumps(facts)}))
        write_json(path.with_suffix(".json"), facts)

    @property
    def answers(self) -> nn.Module:
        """What answers: the network, or its int8 file where that was chosen; from images (B, C, H, W) to logits."""
        return self.network.eval() if self.int8 is None else self._file

    @cached_property
    def _file(self) -> OnnxNetwork:
        assert self.int8 is not None
        return OnnxNetwork(self.int8)

    @torch.no_grad()
    def probabilities(self, images: Tensor) -> Tensor:
        """Preprocessed images (B, C, H, W) to class probabilities (B, classes)."""
        return finite(torch.softmax(self.answers(images), dim=1))

    def export(self, path: Path | str, overwrite: bool = False, calibrate: NDArray[np.uint8] | None = None) -> float:
        """Write a file, checked against this network; gives the largest difference of a probability.

        Args:
            path: of the file; its ending says the format: ``.onnx``, ``.xml`` (OpenVINO), ``.pt2``, ``.torchscript``.
            overwrite: whether another file than one that this wrote may be replaced.
            calibrate: 8-bit training images (n, C, H, W), for a file in int8 (``.onnx`` or ``.xml``).
        """
        from archwright.formats import export

        return export(self, path, overwrite, calibrate)


def load_classifier(path: Path | str, space: Space[Any] | None = None, *, allow_import: bool = False) -> Classifier:
    """What is saved at ``path``: an ``.onnx`` file, or anything :func:`load_model` takes.

    Args:
        path: of the file or folder.
        space: as in :func:`load_model`; an ONNX file needs none.
        allow_import: as in :func:`load_model`.
    """
    from archwright.export import OnnxClassifier

    if Path(path).suffix != ".onnx":
        return load_model(path, space, allow_import=allow_import)
    if space is not None:
        raise InputError(f"no space beside the ONNX file {path}", space.name, "Leave it out: the file needs none.")
    return OnnxClassifier(Path(path))


def load_model(path: Path | str, space: Space[Any] | None = None, *, allow_import: bool = False) -> Model | Ensemble:
    """What is saved at ``path``: a ``.safetensors`` file, an ensemble's folder, or a run, whose answer is taken.

    Args:
        path: of the file or folder.
        space: the space of the network, or of all members of an ensemble, where it is one of your own.
        allow_import: whether the module that the file names for its space, or for the function that makes the network
            which was thinned, may be imported; this runs it. Without it loading executes nothing: the space is given
            as ``space``, is registered, or its module is already imported.
    """
    from archwright.ensembles import MANIFEST, load_ensemble

    path = Path(path)
    if (path / "run.json").is_file():
        path = _model_of_run(Run.open(path))
    if (path / MANIFEST).is_file():
        return load_ensemble(path, space, allow_import)
    return load_member(path, space, allow_import)


def load_member(path: Path, space: Space[Any] | None = None, allow_import: bool = False) -> Model:
    """The one network saved in the file ``path``; ``space`` and ``allow_import`` as in :func:`load_model`."""
    if not path.is_file():
        raise InputError("a model file (.safetensors) or a finished run with a trained model", str(path))
    if path.suffix == ".onnx":
        hint = "Predict with it: archwright predict FILE.onnx, or archwright.models.load_classifier(FILE)."
        raise InputError("a model file (.safetensors), which has a PyTorch network", str(path), hint)
    metadata = read_metadata(path)
    if "archwright" not in metadata:
        raise InputError("a model saved by archwright", f"{path} without its facts in the header")
    try:
        facts = Facts.read(metadata["archwright"])
    except InputError as error:
        raise _impossible(path, error) from error
    space = _space_of(facts.space, path, allow_import) if space is None else space
    try:
        scale = space.scale_from(facts.scale)
        space.at_scale(scale).check_scale(scale)
        architecture = space.at_scale(scale).parse(facts.architecture)
        params = space.cost(architecture, scale).params
    except InputError as error:
        raise _impossible(path, error) from error
    if params > stored_elements(path):  # before it is built: a damaged file must not ask for all memory
        raise RunError(f"expected the weights of a network of {params:,} parameters in {path}, got fewer.")
    network = space.build(architecture, scale)
    load_weights(network, path)
    network.eval()
    model = Model(network, facts.space, architecture, scale, facts.preprocessing_of(path), facts.measured)
    if facts.measured.get("precision") == "int8":
        model.int8 = _int8_beside(path)
    return model


def _int8_beside(path: Path) -> bytes:
    """The int8 file of a model in ``path``, which its answers are those of."""
    from archwright.export import read_graph

    file = path.with_suffix(".onnx")
    if not file.is_file():
        raise InputError(
            f"the int8 network of {path} in {file.name} beside it",
            "no such file",
            "Copy both files together: the weights in the one are the float network's.",
        )
    return read_graph(file)


def _space_of(text: str, path: Path, allow_import: bool) -> Space[Any]:
    """The space that a file names, as far as this process knows it or may import it."""
    named = SpaceRef.parse(text)
    own = named.object
    if own is not None and not own.is_local:
        what = "network" if named.kind in ("width", "model") else "space"
        # A space of a module that is already imported is only looked up; a network's function is called.
        looked_up = what == "space" and own.is_imported
        require_permission(own, what, f"the model in {path}", allow_import or looked_up)
        if not looked_up and not was_resolved(str(own)):
            say(f"Importing {own}, which the model in {path} names.", stderr=True)
    try:
        return find_space(text)
    except InputError as error:
        if named.is_local:
            raise
        raise _impossible(path, error) from error


def _impossible(path: Path, error: InputError) -> RunError:
    return RunError(f"expected a model saved by archwright in {path}, got facts that cannot be: {error}")


def _model_of_run(run: Run) -> Path:
    """The model file (or folder, of an ensemble) of a run; where there is none the error says why."""
    from archwright.ensembles import MANIFEST

    path, several = (inside(run.folder, f"artifacts/{name}") for name in ("best.safetensors", "best"))
    if (several / MANIFEST).is_file():
        return several
    if not path.is_file():
        if run.configuration.get("data") is None:
            why, do = "looked accuracies up in a table and trained no network", "Search with --data to get a model."
        else:
            why, do = "has not trained its network yet", f"Continue it with: archwright runs resume {run.folder}"
        raise InputError("a run with a trained model", f"{run.folder}, which {why}", do)
    if run.status() == "finished":
        run.check_file("artifacts/best.safetensors")
    return path
