"""The layout of `--help`: plain text without boxes, and one line for the options of the connection.

`oncelog help connection` explains these options, which most commands have, and `oncelog help json` what -o json prints.
`oncelog help COMMAND` is the help of a command.
"""

import textwrap
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated, Any, NamedTuple, get_args

import typer

from oncelog.cli import options as opt

CONNECTION, JSON = "connection", "json"
#: A sentence is never cut in a list of commands: it goes on in the next line.
_SENTENCE_CHARACTERS_MAX = 300
#: A name that is longer has the next line for its text.
_NAME_COLUMNS_MAX = 28
#: {what typer says of a type: the word for its value}
_TYPES = {
    "<int range>": "N", "<int>": "N", "<float range>": "N", "<float>": "N", "<str>": "TEXT", "<path>": "PATH",
    "<file>": "FILE", "<directory>": "DIR", "<list[str]>": "TEXT",
}  # fmt: skip
_COMPLETION = ("install_completion", "show_completion")


class ConnectionOption(NamedTuple):
    """One of those that most commands have. variable: of the environment, empty: none."""

    flag: str
    help: str
    variable: str


def _option_of(annotation: Any) -> ConnectionOption:
    option = get_args(annotation)[1]
    return ConnectionOption(option.default, option.help, option.envvar or "")


#: Commands for the SDK's address and for that of REST have a --url each.
CONNECTION_OPTIONS = tuple(
    _option_of(each)
    for each in (
        opt.UrlOption, opt.AdminUrlOption, opt.AdminServiceUrlOption, opt.TokenFileOption, opt.TlsCaFileOption,
        opt.PlaintextTokenOption, opt.TimeoutOption,
    )
)  # fmt: skip
_KNOWN = {(each.flag, each.help) for each in CONNECTION_OPTIONS}


def compact(command: Any) -> Any:
    """The command, with this layout, and all commands below it."""
    for each in _each(command):
        each.rich_markup_mode = None
        each.format_options = partial(_format_options, each)
        each.params = [parameter for parameter in each.params if parameter.name not in _COMPLETION]
    return command


def _each(command: Any) -> Iterator[Any]:
    yield command
    for below in getattr(command, "commands", {}).values():
        yield from _each(below)


def _format_options(command: Any, context: Any, formatter: Any) -> None:
    """Arguments, options, connection options, and the commands of a group."""
    arguments, options, connection = [], [], []
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is None:
            continue
        record = (_named(record[0]), record[1])
        if parameter.param_type_name == "argument":
            arguments.append((record[0].partition(" ")[0], record[1]))
        elif (parameter.opts[0], parameter.help) in _KNOWN:
            connection.append(parameter.opts[0])
        else:
            options.append(record)
    for title, records in (("Arguments", arguments), ("Options", options)):
        if records:
            with formatter.section(title):
                formatter.write_dl(records, _NAME_COLUMNS_MAX)
    if connection:
        line = f"Connection options: {', '.join(connection)}. See `oncelog help {CONNECTION}`."
        formatter.write_paragraph()
        formatter.write("\n".join(textwrap.wrap(line, formatter.width, break_on_hyphens=False)) + "\n")
    _format_commands(command, context, formatter)


def _named(first: str) -> str:
    """A name with the word for its value."""
    for told, word in _TYPES.items():
        first = first.replace(told, word)
    return first


def _format_commands(command: Any, context: Any, formatter: Any) -> None:
    below = getattr(command, "commands", {})
    if below:
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, each.get_short_help_str(_SENTENCE_CHARACTERS_MAX)) for name, each in below.items()]
            )


def show_help(
    context: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="COMMAND...", help=f"Words of a command, as `admin topics list`; or {CONNECTION}, or {JSON}."
        ),
    ] = None,
) -> None:
    """Show the help of a command, explain the options of the connection, or the fields of -o json.

    oncelog help admin topics list

    oncelog help connection
    """
    pages = {CONNECTION: _connection_page, JSON: _json_page}
    page = pages.get(" ".join(words or ()))
    typer.echo(_page_of(context.find_root(), words or []) if page is None else page(context.make_formatter()))


def _page_of(root: Any, words: Sequence[str]) -> str:
    """Raises UsageError for words that are no command."""
    at = root
    for word in words:
        name, command, _ = at.command.resolve_command(at, [word]) if hasattr(at.command, "commands") else ("", None, [])
        if command is None:
            raise typer.BadParameter(f"{' '.join(words)}: {at.command_path} has no command {word}")
        at = typer.Context(command, info_name=name, parent=at)
    return str(at.get_help())


def _json_page(formatter: Any) -> str:
    from oncelog.cli.json_fields import FIELDS

    formatter.write_text(
        "This page shows what -o json prints, for commands that make their answer themselves. Commands of `oncelog "
        "admin` print the answer of the REST interface, which docs/rest.md describes."
    )
    for command, fields in FIELDS.items():
        with formatter.section(f"oncelog {command}"):
            formatter.write_text(fields)
    return str(formatter.getvalue()).rstrip()


def _connection_page(formatter: Any) -> str:
    formatter.write_text(
        "How a command reaches a cluster. An option overrides its environment variable, and a variable overrides "
        "the current context (`oncelog context`). The addresses of a command come from one place: if an option "
        "gives an address, the addresses in variables and in the context are ignored, so that a token is sent to "
        "its own cluster only."
    )
    with formatter.section("Connection options"):
        formatter.write_dl(
            [
                (each.flag, f"{each.help}{f'  [env var: {each.variable}]' if each.variable else ''}")
                for each in CONNECTION_OPTIONS
            ]
        )
    formatter.write_paragraph()
    formatter.write_text(
        "Output: -o table for people, -o json for programs; with -o wide, tables have all columns and full values. "
        "Errors and progress go to standard error."
    )
    return str(formatter.getvalue()).rstrip()
