"""Reads standard input as blocks of lines. Lines are passed on as they arrive, also from a slow pipe.

A read of standard input cannot be cancelled, so a thread reads. It is a daemon thread, so that the program can exit
without waiting for the next line.
"""

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from concurrent.futures import CancelledError

from oncelog.cli.produce.line_file import BLOCK_BYTES, LINE_BYTES_MAX, LineBlock
from oncelog.core.errors import InvalidArgument

_CHUNKS_MAX = 8


async def lines_of_descriptor(descriptor: int) -> AsyncIterator[LineBlock]:
    """Blocks without offsets, because standard input cannot be replayed. Raises OSError, InvalidArgument."""
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue(_CHUNKS_MAX)

    def read() -> None:
        data: bytes | OSError = b"-"
        while data and not isinstance(data, OSError):
            try:
                data = os.read(descriptor, BLOCK_BYTES)
            except OSError as error:  # of a directory, or of a stream that is closed
                data = OSError(error.errno, error.strerror, "standard input")
            putting = chunks.put(data)
            try:
                asyncio.run_coroutine_threadsafe(putting, loop).result()
            except (RuntimeError, CancelledError):
                putting.close()
                return  # the loop is closed: the rest is not needed

    threading.Thread(target=read, daemon=True, name="standard input").start()
    rest = b""
    while data := await chunks.get():
        if isinstance(data, OSError):
            raise data
        rest += data
        cut = rest.rfind(b"\n") + 1
        if cut:
            values = rest[:cut].split(b"\n")
            values.pop()
            rest = rest[cut:]
            yield LineBlock(values, None, -1)
        elif len(rest) > LINE_BYTES_MAX:
            raise InvalidArgument(f"a line of standard input exceeds {LINE_BYTES_MAX} bytes, the maximum", field="line")
    if rest:
        yield LineBlock([rest], None, -1)
