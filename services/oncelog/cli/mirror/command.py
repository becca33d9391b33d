"""`oncelog mirror`: options and execution."""

import asyncio
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from oncelog.cli.failures import EXIT_CODES, Exit
from oncelog.cli.options import CompressionOption, PlaintextTokenOption, TimeoutOption
from oncelog.cli.running import Interrupt, run_command
from oncelog.core.counted import counted
from oncelog.core.names import parse_namespace, parse_topic

if TYPE_CHECKING:
    from oncelog.effects.mirror import Choice, Mirror

_HELP = f"""Copy topics into another cluster: each message once, in order, with its origin.

Run it as often as you like; one copies each partition, and the others wait for its end. Kill it at any time, and run it
again. Messages that a mirror has copied are not copied on, so two clusters can mirror each other. Run it on the side of
the target. It needs the right `consume` at the source, and `produce` at the target.

    oncelog mirror --from oncelog://a:6650 --to oncelog://b:6650 --topic orders

    oncelog mirror --from oncelog://a:6650 --to oncelog://b:6650 \\
        --namespace public/default --pattern 'orders-.*'

    oncelog mirror --from oncelog://a:6650 --to oncelog://b:6650 \\
        --topic orders --once

A topic that is missing at the target is created with the source's number of partitions. Dead-letter topics (names that
end with -DLQ) are copied only by --topic. A cluster that does not answer is waited for, and the log says so; with
--once, --timeout ends the wait at the start. With several topics, one that cannot be copied is tried again each minute,
with an error in the log; a single one ends the command.

{EXIT_CODES}"""

TokenFile = Annotated[
    Path | None, typer.Option(exists=True, dir_okay=False, help="File with the token for that cluster.")
]
CaFile = Annotated[
    Path | None, typer.Option(exists=True, dir_okay=False, help="PEM file of that cluster's CA, for oncelog+tls://.")
]
_MESSAGES_URL = "Metadata services of the {}, oncelog[+proxy][+tls]://HOST:PORT[,HOST:PORT...]."


def mirror(
    source_url: Annotated[str, typer.Option("--from", help=_MESSAGES_URL.format("source"))],
    target_url: Annotated[str, typer.Option("--to", help=_MESSAGES_URL.format("target"))],
    topics: Annotated[list[str] | None, typer.Option("--topic", help="Topic to copy; may be given again.")] = None,
    namespace: Annotated[
        str | None, typer.Option(help="Copy the topics of this namespace, also those that it gets later.")
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(
            help="Of the namespace (default: public/default), only topics whose whole name, without tenant and "
            "namespace, matches this regular expression."
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="End when everything that is there now is copied.")] = False,
    allow_gap: Annotated[
        bool,
        typer.Option(
            "--allow-gap", help="Go on behind messages that were deleted at the source before they were copied."
        ),
    ] = False,
    subscriptions: Annotated[
        bool,
        typer.Option(
            "--subscriptions",
            help="Also create the source's subscriptions at the target, and move them on while nobody consumes there.",
        ),
    ] = False,
    compression: CompressionOption = None,
    from_token_file: TokenFile = None,
    from_tls_ca_file: CaFile = None,
    to_token_file: TokenFile = None,
    to_tls_ca_file: CaFile = None,
    health_host: Annotated[str, typer.Option(help="Address to listen on for health checks.")] = "127.0.0.1",
    health_port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65_535, help="Answer /readyz, /livez, /metrics and /mirror on this port. 0: a free one."
        ),
    ] = None,
    allow_plaintext_token: PlaintextTokenOption = False,
    timeout: TimeoutOption = 30.0,
) -> None:
    errors = Console(stderr=True, highlight=False)
    choice = _choice(topics or [], namespace, pattern)

    async def run(interrupt: Interrupt) -> Exit:
        from oncelog.client.client import connect
        from oncelog.effects.mirror import Mirror

        client = partial(connect, allow_plaintext_token=allow_plaintext_token, operation_timeout=timeout)
        async with (
            await client(source_url, token=from_token_file, tls_ca_file=from_tls_ca_file) as source,
            await client(target_url, token=to_token_file, tls_ca_file=to_tls_ca_file) as target,
        ):
            copying = Mirror(
                source, target, choice, allow_gap=allow_gap, subscriptions=subscriptions,
                compression=None if compression is None else compression.value,
            )  # fmt: skip
            work = asyncio.ensure_future(copying.run_once(timeout) if once else copying.run())
            interrupt.first = partial(_end, work)
            try:
                if health_port is None:
                    await work
                else:
                    from oncelog.cli.mirror.health import observed

                    async with observed(copying, health_host, health_port) as port:
                        errors.print(f"health: http://{health_host}:{port}")
                        await work
            except asyncio.CancelledError:
                if not work.cancelled():
                    work.cancel()
                    await asyncio.wait([work])
                    raise
            _report(errors, copying)
            return Exit.INTERRUPTED if once and work.cancelled() else Exit.OK

    raise typer.Exit(run_command(run, errors))


mirror.__doc__ = _HELP


def _choice(topics: list[str], namespace: str | None, pattern: str | None) -> "Choice":
    """Raises typer.BadParameter, InvalidName."""
    from oncelog.effects.mirror import Choice

    if bool(topics) == (namespace is not None or pattern is not None):
        raise typer.BadParameter("give --topic, or --namespace or --pattern")
    if topics:
        return Choice(tuple(dict.fromkeys(map(parse_topic, topics))))
    try:
        compiled = None if pattern is None else re.compile(pattern)
    except re.error as error:
        raise typer.BadParameter(f"--pattern is not a regular expression: {error}") from error
    return Choice(namespace=parse_namespace(namespace or "public/default"), pattern=compiled)


def _report(errors: Console, copying: "Mirror") -> None:
    for name, topic in sorted(copying.topics.items()):
        counts = topic.effects.counts
        passed = f", {counts.passed} came from other clusters" if counts.passed else ""
        errors.print(f"{name}: {counted(counts.copied, 'message')} copied{passed}")


def _end(work: "asyncio.Future[None]") -> None:
    work.cancel()
