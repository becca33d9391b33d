"""A command that is told a wrong address says so before the time-out of its first operation."""

import asyncio

import pytest

from oncelog.cli.listening import require_listener
from oncelog.core.errors import ServiceUnavailable

pytestmark = pytest.mark.asyncio


async def test_address_where_nobody_listens_is_named_with_the_reason() -> None:
    with pytest.raises(ServiceUnavailable, match=r"127.0.0.1:1 \(a metadata service\): connection refused") as caught:
        await require_listener(["127.0.0.1:1", "nowhere.invalid:6650"], 0.5)
    assert "nowhere.invalid:6650 (a metadata service): " in caught.value.message


async def test_one_of_several_addresses_is_enough() -> None:
    """It is connected to once, and left."""
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        await require_listener(["127.0.0.1:1", f"127.0.0.1:{port}"], 30)
        await require_listener([f"localhost:{port}"], 30)
