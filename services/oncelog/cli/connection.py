"""How commands reach a cluster: four options, written once.

@takes_connection
def check(topic: ..., *, connection: Connection, timeout: TimeoutOption = 30.0) -> None:
    client = await connection.connect(timeout)
"""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, get_type_hints

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
    names = [field.name for field in fields(Connection)]

    @functools.wraps(command)
    def run(**arguments: object) -> None:
        given = {name: arguments.pop(name) for name in names}
        command(**arguments, connection=Connection(**given))  # type: ignore[arg-type]  # checked by typer

    signature = spread_parameter(command, "connection", Connection)
    run.__signature__ = signature  # type: ignore[attr-defined]
    run.__annotations__ = {name: parameter.annotation for name, parameter in signature.parameters.items()}
    return run


def spread_parameter(command: Callable[..., object], name: str, options: type) -> inspect.Signature:
    """The command's signature with the parameter `name` replaced by the fields of the dataclass `options`. Typer reads
    annotations, so they are resolved here, in the command's own module."""
    keyword_only = inspect.Parameter.KEYWORD_ONLY
    hints, own = (get_type_hints(each, include_extras=True) for each in (command, options))
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        if parameter.name == name:
            parameters += [
                inspect.Parameter(field.name, keyword_only, default=field.default, annotation=own[field.name])
                for field in fields(options)
            ]
        else:
            parameters.append(parameter.replace(kind=keyword_only, annotation=hints[parameter.name]))
    return inspect.Signature(parameters)
