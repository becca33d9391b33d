"""The limits path: how fast this machine can carry a write that needs no work.

    client --frames--> owner --numbered frames--> 3 storage nodes, one fdatasync a group
           <--answers--      <--numbers of frames--

The processes, streams, copies and syncs are those of the product: bidirectional gRPC streams, an owner that answers
when two of three storage nodes have synced, a storage node that writes all waiting frames and syncs once. The event
loop, the allocator's setting and the options of gRPC are those of the product, too. The work is left out: no batch is
parsed, checked for duplicates, verified, indexed or recovered. A figure of the product divided by the same figure of
this path is the share of the machine's limit that the product reaches.

Rules
- A storage node writes again and again into a file whose blocks are allocated, like a log with recycled segments.
  That is the fastest way to sync a disk.
- An owner numbers the frames, so that answers can come in any order, and writes each frame three times.
- Frames are never merged or split: small frames have their own cost.

Child processes of a benchmark: `storage FILE`, `owner HOST:PORT…`, or `pair`, which answers each frame at once: with
its client, it is a bare pair of processes with one stream. Each prints its address as the services do.
"""

import asyncio
import json
import os
import struct
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import grpc

from oncelog.rpc.options import CONNECTIONS_MAX, FRAME_BYTES_MAX, channel_options, server_options
from oncelog.runtime.process import Shutdown, run
from oncelog.runtime.tasks import start

HOST = "127.0.0.1"
METHOD = "/oncelog_lab.Limits/Path"
#: The number of a frame, before each frame and in each answer, little endian.
NUMBER = struct.Struct("<Q")
ACK_QUORUM = 2
#: Size of a storage node's file, like a segment of the product.
FILE_BYTES = 256 * 1024 * 1024
GROUP_FRAMES_MAX = 256
_ZEROS_BYTES = 1024 * 1024
_DRAIN_TIMEOUT_MS = 5_000

#: gRPC's context of one stream of raw bytes.
Context = grpc.aio.ServicerContext[bytes, bytes]
Handler = Callable[[object, Context], Awaitable[None]]


def open_stream(channel: grpc.aio.Channel) -> Any:
    """A stream of raw bytes to the next process of the path."""
    return channel.stream_stream(METHOD)(wait_for_ready=True)


def open_channel(address: str) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(address, options=channel_options(FRAME_BYTES_MAX))


def join_numbers(numbers: list[int]) -> bytes:
    """An answer: the numbers of the frames that are stored."""
    return struct.pack(f"<{len(numbers)}Q", *numbers)


class Answers:
    """The answers of one stream: all that are ready are sent in one message."""

    def __init__(self) -> None:
        self._ready: list[int] = []
        self._wake = asyncio.Event()

    def add(self, number: int) -> None:
        self._ready.append(number)
        self._wake.set()

    async def write_to(self, context: Context) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            ready, self._ready = self._ready, []
            await context.write(join_numbers(ready))


async def serve_stream(context: Context, receive: Callable[[bytes, Answers], None]) -> None:
    """Pass on each frame of one stream, and write the answers, until the client closes it."""
    answers = Answers()
    writing = start(answers.write_to(context), what="the limits path")
    try:
        while True:
            frame: Any = await context.read()
            if frame is grpc.aio.EOF:
                return
            receive(frame, answers)
    finally:
        writing.cancel()


class LimitsStorageNode:
    """Writes numbered frames into one file, and answers the number of a frame when it is synced."""

    def __init__(self, path: Path, file_bytes: int = FILE_BYTES) -> None:
        self._file_bytes = file_bytes
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT)
        self._offset = 0
        self._waiting: deque[tuple[bytes, Answers]] = deque()
        self._wake = asyncio.Event()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="disk")

    def write_blocks(self) -> None:
        """Write the whole file once, so that later syncs change no metadata of the file system."""
        zeros = bytes(_ZEROS_BYTES)
        for offset in range(0, self._file_bytes, _ZEROS_BYTES):
            os.pwrite(self._fd, zeros, offset)
        os.fsync(self._fd)

    async def handle(self, _request: object, context: Context) -> None:
        await serve_stream(context, self._receive)

    def _receive(self, frame: bytes, answers: Answers) -> None:
        self._waiting.append((frame, answers))
        self._wake.set()

    async def commit_groups(self) -> None:
        """Write all waiting frames with one write and one sync, again and again."""
        loop = asyncio.get_running_loop()
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                count = min(len(self._waiting), GROUP_FRAMES_MAX)
                group = [self._waiting.popleft() for _ in range(count)]
                await loop.run_in_executor(self._executor, self.commit, [frame for frame, _ in group])
                for frame, answers in group:
                    answers.add(NUMBER.unpack_from(frame)[0])

    def commit(self, frames: list[bytes]) -> None:
        """Write and sync them, in the calling thread."""
        size = sum(map(len, frames))
        if self._offset + size > self._file_bytes:
            self._offset = 0
        os.pwritev(self._fd, frames, self._offset)
        os.fdatasync(self._fd)
        self._offset += size

    def close(self) -> None:
        self._executor.shutdown()
        os.close(self._fd)


