"""A group of commands of which `run` is the default."""

from typing import Any

from typer.core import TyperGroup


class RunByDefault(TyperGroup):
    """Arguments that do not begin with the name of a command are those of `run`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        names_one = bool(args) and (args[0] in self.commands or args[0] == "--help")
        return super().parse_args(ctx, args if names_one or not args else ["run", *args])
