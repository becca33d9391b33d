"""Many producers of one topic: what an idle one takes in memory, and a takeover with all of them.

opened         producers per second that are opened, store one message and are closed again
memory         bytes of the new owner's process for each producer, after the takeover
takeover       seconds from the SIGKILL of the owner until a new producer's message is stored
steps          the longest step of the event loop while a snapshot of so many producers is encoded, and while it is
               loaded: CPU time, measured in this process with the code of the owner, because it is too short to be
               seen from outside
"""

import asyncio
import signal
import time

from crc32c import crc32c

from oncelog.client.client import AsyncClient
from oncelog.core.formats.entry import EntryKind, SequenceMode
from oncelog.core.ids import EntryId, Generation, ProducerId
from oncelog.core.publishing.dedup_state import DedupState
from oncelog.core.publishing.producer_record import ProducerRow, encode_row
from oncelog.core.publishing.producer_state import ProducerState
from oncelog.core.snapshots.dedup_encoder import SnapshotEncoder
from oncelog.core.snapshots.dedup_format import SnapshotManifest, SnapshotReader, encode_manifest
from oncelog.runtime.memory import tune_memory
from oncelog_lab.bench.cpu import resident_bytes
from oncelog_lab.bench.figures import BenchRow, FigureTarget
from oncelog_lab.bench.running import BenchStack, Tell
from oncelog_lab.bench.settings import BenchSettings
from oncelog_lab.cluster import STORAGE_NODES, signal_process
from oncelog_lab.failures import LabFailed

TOPIC = "public/default/bench-producers"
OWNERS = 2
_AT_ONCE = 256
#: For all producers, and for each one beside.
_DEADLINE_S, _DEADLINE_EACH_S = 60.0, 0.02
_STEP_MS_MAX = 20.0


async def producers_rows(stack: BenchStack, settings: BenchSettings, tell: Tell) -> list[BenchRow]:
    """Five rows."""
    count = settings.producer_count
    at = {"producers": count}
    cluster = await stack.cluster(owners=OWNERS)
    await cluster.until_serving({"owner": OWNERS, "storage": STORAGE_NODES})
    async with await cluster.connect() as client:
        tell(f"open {count:,} producers, one after the other on {_AT_ONCE} connections")
        began = time.perf_counter()
        await _open_each(client, count)
        opened_s = time.perf_counter() - began
        victim = await cluster.owner_of(TOPIC)
        (heir,) = [owner for owner in cluster.serving("owner") if owner.pid != victim.pid]
        before = resident_bytes(heir)
        tell("SIGKILL for the owner")
        signal_process(victim, signal.SIGKILL)
        began = time.perf_counter()
        async with await client.create_producer(TOPIC) as producer:
            await producer.send(b"x")
        takeover_s = time.perf_counter() - began
        held = resident_bytes(heir) - before
        known = (await cluster.stats(TOPIC))["producer_count"]
        if known < count:
            raise LabFailed(f"the new owner knows {known} producers of {count}")
    tell("encode and load a snapshot")
    encoded_ms, loaded_ms, loaded_s = snapshot_steps_ms(count)
    return [
        BenchRow("producers opened, with a message each", count / opened_s, "producers/s", at=at),
        BenchRow("memory of an idle producer at a new owner", held / count, "bytes", None,
                 FigureTarget(300, at_most=True), {"owner_bytes": held}, at=at),
        BenchRow("takeover of a topic with many producers", takeover_s, "s", None, FigureTarget(5, at_most=True),
                 at=at),
        BenchRow("longest step while a snapshot is encoded", encoded_ms, "ms", None,
                 FigureTarget(_STEP_MS_MAX, at_most=True), at=at),
        BenchRow("longest step while a snapshot is loaded", loaded_ms, "ms", None,
                 FigureTarget(_STEP_MS_MAX, at_most=True), note=f"all steps together {loaded_s:.2f} s", at=at),
    ]  # fmt: skip


async def _open_each(client: AsyncClient, count: int) -> None:
    """Open each producer, store a message, and close it. Raises LabFailed."""
    numbers = iter(range(count))

    async def work() -> None:
        for number in numbers:
            async with await client.create_producer(TOPIC, producer_name=f"producer-name-{number}") as producer:
                await producer.send(b"x")

    try:
        async with asyncio.timeout(_DEADLINE_S + _DEADLINE_EACH_S * count), asyncio.TaskGroup() as tasks:
            for _ in range(_AT_ONCE):
                tasks.create_task(work())
    except TimeoutError as late:
        raise LabFailed(f"{count} producers were not opened in time") from late


def snapshot_steps_ms(count: int) -> tuple[float, float, float]:
    """The longest step of encoding a base of so many idle producers, the longest of loading it, in ms of CPU; and the
    seconds of all steps of loading."""
    tune_memory()  # as in an owner: the garbage collector's default setting would interrupt steps
    state = DedupState()
    state.restore(
        ProducerRow(producer.producer_id, producer.name, encode_row(producer))
        for producer in (
            ProducerState(f"producer-name-{number}", ProducerId(number), Generation(1), SequenceMode.MONOTONIC)
            for number in range(1, count + 1)
        )
    )
    encoder = SnapshotEncoder(state, 1, crc32c, True)
    chunks: list[bytes] = []
    encoded = loaded = total = 0.0
    while not encoder.done:
        began = time.thread_time()
        chunks += encoder.step()
        encoded = max(encoded, time.thread_time() - began)
    manifest = SnapshotManifest(1, -1, state.position, 0, count, encoder.chunks_count, encoder.crc)
    reader = SnapshotReader(crc32c)
    entries = [(EntryKind.SNAPSHOT_CHUNK, chunk) for chunk in chunks]
    entries.append((EntryKind.SNAPSHOT_MANIFEST, encode_manifest(manifest)))
    for number, (kind, body) in enumerate(entries):
        began = time.thread_time()
        reader.feed(EntryId(number), kind, body)
        took = time.thread_time() - began
        loaded, total = max(loaded, took), total + took
    if reader.state is None or len(reader.state.producers) != count:
        raise LabFailed("a snapshot could not be loaded")
    return encoded * 1000, loaded * 1000, total
