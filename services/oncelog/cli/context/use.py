"""Where a command takes its address and credentials from: options, then variables, then the current context.

The addresses of a command are of one cluster, so they come from one place: an address of an option excludes those of
variables and of the context, and an address of a variable excludes those of the context. A context is used as a whole:
a command whose address is named by an option or a variable takes nothing from it, so that no token goes to another
cluster than its own. Otherwise single options and variables win over the context.

A token file of a variable is the user's wish for each command, also for one with an address of an option. If the
variable of that address names another one, the token is probably of that cluster: a warning says that it is sent.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from oncelog.cli.failures import leave
from oncelog.cli.parameters import option_parameter, parameters_of, spread_parameter
from oncelog.client.network.addresses import without_password
from oncelog.core.errors import InvalidArgument, OncelogError

_ADDRESSES = ("url", "admin_url")
_FILES = ("token_file", "tls_ca_file")


def spread_in_context(command: Callable[..., None], name: str, options: type) -> Callable[..., None]:
    """In the command's signature, its parameter `name` becomes the fields of the dataclass `options`: address,
    credentials and others. What is not given is taken from the current context."""

    def gather(given: dict[str, Any]) -> object:
        called = given.pop("called")
        try:
            return options(**_merged(called, given))
        except (OncelogError, OSError) as error:
            leave(error)

    parameters = [option_parameter("called", typer.Context), *parameters_of(options)]
    return spread_parameter(command, name, parameters, gather)


def _warn_of_token(sources: dict[str, Any], given: dict[str, Any], typed: set[str]) -> None:
    source = sources.get("token_file")
    if source is None or source.name != "ENVIRONMENT":
        return
    for option, variable, known in (
        (f"--{name.replace('_', '-')}", f"ONCELOG_{name.upper()}", given[name]) for name in sorted(typed)
    ):
        if os.environ.get(variable, known) != known:
            typer.echo(
                f"warning: the token of ONCELOG_TOKEN_FILE is sent to {option} {without_password(known)}, and "
                f"{variable} names another address: give the token of this cluster with --token-file",
                err=True,
            )


def _merged(command: typer.Context, given: dict[str, Any]) -> dict[str, Any]:
    sources = {name: command.get_parameter_source(name) for name in given}
    free = {name for name, source in sources.items() if source is not None and source.name == "DEFAULT"}
    addresses = {name for name in _ADDRESSES if name in given}
    typed = {name for name in addresses - free if (source := sources[name]) and source.name == "COMMANDLINE"}
    if typed:
        _warn_of_token(sources, given, typed)
        return given | dict.fromkeys(addresses - typed)
    if addresses - free:
        return given
    from oncelog.cli.context.file import contexts_path, read_contexts

    try:
        path = contexts_path()
    except InvalidArgument:  # without a home there are no contexts
        return given
    contexts = read_contexts(path)
    if contexts.current is None:
        return given
    values: dict[str, Any] = {**contexts.named(contexts.current).values()}
    for name in free.intersection(_FILES).intersection(values):
        values[name] = Path(values[name])
        if not values[name].is_file():
            message = f"{name} of context {contexts.current} is no file: {values[name]}; delete and add the context"
            raise InvalidArgument(message, field=name)
    return given | {name: values[name] for name in free.intersection(values)}
