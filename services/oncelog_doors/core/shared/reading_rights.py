"""Whether a role may read through a door, by the rights of a namespace: as the owner of a topic decides for clients of
the log itself."""

from collections.abc import Mapping, Sequence

from oncelog.core.access import Caller, Right, may, require
from oncelog.core.names import NamespaceName, TopicName


def require_reading(caller: Caller, grants: Mapping[str, Sequence[str]], namespace: NamespaceName) -> None:
    """Raises PermissionDenied for a caller that may not read the topics of the namespace, and so not list them."""
    require(caller, _by_role(grants), Right.CONSUME, what=f"namespace {namespace}")


def may_read(caller: Caller, grants: Mapping[str, Sequence[str]], topic: TopicName, *, may_create: bool) -> bool:
    """Whether reading may create the topic. may_create: the client wants that. Raises PermissionDenied for a caller
    that may not read it."""
    require_reading(caller, grants, topic.namespace_name)
    return may_create and may(caller, _by_role(grants), Right.PRODUCE)


def _by_role(grants: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    return {role: tuple(each) for role, each in grants.items()}
