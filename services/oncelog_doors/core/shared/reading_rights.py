"""Whether a role may read through a door, by the rights of a namespace: as the owner of a topic decides for clients of
the log itself."""

from collections.abc import Mapping, Sequence

from oncelog.core.access import Caller, Right, may, require
from oncelog.core.names import NamespaceName, TopicName


def require_right(
    caller: Caller, grants: Mapping[str, Sequence[str]], namespace: NamespaceName, *rights: Right
) -> None:
    """Raises PermissionDenied for a caller that has none of the rights."""
    require(caller, _by_role(grants), *rights, what=f"namespace {namespace}")


def may_read(caller: Caller, grants: Mapping[str, Sequence[str]], topic: TopicName, *, may_create: bool) -> bool:
    """Whether reading may create the topic. may_create: the client wants that. Raises PermissionDenied for a caller
    that may not read it."""
    require_right(caller, grants, topic.namespace_name, Right.CONSUME)
    return may_create and may(caller, _by_role(grants), Right.PRODUCE)


def _by_role(grants: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    return {role: tuple(each) for role, each in grants.items()}
