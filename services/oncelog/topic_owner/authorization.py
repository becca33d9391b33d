"""Whether a caller may use a topic, by the grants of its namespace.

The owner follows those grants with the topic's other policies, so that a caller who may is let in without asking
anybody; a refusal rests on a record read now, for a right may have been granted a moment ago. Asked when a producer or
a reader opens: a right that is taken away ends nothing that is open, and the next opening is refused.
"""

import asyncio
from collections.abc import Coroutine

from oncelog.core.access import Caller, Right, may
from oncelog.core.errors import TopicLoading
from oncelog.core.names import parse_topic
from oncelog.topic_owner.topic_runner import TopicRunner

#: How long a caller whose rights are not known yet waits for the takeover to finish.
LOADING_DEADLINE_MS = 10_000


def is_known_to_have(runner: TopicRunner, caller: Caller, right: Right) -> bool:
    """Whether the caller has the right by what is known here; False: `authorize` finds out."""
    return caller.superuser or (runner.grants is not None and may(caller, runner.grants, right))


async def authorize(runner: TopicRunner, caller: Caller, right: Right) -> None:
    """Raises PermissionDenied; TopicLoading, NotOwner, StoreUnavailable while it cannot be told."""
    if is_known_to_have(runner, caller, right):
        return
    try:
        async with asyncio.timeout(LOADING_DEADLINE_MS / 1000):
            # Before its record is read the topic has no name here, and the name that a caller gives proves nothing.
            await runner.progress.until_serving()
    except TimeoutError as error:
        raise TopicLoading("the topic is still being taken over: try again") from error
    await runner.parts.policies.require(caller, parse_topic(runner.name).namespace_name, right)


class Checks:
    """Authorizations under way of one stream; they end with it."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        self._running: set[asyncio.Task[None]] = set()

    def start(self, check: Coroutine[None, None, None]) -> None:
        task = self._tasks.create_task(check)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def __len__(self) -> int:
        return len(self._running)

    def cancel(self) -> None:
        for task in self._running:
            task.cancel()
