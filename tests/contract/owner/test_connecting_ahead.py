"""Connections for a takeover or a hand-over exist before it starts, so that it waits for no name or handshake."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from oncelog.core.ids import Incarnation
from oncelog.metadata.owners.owner_calls import OwnerCalls
from oncelog.metadata_store.records.registry import LiveOwner
from oncelog.storage_client.client import StorageClient
from tests.cluster.until import until

A = Incarnation("a" * 32)
DEADLINE_S = 30.0


class Doorman:
    """Counts who is connected at the same time, and answers nobody."""

    def __init__(self) -> None:
        self.port = 0
        self.guests: set[asyncio.StreamWriter] = set()

    async def came(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.guests.add(writer)
        while await reader.read(4096):
            pass
        self.guests.remove(writer)
        writer.transport.abort()


@asynccontextmanager
async def doorman() -> AsyncIterator[Doorman]:
    one = Doorman()
    server = await asyncio.start_server(one.came, "127.0.0.1", 0)
    one.port = server.sockets[0].getsockname()[1]
    try:
        yield one
    finally:
        server.close()
        for guest in list(one.guests):
            guest.transport.abort()
        await until(lambda: not one.guests, DEADLINE_S)
        await server.wait_closed()


@pytest.mark.asyncio
async def test_owner_connects_to_a_storage_node_when_it_registers() -> None:
    """Two connections: one for adds, one for calls and reads."""
    async with doorman() as storage_node:
        links = StorageClient(lambda *_: None, lambda *_: None)
        links.update_addresses({A: f"127.0.0.1:{storage_node.port}"}, ahead=True)
        try:
            await until(lambda: len(storage_node.guests) >= 2, DEADLINE_S)
        finally:
            await links.close()


@pytest.mark.asyncio
async def test_metadata_connects_to_an_owner_when_it_registers() -> None:
    """In Kubernetes a pod's name disappears before the pod: an unload that starts then still reaches the owner."""
    async with doorman() as owner:
        calls = OwnerCalls()
        calls.owners_changed([LiveOwner(A, "127.0.0.1", {"grpc": owner.port}, 0)])
        try:
            await until(lambda: len(owner.guests) >= 1, DEADLINE_S)
        finally:
            await calls.close()
