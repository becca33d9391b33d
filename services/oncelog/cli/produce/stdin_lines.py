"""Standard input as blocks of lines, sent on as they come: a pipe that is slow shows each line at once.

A thread reads, for a read of standard input cannot be cancelled; it is a daemon, so that the end of the program need
not wait for a line that never comes.
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
    """Blocks without offsets: these lines have no place to come back to."""
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes] = asyncio.Queue(_CHUNKS_MAX)

    def read() -> None:
        data = b"-"
        while data:
            data = os.read(descriptor, BLOCK_BYTES)
            putting = chunks.put(data)
            try:
                asyncio.run_coroutine_threadsafe(putting, loop).result()
            except (RuntimeError, CancelledError):
                putting.close()
                return  # the loop is closed: nobody wants the rest

    threading.Thread(target=read, daemon=True, name="standard input").start()
    rest = b""
    while data := await chunks.get():
        rest += data
        cut = rest.rfind(b"\n") + 1
        if cut:
            values = rest[:cut].split(b"\n")
            values.pop()
            rest = rest[cut:]
            yield LineBlock(values, None, -1)
        elif len(rest) > LINE_BYTES_MAX:
            raise InvalidArgument(f"a line of standard input is longer than {LINE_BYTES_MAX} bytes", field="line")
    if rest:
        yield LineBlock([rest], None, -1)
