"""The commands of `oncelog context`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from oncelog.cli.context.file import Context, Contexts, contexts_path, read_contexts, write_contexts
from oncelog.cli.failures import EXIT_CODES, offline
from oncelog.cli.options import Output, OutputOption
from oncelog.core.errors import InvalidArgument

_HELP = f"""Keep the addresses and credentials of clusters by name, and choose one for all commands.

    oncelog context add prod --url oncelog+tls://oncelog.example:6650 --admin-url https://oncelog.example:8080
    --token-file prod.token --tls-ca-file ca.crt

    oncelog context use prod

    oncelog context list

A command uses the current context unless an address is given by --url, --admin-url, ONCELOG_URL or ONCELOG_ADMIN_URL;
then it uses nothing of the context. Other options and variables override the context. The file is
~/.config/oncelog/contexts.json, or in $XDG_CONFIG_HOME; only its owner can read it.

{EXIT_CODES}"""
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the context.")]

context = typer.Typer(help=_HELP, no_args_is_help=True)


@context.command("add")
@offline
def add(
    name: NameArgument,
    url: Annotated[str | None, typer.Option("--url", help="As --url of the other commands.")] = None,
    admin_url: Annotated[str | None, typer.Option("--admin-url", help="REST address, http[s]://HOST:PORT.")] = None,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", exists=True, dir_okay=False, help="File with the token for this cluster."),
    ] = None,
    tls_ca_file: Annotated[
        Path | None, typer.Option("--tls-ca-file", exists=True, dir_okay=False, help="PEM file of the cluster's CA.")
    ] = None,
) -> None:
    """Add a context. Files are stored as absolute paths."""

    def change(contexts: Contexts) -> Contexts:
        files = [None if file is None else str(file.resolve()) for file in (token_file, tls_ca_file)]
        return contexts.added(name, Context(url, admin_url, *files))

    _change(change, f"added context {name}; to use it: oncelog context use {name}")


@context.command("use")
@offline
def use(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Name of the context.")] = None,
    none: Annotated[bool, typer.Option("--none", help="Use no context.")] = False,
) -> None:
    """Let all commands use a context from now on, or none with --none."""

    def change(contexts: Contexts) -> Contexts:
        if (name is None) != none:
            raise InvalidArgument("give either NAME or --none", field="name")
        return contexts.using(name)

    _change(change, "no context is used" if name is None else f"context {name} is used")


@context.command("list")
@offline
def list_contexts(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Show this one with all its values.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the contexts; a star marks the current one. Or show one."""
    contexts = read_contexts(contexts_path())
    if name is not None:
        values = {"context": name, **contexts.named(name).values()}
        lines = "\n".join(f"{key:<12} {value}" for key, value in values.items())
        print(json.dumps(values) if output is Output.JSON else lines)
        return
    if output is Output.JSON:
        shown = {name: each.values() for name, each in sorted(contexts.contexts.items())}
        print(json.dumps({"current": contexts.current, "contexts": shown}))
        return
    for known, each in sorted(contexts.contexts.items()):
        print(f"{'*' if known == contexts.current else ' '} {known}  {each.url or each.admin_url}")


@context.command("delete")
@offline
def delete(name: NameArgument) -> None:
    """Delete a context. Its token file and its CA file stay."""
    _change(lambda contexts: contexts.without(name), f"deleted context {name}")


def _change(change: Callable[[Contexts], Contexts], done: str) -> None:
    path = contexts_path()
    write_contexts(path, change(read_contexts(path)))
    print(done)
