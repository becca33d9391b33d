"""Identities and numbers that all packages share, with their ranges.

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
#: UUID hex of a topic; a topic that was deleted and created again has another one (hazard recreated-topic).
TopicId = NewType("TopicId", str)
SessionNumber = NewType("SessionNumber", int)
#: Number of a subscription in its topic; ascends, and is never given to another subscription.
SubscriptionNumber = NewType("SubscriptionNumber", int)
#: Counts the seeks of a subscription. Deliveries and acknowledgements of a lower one are void (hazard
#: late-ack-after-seek).
SeekEpoch = NewType("SeekEpoch", int)
#: Number of one attachment of a consumer at one owner process; a reconnected consumer has another one.
ConsumerNumber = NewType("ConsumerNumber", int)
#: 16 random bytes that identify one producer instance for its whole life; empty: none.
InstanceId = NewType("InstanceId", bytes)

#: A batch with this producer id is stored without deduplication; issued ids start at 1.
NOT_DEDUPLICATED = ProducerId(0)
#: The last sequence id of a producer that has stored nothing.
NO_SEQUENCE = SequenceId(-1)
#: The last entry of an empty ledger, and the last_add_confirmed before the first acknowledgement.
NO_ENTRY = EntryId(-1)
SEQUENCE_ID_MAX = 2**63 - 1
#: An opening without an instance id counts as another instance's.
NO_INSTANCE = InstanceId(b"")
INSTANCE_ID_BYTES = 16
GENERATION_MAX = 2**32 - 1
PRODUCER_ID_MAX = 2**63 - 1
#: A partitioned topic gets more partitions at most so often: a producer's record has one byte for it.
GROWTHS_MAX = 255


class Position(NamedTuple):
    """An entry's place in a topic's log. Positions are ordered, because the ledger ids of a topic ascend."""

    ledger_id: LedgerId
    entry_id: EntryId

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}"

    @classmethod
    def parse(cls, text: str) -> "Position":
        """The inverse of `str`. Raises ValueError."""
        ledger_id, _, entry_id = text.partition(":")
        return cls(LedgerId(int(ledger_id)), EntryId(int(entry_id)))


#: Before every entry of every topic.
BEFORE_ALL = Position(LedgerId(-1), NO_ENTRY)
