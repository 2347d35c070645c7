"""Weights that somebody trained on ImageNet: which there are, where they lie, and how they become our networks.

Nothing here knows searches. Foreign code is never imported, and nothing is downloaded or bundled.
"""

from archwright.pretrained.files import Weights, installed, installed_starts, load_start
from archwright.pretrained.starts import DEFAULT, NAMED, STARTS, Start

__all__ = ["DEFAULT", "NAMED", "STARTS", "Start", "Weights", "installed", "installed_starts", "load_start"]
