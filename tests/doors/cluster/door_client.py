"""Clients of Pulsar in front of a door and a cluster with tokens: what they publish and read, byte by byte."""

import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import oncelog
from oncelog.core.formats.wire.pulsar_metadata_pb2 import EntryMetadata, MessageMetadata
from oncelog_doors.pulsar.frames import build_entry
from tests.cluster.cluster_fixture import Cluster
from tests.contract.process.security_world import token
from tests.doors.cluster.door_program import DoorProgram, connect
from tests.doors.pulsar.bytes_of_clients import CLOSE_PRODUCER, FLOW, SEND, body, command, frame
from tests.doors.pulsar.entries_at_clients import Got, read
from tests.doors.pulsar.raw_client import RawClient, raw_client

EARLIEST, LATEST = body((1, 2**64 - 1), (2, 2**64 - 1)), body((1, 2**63 - 1), (2, 2**63 - 1))
UNAUTHORIZED, NOT_FOUND, NOT_ALLOWED = 4, 11, 22
NO_BATCH_INDEX = -1


class Place(NamedTuple):
    """As a client numbers a message."""

    ledger_id: int
    entry_id: int
    batch_index: int = NO_BATCH_INDEX

    def body(self) -> bytes:
        index = () if self.batch_index == NO_BATCH_INDEX else ((4, self.batch_index),)
        return body((1, self.ledger_id), (2, self.entry_id), *index)


def topic(name: str) -> bytes:
    return f"persistent://public/default/{name}".encode()


@asynccontextmanager
async def connected(door: DoorProgram, role: str) -> AsyncIterator[RawClient]:
    async with raw_client(door.port()) as client:
        await connect(client, token(role))
        yield client


async def received_entry(client: RawClient) -> list[tuple[Place, Got]]:
    """The messages of the next entry, as the client numbers them."""
    got = await client.read()
    assert got.entry is not None, got
    at = got.command.message.message_id
    metadata, messages = read(got.entry)
    batch = metadata.HasField("count")
    return [
        (Place(at.ledger_id, at.entry_id, index if batch else NO_BATCH_INDEX), each)
        for index, each in enumerate(messages)
    ]


async def received(client: RawClient, count: int) -> list[tuple[Place, Got]]:
    """So many messages, which fill their entries."""
    client.write(frame(command(FLOW, (1, 1), (2, 1000))))
    found: list[tuple[Place, Got]] = []
    while len(found) < count:
        found += await received_entry(client)
    assert len(found) == count
    return found


async def received_until(client: RawClient, sequence_id: int) -> list[tuple[Place, Got]]:
    """Up to the message with this id."""
    client.write(frame(command(FLOW, (1, 1), (2, 1000))))
    found = await received_entry(client)
    while found[-1][1].sequence_id != sequence_id:
        found += await received_entry(client)
    return found


def batch(ids: Sequence[int]) -> bytes:
    """A SEND of a batch."""
    payload = b""
    for number in ids:
        value = b"pulsar %d" % number
        data = MessageMetadata(payload_bytes=len(value), sequence_id=number).SerializeToString()
        payload += struct.pack(">I", len(data)) + data + value
    metadata = EntryMetadata(
        producer_name="importer", sequence_id=ids[0], publish_time=5, count=len(ids), highest_sequence_id=ids[-1],
        raw_bytes=len(payload),
    )  # fmt: skip
    sent = command(SEND, (1, 1), (2, ids[0]), (3, len(ids)), (6, ids[-1]))
    return frame(sent, bytes(build_entry(metadata.SerializeToString(), payload)))


async def published(door: DoorProgram, name: str, batches: Sequence[Sequence[int]]) -> list[Any]:
    """The ids in the receipts."""
    async with connected(door, "importer") as client:
        await client.open_producer(topic=topic(name))
        places = [(await client.answer(batch(ids))).message_id for ids in batches]
        await client.answer(frame(command(CLOSE_PRODUCER, (1, 1), (2, 9))))
    return places


@asynccontextmanager
async def sdk(cluster: Cluster, files: Path) -> AsyncIterator[oncelog.AsyncClient]:
    async with oncelog.AsyncClient(cluster.url, token=token("root"), tls_ca_file=files / "ca.crt") as client:
        yield client
