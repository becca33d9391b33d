"""The right of a client's role to read a topic.

The door reads with its own rights, which are those of a superuser. So it asks for the rights of the client's role
before it opens a reader or a consumer, and every 30 s while that is open. A role that has lost its right gets nothing
more.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from oncelog.core.access import Caller
from oncelog.core.errors import OncelogError, PermissionDenied
from oncelog.core.names import TopicName
from oncelog.runtime.tasks import BackgroundTasks
from oncelog_doors.core.shared.reading_rights import may_read
from oncelog_doors.log_client.namespace_grants import NamespaceGrants

RIGHTS_EVERY_S = 30.0


class Rights(NamedTuple):
    """The right of a caller to read a topic."""

    caller: Caller
    topic: TopicName
    grants: NamespaceGrants

    async def check(self, *, may_create: bool, age_s: float = 0.0) -> bool:
        """Whether the caller may create the topic, too. may_create: it wants that. age_s: how old the answer may be.
        Raises PermissionDenied, and as `NamespaceGrants.of`."""
        if self.caller.superuser:
            return may_create
        grants = await self.grants.of(str(self.topic.namespace_name), age_s=age_s)
        return may_read(self.caller, grants, self.topic, may_create=may_create)


class RightsWatch:
    """Of what one client of a door has open, from now on until `close`."""

    def __init__(self, rights: Rights, tasks: BackgroundTasks, lost: Callable[[], None], *, every_s: float) -> None:
        """lost: called once, when the caller has lost its right. every_s: how often the rights are asked for."""
        self._rights = rights
        self._lost = lost
        self._every_s = every_s
        #: why the client gets nothing more
        self.denied: OncelogError | None = None
        task = None if rights.caller.superuser else tasks.start(self._watch(), what=f"the rights of {rights.topic}")
        self._task: asyncio.Task[None] | None = task

    async def _watch(self) -> None:
        while self.denied is None:
            await asyncio.sleep(self._every_s)
            try:
                await self._rights.check(may_create=False, age_s=self._every_s / 2)
            except PermissionDenied as error:
                self.denied = error
                self._lost()
            except OncelogError:
                pass  # no answer: it is asked again

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
