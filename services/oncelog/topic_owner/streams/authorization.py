"""Whether a caller may use a topic, by the grants of its namespace.

The owner watches those grants with the topic's other policies, so a caller with the right is admitted without a read.
Before it refuses, it reads the record, because the right may have been granted a moment ago. Rights are checked when a
producer or a reader opens. A revoked right ends nothing that is open; the next opening is refused.
"""

import asyncio

from oncelog.core.access import Caller, Right, may
from oncelog.core.errors import TopicLoading
from oncelog.core.names import parse_topic
from oncelog.topic_owner.shell.topic_runner import TopicRunner

#: How long a caller waits for the takeover to finish, if its rights are not known yet.
LOADING_DEADLINE_MS = 10_000


def is_known_to_have(runner: TopicRunner, caller: Caller, right: Right) -> bool:
    """Whether the watched grants contain the right. False: `authorize` must read the record."""
    return caller.superuser or (runner.grants is not None and may(caller, runner.grants, right))


async def authorize(runner: TopicRunner, caller: Caller, right: Right) -> None:
    """Raises PermissionDenied; TopicLoading, NotOwner, StoreUnavailable while the rights cannot be read."""
    if is_known_to_have(runner, caller, right):
        return
    try:
        async with asyncio.timeout(LOADING_DEADLINE_MS / 1000):
            # The topic has no name here until its record is read, and the name in the request proves nothing.
            await runner.progress.until_serving()
    except TimeoutError as error:
        raise TopicLoading("the topic is still moving to this owner: try again") from error
    await runner.parts.policies.require(caller, parse_topic(runner.name).namespace_name, right)
