"""``archwright completion``: the script that completes commands, methods and options in a shell."""

from __future__ import annotations

import click

_WHERE = {
    "bash": "archwright completion bash >> ~/.bashrc",
    "zsh": "archwright completion zsh >> ~/.zshrc",
    "fish": "archwright completion fish > ~/.config/fish/completions/archwright.fish",
}


@click.command("completion", epilog=f"Example: {_WHERE['bash']}")
@click.argument("shell", type=click.Choice(sorted(_WHERE)))
@click.pass_context
def completion_command(ctx: click.Context, shell: str) -> None:
    """Print the completion script of SHELL, to be added to its start-up file."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(f"# Kept by: {_WHERE[shell]}")
    click.echo(kind(ctx.find_root().command, {}, "archwright", "_ARCHWRIGHT_COMPLETE").source())
