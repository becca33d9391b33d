"""`oncelog mirror run`: options and execution."""

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from oncelog.cli.failures import EXIT_CODES, Exit
from oncelog.cli.options import CompressionOption, TimeoutOption
from oncelog.cli.running import Interrupt, run_command
from oncelog.core.counted import counted
from oncelog_effects.cli.mirror.options import Chosen, Clusters, takes_clusters

if TYPE_CHECKING:
    from oncelog_effects.mirror.mirror import Mirror

_HELP = f"""Copy topics into another cluster: each message once, in order, with its origin.

You can run several mirrors: one copies each partition, and the others wait until it ends. You can kill a mirror at any
time, and run it again. Messages that a mirror has copied are not copied on, so two clusters can mirror each other. Run
it near the target. It needs the right `consume` at the source, and `produce` and `consume` at the target.

\b
  oncelog mirror --from oncelog://a:6650 --to oncelog://b:6650 --topic orders
  oncelog mirror --from oncelog://a:6650 --to oncelog://b:6650 \\
      --namespace public/default --pattern 'orders-.*'
  oncelog mirror --from oncelog://a:6650 --to oncelog://b:6650 \\
      --topic orders --once

A topic that is missing at the target is created with the source's number of partitions. Dead-letter topics (names that
end with -DLQ) are copied only by --topic. If a cluster does not answer, the command waits and logs this; with --once,
--timeout ends the wait at the start. If one of several topics cannot be copied, it is tried again each minute, with an
error in the log. If there is only one topic, the command ends.

{EXIT_CODES}"""


@takes_clusters
def run(
    *,
    clusters: Clusters,
    chosen: Chosen,
    once: Annotated[bool, typer.Option("--once", help="End when all messages that are stored now are copied.")] = False,
    allow_gap: Annotated[
        bool,
        typer.Option(
            "--allow-gap", help="Continue after messages that were deleted at the source before they were copied."
        ),
    ] = False,
    subscriptions: Annotated[
        bool,
        typer.Option(
            "--subscriptions",
            help="Also create the source's subscriptions at the target, and move them on while they have no consumer "
            "there.",
        ),
    ] = False,
    compression: CompressionOption = None,
    health_host: Annotated[str, typer.Option(help="Address to listen on for health checks.")] = "127.0.0.1",
    health_port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65_535, help="Answer /readyz, /livez, /metrics and /mirror on this port. 0: a free one."
        ),
    ] = None,
    timeout: TimeoutOption = 30.0,
) -> None:
    errors = Console(stderr=True, highlight=False)
    choice = chosen.choice()

    async def main(interrupt: Interrupt) -> Exit:
        from oncelog_effects.mirror.mirror import Mirror

        async with clusters.source(timeout) as source, clusters.target(timeout) as target:
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
                    from oncelog_effects.cli.mirror.health import observed

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

    raise typer.Exit(run_command(main, errors))


run.__doc__ = _HELP


def _report(errors: Console, copying: "Mirror") -> None:
    for name, topic in sorted(copying.topics.items()):
        counts = topic.effects.counts
        passed = f", {counts.passed} came from other clusters" if counts.passed else ""
        errors.print(f"{name}: {counted(counts.copied, 'message')} copied{passed}")


def _end(work: "asyncio.Future[None]") -> None:
    work.cancel()
