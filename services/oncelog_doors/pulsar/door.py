"""The port for Pulsar's clients: it accepts connections, with or without TLS, and ends them gracefully."""

import asyncio
import ssl
from functools import partial

from oncelog_doors.pulsar.connection import Connection
from oncelog_doors.pulsar.home import Home

#: Time for the receipts of SENDs that were taken. After it the client sends them again, to another door.
DRAIN_MS = 5_000
_BACKLOG = 1024


class PulsarDoor:
    """Between `listen` and `close`."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._servers: list[asyncio.Server] = []

    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Accept connections; port 0 takes a free one. Returns the port. Raises OSError."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(partial(Connection, self._home), host, port, ssl=tls, backlog=_BACKLOG)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Accept no new connections, and end each connection when its receipts are out, or after 5 s."""
        for server in self._servers:
            server.close()
        await self._home.drain(DRAIN_MS)
