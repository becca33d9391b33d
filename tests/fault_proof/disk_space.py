"""A topic is written and deleted again and again: erased ledgers give their bytes back, and the disks stay flat."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx

import oncelog
from tests.cluster.cluster_fixture import rest_path
from tests.cluster.until import until
from tests.fault_proof.faulty_cluster import FaultyCluster

#: Bytes of one message; compression does not shrink them much.
VALUE_BYTES = 64 * 1024
_MESSAGES = 64
CYCLE_BYTES = VALUE_BYTES * _MESSAGES
#: A segment that is half dead may stay, and erasing and compaction have intervals: so much is there beside one cycle.
SPARE_CYCLES = 8
_DEADLINE_S = 120.0

#: Small segments, so that each cycle fills some; copies are reviewed at once.
SETTINGS = {"segment_bytes": 1 << 20, "collect_interval_ms": 500, "ledger_entries_max": 50}


@dataclass(frozen=True, slots=True)
class DiskSample:
    """node_bytes: space that the files of each node take."""

    at_s: float
    written_bytes: int
    node_bytes: tuple[int, ...]

    def row(self) -> str:
        nodes = "".join(f"{size / (1 << 20):>12.1f}" for size in self.node_bytes)
        return f"{self.at_s:8.1f}{self.written_bytes / (1 << 20):>14.1f}{nodes}"


@dataclass(slots=True)
class SpaceOverTime:
    """A table of samples, one line at a time. began_s: of the monotonic clock."""

    cluster: FaultyCluster
    tell: Callable[[str], None]
    began_s: float = field(default_factory=time.monotonic)
    samples: list[DiskSample] = field(default_factory=list)

    def __post_init__(self) -> None:
        nodes = "".join(f"{f'MiB node {number}':>12}" for number in (1, 2, 3))
        self.tell(f"{'second':>8}{'MiB written':>14}{nodes}")

    @property
    def passed_s(self) -> float:
        return time.monotonic() - self.began_s

    def look(self, written_bytes: int) -> DiskSample:
        sizes = tuple(disk_bytes(self.cluster, node) for node in self.cluster.storage_names)
        return DiskSample(self.passed_s, written_bytes, sizes)

    def note(self, written_bytes: int, about: str = "") -> None:
        """One line. about: the end of it."""
        self.samples.append(self.look(written_bytes))
        self.tell(f"{self.samples[-1].row()}{about}")

    def check(self, limit: int) -> None:
        """More was written than the limit, twice over. Raises AssertionError."""
        assert self.samples[-1].written_bytes > 2 * limit, "the disks would be flat without giving anything back"


def disk_bytes(cluster: FaultyCluster, node: str) -> int:
    """Space on the disk, of all files of a node."""
    size = 0
    for file in (cluster.data / node).rglob("*"):
        try:
            size += file.stat().st_blocks * 512
        except FileNotFoundError:
            continue  # compacted meanwhile
    return size


async def write_and_delete(
    cluster: FaultyCluster, seconds: float, tell: Callable[[str], None], *, cycles: int = 1 << 30
) -> list[DiskSample]:
    """One sample for each cycle. At the end the disks hold little more than one cycle. Raises AssertionError."""
    limit, cycle, space = (1 + SPARE_CYCLES) * CYCLE_BYTES, 0, SpaceOverTime(cluster, tell)
    while space.passed_s < seconds and cycle < cycles:
        await write_and_delete_once(cluster, cycle)
        cycle += 1
        await until(
            lambda: max(space.look(0).node_bytes) < limit, _DEADLINE_S, waiting_for=f"less than {limit} bytes on disk"
        )
        space.note(cycle * CYCLE_BYTES)
    space.check(limit)
    return space.samples


async def write_and_delete_once(cluster: FaultyCluster, number: int) -> None:
    """One cycle; also while storage nodes are killed."""
    async with await oncelog.connect(cluster.url, operation_timeout=_DEADLINE_S) as client:
        producer = await client.create_producer("again", producer_name="importer")
        values = [value_of(number * _MESSAGES + at) for at in range(_MESSAGES)]
        for first in range(0, _MESSAGES, 8):
            await producer.send_many(values[first : first + 8])
        await producer.close()

    async def deleted() -> bool:
        """While too few storage nodes serve, the deletion has not finished, and the request is repeated."""
        try:
            answer = await cluster.request("DELETE", rest_path("again"))
        except httpx.TransportError:
            return False
        assert answer.status_code in {204, 404, 503, 504}, answer.text
        return answer.status_code in {204, 404}

    await until(deleted, _DEADLINE_S, every_s=0.2, waiting_for="the topic to be deleted")


def value_of(number: int) -> bytes:
    """Of VALUE_BYTES; different bytes in each message, the same in every run."""
    return b"".join(((number + 1) * factor % (1 << 64)).to_bytes(8) for factor in range(1, VALUE_BYTES // 8 + 1))
