"""What a user asks a search for, in Python or on the command line, as one configuration that is validated once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from archwright.errors import InputError
from archwright.references import DataRef
from archwright.search.configuration import Configuration, validated
from archwright.search.method import Method
from archwright.search.registry import methods
from archwright.search.task import Task
from archwright.spaces.base import Space
from archwright.spaces.registry import name_space


def asked_for(method: str, settings: Mapping[str, Any], what: str = "settings of a search") -> Configuration:
    """The configuration of a new search; ``model_fields_set`` are the settings that were given.

    Args:
        method: registered name of what searches.
        settings: fields of a configuration and options of the method, by name, and ``options``, a mapping of further
            ones. What is None was not given. Objects are named by texts that find them again.
        what: how to call the settings in an error.
    """
    chosen: type[Method] = methods.get(method)
    given = _given(settings)
    own = {name: given.pop(name) for name in list(given) if name not in Configuration.model_fields}
    values = {**given, "method": method, "options": {**_given(given.get("options", {})), **own}}
    if "space" in values:
        values["space"] = space_text(values["space"])
    if "data" in values:
        values["data"] = data_text(values["data"])
    elif not {"benchmark", "evaluate"} & set(values):
        values["data"] = "digits"
    return validated(Configuration, values, what, beside=chosen.Options)


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def completed(method: type[Method], task: Task) -> Configuration:
    """The configuration of ``task`` with what the method chooses where the user said nothing."""
    configuration = task.configuration
    given = configuration.model_fields_set - {"options"}
    chosen = {name: value for name, value in method.completed(task).items() if name not in given}
    return configuration.model_copy(update=chosen)


def space_text(space: Any) -> str:
    """What a configuration keeps of a space: a text that finds it again."""
    if isinstance(space, str):
        return space
    if not isinstance(space, Space):
        raise InputError("a text or a space as space", type(space).__name__)
    return name_space(space)


def data_text(data: Any) -> str:
    """What a configuration keeps of images: a text that finds them again, or the name of those given in memory."""
    return data if isinstance(data, str) else str(DataRef("object", str(getattr(data, "name", type(data).__name__))))
