"""The disks of all storage nodes are replaced one after the other, under load: what each entry has of copies meanwhile.

    for each node: wait until it may be replaced -> kill -9 -> delete its directory -> it starts again as a new node

The copies are read from each node directly, again and again. Entries of open ledgers do not count.
"""

import time
from dataclasses import dataclass, field

import oncelog
from oncelog.core.errors import OncelogError
from tests.cluster.loads import Loads, read_all
from tests.cluster.until import until
from tests.fault_proof.audit import violations_of
from tests.fault_proof.faulty_cluster import FaultyCluster
from tests.fault_proof.random_faults import DEADLINE_S, may_replace
from tests.fault_proof.stored_copies import CopiesReader, StoredCopies, until_whole


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
    async with (
        await oncelog.connect(cluster.url, operation_timeout=DEADLINE_S) as client,
        CopiesReader.connected(cluster) as reader,
    ):
        watch = CopiesOverTime(reader)
        async with (await Loads.of_two(client, topic, slow=True)).running() as loads:
            await loads.answered_more(300)
            for node in cluster.storage_names:
                await may_replace(cluster, node)
                await watch.look(f"{node} may be replaced")
                former = cluster.serving(node, "incarnation")
                with cluster.held():
                    await cluster.kill(node, once=loads.under_way)
                    cluster.wipe(node)
                    await watch.look(f"{node} is killed and its directory deleted")
                await until(lambda node=node, former=former: cluster.serving(node, "incarnation") != former, DEADLINE_S)  # type: ignore[misc]
                await cluster.healed()
                await watch.look(f"{node} serves as a new node")
                await watch.until_whole("all closed ledgers have all copies")
                await loads.answered_more(300)
        stored = await read_all(client, topic)
        loads.check(stored)
        await watch.until_whole(f"the end: all {len(stored):,} acknowledged messages are read, each once")
        assert await violations_of(cluster, [topic]) == []
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
