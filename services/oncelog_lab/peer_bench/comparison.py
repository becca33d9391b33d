"""Runs the loads on one system after the other.

For each load, a system is started on an empty directory, all of its clients run, and it is ended: no other system runs
meanwhile, nothing of another load is on the disk, and the disk needs room for one load only. All loads run twice: in
the order Oncelog, Kafka, Pulsar, and in the opposite one.

A figure is the median of the measured runs of both orders, and its ratio is to Oncelog's. It is noted if a client was
not steady, or if its medians of both orders differ by 5 % or more.

Every process is a child that is killed by its pid, at the end, at an error and at Ctrl-C. If this process is killed,
its children are ended by the kernel.
"""

import shutil
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from oncelog_lab.bench.figures import BenchRow
from oncelog_lab.bench.running import BenchStack, Tell, check_disk
from oncelog_lab.child_process import LabChild
from oncelog_lab.cluster import standalone_cluster
from oncelog_lab.failures import LabFailed
from oncelog_lab.peer_bench import kafka, pulsar
from oncelog_lab.peer_bench.loads import (
    SHAPES,
    STEADY_RATIO_MAX,
    WARM_UP_RUNS_MAX,
    Measured,
    PeerLoad,
    Program,
    Run,
    measured_of,
    medians,
    parse_line,
    python_program,
)
from oncelog_lab.peer_bench.servers import peers_java
from oncelog_lab.waiting import until

#: What one load of one system writes at most: two minutes of a client, three copies, and Pulsar writes each twice.
DISK_BYTES_NEEDED = 40 * 1024**3
#: For the next figure of a client. A client that reads needs the most time: it fills a topic first.
FIGURE_DEADLINE_S = 300.0
_LOOK_EVERY_S = 0.2
_OWN_SETTINGS = "1 owner, 3 storage nodes, 3 copies; acknowledged when 2 of 3 have synced; deduplication on"


@dataclass(frozen=True, slots=True)
class System:
    """serve: starts it in a directory and yields its address. programs: the clients of a load, for the directory and
    the address; the first one fills the topics that the others read."""

    name: str
    version: str
    settings: str
    serve: Callable[[Path], AbstractAsyncContextManager[str]]
    programs: Callable[[Path, str, PeerLoad], list[Program]]


@dataclass(frozen=True, slots=True)
class Cell:
    """What one client of one system did under one load, in one order."""

    load: PeerLoad
    system: str
    client: str
    measured: Measured


def systems_of(kafka_home: Path | None, pulsar_home: Path | None, seconds: float) -> list[System]:
    """Those that are compared, in order. Raises errors for what is missing, before anything is started."""
    if kafka_home is None and pulsar_home is None:
        raise LabFailed("name a system to compare with: --kafka DIR, --pulsar DIR or both")
    systems = [System("Oncelog", version("oncelog"), _OWN_SETTINGS, _own_servers, partial(_own_programs, seconds))]
    java = peers_java()
    for name, home, peer in (("Kafka", kafka_home, kafka), ("Pulsar", pulsar_home, pulsar)):
        if home is not None:
            place = home.resolve()
            number = peer.version_of(place)
            if installed_version(peer.CLIENT) is None:
                raise LabFailed(f"{peer.CLIENT} is not installed: pip install {peer.CLIENT}")
            programs = partial(peer.programs, place, java, seconds)
            systems.append(System(name, number, peer.SETTINGS, partial(peer.servers, place, java), programs))
    return systems


def installed_version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


async def peers_rows(
    stack: BenchStack,
    systems: Sequence[System],
    loads: Sequence[PeerLoad],
    tell: Tell,
    warm_up_runs: int = WARM_UP_RUNS_MAX,
) -> list[BenchRow]:
    """warm_up_runs: of one client, at most. Raises LabFailed."""
    directory = stack.new_directory()
    check_disk(directory.parent, DISK_BYTES_NEEDED)
    directory.mkdir()
    return rows_of(await compare(systems, loads, directory, tell, warm_up_runs), systems)


