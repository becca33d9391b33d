"""What a role may see and create, by the rights of a namespace: as the log decides for its own clients.

A door is a superuser, and looks topics up for its clients. So it decides here, before it asks; whether a role may
publish and read is decided by the owner of the topic.
"""

from collections.abc import Mapping, Sequence

from oncelog.core.access import Caller, Right, may, require
from oncelog.core.names import TopicName

#: Of a client that publishes or reads: any of these shows it a topic.
USERS = (Right.PRODUCE, Right.CONSUME)


def may_create(
    caller: Caller,
    grants: Mapping[str, Sequence[str]],
    topic: TopicName,
    *,
    wanted: bool,
    sees: Sequence[Right] = USERS,
) -> bool:
    """Whether the look-up of this topic may create it. wanted: the client wants that. sees: any of these rights shows
    a topic. Raises PermissionDenied for a caller that may not even see it."""
    rights = {role: tuple(rights) for role, rights in grants.items()}
    require(caller, rights, *sees, what=f"namespace {topic.namespace_name}")
    return wanted and may(caller, rights, Right.PRODUCE)


def require_creation(caller: Caller, topic: TopicName) -> None:
    """The topic is missing, and the caller wanted it and may not create it. Raises PermissionDenied."""
    require(caller, {}, Right.PRODUCE, what=f"namespace {topic.namespace_name}")
