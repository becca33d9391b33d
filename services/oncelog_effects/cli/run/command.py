"""`oncelog run`: options and execution."""

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from oncelog.cli.connection import Connection, takes_connection
from oncelog.cli.failures import EXIT_CODES, Exit
from oncelog.cli.options import TimeoutOption
from oncelog.cli.running import Interrupt, run_command

if TYPE_CHECKING:
    from oncelog_effects.processes import Process

_HELP = f"""Run functions whose effects happen once: those that @oncelog.process has made.

Each is named by its module, which is searched in the current directory first, and its name there. Further instances of
the command wait, and take over when one ends. At SIGTERM or Ctrl-C open transactions end, their messages are
acknowledged, and the command ends with 0; a second signal ends it at once.

    oncelog run shop:book

    oncelog run shop:book shop:ship --health-port 8081

{EXIT_CODES}"""


@takes_connection
def run(
    functions: Annotated[
        list[str], typer.Argument(metavar="MODULE:NAME...", help="Functions, as shop:book or shop.orders:book.")
    ],
    health_port: Annotated[
        int | None,
        typer.Option(
            "--health-port", min=0, max=65535, help="Port of /livez, /readyz, /metrics and /status; 0: a free one."
        ),
    ] = None,
    health_host: Annotated[str, typer.Option("--health-host", help="Address of the health port.")] = "127.0.0.1",
    stalled_after: Annotated[
        float | None,
        typer.Option("--stalled-after", min=1, help="Seconds that a function may run before /livez fails."),
    ] = None,
    *,
    connection: Connection,
    timeout: TimeoutOption = 30.0,
) -> None:
    errors = Console(stderr=True, highlight=False)

    async def main(_: Interrupt) -> Exit:
        from oncelog.runtime.logs import set_up_logs
        from oncelog_effects.cli.run.loading import load
        from oncelog_effects.programs.program import run_until_signal

        processes: list[Process[Any]] = [load(each) for each in dict.fromkeys(functions)]
        set_up_logs()
        await run_until_signal(processes, connection.connect(timeout), health_host, health_port, stalled_after)
        return Exit.OK

    raise typer.Exit(run_command(main, errors))


run.__doc__ = _HELP
