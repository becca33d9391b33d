"""Consumers of the source topic while Spark reads it and processes are killed: their acknowledgements must be what the
topic owners have at the end, and what the ack logs say."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass

import oncelog
from oncelog_spark.audit.topic_plan import plan_topic
from oncelog_spark.cluster import ClusterConnection
from oncelog_spark.options import ConnectionOptions
from tests.cluster.cluster_fixture import Cluster
from tests.proofs.flights import PARTITIONS
from tests.proofs.report import Besides
from tests.spark_proof.flights import SOURCE, partition_topic

_SUBSCRIPTIONS = ("billing", "search")
#: Nothing more arrives: the whole topic is delivered again.
_PAUSE_S = 1.0


@dataclass(slots=True)
class Acknowledged:
    """messages: acknowledged, some of them several times, after a seek. subscriptions: all of the partitions, of which
    `equal` are the fold of their ack log. complaints: what differs."""

    messages: int = 0
    equal: int = 0
    subscriptions: int = 0
    complaints: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        return not self.complaints and self.messages > 0 and self.equal == PARTITIONS * len(_SUBSCRIPTIONS)

    @property
    def besides(self) -> Besides:
        """For the report."""
        equal = f"{self.equal} of {self.subscriptions} subscriptions are the fold of their ack log"
        lines = (f"{self.messages} acknowledgements meanwhile: {equal}", *self.complaints)
        return Besides("subscriptions", self.good, asdict(self), lines)


@asynccontextmanager
async def consuming(cluster: Cluster) -> AsyncIterator[Acknowledged]:
    """Acknowledge two of three messages of two subscriptions, again and again."""
    acknowledged, over = Acknowledged(), asyncio.Event()
    async with await oncelog.connect(cluster.url) as client, asyncio.TaskGroup() as tasks:
        for name in _SUBSCRIPTIONS:
            tasks.create_task(_consume(client, name, acknowledged, over))
        yield acknowledged
        over.set()


async def _consume(client: oncelog.AsyncClient, name: str, acknowledged: Acknowledged, over: asyncio.Event) -> None:
    async with await client.subscribe(SOURCE, subscription=name, type="shared", start=oncelog.EARLIEST) as consumer:
        while not over.is_set():
            batch = await consumer.receive_batch(500, max_wait=_PAUSE_S)
            wanted = [message for message in batch if message.index % 3]
            # Of another partition's seek; or an owner was killed during a seek, so its outcome is unknown: seek again.
            with contextlib.suppress(oncelog.errors.StaleSeekEpoch, oncelog.errors.DeadlineExceeded):
                if wanted:
                    await consumer.ack(wanted)
                    acknowledged.messages += len(wanted)
                elif not batch:
                    await consumer.seek(oncelog.EARLIEST)


async def compare(cluster: Cluster, acknowledged: Acknowledged) -> None:
    """What the owners have against the ack logs of the partitions."""
    connection = ConnectionOptions(cluster.url)
    async with ClusterConnection(connection) as own:
        for partition in range(PARTITIONS):
            plan = await plan_topic(own, connection, partition_topic(partition), entries_max=10_000, all_copies=False)
            found = plan.subscriptions
            acknowledged.subscriptions += found.count
            acknowledged.equal += found.equal
            said = [finding.message for finding in found.findings] + [found.unchecked] * bool(found.unchecked)
            acknowledged.complaints += tuple(f"{plan.topic}: {each}" for each in said)
