"""Options and words of commands, and limits that nothing meets."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.wrong_data import architecture_cases, array_cases
from helpers.wrong_files import Site, fact_cases, header_cases, onnx_fact_cases, table_cases
from helpers.wrong_options import command_cases, option_cases


@pytest.mark.parametrize("arguments", list(option_cases()))
def test_an_option_refuses(arguments: list[str], refused: Any, site: Site) -> None:
    if arguments[0] == "predict" or arguments[-1].startswith("a-"):
        site.copy()
    refused(*arguments)


@pytest.mark.parametrize("arguments", list(command_cases()))
def test_words_are_refused(arguments: list[str], refused: Any) -> None:
    refused(*arguments)


def test_limits_that_nothing_meets_are_refused(refused: Any) -> None:
    for limit in ("--params", "--macs"):
        refused("search", "binas", limit, "1e-9")


def test_the_catalogue_is_large() -> None:
    """At least 600 different inputs; each of the generators gives some."""
    made = [option_cases, command_cases, fact_cases, onnx_fact_cases, table_cases, header_cases, array_cases]
    counts = [len(list(generate())) for generate in (*made, architecture_cases)]
    assert min(counts) > 20
    assert sum(counts) > 600
