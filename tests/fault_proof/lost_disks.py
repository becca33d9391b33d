"""Disks of storage nodes are lost under load: what each entry has of copies meanwhile.

replace_all_disks   of three nodes, one after the other: wait until it may be replaced -> kill -9 -> delete its
                    directory -> it starts again as a new node
lose_node           one of four: all ledgers are whole -> kill -9, and the directory is deleted -> the delay for absent
                    nodes passes -> repair copies its ledgers to the other nodes -> every message is read without it

The copies are read from each node directly, again and again. Entries of open ledgers do not count.
"""

import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import oncelog
from oncelog.core.errors import OncelogError
from tests.cluster.loads import Loads
from tests.cluster.until import until
from tests.fault_proof.audit import violations_of
from tests.fault_proof.faulty_cluster import FaultyCluster
from tests.fault_proof.random_faults import DEADLINE_S, may_replace
from tests.fault_proof.stored_copies import CopiesReader, StoredCopies, until_whole

#: Of a cluster that is to lose one.
STORAGE_NODES = 4


@dataclass(frozen=True, slots=True)
class Sample:
    """at_s: since the start. event: what happened just before, or empty."""

    at_s: float
    event: str
    copies: StoredCopies

    def row(self) -> str:
        return f"{self.at_s:8.1f}  {self.copies.ledgers:7,}{self.copies.row()}  {self.event}"


@dataclass(slots=True)
class CopiesOverTime:
    """began_s: of the monotonic clock."""

    reader: CopiesReader
    began_s: float = field(default_factory=time.monotonic)
    samples: list[Sample] = field(default_factory=list)

    @classmethod
    @asynccontextmanager
    async def under_load(cls, cluster: FaultyCluster, topic: str) -> AsyncIterator[tuple["CopiesOverTime", Loads]]:
        """Producers go on inside the block. At its end every message is stored once, and every entry has all its
        copies. Raises AssertionError."""
        async with (
            await oncelog.connect(cluster.url, operation_timeout=DEADLINE_S) as client,
            CopiesReader.connected(cluster) as reader,
        ):
            watch = cls(reader)
            async with Loads.checked(client, topic, slow=True) as loads:
                yield watch, loads
            await watch.until_whole(f"the end: all {len(loads.stored):,} acknowledged messages are read, each once")
            assert await violations_of(cluster, [topic]) == []

    async def look(self, event: str = "") -> StoredCopies:
        copies = await self.reader.read()
        self.samples.append(Sample(time.monotonic() - self.began_s, event, copies))
        return copies

    async def until_whole(self, event: str) -> None:
        """Look until every entry has all its copies, and no copy is damaged or different."""
        await until_whole(self.look, DEADLINE_S)
        await self.look(event)

    def table(self) -> str:
        head = f"{'second':>8}  {'ledgers':>7}" + "".join(f"{f'{count} copies':>10}" for count in (3, 2, 1, 0))
        return "\n".join([head, *(sample.row() for sample in self.samples)])


async def replace_all_disks(cluster: FaultyCluster, topic: str) -> CopiesOverTime:
    """Raises AssertionError if a message is lost, or not every entry gets all its copies again."""
    async with CopiesOverTime.under_load(cluster, topic) as (watch, loads):
        await loads.answered_more(300)
        for node in cluster.storage_names:
            await may_replace(cluster, node)
            await watch.look(f"{node} may be replaced")
            former = cluster.serving(node, "incarnation")
            with cluster.held():
                await cluster.kill(node, once=loads.under_way)
                cluster.wipe(node)
                await watch.look(f"{node} is killed and its directory deleted")
            await until(partial(_is_another, cluster, node, former), DEADLINE_S)
            await cluster.healed()
            await watch.look(f"{node} serves as a new node")
            await watch.until_whole("all closed ledgers have all copies")
            await loads.answered_more(300)
    return watch


def _is_another(cluster: FaultyCluster, node: str, former: str) -> bool:
    return cluster.serving(node, "incarnation") != former


async def lose_node(cluster: FaultyCluster, topic: str) -> CopiesOverTime:
    """Raises AssertionError if a message is lost, or not every entry gets all its copies on the other nodes."""
    with ExitStack() as down:
        async with CopiesOverTime.under_load(cluster, topic) as (watch, loads):
            await loads.answered_more(1_000)
            await watch.until_whole("before: all closed ledgers have all copies")
            node = cluster.storage_names[0]
            down.enter_context(cluster.held())
            await cluster.kill(node, once=loads.under_way)
            cluster.wipe(node)
            await watch.look(f"{node} is killed and its directory deleted")
            await loads.answered_more(1_000)
            await watch.until_whole("all closed ledgers have all copies on the other nodes")
            await loads.answered_more(1_000)
    return watch


async def first_error(client: oncelog.AsyncClient, topic: str) -> OncelogError:
    """The error with which a reader from the start of the topic ends."""
    reader = await client.create_reader(topic)
    try:
        while True:
            try:
                await reader.read_batch(timeout=DEADLINE_S)
            except OncelogError as error:
                return error
    finally:
        await reader.close()
