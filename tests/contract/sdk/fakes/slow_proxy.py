"""A TCP relay that takes its time before it passes on what a connection says first, or what the server answers: a
starved peer. Or it passes on a request, and not its answer: a lost connection."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


class SlowProxy:
    """One relay on 127.0.0.1. delay_s: of each connection from now on; None: for ever. answer_delay_s: of what servers
    say from now on, also on connections that are there. drops_answer: asked about all that clients say; True: the
    server gets it, and the connection ends when it answers."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._tasks: set[asyncio.Task[None]] = set()
        self.delay_s: float | None = 0.0
        self.answer_delay_s = 0.0
        self.drops_answer: Callable[[bytes], bool] = lambda _: False
        self.port = 0
        #: connections that were taken, and those of them that were closed by their client before they were served
        self.taken = 0
        self.given_up = 0

    @classmethod
    @asynccontextmanager
    async def running(cls, server_port: int) -> AsyncIterator["SlowProxy"]:
        proxy = cls(server_port)
        listener = await asyncio.start_server(proxy._relay, "127.0.0.1", 0)
        proxy.port = listener.sockets[0].getsockname()[1]
        try:
            yield proxy
        finally:
            listener.close()
            for task in tuple(proxy._tasks):
                task.cancel()
            await asyncio.gather(*proxy._tasks, return_exceptions=True)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def _relay(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.taken += 1
        writers = [to_client]
        try:
            first = await self._first(from_client)
            if first is None:
                self.given_up += 1
                return
            from_server, to_server = await asyncio.open_connection("127.0.0.1", self._server_port)
            writers.append(to_server)
            to_server.write(first)
            dropping = asyncio.Event()
            ways = {
                asyncio.ensure_future(self._pump(from_client, to_server, dropping)),
                asyncio.ensure_future(_pump_late(from_server, to_client, lambda: self.answer_delay_s, dropping)),
            }
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        except (ConnectionError, asyncio.CancelledError):
            return
        finally:
            self._tasks.discard(task)
            for writer in writers:
                writer.transport.abort()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, dropping: asyncio.Event) -> None:
        while data := await source.read(65_536):
            if self.drops_answer(data):
                dropping.set()
            sink.write(data)
            await sink.drain()

    async def _first(self, from_client: asyncio.StreamReader) -> bytes | None:
        """What the client says first, after the delay; None: it has gone meanwhile."""
        said = b""
        try:
            async with asyncio.timeout(self.delay_s):
                while data := await from_client.read(65_536):
                    said += data
            return None
        except TimeoutError:
            return said


async def _pump_late(
    source: asyncio.StreamReader, sink: asyncio.StreamWriter, delay_s: Callable[[], float], dropping: asyncio.Event
) -> None:
    """Each piece so much later than it came, whatever follows it; up to the first one that is to be dropped."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    due_s = 0.0
    while data := await source.read(65_536):
        if dropping.is_set():
            return
        # Never before an earlier piece, also when the delay was just lowered.
        due_s = max(due_s, loop.time() + delay_s())
        loop.call_at(due_s, sink.write, data)
    loop.call_at(due_s, over.set)
    await over.wait()
