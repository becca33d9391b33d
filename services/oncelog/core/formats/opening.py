"""What is said when a producer is opened: the request's values and the grant."""

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from oncelog.core.formats.entry import SequenceMode
from oncelog.core.ids import NO_INSTANCE, Generation, InstanceId, OwnerEpoch, ProducerId, SequenceId, SessionNumber


class OnConflict(IntEnum):
    """What an opening does to an instance that holds the name."""

    FENCE = 1
    REFUSE = 2


class ProducerInstance(NamedTuple):
    """One instance of a producer: the id that stands for its name, and its generation."""

    producer_id: ProducerId
    generation: Generation


@dataclass(frozen=True, slots=True)
class ProducerOpening:
    """A producer asks for a session. `call` names this request towards the shell; name None: one is assigned.

    resume: the same instance goes on after its connection broke. present: it opens by name again, proving itself.
    role: who asks, empty where authentication is off. takes_any_name: also names that belong to other roles.
    instance_id: a repeat with the same one joins the former request, and gets the grant that this one led to.
    """

    call: int
    name: str | None
    mode: SequenceMode = SequenceMode.MONOTONIC
    on_conflict: OnConflict = OnConflict.FENCE
    resume: ProducerInstance | None = None
    present: ProducerInstance | None = None
    owner_epoch_seen: OwnerEpoch = OwnerEpoch(0)
    instance_id: InstanceId = NO_INSTANCE
    role: str = ""
    takes_any_name: bool = True


class Granted(NamedTuple):
    """An open session. final: last_sequence_id rests on a durable grant and no other session can change it."""

    session: SessionNumber
    name: str
    instance: ProducerInstance
    last_sequence_id: SequenceId
    final: bool