class LimitsLink:
    """The owner's stream to one storage node."""

    def __init__(self, address: str, answered: Callable[[int], None]) -> None:
        self._channel = open_channel(address)
        self._stream = open_stream(self._channel)
        self._waiting: deque[bytes] = deque()
        self._wake = asyncio.Event()
        self._tasks = [start(work, what="the limits path") for work in (self._write(), self._read(answered))]

    def send(self, frame: bytes) -> None:
        self._waiting.append(frame)
        self._wake.set()

    async def _write(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                await self._stream.write(self._waiting.popleft())

    async def _read(self, answered: Callable[[int], None]) -> None:
        while (answer := await self._stream.read()) is not grpc.aio.EOF:
            for (number,) in NUMBER.iter_unpack(answer):
                answered(number)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await self._channel.close()


class LimitsOwner:
    """Numbers frames, sends each one to all storage nodes, and answers when two of three have stored it."""

    def __init__(self, addresses: list[str]) -> None:
        self._links = [LimitsLink(address, self._stored) for address in addresses]
        self._last_number = 0
        #: {number: (missing answers of storage nodes, the client's number, the client's answers)}
        self._unanswered: dict[int, tuple[int, int, Answers]] = {}

    async def handle(self, _request: object, context: Context) -> None:
        await serve_stream(context, self._receive)

    def _receive(self, frame: bytes, answers: Answers) -> None:
        self._last_number += 1
        self._unanswered[self._last_number] = (ACK_QUORUM, NUMBER.unpack_from(frame)[0], answers)
        numbered = b"".join((NUMBER.pack(self._last_number), frame))
        for link in self._links:
            link.send(numbered)

    def _stored(self, number: int) -> None:
        found = self._unanswered.get(number)
        if found is None:
            return
        missing, clients_number, answers = found
        if missing > 1:
            self._unanswered[number] = (missing - 1, clients_number, answers)
        else:
            del self._unanswered[number]
            answers.add(clients_number)

    async def close(self) -> None:
        for link in self._links:
            await link.close()


async def answer_each(_request: object, context: Context) -> None:
    """The other end of a bare pair."""
    await serve_stream(context, lambda frame, answers: answers.add(NUMBER.unpack_from(frame)[0]))


async def _serve(handler: Handler, shutdown: Shutdown) -> None:
    server = grpc.aio.server(options=server_options(FRAME_BYTES_MAX, CONNECTIONS_MAX))
    service, _, method = METHOD.strip("/").rpartition("/")
    methods: dict[str, Any] = {method: grpc.stream_stream_rpc_method_handler(handler)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))
    port = server.add_insecure_port(f"{HOST}:0")
    await server.start()
    print(json.dumps({"serving": {"address": f"{HOST}:{port}"}}), flush=True)
    await shutdown.wait()
    await server.stop(None)


async def run_storage(path: Path, shutdown: Shutdown) -> None:
    node = LimitsStorageNode(path)
    node.write_blocks()
    committing = start(node.commit_groups(), what="the limits path")
    await _serve(node.handle, shutdown)
    committing.cancel()
    node.close()


async def run_pair(shutdown: Shutdown) -> None:
    await _serve(answer_each, shutdown)


async def run_owner(addresses: list[str], shutdown: Shutdown) -> None:
    owner = LimitsOwner(addresses)
    await _serve(owner.handle, shutdown)
    await owner.close()


def main(arguments: list[str]) -> int:
    """`storage FILE`, `owner HOST:PORT…` or `pair`."""
    role, *rest = arguments
    work: dict[str, Callable[[Shutdown], Awaitable[None]]] = {
        "storage": lambda shutdown: run_storage(Path(rest[0]), shutdown),
        "owner": partial(run_owner, rest),
        "pair": run_pair,
    }
    return run(work[role], drain_timeout_ms=_DRAIN_TIMEOUT_MS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
