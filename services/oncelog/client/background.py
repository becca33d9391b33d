"""Tasks that outlive the call that started them: held, loud when they fail, cancelled at the end."""

import asyncio
from collections.abc import Coroutine
from typing import Any


class Background:
    """The tasks of one client. A task that raises is reported to the event loop's exception handler: it is a bug."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            message = f"{task.get_name()} failed"
            task.get_loop().call_exception_handler({"message": message, "exception": error, "task": task})

    async def close(self) -> None:
        """Cancel everything and wait for it."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
