"""The shared part of all admin commands: REST address, credentials, output and errors."""

import functools
import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

import typer
from rich.console import Console

from oncelog.cli.admin.rest import AdminApi, Answer
from oncelog.cli.admin.tables import show
from oncelog.cli.failures import Exit, explain
from oncelog.cli.options import (
    DEFAULT_ADMIN_URL,
    DEFAULT_URL,
    AdminServiceUrlOption,
    AdminUrlOption,
    PlaintextTokenOption,
    TimeoutOption,
    TlsCaFileOption,
    TokenFileOption,
    WideOutput,
    WideOutputOption,
)
from oncelog.client.network.addresses import is_proxy_url, speaks_tls
from oncelog.core.errors import OncelogError
from oncelog.runtime.credentials import Credentials


@dataclass(frozen=True, slots=True)
class Report:
    """A result that people and programs read in different forms: `shown`, or with -o json `answer`."""

    shown: Answer
    answer: Answer


Command = Callable[..., Answer | Report]


class NegativeAnswer(Exception):
    """Raised by a command whose answer is "no": the answer is printed, and the exit code is 1."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.answer = answer


_TIMEOUT_S = 30.0


def admin_command(
    app: typer.Typer, name: str, *, panel: str | None = None, line: str | None = None
) -> Callable[[Command], Command]:
    """Add a command. It takes the API first, then its own arguments, and returns what to print.

    A returned string describes a change; with -o json it is not printed. panel: its group in the help of `app`. line:
    its line there, by default the beginning of its own help.
    """

    def add(command: Command) -> Command:
        @functools.wraps(command)
        def run(
            *,
            admin_url: str,
            url: str,
            token_file: Path | None,
            tls_ca_file: Path | None,
            allow_plaintext_token: bool,
            output: WideOutput,
            timeout: float,
            **arguments: object,
        ) -> None:
            place = admin_place(admin_url, url)
            try:
                credentials = Credentials.of(
                    tls=speaks_tls(place) if is_proxy_url(place) else place.startswith("https://"),
                    token=token_file,
                    tls_ca_file=tls_ca_file,
                    plaintext_token_allowed=allow_plaintext_token,
                )
                with AdminApi(place, timeout_s=timeout, credentials=credentials) as api:
                    answer = command(api, **arguments)
            except NegativeAnswer as negative:
                _print(negative.answer, output)
                raise typer.Exit(Exit.FAILED) from negative
            except OncelogError as error:
                code = explain(error, Console(stderr=True, highlight=False))
                raise typer.Exit(code) from error
            _print(answer, output)

        run.__signature__ = _signature(command)  # type: ignore[attr-defined]
        run.__annotations__ = {name: parameter.annotation for name, parameter in _signature(command).parameters.items()}
        app.command(name, rich_help_panel=panel, short_help=line)(run)
        return command

    return add


def admin_place(admin_url: str, url: str) -> str:
    """The REST address: --admin-url if it is set, else --url if it is a proxy URL."""
    return url if is_proxy_url(url) and admin_url == DEFAULT_ADMIN_URL else admin_url


def _print(answer: Answer | Report, output: WideOutput) -> None:
    if isinstance(answer, Report):
        answer = answer.answer if output is WideOutput.JSON else answer.shown
    if output is not WideOutput.JSON:
        show(answer, Console(highlight=False), wide=output is WideOutput.WIDE)
    elif not isinstance(answer, str):
        print(json.dumps(answer, indent=2))


def _signature(command: Command) -> inspect.Signature:
    """The command's own parameters, except the API, and the shared ones."""
    hints = get_type_hints(command, include_extras=True)
    own = [
        parameter.replace(annotation=hints[parameter.name])
        for parameter in list(inspect.signature(command).parameters.values())[1:]
    ]
    shared: list[tuple[str, Any, object]] = [
        ("admin_url", AdminUrlOption, DEFAULT_ADMIN_URL),
        ("url", AdminServiceUrlOption, DEFAULT_URL),
        ("token_file", TokenFileOption, None),
        ("tls_ca_file", TlsCaFileOption, None),
        ("allow_plaintext_token", PlaintextTokenOption, False),
        ("output", WideOutputOption, WideOutput.TABLE),
        ("timeout", TimeoutOption, _TIMEOUT_S),
    ]
    keyword_only = inspect.Parameter.KEYWORD_ONLY
    own = [parameter.replace(kind=keyword_only) for parameter in own]
    own += [
        inspect.Parameter(name, keyword_only, default=default, annotation=annotation)
        for name, annotation, default in shared
    ]
    return inspect.Signature(own)
