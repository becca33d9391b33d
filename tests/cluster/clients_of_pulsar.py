"""Entries of clients of Pulsar in a cluster without a door: published as a door does it."""

import asyncio

from crc32c import crc32c

import oncelog
from oncelog.client.gateways import PackedEntry, create_packed_producer
from oncelog.core.formats.batch import PayloadFormat
from oncelog.core.formats.pulsar import open_entry
from oncelog.core.sdk.producer.sequence_ids import BatchIds, pack_sequence_ids
from tests.cluster.cluster_fixture import DEADLINE_S
from tests.core.pulsar_entries import summed


async def sent_by_a_client_of_pulsar(client: oncelog.AsyncClient, topic: str, entry: bytes) -> None:
    """Under the producer name that is in the entry."""
    entry = summed(entry, crc32c)
    found = open_entry(entry)
    ids = BatchIds(found.first, found.last) if found.ids is None else pack_sequence_ids(found.ids)
    producer = await create_packed_producer(client, topic, producer_name=found.producer_name)
    sent: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    packed = PackedEntry(
        entry, found.count, ids, PayloadFormat.PULSAR, publish_time_ms=found.publish_time_ms, unit=found.unit
    )
    producer.send_nowait(packed, lambda result, error: sent.set_result(error or result))
    assert not isinstance(await asyncio.wait_for(sent, DEADLINE_S), Exception)
    await producer.close(gives_up_name=True)
