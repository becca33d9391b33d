"""The shared part of all admin commands: REST address, credentials, output and errors."""

import functools
import json
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import typer
from rich.console import Console

from oncelog.cli.admin.rest import AdminApi, Answer
from oncelog.cli.admin.tables import show
from oncelog.cli.context.use import spread_in_context
from oncelog.cli.failures import Exit, explain
from oncelog.cli.options import (
    DEFAULT_ADMIN_URL,
    AdminServiceUrlOption,
    AdminUrlOption,
    PlaintextTokenOption,
    TimeoutOption,
    TlsCaFileOption,
    TokenFileOption,
    WideOutput,
    WideOutputOption,
)
from oncelog.cli.parameters import option_parameter, own_parameters, sign
from oncelog.client.network.addresses import is_service_url, parse_url, speaks_tls
from oncelog.core.errors import OncelogError
from oncelog.runtime.credentials import Credentials


@dataclass(frozen=True, slots=True)
class Report:
    """A result that people and programs read in different forms: `shown`, or with -o json `answer`."""

    shown: Answer
    answer: Answer


Command = Callable[..., Answer | Report | Iterator[Report]]


class NegativeAnswer(Exception):
    """Raised by a command whose answer is "no": the answer is printed, and the exit code is 1, or `code`.

    reason: an `error:` line below the answer, on standard error. It is the last line also where both go into one log.
    """

    def __init__(self, answer: Answer | Report, code: int = Exit.FAILED, *, reason: str = "") -> None:
        super().__init__()
        self.answer = answer
        self.code = code
        self.reason = reason


@dataclass(frozen=True, slots=True)
class RestCall:
    """Address, credentials and output of a command. The fields are its options, in the order of the help."""

    admin_url: AdminUrlOption = None
    url: AdminServiceUrlOption = None
    token_file: TokenFileOption = None
    tls_ca_file: TlsCaFileOption = None
    allow_plaintext_token: PlaintextTokenOption = False
    output: WideOutputOption = WideOutput.TABLE
    timeout: TimeoutOption = 30.0

    def api(self) -> AdminApi:
        """Raises OncelogError."""
        place = admin_place(self.admin_url, self.url)
        credentials = Credentials.of(
            tls=speaks_tls(place) if is_service_url(place) else place.startswith("https://"),
            token=self.token_file,
            tls_ca_file=self.tls_ca_file,
            plaintext_token_allowed=self.allow_plaintext_token,
        )
        return AdminApi(place, timeout_s=self.timeout, credentials=credentials)


@dataclass(frozen=True, slots=True)
class LiveCall(RestCall):
    """Of a command that looks at a cluster: who looks does not wait for long."""

    timeout: TimeoutOption = 5.0


def admin_command(
    app: typer.Typer,
    name: str,
    *,
    panel: str | None = None,
    line: str | None = None,
    in_outage: bool = False,
    options: type[RestCall] = RestCall,
) -> Callable[[Command], Command]:
    """Add a command. It takes the API first, then its own arguments, and returns what to print.

    A returned string describes a change; with -o json it is not printed. An iterator is printed as it goes on, with -o
    json a line for each report. panel: its group in the help of `app`. line: its line there, by default the beginning
    of its own help. in_outage: the command is for a cluster that is down. options: with other defaults.
    """

    def add(command: Command) -> Command:
        def run(call: RestCall, **arguments: object) -> None:
            try:
                with call.api() as api:
                    answer = command(api, **arguments)
                    if isinstance(answer, Iterator):
                        _print_each(answer, call.output)
                        return
            except NegativeAnswer as negative:
                _print(negative.answer, call.output)
                if negative.reason:
                    sys.stdout.flush()
                    Console(stderr=True, highlight=False).print(
                        f"error: {negative.reason}", markup=False, soft_wrap=True
                    )
                raise typer.Exit(negative.code) from negative
            except KeyboardInterrupt:
                raise typer.Exit(Exit.INTERRUPTED) from None
            except OncelogError as error:
                code = explain(error, Console(stderr=True, highlight=False), in_outage=in_outage)
                raise typer.Exit(code) from error
            _print(answer, call.output)

        functools.update_wrapper(run, command)
        sign(run, [*own_parameters(command)[1:], option_parameter("call", options)])
        run = spread_in_context(run, "call", options)
        app.command(name, rich_help_panel=panel, short_help=line)(run)
        return command

    return add


def admin_place(admin_url: str | None, url: str | None) -> str:
    """The REST address. Without admin_url, requests go through the gRPC port of url. Raises InvalidArgument."""
    if admin_url is None and url is not None:
        parse_url(url)
        return url
    return admin_url or DEFAULT_ADMIN_URL


def _print(answer: Answer | Report, output: WideOutput) -> None:
    if isinstance(answer, Report):
        answer = answer.answer if output is WideOutput.JSON else answer.shown
    if output is not WideOutput.JSON:
        show(answer, Console(highlight=False), wide=output is WideOutput.WIDE)
    elif not isinstance(answer, str):
        print(json.dumps(answer, indent=2))


def _print_each(reports: Iterator[Report], output: WideOutput) -> None:
    """Raises KeyboardInterrupt at SIGINT and SIGTERM, also where a script has started it with SIGINT ignored."""
    former = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for report in reports:
            if output is WideOutput.JSON:
                print(json.dumps(report.answer), flush=True)
            else:
                print(report.shown, flush=True)
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
