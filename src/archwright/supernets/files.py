"""A trained supernet as one file that says what it was trained on, so that another search can use it again."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors.torch import save as safetensors_bytes

from archwright.errors import InputError
from archwright.runs.files import load_weights, read_metadata, write_atomic
from archwright.spaces.mbconv import MbConv
from archwright.strict import parse_json
from archwright.supernets.elastic import ElasticSupernet


def save_supernet(supernet: ElasticSupernet, fingerprint: str, path: Path) -> None:
    """Write weights and statistics, the scale, and the fingerprint of the images and splits it was trained on."""
    state = {name: tensor.detach().cpu().contiguous() for name, tensor in supernet.state_dict().items()}
    facts = {"scale": supernet.space.scale.to_dict(), "data": fingerprint}
    write_atomic(path, safetensors_bytes(state, metadata={"supernet": json.dumps(facts)}))


def load_supernet(path: Path, space: MbConv, fingerprint: str) -> ElasticSupernet:
    """The supernet in ``path``; one of another space, or of other images or splits, is refused."""
    if not path.is_file():
        raise InputError(
            "a run with a trained supernet", f"no file {path}", "Finish that run, or leave out --supernet."
        )
    try:
        facts = parse_json(read_metadata(path).get("supernet", "{}"))
    except ValueError as error:
        raise InputError("a supernet saved by archwright", f"{path} ({error})") from error
    if not isinstance(facts, dict) or facts.get("scale") != json.loads(json.dumps(space.scale.to_dict())):
        raise InputError(
            f"a supernet at {space.scale.image_size} px with stages of {space.scale.stage_channels} channels and "
            f"{space.scale.classes} classes",
            f"one of another space in {path}",
        )
    if facts.get("data") != fingerprint:
        raise InputError(
            "a supernet trained on the same images with the same seed",
            f"one of other images or splits in {path}",
            "Its validation images could be your training images; train it anew.",
        )
    supernet = ElasticSupernet(space)
    load_weights(supernet, path)
    return supernet
