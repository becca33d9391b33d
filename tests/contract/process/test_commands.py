"""All commands of `oncelog`: how many there are."""

from collections.abc import Iterator
from typing import Any

import typer

from oncelog.cli.app import app

#: rpk and nats have 30 to 60, for less. Above this, a new command replaces another one, or becomes an option.
COMMANDS_MAX = 110


def leaves(command: Any, *path: str) -> Iterator[tuple[str, ...]]:
    """The paths of the commands that are no group."""
    if not hasattr(command, "commands"):
        yield path
        return
    for name in command.commands:
        yield from leaves(command.commands[name], *path, name)


def test_commands_are_few() -> None:
    """A user looks for a command in lists that can be read."""
    assert len(list(leaves(typer.main.get_command(app)))) <= COMMANDS_MAX
