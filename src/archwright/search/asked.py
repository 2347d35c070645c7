"""What a user asks a search for, in Python or on the command line, as one configuration that is validated once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from archwright.errors import InputError, unknown_name
from archwright.references import DataRef
from archwright.search.configuration import SETTINGS, Configuration, validated
from archwright.search.flags import limit_flag, shown
from archwright.search.method import Method
from archwright.search.registry import methods
from archwright.search.task import Task
from archwright.spaces.base import Space
from archwright.spaces.registry import name_space


def asked_for(method: str, settings: Mapping[str, Any], what: str = "settings of a search") -> Configuration:
    """The configuration of a new search, with nothing in it that does nothing; its ``model_fields_set`` were given.

    Args:
        method: registered name of what searches.
        settings: fields of a configuration and options of the method, by name, and ``options``, a mapping of further
            ones. What is None was not given. Objects are named by texts that find them again.
        what: how to call the settings in an error.
    """
    chosen: type[Method] = methods.get(method)
    given = _given(settings)
    _refuse(given, dict.fromkeys(SETTINGS - chosen.uses, f"with the method {method!r}"))
    own = {name: given.pop(name) for name in list(given) if name not in Configuration.model_fields}
    values = {**given, "method": method, "options": {**_given(given.get("options", {})), **own}}
    if "space" in values:
        values["space"] = space_text(values["space"])
    if "data" in values:
        values["data"] = data_text(values["data"])
    elif not {"benchmark", "evaluate"} & set(values):
        values["data"] = "digits"
    configuration = validated(Configuration, values, what, beside=chosen.Options)
    _check_limits(chosen, configuration)
    check_idle(chosen, configuration, names_given(configuration))
    return configuration


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def names_given(asked: Configuration) -> list[str]:
    """Settings and options that a user gave; of the recipe's further fields also each, as ``training.NAME``."""
    given = [name for name in Configuration.model_fields if name in SETTINGS & asked.model_fields_set]
    return [*given, *(f"training.{name}" for name in asked.training), *asked.options]


def check_idle(method: type[Method], configuration: Configuration, given: Iterable[str]) -> None:
    """Refuse what was given and does nothing beside the rest: it is a mistake, not to be passed over in silence.

    Args:
        method: that searches.
        configuration: the settings.
        given: which of them a user gave (:func:`names_given`).
    """
    _refuse(given, method.idle(configuration))


def _refuse(given: Iterable[str], idle: Mapping[str, str]) -> None:
    """Refuse those of the names that are ``idle``, by where they are."""
    where: dict[str, list[str]] = {}
    for name in given:
        if name in idle:
            where.setdefault(idle[name], []).append(name)
    if where:
        found = [f"{', '.join(map(shown, names))} {place}" for place, names in where.items()]
        evaluates = "Methods that evaluate architectures are random, evolution and hnas."
        do = evaluates if any("evaluate" in names for names in where.values()) else "Leave it out."
        raise InputError("only options that do something", "; ".join(found), do)


def _check_limits(method: type[Method], asked: Configuration) -> None:
    """Refuse limits that the method does not keep."""
    if asked.limits and not method.resources:
        flags = ", ".join(map(limit_flag, asked.limits))
        do = "Use a method that keeps limits (binas, random, evolution)."
        raise InputError(f"no limits with the method {asked.method!r}", flags, do)
    for name in asked.limits:
        if name not in method.resources:
            raise unknown_name(f"limit of the method {asked.method}", name, method.resources)
    if not method.several_limits:
        _ = asked.single_limits


def completed(method: type[Method], task: Task) -> Configuration:
    """The configuration of ``task`` with what ``method`` chooses where the user said nothing."""
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
