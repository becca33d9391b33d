"""A command group that imports each command when it runs, not when the program starts or shows its help."""

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from oncelog.cli.compact_help import compact
from oncelog.cli.extras import check_installed, have_code
from oncelog.cli.failures import explain
from oncelog.core.errors import Fatal
from oncelog.runtime.installation import install_command


class LazyCommand(NamedTuple):
    """One command or group of commands.

    help: its line in the list of commands. load: returns the command's function, or the Typer of a group. extras: the
    optional parts (`extras.MODULES`) without which it is not run; its help needs only the distribution with its code.
    """

    help: str
    load: Callable[[], "Callable[..., None] | typer.Typer"]
    extras: tuple[str, ...] = ()


class LazyCommands(MutableMapping[str, Any]):
    """{name: command}, each loaded on access. Inside `listed`, commands are placeholders with only their help."""

    def __init__(self, commands: Mapping[str, LazyCommand]) -> None:
        self._commands = commands
        self._loaded: dict[str, Any] = {}
        self._listing = False

    @contextmanager
    def listed(self) -> Iterator[None]:
        """No command is loaded inside this block."""
        self._listing = True
        try:
            yield
        finally:
            self._listing = False

    def __getitem__(self, name: str) -> Any:
        if self._listing and name in self._commands:
            return TyperCommand(name, help=self._commands[name].help)
        if name not in self._loaded and name in self._commands:
            self._loaded[name] = _loaded(name, self._commands[name])
        return self._loaded[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._commands
        yield from (name for name in self._loaded if name not in self._commands)

    def __len__(self) -> int:
        return len(set(self._commands) | set(self._loaded))


def lazy_group(commands: Mapping[str, LazyCommand]) -> type[TyperGroup]:
    """The class of a group with these commands, in this order. Each is made once in a process: that of `admin`, with
    all of its options, takes a tenth of a second."""
    made = LazyCommands(commands)

    class LazyGroup(TyperGroup):
        def __init__(self, **attributes: Any) -> None:
            super().__init__(**attributes)
            self.lazy = made
            self.commands = made

        def format_help(self, ctx: Any, formatter: Any) -> None:
            with self.lazy.listed():
                super().format_help(ctx, formatter)

        def shell_complete(self, ctx: Any, incomplete: str) -> Any:
            with self.lazy.listed():
                return super().shell_complete(ctx, incomplete)

    return LazyGroup


def _loaded(name: str, command: LazyCommand) -> Any:
    if not have_code(*command.extras):
        return _not_installed(name, command)
    loaded = command.load()
    if not isinstance(loaded, typer.Typer):
        single = typer.Typer(add_completion=False)
        single.command(name)(loaded)
        loaded = single
    found = compact(typer.main.get_command(loaded))
    found.name = name
    if command.extras:
        found.invoke = _checked(found.invoke, command.extras)
    return found


def _not_installed(name: str, command: LazyCommand) -> TyperCommand:
    """A command whose distribution is not installed: its help, and what installs it. Takes any arguments."""
    anything = {"ignore_unknown_options": True, "allow_extra_args": True}
    help_text = f"{command.help} To install it: {install_command(*command.extras)}"
    explain_missing = _checked(lambda _context: None, command.extras)
    return TyperCommand(name, help=help_text, callback=lambda: explain_missing(None), context_settings=anything)


def _checked(invoke: Callable[[Any], Any], extras: tuple[str, ...]) -> Callable[[Any], Any]:
    """`invoke`, but a missing extra is explained in one sentence first."""

    def check_and_invoke(context: Any) -> Any:
        try:
            check_installed(*extras)
        except Fatal as error:
            from rich.console import Console

            raise typer.Exit(explain(error, Console(stderr=True, highlight=False))) from None
        return invoke(context)

    return check_and_invoke
