"""`python -m tests.console_proof proof [DIR]`: the console with much of everything, and while processes are killed.

`python -m tests.console_proof screenshots DIR` only takes pictures of every page, to be looked at: of an empty cluster,
of one with something to see, and of that one while its owner and ZooKeeper do not answer.
"""

import argparse
import asyncio
import tempfile
from contextlib import ExitStack
from pathlib import Path

import oncelog
from oncelog_lab.bench.baseline import ticks
from tests.cluster.cluster_fixture import DEADLINE_S, Cluster
from tests.cluster.console.addresses import pages
from tests.cluster.console.browser import chromium
from tests.console_proof.busy_cluster import ORDERS, SETTINGS, SUBSCRIPTION, fill, traffic
from tests.console_proof.pictures import take_pictures
from tests.console_proof.proof import PARTS, prove

RATES_S = 45.0


async def screenshots(cluster: Cluster, directory: Path) -> None:
    paths = pages(ORDERS, SUBSCRIPTION)
    async with chromium() as browser, await oncelog.connect(cluster.url, operation_timeout=DEADLINE_S) as client:
        first = {name: path for name, path in paths.items() if ORDERS not in path}
        await take_pictures(browser, cluster.admin_url, first, directory, "empty")
        await fill(cluster, client)
        async with traffic(client):
            async for _ in ticks(per_second=1, seconds=RATES_S):
                pass  # owners note their rates each 10 s
            await take_pictures(browser, cluster.admin_url, paths, directory, "busy")
            with cluster.stopped(await cluster.owner_of(ORDERS)), cluster.stopped("zookeeper"):
                await take_pictures(browser, cluster.admin_url, paths, directory, "silent", widths=[1280])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.console_proof", description=__doc__)
    parser.add_argument("what", choices=["proof", "screenshots"])
    parser.add_argument("directory", type=Path, help="where the pictures go; created if missing")
    parser.add_argument("--topics", type=int, default=5_000)
    parser.add_argument("--producers", type=int, default=100_000, help="of one topic")
    parser.add_argument("--subscriptions", type=int, default=1_000, help="of one topic")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="these parts; default: all")
    arguments = parser.parse_args()
    arguments.directory.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        data = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="oncelog-console-")))
        if arguments.what == "screenshots":
            cluster = stack.enter_context(Cluster.running(data, **SETTINGS))
            asyncio.run(screenshots(cluster, arguments.directory))
        else:
            counts = {name: getattr(arguments, name) for name in ("topics", "producers", "subscriptions")}
            asyncio.run(prove(data, arguments.directory, counts, arguments.only))


if __name__ == "__main__":
    main()
