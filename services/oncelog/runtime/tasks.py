"""Tasks that nobody awaits, and whose failure is a bug: whoever waits for what they do would wait for ever.

So a failure goes to the event loop's exception handler, which ends the process (`runtime.process`).
"""

import asyncio
from collections.abc import Coroutine


def start(work: Coroutine[None, None, None], *, what: str) -> "asyncio.Task[None]":
    """Run `work` on this loop. what: named in the report, as in "the check of a ledger". Keep the task, or it may be
    collected as garbage while it runs."""
    task = asyncio.get_running_loop().create_task(work, name=what)
    task.add_done_callback(_report)
    return task


def _report(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        context = {"message": f"{task.get_name()} failed", "exception": error, "task": task}
        task.get_loop().call_exception_handler(context)
