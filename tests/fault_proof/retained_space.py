"""A topic under constant load with retention by size: old ledgers are deleted, and the disks stay flat.

The topic has no subscription, so retention alone decides what is kept.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import oncelog
from tests.cluster.cluster_fixture import rest_path
from tests.fault_proof.disk_space import disk_bytes
from tests.fault_proof.faulty_cluster import FaultyCluster

TOPIC = "retained"
_VALUE_BYTES = 64 * 1024
#: Messages in one send, and the pause after it: 2 MiB in a second.
_MESSAGES = 8
_PAUSE_S = 0.25
RETAINED_MB = 32
#: Beside what retention keeps: the open ledger and the one before it, segments that are half dead, the intervals of
#: collection, and the log's last snapshots.
SPARE_BYTES = 96 << 20
#: Small segments and ledgers, so that space is given back while one looks; copies are reviewed at once.
SETTINGS = {"segment_bytes": 1 << 20, "collect_interval_ms": 500, "ledger_entries_max": 20}
_DEADLINE_S = 60.0


@dataclass(frozen=True, slots=True)
class RetainedSample:
    """node_bytes: space that the files of each node take. first_index: of the topic."""

    at_s: float
    written_bytes: int
    first_index: int
    node_bytes: tuple[int, ...]

    def row(self) -> str:
        nodes = "".join(f"{size / (1 << 20):>12.1f}" for size in self.node_bytes)
        return f"{self.at_s:8.1f}{self.written_bytes / (1 << 20):>14.1f}{self.first_index:>14}{nodes}"


HEAD = f"{'second':>8}{'MiB written':>14}{'first index':>14}" + "".join(f"{f'MiB node {n}':>12}" for n in (1, 2, 3))


async def load_with_retention(
    cluster: FaultyCluster, seconds: float, tell: Callable[[str], None], *, every_s: float = 10.0
) -> list[RetainedSample]:
    """One sample in every_s seconds. Raises AssertionError unless the disks hold what is retained, and little more."""
    await cluster.change("PUT", rest_path(TOPIC))
    body = {"retentionTimeInMinutes": -1, "retentionSizeInMB": RETAINED_MB}
    await cluster.change("POST", f"{rest_path(TOPIC)}/retention", json=body)
    samples: list[RetainedSample] = []
    began_s, written = time.monotonic(), 0
    tell(HEAD)
    async with await oncelog.connect(cluster.url, operation_timeout=_DEADLINE_S) as client:
        producer = await client.create_producer(TOPIC, producer_name="importer")
        while time.monotonic() - began_s < seconds:
            values = [_value(written + at) for at in range(_MESSAGES)]
            await producer.send_many(values)
            written += _MESSAGES
            await asyncio.sleep(_PAUSE_S)  # noqa: TID251 - paces the load
            if time.monotonic() - began_s >= (len(samples) + 1) * every_s:
                samples.append(await _look(cluster, time.monotonic() - began_s, written))
                tell(samples[-1].row())
        await producer.close()
    limit = (RETAINED_MB << 20) + SPARE_BYTES
    assert samples[-1].written_bytes > 2 * limit, "the disks would be flat without giving anything back"
    highest = max(max(sample.node_bytes) for sample in samples)
    assert highest <= limit, f"a node held {highest} bytes, more than {limit}"
    tell(f"a node held {highest / (1 << 20):.1f} MiB at most, {samples[-1].written_bytes / (1 << 20):.0f} were written")
    return samples


async def _look(cluster: FaultyCluster, at_s: float, written: int) -> RetainedSample:
    stats: dict[str, Any] = await cluster.stats(TOPIC)
    sizes = tuple(disk_bytes(cluster, node) for node in cluster.storage_names)
    return RetainedSample(at_s, written * _VALUE_BYTES, int(stats.get("first_index", 0)), sizes)


def _value(number: int) -> bytes:
    """Different bytes in each message, the same in every run."""
    return b"".join(((number + 1) * factor % (1 << 64)).to_bytes(8) for factor in range(1, _VALUE_BYTES // 8 + 1))
