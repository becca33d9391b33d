"""Identities and numbers that every part shares, with their ranges.

Rules: two ints of like meaning are never positional; a sequence id of 0 and an entry id of 0 are legal everywhere, so
tests are `is not None` or comparisons, never truthiness.
"""

from typing import NamedTuple, NewType

LedgerId = NewType("LedgerId", int)
EntryId = NewType("EntryId", int)
ProducerId = NewType("ProducerId", int)
Generation = NewType("Generation", int)
SequenceId = NewType("SequenceId", int)
OwnerEpoch = NewType("OwnerEpoch", int)
#: UUID hex of one life of a topic owner, or of one directory of a storage node.
Incarnation = NewType("Incarnation", str)
#: UUID hex of a topic; a topic deleted and created anew has another (hazard 3).
TopicId = NewType("TopicId", str)
SessionNumber = NewType("SessionNumber", int)
#: 16 random bytes that name one producer instance of a client for its whole life, or no bytes.
InstanceId = NewType("InstanceId", bytes)

#: A batch with this producer id is stored without deduplication; issued ids start at 1.
NOT_DEDUPLICATED = ProducerId(0)
#: The last sequence id of a producer that has stored nothing.
NO_SEQUENCE = SequenceId(-1)
#: The last entry of an empty ledger, and the last_add_confirmed before the first acknowledgement.
NO_ENTRY = EntryId(-1)
SEQUENCE_ID_MAX = 2**63 - 1
#: An instance that does not name itself: each of its openings is taken for another instance's.
NO_INSTANCE = InstanceId(b"")
INSTANCE_ID_BYTES = 16
GENERATION_MAX = 2**32 - 1


class Position(NamedTuple):
    """A place in a topic's log; ordered, for the ledger ids of a topic ascend."""

    ledger_id: LedgerId
    entry_id: EntryId

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}"


#: Before every entry of every topic.
BEFORE_ALL = Position(LedgerId(-1), NO_ENTRY)
