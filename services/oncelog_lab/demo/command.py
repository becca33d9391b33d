"""`oncelog demo`: its options, the file, the run and the verdict."""

import asyncio
import json
import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from oncelog.cli.failures import EXIT_CODES, Exit
from oncelog.cli.running import Interrupt, run_command
from oncelog_lab.demo.flights import cache_directory
from oncelog_lab.running import quiet_grpc

if TYPE_CHECKING:
    from oncelog_lab.cluster import LabCluster

#: The file name of the plot.
PLOT = "oncelog-demo.svg"

_HELP = f"""Publish a file while processes are killed with kill -9, and compare the topic with the file line by line.

The demo starts a cluster of 3 storage nodes and 2 topic owners on free ports in a temporary directory, and enables
deduplication. `oncelog produce --from-file` publishes 336,777 lines in about a minute: the flights from New York in
2013, downloaded once. Meanwhile the demo kills the producer three times and starts it again, twice as a producer that
lost its position and sends its last lines again. It kills the topic's owner three times, and a storage node once. Two
consumers share a subscription, acknowledge every message, and are killed three times. At the end the topic moves again,
and a new consumer must get nothing. Then the demo reads everything back and compares it with the file.

The demo leaves a plot of its run: acknowledged messages over time, with the kills, as an SVG for a browser.

At the beginning the demo prints the address of the console: open it in a browser, and watch the kills there. With
--keep the cluster keeps running after the result, until Ctrl-C.

The last line of standard output is one JSON object: lines, stored, lost, duplicated, out_of_order, duplicates_refused,
delivered, redelivered, acked, acked_seen_again, never_delivered, takeovers (each with ms, replayed_entries,
client_gap_ms), plot (its path; null if it could not be written). The exit code is 1 if a line was lost, duplicated or
out of order, never delivered, or seen again after its acknowledgement.

{EXIT_CODES}"""


def demo(
    seconds: Annotated[float, typer.Option(min=1, help="Duration of the publishing, in seconds.")] = 60.0,
    file: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Publish this file instead of the flights.")
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(dir_okay=False, writable=True, help="Write the plot here, instead of next to the cached file."),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the cluster running after the result, until Ctrl-C.")
    ] = False,
) -> None:
    quiet_grpc()
    console, errors = Console(highlight=False), Console(stderr=True, highlight=False)

    async def main(interrupt: Interrupt) -> Exit:
        kept = partial(_kept, interrupt, errors) if keep else None
        return await _demo(seconds, file, plot or cache_directory() / PLOT, console, errors, kept)

    raise typer.Exit(run_command(main, errors))


demo.__doc__ = _HELP


async def _kept(interrupt: Interrupt, errors: Console, cluster: "LabCluster") -> None:
    """Return at the first signal: the result stands, so it is the command's exit code, too."""
    ended = asyncio.Event()
    interrupt.first = ended.set
    errors.print(f"The cluster runs on. The console: {cluster.console}", markup=False, soft_wrap=True)
    errors.print(f"Clients: --url {cluster.url} --admin-url {cluster.admin_url}", markup=False, soft_wrap=True)
    errors.print("Press Ctrl-C to stop the cluster and delete its data.")
    await ended.wait()


def _leave(path: Path, text: str) -> OSError | None:
    """The error if it cannot be written: the result of the demo stands without it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    except OSError as error:
        return error
    return None


async def _demo(
    seconds: float,
    path: Path | None,
    plot: Path,
    console: Console,
    errors: Console,
    keep: Callable[["LabCluster"], Awaitable[None]] | None,
) -> Exit:
    """keep: called with the cluster after the result has been printed; the cluster ends when it returns."""
    from oncelog.cli.produce.line_file import LineFile
    from oncelog_lab.cluster import standalone_cluster
    from oncelog_lab.consumption import Consumption
    from oncelog_lab.demo.consumer_process import ConsumerProcess
    from oncelog_lab.demo.flights import FLIGHTS, fetch
    from oncelog_lab.demo.plot import demo_plot
    from oncelog_lab.demo.producer_process import ProducerProcess
    from oncelog_lab.demo.report import show_demo
    from oncelog_lab.demo.scenario import CONSUMERS, PRODUCER, SUBSCRIPTION, TOPIC, DemoFile, DemoScenario
    from oncelog_lab.demo.view import DemoView

    if path is None:
        console.print(f"the file: {FLIGHTS.member} of {FLIGHTS.requirement}, {FLIGHTS.line_count:,} lines")
        path = await asyncio.to_thread(fetch, FLIGHTS, cache_directory())
    with LineFile(path, final=True) as opened:
        blocks = list(opened.blocks(0))
    lines = [line for block in blocks for line in block.values]
    file = DemoFile(path, lines, [offset for block in blocks for offset in block.offsets or ()])
    with tempfile.TemporaryDirectory(prefix="oncelog-demo-") as folder:
        view = DemoView(len(lines), console, errors)
        view.tell("starting 3 storage nodes and 2 topic owners")
        data = Path(folder)
        async with standalone_cluster(data, on_line=lambda line: view.tell(line.decode().rstrip())) as cluster:
            view.tell(f"the console: {cluster.console}")
            rate = f"{len(lines) / seconds:.3f}"
            arguments = (TOPIC, "--from-file", str(path), "--final", "--producer-name", PRODUCER, "--rate", rate)
            producer = ProducerProcess((*arguments, "--url", cluster.url), data / "producer.log")
            account = Consumption()
            names = [f"consumer-{number}" for number in range(1, CONSUMERS + 1)]
            consumers = [
                ConsumerProcess(cluster.url, TOPIC, SUBSCRIPTION, name, account, data / f"{name}.log") for name in names
            ]
            try:
                with view:
                    scenario = DemoScenario(file, seconds, cluster, producer, consumers, account, view)
                    report = await scenario.run()
            finally:
                await producer.kill()
                for consumer in consumers:
                    await consumer.kill()
            show_demo(report, console)
            left = await asyncio.to_thread(_leave, plot, demo_plot(scenario.timeline, report.summary))
            console.print(f"the plot: {plot if left is None else left}", markup=False, soft_wrap=True)
            print(json.dumps({**report.to_json(), "plot": str(plot) if left is None else None}), flush=True)
            if keep is not None:
                await keep(cluster)
    return Exit.OK if report.perfect else Exit.FAILED
