"""Whether a caller may use a topic, by the grants of its namespace.

The owner watches those grants with the topic's other policies, so a caller with the right is admitted without a read.
Before it refuses, it reads the record, because the right may have been granted a moment ago. Rights are checked when a
producer or a reader opens. A revoked right ends nothing that is open; the next opening is refused.
"""

import asyncio

from oncelog.core.access import Caller, Right, may
from oncelog.core.errors import PermissionDenied, TopicLoading
from oncelog.core.names import is_of_doors, parse_topic
from oncelog.topic_owner.shell.topic_runner import TopicRunner

#: How long a caller waits for the takeover to finish, if its rights are not known yet.
LOADING_DEADLINE_MS = 10_000


def is_known_to_have(runner: TopicRunner, caller: Caller, right: Right, *, of_doors: bool = False) -> bool:
    """Whether the watched grants contain the right. False: `authorize` must read the record. of_doors: as there."""
    if caller.superuser:
        return True
    if runner.grants is None or not may(caller, runner.grants, right):
        return False
    return of_doors or not _is_of_doors(runner)


async def authorize(runner: TopicRunner, caller: Caller, right: Right, *, of_doors: bool = False) -> None:
    """of_doors: the call is made by doors for their clients. All other calls for a topic of the doors need a superuser:
    a message in it would be believed.

    Raises PermissionDenied; TopicLoading, NotOwner, StoreUnavailable while the rights cannot be read."""
    if is_known_to_have(runner, caller, right, of_doors=of_doors):
        return
    try:
        async with asyncio.timeout(LOADING_DEADLINE_MS / 1000):
            # The topic has no name here until its record is read, and the name in the request proves nothing.
            await runner.progress.until_serving()
    except TimeoutError as error:
        raise TopicLoading("the topic is still moving to this owner: try again") from error
    await runner.parts.policies.require(caller, parse_topic(runner.name).namespace_name, right)
    if _is_of_doors(runner) and not of_doors:
        raise PermissionDenied(f"topic {runner.name} belongs to the doors: use another one", topic=runner.name)


def _is_of_doors(runner: TopicRunner) -> bool:
    return is_of_doors(runner.name.rpartition("/")[2])
