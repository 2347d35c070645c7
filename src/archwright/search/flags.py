"""The flags of ``archwright search METHOD``, and the command that asks for a search again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from archwright.runs.files import Json
from archwright.search.configuration import ASK_AND_TELL, SETTINGS, Configuration, references
from archwright.search.registry import methods
from archwright.search.texts import write


def flag_of(name: str) -> str:
    """``--image-size`` of ``image_size``, a setting of a search or an option of its method."""
    return f"--{name.replace('_', '-')}"


def limit_flag(resource: str) -> str:
    """``--latency-ms`` of ``latency_ms``; ``--most-channels`` where a setting has the name already."""
    return flag_of(f"most_{resource}" if resource in Configuration.model_fields else resource)


def shown(name: str) -> str:
    """How a setting, an option, or a field of the recipe (``training.NAME``) is called in a sentence."""
    setting, _, field = name.partition(".")
    return f"{flag_of(setting)} {field}=" if field else flag_of(setting)


def words_of(flag: str, value: Json) -> list[str]:
    """What a person types to give ``flag`` the ``value``: ``--size 3``, or ``--no-verify`` for a switch."""
    if isinstance(value, bool):
        return [flag if value else flag.replace("--", "--no-", 1)]
    return [flag, write(value)]


def only_in_memory(configuration: Mapping[str, Json]) -> list[str]:
    """Names of settings that no command can give: objects of the program that started the search."""
    found = [name for name, one in references(configuration).items() if one.is_local]
    return [*found, "evaluate"] if configuration.get("evaluate") == ASK_AND_TELL else found


def command_of(configuration: Mapping[str, Json]) -> str:
    """The command, one line for a shell, that asks for the search of a run's configuration again."""
    words = ["archwright", "search", str(configuration["method"])]
    idle = _idle(configuration)
    for name, info in Configuration.model_fields.items():
        value = configuration.get(name)
        default = None if name == "space" else info.get_default(call_default_factory=True)
        if name in SETTINGS - idle and value is not None and value != default:
            words += words_of(flag_of(name), value)
    for name, value in configuration.get("limits", {}).items():
        for one in value if isinstance(value, list) else [value]:
            words += words_of(limit_flag(name), one)
    for name, value in configuration.get("options", {}).items():
        if value is not None and name not in idle:
            words += words_of(flag_of(name), value)
    return shlex.join(words)


def _idle(configuration: Mapping[str, Json]) -> set[str]:
    """What a run of an earlier version may have kept, and a new search would refuse as it does nothing."""
    if configuration["method"] not in methods:
        return set()
    method = methods.get(configuration["method"])
    return set(SETTINGS - method.uses) | set(method.idle(Configuration.model_construct(**configuration)))
