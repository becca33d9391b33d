"""`python -m tests.ledgers_proof [--ledgers N]`: a topic with a million ledgers, and what its owner takes for them.

A real ZooKeeper, one storage node and one owner. Almost all ledgers are planted: pages, links and a record for each in
ZooKeeper, but entries for a few only (`planted_ledgers`). The last ones are written by the owner itself. Printed are
the times of two takeovers, of reads at both ends and by index, of a trim of all but a thousandth, and of the repairer's
list.
"""

import argparse
import asyncio
import resource
import tempfile
import time
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import TypeVar, cast

from oncelog.core.chain.next_ledger import LedgerPurpose
from oncelog.core.ids import EntryId, LedgerId, Position
from oncelog.core.records.id_claim import Counter, CounterRecord
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.core.snapshots.snapshot_writer import SnapshotSettings
from oncelog.core.topic_events.events import TrimRequested
from oncelog.metadata.repair.chain_listing import ChainListing
from oncelog.metadata_store.records.cluster_store import ClusterStore
from oncelog.metadata_store.records.counter_store import CounterStore
from oncelog.metadata_store.records.ledger_store import LedgerLookup
from oncelog.metadata_store.session.zookeeper import ZooKeeperSession
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs import owner_codec
from oncelog.rpc.codecs.reader_codec import StartAt, StartEdge, StartIndex, StartTime
from oncelog.rpc.server import Server
from oncelog.runtime.zookeeper_server import ZooKeeperServer
from oncelog.topic_owner.shell.log_view import LogView
from oncelog.topic_owner.shell.topic_runner import TopicRunner
from tests.cluster.until import until
from tests.contract.owner.owner_world import ME, PATIENT, OwnerLimits, OwnerWorld, PublishClient, StoredNode, batch_of
from tests.contract.stores.memory_store import MemorySession
from tests.ledgers_proof.planted_ledgers import BEGAN_MS, PlantedLedgers

TOPIC = "public/default/long"
WRITTEN = 60
DEADLINE_S = 600.0
DELETION_DEADLINE_S = 3_600.0
#: The owner's own ledgers hold five entries, and every snapshot is a base, so that the trim bound moves.
LIMITS = OwnerLimits(
    replace(
        PATIENT, ledger_entries_max=5, tick_ms=50,
        snapshot=SnapshotSettings(entries_max=1, gap_ms=0, deltas_max=0),
    )
)  # fmt: skip
T = TypeVar("T")


def tell(line: str) -> None:
    print(line, flush=True)


async def timed(what: str, work: Awaitable[T]) -> T:
    began_s = time.perf_counter()
    result = await work
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    tell(f"{what:60} {time.perf_counter() - began_s:9.3f} s   peak memory {peak_mb} MB")
    return result


async def world_on(stack: AsyncExitStack, directory: Path, session: ZooKeeperSession) -> tuple[OwnerWorld, Channel]:
    node = StoredNode(directory / "node", LedgerLookup(session))
    await node.start()
    stack.push_async_callback(node.stop)
    world = OwnerWorld(cast("MemorySession", session), node, LIMITS)
    stack.push_async_callback(world.parts.links.close)
    world.see_the_node()
    server = Server(node.security)
    server.client_stream(owner_codec.PUBLISH, world.publish.publish)
    port = await server.start()
    stack.push_async_callback(lambda: server.stop(grace_ms=0))
    channel = await stack.enter_async_context(Channel(f"127.0.0.1:{port}", credentials=node.security.peers))
    return world, channel


async def written_topic(world: OwnerWorld, channel: Channel, first_index: int) -> TopicRunner:
    """A topic whose log begins with message `first_index`, with some ledgers and snapshots."""
    runner = await world.serve(TOPIC)
    serving = runner.core.serving
    assert serving is not None
    serving.log.table.state.next_index = serving.log.next_index = first_index
    client = PublishClient(channel)
    granted = await client.open(runner, "importer")
    for number in range(WRITTEN):
        await client.stored(granted, batch_of(granted, [number]))
    return runner


async def taken_over(world: OwnerWorld, runner: TopicRunner) -> TopicRunner:
    await world.place(runner.topic_id, ME)
    world.topics.assign(runner.topic_id)
    again = world.topics.find(runner.topic_id)
    assert again is not None
    await again.progress.until_serving()
    serving = again.core.serving
    assert serving is not None
    return again