async def compare(
    systems: Sequence[System],
    loads: Sequence[PeerLoad],
    directory: Path,
    tell: Tell,
    warm_up_runs: int = WARM_UP_RUNS_MAX,
) -> list[Cell]:
    """Two cells for each client and load, one of each order. Raises LabFailed."""
    for system in systems:
        tell(f"{system.name} {system.version}: {system.settings}")
    cells = []
    for order in (list(systems), list(reversed(systems))):
        for load in loads:
            for system in order:
                place = directory / system.name.lower()
                place.mkdir()
                try:
                    async with system.serve(place) as address:
                        for program in system.programs(place, address, load):
                            tell(f"{SHAPES[load].what}: {system.name}, {program.client}")
                            found = await measure(program, warm_up_runs)
                            cells.append(Cell(load, system.name, program.client, found))
                finally:
                    shutil.rmtree(place, ignore_errors=True)
    return cells


async def measure(program: Program, warm_up_runs: int = WARM_UP_RUNS_MAX) -> Measured:
    """Run a client until its runs are enough. Raises LabFailed with its last lines if it ends before or hangs."""
    runs: list[Run] = []

    def take(line: bytes) -> None:
        if (run := parse_line(program.line, line.decode(errors="replace"))) is not None:
            runs.append(run)

    while (found := measured_of(runs, warm_up_runs)) is None:
        started_with = len(runs)
        child = await LabChild.start(program.client, program.command, on_line=take, environment=program.environment)
        try:
            while not child.ended and measured_of(runs, warm_up_runs) is None:
                await _until_next(child, runs)
            ended = child.ended
        finally:
            await child.kill()
        if ended and (len(runs) == started_with or await child.wait()):
            raise LabFailed(f"{program.client} ended before its last figure{child.last_lines()}")
    return found


async def _until_next(child: LabChild, runs: list[Run]) -> None:
    count = len(runs)
    what = f"the next figure of {child.name}"
    try:
        await until(lambda: child.ended or len(runs) > count, FIGURE_DEADLINE_S, what, every_s=_LOOK_EVERY_S)
    except LabFailed as late:
        raise LabFailed(f"{late}{child.last_lines()}") from late


def rows_of(cells: Sequence[Cell], systems: Sequence[System]) -> list[BenchRow]:
    """A row for each figure of each client. The tools of a system have its version."""
    orders: dict[tuple[PeerLoad, str, str], list[Measured]] = {}
    for cell in cells:
        orders.setdefault((cell.load, cell.system, cell.client), []).append(cell.measured)
    own = {load: _figures(found) for (load, name, _), found in orders.items() if name == systems[0].name}
    rows = []
    for (load, name, client), found in orders.items():
        system = next(each for each in systems if each.name == name)
        firsts = [medians(order.runs)[0] for order in found]
        sure = all(order.steady for order in found) and max(firsts) < STEADY_RATIO_MAX * min(firsts)
        number = installed_version(client) or system.version
        detail: dict[str, object] = {"system": name, "version": system.version, "settings": system.settings}
        detail |= {"load": load, "client": f"{client} {number}", "sure": sure}
        detail["orders"] = [{"runs": each.runs, "warm_up": each.warm_up, "steady": each.steady} for each in found]
        note = "" if sure else "not steady, or the orders differ"
        shape = SHAPES[load]
        for label, figure, ours in zip(shape.figures, _figures(found), own[load], strict=True):
            what = f"{shape.what}{label}: {name} {system.version}, {client}"
            rows.append(BenchRow(what, figure, shape.unit, ours, detail=detail, note=note))
    return rows


def _figures(orders: Sequence[Measured]) -> Run:
    return medians([run for order in orders for run in order.runs])


@asynccontextmanager
async def _own_servers(directory: Path) -> AsyncIterator[str]:
    async with standalone_cluster(directory / "cluster", owners=1) as cluster:
        yield cluster.url


def _own_programs(seconds: float, _: Path, address: str, load: PeerLoad) -> list[Program]:
    command = (sys.executable, "-m", "oncelog_lab.peer_bench.own_client", address)
    return [python_program("oncelog", command, load, seconds)]
