"""A program of functions whose effects happen once: it runs until a signal."""

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import Any, cast

from oncelog.client.client import AsyncClient
from oncelog.client.connecting import connect
from oncelog.core.errors import InvalidArgument, OncelogError
from oncelog.core.formats.chunks import CHUNKED_BYTES_DEFAULT
from oncelog.runtime.credentials import Token
from oncelog_effects.processes import Process, run_processes
from oncelog_effects.programs.monitoring import monitored

_LOCAL_URL = "oncelog://127.0.0.1:6650"
logger = logging.getLogger(__name__)
HEALTH_HOST = "127.0.0.1"


def run(
    *processes: Process[Any],
    url: str | None = None,
    token: Token | None = None,
    health_port: int | None = None,
    health_host: str = HEALTH_HOST,
    stalled_after: float | None = None,
    max_message_bytes: int = CHUNKED_BYTES_DEFAULT,
) -> None:
    """Run processes in this program until SIGTERM or SIGINT: the transactions that are open end, their messages are
    acknowledged, and the connections are closed. A second signal ends the program at once.

    Args:
        url: None: the environment variable ONCELOG_URL, or a cluster on this machine.
        health_port: of /livez, /readyz, /metrics and /status; 0: a free one; None: none. Needs the extra `services`.
        health_host: the address on which it listens.
        stalled_after: seconds that a function may run before /livez fails; None: it does not fail.
        max_message_bytes: as in `connect`: the largest message that is received, at most 1 GiB.

    Raises as `run_processes`; RuntimeError if an event loop runs already.
    """
    _refuse_in_a_loop()
    if not processes or not all(isinstance(each, Process) for each in processes):
        raise InvalidArgument("run needs functions that @oncelog.process has made", field="processes")
    address = os.environ.get("ONCELOG_URL", _LOCAL_URL) if url is None else url
    connecting = connect(address, token=token, max_message_bytes=max_message_bytes)
    try:
        asyncio.run(run_until_signal(processes, connecting, health_host, health_port, stalled_after))
    except OncelogError as error:
        logger.debug("the program ends", exc_info=error)
        # The text says what helps: the frames of asyncio and ours, and those of each cause, would hide it.
        raise error.with_traceback(None) from None


def _refuse_in_a_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(
        "oncelog.run was called while an event loop runs. If `oncelog run` imports the module, put the call under `if "
        '__name__ == "__main__":`; in an async function use `await process.run(client)`'
    )


async def run_until_signal(
    processes: Sequence[Process[Any]],
    connecting: Awaitable[AsyncClient],
    health_host: str = HEALTH_HOST,
    health_port: int | None = None,
    stalled_after: float | None = None,
) -> None:
    """Of the main thread's event loop. Raises as `run_processes`."""
    task = cast("asyncio.Task[None]", asyncio.current_task())
    ended_by_signal = False

    def end() -> None:
        nonlocal ended_by_signal
        ended_by_signal = True
        forget()
        task.cancel()

    def forget() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            with suppress(ValueError):
                loop.remove_signal_handler(number)

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    try:
        async with await connecting as client, monitored(processes, health_host, health_port, stalled_after):
            await run_processes(client, processes)
    except asyncio.CancelledError:
        if not ended_by_signal:
            raise
    finally:
        forget()
