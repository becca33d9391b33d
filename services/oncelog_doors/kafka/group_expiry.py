"""Deletes groups that have had no members and no commits for long (hazard console-groups-fill-the-disk).

Every console makes a group, and a group holds the messages that it has not read. The door asks the coordinators from
time to time how long their groups have been empty, and deletes those that are due as DeleteGroups does, with its own
rights. Each step says how long the group must have been empty, so a group that is used again meanwhile stays, and
owners keep an offset with a young commit. Several doors may do it at once: the coordinator forgets a group once.

Clients that commit without ever joining a group are not known to a coordinator. As in Kafka, each of their offsets has
an age of its own, which its owner knows; one that a member of the group has had since is of the group.
"""

import logging
from collections.abc import Callable

from oncelog.core.access import Caller
from oncelog.core.errors import OncelogError, TopicNotFound
from oncelog.core.groups.answers import GroupError, ListAnswer
from oncelog.core.groups.events import ListRequested
from oncelog.core.names import NamespaceName
from oncelog.runtime.tasks import BackgroundTasks
from oncelog_doors.connections.ports import Timers
from oncelog_doors.kafka.groups import ASK_MS, delete_group
from oncelog_doors.kafka.ports import ClusterPort

_LOG = logging.getLogger(__name__)

#: Between two looks at all groups. With a shorter retention: the retention, but for the second one.
INTERVAL_MS = 3_600_000
_INTERVAL_MS_MIN = 1_000
#: Doors are superusers.
_DOOR = Caller("door", superuser=True)


class GroupExpiry:
    """namespace: the first one to watch. retention_ms: 0: groups are never deleted. tasks: of the door."""

    def __init__(
        self,
        cluster: ClusterPort,
        timers: Timers,
        tasks: BackgroundTasks,
        *,
        namespace: NamespaceName,
        retention_ms: int,
    ) -> None:
        self._cluster, self._timers, self._tasks = cluster, timers, tasks
        self._namespaces = {namespace}
        self._retention_ms = retention_ms
        self._cancel: Callable[[], None] | None = None
        self._arm()

    def watch(self, namespace: NamespaceName) -> None:
        """A client of the door uses a group there."""
        self._namespaces.add(namespace)

    @property
    def is_armed(self) -> bool:
        """Whether it waits for its next look at all groups."""
        return self._cancel is not None

    def close(self) -> None:
        """Begin nothing more."""
        if self._cancel is not None:
            self._cancel()
            self._cancel = None

    def _arm(self) -> None:
        if self._retention_ms:
            after_ms = min(INTERVAL_MS, max(self._retention_ms, _INTERVAL_MS_MIN))
            self._cancel = self._timers.at(self._timers.now_ms() + after_ms, self._begin)

    def _begin(self) -> None:
        self._cancel = None
        self._tasks.start(self._look(), what="the deletion of groups that are not used")

    async def _look(self) -> None:
        for namespace in sorted(self._namespaces):
            for due in (self._delete_due, self._delete_unused):
                try:
                    await due(namespace)
                except TopicNotFound:
                    pass  # no client has ever joined a group there, or the namespace is gone
                except OncelogError as error:
                    _LOG.warning("could not list the groups of %s, will retry: %s", namespace, error)
        self._arm()

    async def _delete_due(self, namespace: NamespaceName) -> None:
        """Raises OncelogError if the groups cannot be listed."""
        groups = self._cluster.groups
        listed = await groups.ask(namespace, _DOOR, ListRequested(0), timeout_ms=ASK_MS)
        assert isinstance(listed, ListAnswer), "it is the answer to this question"
        for each in listed.groups:
            if each.empty_for_ms < self._retention_ms:
                continue
            try:
                code = await delete_group(groups, namespace, _DOOR, each.group, empty_for_ms=self._retention_ms)
            except OncelogError as error:
                _LOG.warning("could not delete group %s of %s, will retry: %s", each.group, namespace, error)
                continue
            outcome = "deleted" if code is GroupError.NONE else f"kept ({code.name.lower()})"
            days = each.empty_for_ms / 86_400_000
            _LOG.info("group %s of %s is %s: it was empty for %.1f days", each.group, namespace, outcome, days)

    async def _delete_unused(self, namespace: NamespaceName) -> None:
        """Raises OncelogError if the offsets cannot be listed."""
        deleted = await self._cluster.groups.delete_unused_offsets(
            namespace, _DOOR, unused_for_ms=self._retention_ms, timeout_ms=ASK_MS
        )
        for group, count in deleted.items():
            text = "%d offsets of clients without a group, named %s in %s, are deleted: they were not used any more"
            _LOG.info(text, count, group, namespace)
