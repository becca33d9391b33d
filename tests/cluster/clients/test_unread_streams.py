"""Clients that open windows and read nothing take little of real processes, directly and through the gateway."""

import os
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest

import oncelog
from oncelog.core.ids import TopicId
from oncelog.rpc.codecs.metadata_codec import GATEWAY_OWNER
from oncelog.runtime.settings import TopicOwnerSettings
from tests.cluster.cluster_fixture import DEADLINE_S, Cluster
from tests.cluster.until import until
from tests.contract.owner.unread_stream import Unread

pytestmark = pytest.mark.asyncio

TOPIC = "public/default/unread"
MESSAGES = 300
MESSAGE_BYTES = 100_000
STREAMS = 6
#: The budget twice, because a frame is encoded besides what it is made of, and what else a process takes.
GROWTH_BYTES_MAX = 2 * TopicOwnerSettings().stream_bytes_max + 100 * 1024 * 1024


def resident_bytes(cluster: Cluster, name: str) -> int:
    pages = Path(f"/proc/{cluster.processes[name]['pid']}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


async def metric(cluster: Cluster, process: str, name: str) -> float:
    async with httpx.AsyncClient(verify=False) as http:
        text = (await http.get(f"http://{cluster.serving(process, 'health')}/metrics")).text
    return next(float(line.split()[-1]) for line in text.splitlines() if line.startswith(f"{name} "))


@pytest.mark.hazard("unread-windows")
@pytest.mark.parametrize("through", ["owner", "metadata-1"])
async def test_unread_windows_take_little_memory_and_others_go_on(
    cluster: Cluster, client: oncelog.AsyncClient, through: str
) -> None:
    """150 consumers took 2 GB of an owner, which kept them. A consumer that reads gets every message meanwhile."""
    async with AsyncExitStack() as stack:
        async with await client.create_producer(TOPIC) as producer:
            last = [await producer.send(os.urandom(MESSAGE_BYTES)) for _ in range(MESSAGES)][-1]
        owner = await cluster.owner_of(TOPIC)
        processes = (owner, "metadata-1")
        stats = await cluster.stats(TOPIC, "internalStats")
        metadata = [(GATEWAY_OWNER, stats["owner"])] if through == "metadata-1" else []
        before = {name: resident_bytes(cluster, name) for name in processes}
        for number in range(STREAMS):
            unread = Unread(
                cluster.serving(owner if through == "owner" else through),
                TOPIC,
                TopicId(stats["topic_id"]),
                metadata=metadata,
            )
            stack.push_async_callback(unread.close)
            await unread.open(f"{number}-{each}" for each in range(150 // STREAMS))
        reading = await client.subscribe(TOPIC, subscription=f"reading-{through}", start=oncelog.EARLIEST)
        seen = 0
        while seen < MESSAGES:
            message = await reading.receive(timeout=DEADLINE_S)
            await reading.ack(message)
            seen += 1
        assert last.message_id is not None
        assert 0 < await metric(cluster, owner, "oncelog_stream_bytes") <= TopicOwnerSettings().stream_bytes_max
        grown = {name: resident_bytes(cluster, name) - before[name] for name in processes}
        assert max(grown.values()) < GROWTH_BYTES_MAX, grown
        await reading.close()

    async def free() -> bool:
        return await metric(cluster, owner, "oncelog_stream_bytes") == 0

    await until(free, DEADLINE_S)
