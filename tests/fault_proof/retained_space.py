"""A topic under constant load with retention by size: old ledgers are deleted, and the disks stay flat.

The topic has no subscription, so retention alone decides what is kept.
"""

import asyncio
from collections.abc import Callable

import oncelog
from tests.cluster.cluster_fixture import rest_path
from tests.fault_proof.disk_space import VALUE_BYTES, DiskSample, SpaceOverTime, value_of
from tests.fault_proof.faulty_cluster import FaultyCluster

TOPIC = "retained"
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


async def load_with_retention(
    cluster: FaultyCluster, seconds: float, tell: Callable[[str], None], *, every_s: float = 10.0
) -> list[DiskSample]:
    """One sample in every_s seconds. Raises AssertionError unless the disks hold what is retained, and little more."""
    await cluster.change("PUT", rest_path(TOPIC))
    body = {"retentionTimeInMinutes": -1, "retentionSizeInMB": RETAINED_MB}
    await cluster.change("POST", f"{rest_path(TOPIC)}/retention", json=body)
    written, space = 0, SpaceOverTime(cluster, tell)
    async with await oncelog.connect(cluster.url, operation_timeout=_DEADLINE_S) as client:
        producer = await client.create_producer(TOPIC, producer_name="importer")
        while space.passed_s < seconds:
            values = [value_of(written + at) for at in range(_MESSAGES)]
            await producer.send_many(values)
            written += _MESSAGES
            await asyncio.sleep(_PAUSE_S)  # noqa: TID251 - paces the load
            if space.passed_s >= (len(space.samples) + 1) * every_s:
                first_index = (await cluster.stats(TOPIC)).get("first_index", 0)
                space.note(written * VALUE_BYTES, f"  first index {first_index}")
        await producer.close()
    limit = (RETAINED_MB << 20) + SPARE_BYTES
    space.check(limit)
    highest = max(max(sample.node_bytes) for sample in space.samples)
    assert highest <= limit, f"a node held {highest} bytes, more than {limit}"
    tell(f"a node held {highest / (1 << 20):.1f} MiB at most, {written * VALUE_BYTES / (1 << 20):.0f} were written")
    return space.samples
