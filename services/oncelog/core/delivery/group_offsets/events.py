"""The events of groups of gateways' clients, whose offsets are positions of subscriptions; answered by AnswerAdmin.

A group is known by the name of its subscription. Its members are not attached: they read, and commit.
"""

from dataclasses import dataclass

from oncelog.core.errors import InvalidArgument
from oncelog.core.formats.packed_fields import NUMBER_MAX
from oncelog.core.ids import Generation

#: The name of the active consumer of a subscription whose generation a group's coordinator has raised.
GROUPS = "kafka/groups"
#: As in Kafka.
METADATA_BYTES_MAX = 4096
#: The highest generation of a group, as clients of Kafka have it. Far below GENERATION_MAX: consumers can be granted
#: after it.
GROUP_GENERATION_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class OffsetCommitRequested:
    """The group goes on at `offset`, forward or back; the first commit creates the subscription. generation: of the
    member; None: of no member, so that the subscription's own counts. metadata: METADATA_BYTES_MAX at most. role: of
    the caller; empty without authentication.

    Answered with the generation when it is durable. Refused: an offset above the durable end (InvalidArgument), a
    generation below the newest one (ConsumerFenced), and a subscription that is used otherwise. An offset below the
    first message means the first one, as it does for a new subscription."""

    call: int
    subscription: str
    offset: int
    generation: Generation | None = None
    metadata: str = ""
    role: str = ""


@dataclass(frozen=True, slots=True)
class GenerationRaiseRequested:
    """No member of a lower generation commits any more. create: the subscription, if it is missing; otherwise a missing
    one is skipped, and the answer is generation 0. Answered with the generation that it has then: `generation`, or a
    higher one."""

    call: int
    subscription: str
    generation: Generation
    create: bool = False
    role: str = ""


@dataclass(frozen=True, slots=True)
class OffsetAsked:
    """Answered when no commit of the group is in flight any more: the durable state is what it was told, or will be."""

    call: int
    subscription: str


GroupChange = OffsetCommitRequested | GenerationRaiseRequested
GroupRequest = GroupChange | OffsetAsked


def check_offset(offset: int, metadata: str) -> None:
    """Raises InvalidArgument for what no topic can have."""
    if not 0 <= offset <= NUMBER_MAX:
        raise InvalidArgument(f"offset {offset}: give 0 to {NUMBER_MAX}", field="offset", limit=NUMBER_MAX)
    size = len(metadata.encode())
    if size > METADATA_BYTES_MAX:
        message = f"metadata of {size} bytes, and at most {METADATA_BYTES_MAX} are allowed"
        raise InvalidArgument(message, field="metadata", limit=METADATA_BYTES_MAX)
