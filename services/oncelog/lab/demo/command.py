"""`oncelog demo`: its options, the data, the run, the verdict."""

import json
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from oncelog.cli.failures import EXIT_CODES, Exit
from oncelog.cli.running import run_command

_HELP = f"""Publish a file effectively once while processes are killed with -9, and prove it line by line.

Starts a cluster of 3 storage nodes and 2 topic owners on free ports and a temporary directory, turns deduplication on,
and publishes 336,777 lines (the flights from New York in 2013, downloaded once) with `oncelog produce --from-file` over
about a minute. Meanwhile it kills the producer three times and runs it again, twice as one that forgot its last lines
and sends them again; the topic's owner three times; and a storage node. Then everything is read back and compared with
the file.

The last line is one JSON object: lines, stored, lost, duplicated, out_of_order, duplicates_refused, takeovers (ms,
replayed_entries, client_gap_ms of each). The exit code is 1 if anything was lost, duplicated or out of order.

{EXIT_CODES}"""


def demo(
    seconds: Annotated[float, typer.Option(min=1, help="How long to publish.")] = 60.0,
    file: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Publish this file instead of the flights.")
    ] = None,
) -> None:
    console = Console(highlight=False)
    raise typer.Exit(run_command(lambda _interrupt: _demo(seconds, file, console), Console(stderr=True)))


demo.__doc__ = _HELP


async def _demo(seconds: float, file: Path | None, console: Console) -> Exit:
    import asyncio

    from oncelog.cli.produce.line_file import LineFile
    from oncelog.lab.demo.cluster import DemoCluster
    from oncelog.lab.demo.comparison import whole_file
    from oncelog.lab.demo.flights import FLIGHTS, cache_directory, fetch
    from oncelog.lab.demo.kills import KILLS
    from oncelog.lab.demo.publisher import Publisher
    from oncelog.lab.demo.report import show
    from oncelog.lab.demo.scenario import PRODUCER, TOPIC, Scenario, Story
    from oncelog.lab.demo.view import View

    if file is None:
        console.print(f"the data: {FLIGHTS.member} of {FLIGHTS.requirement}, {FLIGHTS.line_count:,} lines")
        path = await asyncio.to_thread(fetch, FLIGHTS, cache_directory())
    else:
        path = file
    with LineFile(path, final=True) as opened:
        lines, offsets = whole_file(opened)
    story = Story(path, lines, offsets, seconds, KILLS)
    with tempfile.TemporaryDirectory(prefix="oncelog-demo-") as folder, View(len(lines), console) as view:
        data = Path(folder)
        view.tell(f"starting {story.storage_node_count} storage nodes and {story.owner_count} topic owners")
        async with DemoCluster.running(
            data, storage_node_count=story.storage_node_count, owner_count=story.owner_count, tell=view.tell
        ) as cluster:
            rate = f"{len(lines) / seconds:.3f}"
            arguments = [TOPIC, "--from-file", str(path), "--final", "--producer-name", PRODUCER, "--rate", rate]
            publisher = Publisher([*arguments, "--url", cluster.url], data / "producer.log")
            try:
                report = await Scenario(story, cluster, publisher, view).run()
            finally:
                await publisher.stop()
    show(report, console)
    print(json.dumps(report.to_json()), flush=True)
    return Exit.OK if report.verdict.perfect else Exit.FAILED
