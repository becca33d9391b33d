"""How a bench command runs: what it needs is started when it is first asked for, and ended; its rows are printed."""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console

if TYPE_CHECKING:
    from oncelog.lab.bench.cluster import Cluster
    from oncelog.lab.bench.figures import Row
    from oncelog.lab.bench.limits import PathClient
    from oncelog.lab.bench.publish import Tell

_TABLE_WIDTH = 150


class Stack:
    """What a command has started: the bare path and a cluster, each when first asked for."""

    def __init__(self, directory: Path, url: str | None, admin_url: str) -> None:
        self._directory = directory
        self._given = (url, admin_url)
        self._exits = AsyncExitStack()
        self._path: PathClient | None = None
        self._cluster: Cluster | None = None

    async def path(self) -> "PathClient":
        from oncelog.lab.bench.limits import limits_cluster

        if self._path is None:
            self._path = await self._exits.enter_async_context(limits_cluster(self._directory))
        return self._path

    async def cluster(self, *, owners: int = 1) -> "Cluster":
        from oncelog.lab.bench.cluster import Cluster, own_cluster

        url, admin_url = self._given
        if self._cluster is None and url is not None:
            self._cluster = Cluster(url, admin_url)
        elif self._cluster is None:
            self._cluster = await self._exits.enter_async_context(own_cluster(self._directory, owners=owners))
        assert self._cluster is not None
        return self._cluster

    async def end(self) -> None:
        self._path = self._cluster = None
        await self._exits.aclose()


def run_bench(
    rows: "Callable[[Stack, Tell], Awaitable[list[Row]]]",
    data: Path | None,
    url: str | None,
    admin_url: str,
    output: str,
) -> None:
    """Run one bench, print its rows, exit."""
    # Before gRPC is loaded: it reports every connection that ends, and every child process that is started beside it.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    import uvloop

    from oncelog.core.errors import OncelogError
    from oncelog.lab.bench.cluster import bench_directory
    from oncelog.lab.bench.table import print_table, to_json
    from oncelog.runtime.memory import tune_memory

    if output not in {"table", "json"}:
        raise typer.BadParameter("--output is table or json")
    errors = Console(stderr=True, highlight=False)
    tune_memory()  # as every service does: the client's side of a stream gains as much

    async def main() -> "list[Row]":
        with bench_directory(data) as directory:
            stack = Stack(directory, url, admin_url)
            try:
                return await rows(stack, lambda sentence: errors.print(f"{sentence} …", markup=False))
            finally:
                await stack.end()

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            found = runner.run(main())
    except OncelogError as error:
        errors.print(f"error: {error.message}", markup=False, soft_wrap=True)
        raise typer.Exit(1) from error
    if output == "json":
        print(json.dumps(to_json(found)), file=sys.stdout, flush=True)
    else:
        console = Console(highlight=False)
        # A file or a pipe has no width, and the table is made for reading.
        print_table(found, console if console.is_terminal else Console(highlight=False, width=_TABLE_WIDTH))
