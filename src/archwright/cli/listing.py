"""Commands that list what is registered, one line each, without importing torch."""

from __future__ import annotations

import click

from archwright.registry import Registry


def _lister(name: str, help_text: str, module: str, attribute: str) -> click.Command:
    def show() -> None:
        import importlib

        registry: Registry = getattr(importlib.import_module(module), attribute)
        entries = list(registry)
        width = max(len(entry.name) for entry in entries)
        for entry in entries:
            click.echo(f"{entry.name:<{width}}  {entry.summary}")

    return click.Command(name, callback=show, help=help_text, epilog=f"Example: archwright {name}")


COMMANDS = (
    _lister("spaces", "List the search spaces.", "archwright.spaces.registry", "spaces"),
    _lister("methods", "List the search methods.", "archwright.search.registry", "methods"),
    _lister("datasets", "List the data sets.", "archwright.data.registry", "datasets"),
    _lister("proxies", "List the training-free metrics.", "archwright.proxies.registry", "PROXIES"),
    _lister("benchmarks", "List the tabular benchmarks.", "archwright.tables.registry", "benchmarks"),
)
