"""A port for clients of one protocol: it accepts connections, with or without TLS, and ends them gracefully."""

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

from oncelog_doors.connections.home import ConnectionHome

#: Time for the answers to what was taken. After it the client sends again what has none, to another door.
DRAIN_MS = 5_000
_BACKLOG = 1024


class Listener:
    """Between `listen` and `close`. connect: makes a connection of the home."""

    def __init__(self, home: ConnectionHome[Any], connect: Callable[[], asyncio.Protocol]) -> None:
        self._home, self._connect = home, connect
        self._servers: list[asyncio.Server] = []

    def __len__(self) -> int:
        """Open connections."""
        return len(self._home.connections)

    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Accept connections; port 0 takes a free one. Returns the port. Raises OSError."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(self._connect, host, port, ssl=tls, backlog=_BACKLOG)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Accept no new connections, and end each connection when its answers are out, or after 5 s."""
        for server in self._servers:
            server.close()
        await self._home.drain(DRAIN_MS)
