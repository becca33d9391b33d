"""Whether a role may read a topic through a door, by the rights of its namespace: as the owner of the topic decides for
clients of the log itself."""

from collections.abc import Mapping, Sequence

from oncelog.core.access import Caller, Right, may, require
from oncelog.core.names import TopicName


def may_read(caller: Caller, grants: Mapping[str, Sequence[str]], topic: TopicName, *, may_create: bool) -> bool:
    """Whether reading may create the topic. may_create: the client wants that. Raises PermissionDenied for a caller
    that may not read it."""
    rights = {role: tuple(each) for role, each in grants.items()}
    require(caller, rights, Right.CONSUME, what=f"namespace {topic.namespace_name}")
    return may_create and may(caller, rights, Right.PRODUCE)
