"""A process that stops responding without ending: only its kernel still answers.

A stopped process looks like a host that is gone, but for its kernel: so it is gRPC's own keepalive that has to be
missed (`rpc.options`). Any server with those options will do here; the owner of the limits path is the smallest one.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from oncelog.core.errors import ServiceUnavailable
from oncelog.rpc.channel import Channel
from oncelog.rpc.methods import StreamMethod
from oncelog_lab.bench.baseline_path import METHOD
from oncelog_lab.child_process import LabChild

#: Far above the keepalive's five seconds, and below a minute, which is gRPC's default.
DEADLINE_S = 30.0


@pytest.mark.asyncio
async def test_stream_to_a_stopped_process_times_out(tmp_path: Path) -> None:
    """A client of a frozen owner would otherwise wait long after the topic has moved to another owner."""
    method: StreamMethod[bytes, bytes, bytes, bytes] = StreamMethod(METHOD, bytes, bytes, bytes, bytes)
    server = await LabChild.start(
        "the server",
        (sys.executable, "-m", "oncelog_lab.bench.baseline_path", "owner"),
        log=tmp_path / "server.log",
        announces="serving",
        deadline_s=DEADLINE_S,
    )
    try:
        async with Channel(str(server.announced["serving"]["address"])) as channel, asyncio.timeout(DEADLINE_S):
            stream = channel.stream(method)
            await stream.write(b"a frame that nobody answers")
            os.kill(server.pid, signal.SIGSTOP)
            with pytest.raises(ServiceUnavailable):
                await anext(stream)
    finally:
        os.kill(server.pid, signal.SIGKILL)  # SIGTERM would wait for a stopped process
        await server.stop()