async def reads(runner: TopicRunner, count: int) -> None:
    """Each by a reader of its own, with its first entry."""
    view = LogView(runner.log)
    starts: dict[str, tuple[StartAt, int]] = {
        "the start": (StartEdge.EARLIEST, 0), "message in the middle": (StartIndex(count // 2), count // 2),
        "message in the middle again": (StartIndex(count // 2), count // 2),
        "message by time": (StartTime(BEGAN_MS + count // 4), count // 4),
        "last planted": (StartIndex(count - 1), count - 1),
        "the end": (StartIndex(count + WRITTEN - 1), count + WRITTEN - 1),
    }  # fmt: skip
    for what, (start, index) in starts.items():
        found = await timed(f"read at {what}", view.index_of(start))
        assert found == index, (what, found)


async def prove(directory: Path, count: int) -> None:
    async with AsyncExitStack() as stack:
        server = stack.enter_context(ZooKeeperServer.running(directory / "zookeeper", heap_mb=256 + count // 300))
        session = await ZooKeeperSession.connect(server.address, session_timeout_ms=60_000)
        stack.push_async_callback(session.close)
        await ClusterStore(session).establish("ledgers-proof")
        ids = CounterStore(session, Counter.LEDGER)
        await ids.write(CounterRecord(count + 1, ME, "planted"), version=ABSENT_VERSION)
        world, channel = await world_on(stack, directory, session)
        runner = await written_topic(world, channel, count)
        await world.topics.unload(runner.topic_id)
        places = [0, count // 4, count // 2, count - 1]
        planted = PlantedLedgers(world, session, runner.topic_id, count, places)
        await timed(f"{count:,} ledgers planted", planted.plant(tell))
        await measure(world, session, runner, count)


async def measure(world: OwnerWorld, session: ZooKeeperSession, runner: TopicRunner, count: int) -> None:
    runner = await timed("takeover", taken_over(world, runner))
    record = runner.core.ownership
    tell(f"  {record.record.ledger_count:,} ledgers, {len(record.record.pages)} pages")
    await reads(runner, count)
    listing = ChainListing(world.parts.topics, world.parts.cursors)
    chains = await timed("the repairer's list", listing.read(runner.topic_id))
    assert len(next(c.ledgers for c in chains if c.purpose is LedgerPurpose.LOG)) == record.record.ledger_count
    await timed("the repairer's list again", listing.read(runner.topic_id))
    await timed("names of all ledger records", session.children("/ledgers", timeout_ms=60_000))
    before = record.record.ledger_count
    runner.post(TrimRequested(Position(LedgerId(count - count // 1000), EntryId(0))))
    trimmed = until(lambda: record.record.ledger_count < before // 50, DEADLINE_S, waiting_for="the trim")
    await timed("trim", trimmed)
    tell(f"  {before - record.record.ledger_count:,} ledgers left the list, {record.record.ledger_count:,} stay")
    again = await timed("takeover after the trim, while records are deleted", handed_over(world, runner))
    await timed("the records of trimmed ledgers are deleted", deleted(world, again))


async def handed_over(world: OwnerWorld, runner: TopicRunner) -> TopicRunner:
    """Another owner epoch without an unload: the former runner learns of it, as after a pause."""
    await world.topics.unload(runner.topic_id)
    return await taken_over(world, runner)


async def deleted(world: OwnerWorld, runner: TopicRunner) -> None:
    """A takeover ended the deletion; the next trim goes on with it."""
    topics, record = world.parts.topics, runner.core.ownership

    async def only_linked() -> bool:
        return len(await topics.pages.names(runner.topic_id)) == len(record.record.pages)

    runner.post(TrimRequested(Position(LedgerId(1 << 60), EntryId(0))))
    await until(only_linked, DELETION_DEADLINE_S, every_s=1.0, waiting_for="the pages to go")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.ledgers_proof", description=__doc__)
    parser.add_argument("--ledgers", type=int, default=1_000_000, help="ledgers of the topic")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(prove(Path(directory), arguments.ledgers))


if __name__ == "__main__":
    main()
