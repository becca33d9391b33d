"""How a benchmark runs: it starts the limits path and a cluster when they are first needed, and prints its rows."""

import json
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from oncelog.cli.options import Output
from oncelog_lab.failures import LabFailed
from oncelog_lab.running import quiet_grpc, run_lab

if TYPE_CHECKING:
    from oncelog_lab.bench.baseline import BaselineClient
    from oncelog_lab.bench.figures import BenchRow
    from oncelog_lab.cluster import LabCluster

Tell = Callable[[str], None]
#: What a benchmark may write at most.
DISK_BYTES_NEEDED = 12 * 1024**3
_TABLE_WIDTH = 150


class BenchStack:
    """What a benchmark has started. url: of a running cluster; None: a standalone cluster is started.

    free_bytes: what the directory's disk must have free before something is started that writes there. Each method
    that starts it raises LabFailed if the disk has less.
    """

    def __init__(self, directory: Path, url: str | None, admin_url: str, *, free_bytes: int = 0) -> None:
        self._directory = directory
        self._free_bytes = free_bytes
        self._given = (url, admin_url)
        self._exits = AsyncExitStack()
        self._path: BaselineClient | None = None
        self._cluster: LabCluster | None = None
        self._directories = 0

    def new_directory(self) -> Path:
        """For a cluster that a benchmark starts itself; it is deleted with everything else."""
        self._check_disk()
        self._directories += 1
        return self._directory / f"cluster-{self._directories}"

    async def path(self) -> "BaselineClient":
        from oncelog_lab.bench.baseline import baseline_cluster

        if self._path is None:
            self._check_disk()
            self._path = await self._exits.enter_async_context(baseline_cluster(self._directory))
        return self._path

    async def cluster(self, *, owners: int = 1) -> "LabCluster":
        from oncelog_lab.access import ClusterAccess
        from oncelog_lab.cluster import LabCluster, standalone_cluster

        url, admin_url = self._given
        if self._cluster is None and url is not None:
            self._cluster = LabCluster(ClusterAccess(url, admin_url))
        elif self._cluster is None:
            self._check_disk()
            data = self._directory / "cluster"
            self._exits.callback(shutil.rmtree, data, ignore_errors=True)
            self._cluster = await self._exits.enter_async_context(standalone_cluster(data, owners=owners))
        assert self._cluster is not None
        return self._cluster

    async def end(self) -> None:
        self._path = self._cluster = None
        await self._exits.aclose()

    def _check_disk(self) -> None:
        check_disk(self._directory, self._free_bytes)


def check_disk(directory: Path, free_bytes: int) -> None:
    """directory: of a benchmark, in the one of --data. Raises LabFailed if its disk has less."""
    free = shutil.disk_usage(directory).free
    if free < free_bytes:
        raise LabFailed(
            f"{directory.parent} has {free / 1e9:.1f} GB free and a benchmark needs "
            f"{free_bytes / 1e9:.0f} GB: name another directory with --data"
        )


@contextmanager
def bench_directory(parent: Path | None) -> Iterator[Path]:
    """A temporary directory."""
    if parent is not None:
        parent.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="oncelog-bench-", dir=parent))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def run_bench(
    rows: "Callable[[BenchStack, Tell], Awaitable[list[BenchRow]]]",
    data: Path | None,
    output: Output,
    url: str | None = None,
    admin_url: str = "",
    *,
    keep_memory: bool = True,
) -> None:
    """Run a benchmark and print its rows. The process of its clients is set up as that of a user's program: keep_memory
    as in `connect`, which the client of the limits path also has."""
    quiet_grpc()
    from oncelog.runtime.memory import keep_freed_memory
    from oncelog_lab.bench.table import print_table, to_json

    errors = Console(stderr=True, highlight=False)
    if keep_memory:
        keep_freed_memory()

    async def main() -> "list[BenchRow]":
        with bench_directory(data) as directory:
            stack = BenchStack(directory, url, admin_url, free_bytes=DISK_BYTES_NEEDED)
            try:
                return await rows(stack, lambda sentence: errors.print(f"{sentence} …", markup=False))
            finally:
                await stack.end()

    found = run_lab(main)
    if output is Output.JSON:
        print(json.dumps(to_json(found)), file=sys.stdout, flush=True)
    else:
        console = Console(highlight=False)
        # A file or a pipe has no width.
        print_table(found, console if console.is_terminal else Console(highlight=False, width=_TABLE_WIDTH))
