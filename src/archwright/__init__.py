"""Archwright finds neural-network architectures for your data and your device.

The public names are imported when first used, so that ``import archwright`` is quick; the errors are there at once.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from archwright.errors import ArchwrightError, DivergedError, InfeasibleError, InputError, Interrupted, RunError

if TYPE_CHECKING:
    from archwright import data, nn
    from archwright.ensembles import Ensemble
    from archwright.estimator import ArchwrightClassifier
    from archwright.measuring import latency, score
    from archwright.models import Model, load_model
    from archwright.proxies.metrics import Proxy
    from archwright.runs.progress import Progress, TerminalProgress
    from archwright.search.answer import Answer, Candidate
    from archwright.search.context import Context
    from archwright.search.engine import resume, search
    from archwright.search.limited import LimitedSearch
    from archwright.search.method import Method, Options, SearchMethod, Stage
    from archwright.search.study import Study
    from archwright.search.training import train
    from archwright.search.values import Choice
    from archwright.spaces.base import Architecture, Scale, Space
    from archwright.spaces.cell_space import CellSpace
    from archwright.spaces.choice_space import ChoiceSpace
    from archwright.spaces.model_space import ModelSpace
    from archwright.spaces.ranges import Integer, Real
    from archwright.spaces.registry import find_space
    from archwright.spaces.staged import StagedSpace

__version__ = "0.1.0"

_HOMES = {
    "Answer": "search.answer",
    "Architecture": "spaces.base",
    "ArchwrightClassifier": "estimator",
    "Candidate": "search.answer",
    "CellSpace": "spaces.cell_space",
    "Choice": "search.values",
    "ChoiceSpace": "spaces.choice_space",
    "Context": "search.context",
    "Ensemble": "ensembles",
    "Integer": "spaces.ranges",
    "LimitedSearch": "search.limited",
    "Method": "search.method",
    "ModelSpace": "spaces.model_space",
    "Model": "models",
    "Options": "search.method",
    "Progress": "runs.progress",
    "Proxy": "proxies.metrics",
    "Real": "spaces.ranges",
    "Scale": "spaces.base",
    "SearchMethod": "search.method",
    "Space": "spaces.base",
    "Stage": "search.method",
    "StagedSpace": "spaces.staged",
    "Study": "search.study",
    "TerminalProgress": "runs.progress",
    "find_space": "spaces.registry",
    "latency": "measuring",
    "load_model": "models",
    "resume": "search.engine",
    "score": "measuring",
    "search": "search.engine",
    "train": "search.training",
}
"""Module of each name that is imported on first use."""
__all__ = [
    "Answer",
    "Architecture",
    "ArchwrightClassifier",
    "ArchwrightError",
    "Candidate",
    "CellSpace",
    "Choice",
    "ChoiceSpace",
    "Context",
    "DivergedError",
    "Ensemble",
    "InfeasibleError",
    "InputError",
    "Integer",
    "Interrupted",
    "LimitedSearch",
    "Method",
    "Model",
    "ModelSpace",
    "Options",
    "Progress",
    "Proxy",
    "Real",
    "RunError",
    "Scale",
    "SearchMethod",
    "Space",
    "Stage",
    "StagedSpace",
    "Study",
    "TerminalProgress",
    "__version__",
    "data",
    "find_space",
    "latency",
    "load_model",
    "nn",
    "resume",
    "score",
    "search",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in ("data", "nn"):
        return importlib.import_module(f"archwright.{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(f"archwright.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'archwright' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
