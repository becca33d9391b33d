"""What a JoinGroup may contain, whatever its group is. Doors refuse it by the same rule, before it reaches a
coordinator."""

from collections.abc import Iterator

from oncelog.core.groups.answers import GroupError
from oncelog.core.groups.events import JoinRequested
from oncelog.core.groups.limits import (
    METADATA_BYTES_MAX,
    NAME_BYTES_MAX,
    PROTOCOLS_MAX,
    SESSION_TIMEOUT_MS_MAX,
    SESSION_TIMEOUT_MS_MIN,
)
from oncelog.core.groups.members import size_of
from oncelog.core.groups.membership import Refusal


def refuse_fields(event: JoinRequested) -> Refusal | None:
    """Why no group can take the member; None: its group decides. The reason names the field and its limit."""
    if not SESSION_TIMEOUT_MS_MIN <= event.session_timeout_ms <= SESSION_TIMEOUT_MS_MAX:
        reason = f"session_timeout_ms is {event.session_timeout_ms}"
        limits = f"allowed are {SESSION_TIMEOUT_MS_MIN} to {SESSION_TIMEOUT_MS_MAX}"
        return Refusal(GroupError.INVALID_SESSION_TIMEOUT, f"{reason}, {limits}")
    if event.instance_id == "":
        return Refusal(GroupError.INVALID_REQUEST, "instance_id is empty: give a name, or none")
    if len(event.protocols) > PROTOCOLS_MAX:
        reason = f"the member offers {len(event.protocols)} protocols, at most {PROTOCOLS_MAX} are allowed"
        return Refusal(GroupError.INVALID_REQUEST, reason)
    for field, name in _names(event):
        if (size := len(name.encode())) > NAME_BYTES_MAX:
            return Refusal(
                GroupError.INVALID_REQUEST, f"{field} has {size} bytes, at most {NAME_BYTES_MAX} are allowed"
            )
    if (size := size_of(event)) > METADATA_BYTES_MAX:
        reason = f"the metadata of the member has {size} bytes, at most {METADATA_BYTES_MAX} are allowed"
        return Refusal(GroupError.GROUP_MAX_SIZE_REACHED, reason)
    return None


def _names(event: JoinRequested) -> Iterator[tuple[str, str]]:
    yield "protocol_type", event.protocol_type
    yield "client_id", event.client_id
    yield "instance_id", event.instance_id or ""
    for each in event.protocols:
        yield "protocol name", each.name
