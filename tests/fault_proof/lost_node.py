"""One of four storage nodes is lost under load and never returns: what each entry has of copies meanwhile.

all ledgers are whole -> kill -9, and the directory is deleted -> the delay for absent nodes passes
    -> repair copies its ledgers to the other nodes -> every message is read without the node
"""

from contextlib import ExitStack

import oncelog
from tests.cluster.loads import Loads, read_all
from tests.fault_proof.audit import violations_of
from tests.fault_proof.faulty_cluster import FaultyCluster
from tests.fault_proof.random_faults import DEADLINE_S
from tests.fault_proof.stored_copies import CopiesReader
from tests.fault_proof.three_disks import CopiesOverTime

STORAGE_NODES = 4


async def lose_node(cluster: FaultyCluster, topic: str) -> CopiesOverTime:
    """Raises AssertionError if a message is lost, or not every entry gets all its copies on the other nodes."""
    with ExitStack() as down:
        async with (
            await oncelog.connect(cluster.url, operation_timeout=DEADLINE_S) as client,
            CopiesReader.connected(cluster) as reader,
        ):
            watch = CopiesOverTime(reader)
            async with (await Loads.of_two(client, topic, slow=True)).running() as loads:
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
            stored = await read_all(client, topic)
            loads.check(stored)
            await watch.until_whole(f"the end: all {len(stored):,} acknowledged messages are read, each once")
            assert await violations_of(cluster, [topic]) == []
            return watch
