"""How commands reach a cluster: four options, written once.

@takes_connection
def check(topic: ..., *, connection: Connection, timeout: TimeoutOption = 30.0) -> None:
    client = await connection.connect(timeout)
"""

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from oncelog.cli.options import DEFAULT_URL, PlaintextTokenOption, TlsCaFileOption, TokenFileOption, UrlOption

if TYPE_CHECKING:
    from oncelog.client.client import AsyncClient


@dataclass(frozen=True, slots=True)
class Connection:
    """Address and credentials. The fields are the options, in the order of the help."""

    url: UrlOption = DEFAULT_URL
    token_file: TokenFileOption = None
    tls_ca_file: TlsCaFileOption = None
    allow_plaintext_token: PlaintextTokenOption = False

    async def connect(self, timeout_s: float) -> "AsyncClient":
        """A client whose operations take at most timeout_s. Raises OncelogError."""
        from oncelog.client.client import connect

        return await connect(
            self.url,
            token=self.token_file,
            tls_ca_file=self.tls_ca_file,
            allow_plaintext_token=self.allow_plaintext_token,
            operation_timeout=timeout_s,
        )

    def as_job_options(self) -> dict[str, str | Path | bool | None]:
        """The same as options of a job on Spark."""
        return {
            "serviceUrl": self.url,
            "tokenFile": self.token_file,
            "tlsCaFile": self.tls_ca_file,
            "allowPlaintextToken": self.allow_plaintext_token,
        }


def takes_connection(command: Callable[..., None]) -> Callable[..., None]:
    """In the command's signature, its parameter `connection` becomes the options of a Connection."""
    annotations = get_type_hints(Connection, include_extras=True)
    parameters = [option_parameter(field.name, annotations[field.name], field.default) for field in fields(Connection)]
    return spread_parameter(command, "connection", parameters, lambda given: Connection(**given))


def option_parameter(name: str, annotation: object, default: object = inspect.Parameter.empty) -> inspect.Parameter:
    """As typer reads it. Without a default the option is required."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def spread_parameter(
    command: Callable[..., None],
    name: str,
    parameters: Sequence[inspect.Parameter],
    gather: Callable[[dict[str, Any]], object],
) -> Callable[..., None]:
    """The command with other parameters in the place of `name`, which gets what `gather` makes of their values. Typer
    reads annotations, so they are resolved here, in the command's own module."""

    @functools.wraps(command)
    def run(**arguments: Any) -> None:
        given = {parameter.name: arguments.pop(parameter.name) for parameter in parameters}
        command(**arguments, **{name: gather(given)})

    hints = get_type_hints(command, include_extras=True)
    spread: list[inspect.Parameter] = []
    for own in inspect.signature(command).parameters.values():
        kept = own.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints.get(own.name))
        spread += parameters if own.name == name else [kept]
    run.__signature__ = inspect.Signature(spread)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in spread}
    return run
