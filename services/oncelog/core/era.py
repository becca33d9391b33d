"""The era of a cluster: how often its records in ZooKeeper were restored or rebuilt.

Storage nodes store the era durably and refuse every call of a lower one. That one fence covers former owners, metadata
services and the old ZooKeeper that comes back. A restore id makes two restores of the same era distinguishable: a node
stores one of them only, and a restore needs more than half of the nodes, so one of two wins.

Ids and epochs of era e begin at e * 2^40 and e * 2^32, so that none is ever given twice although the counters were
lost. Era 1 is the first; its ids begin where they always did. 4,096 eras stay below 2^52, which JSON can hold.

Source: Paxos's ballot numbers, and HDFS's epochs of a quorum journal.
"""

from typing import NamedTuple, Self

from oncelog.core.errors import InvalidArgument
from oncelog.core.ids import OwnerEpoch

ERA_MAX = 4095
#: A jump of the era by more than this is no restore, but a mistake or an attack.
ERA_JUMP_MAX = 1000
_IDS_BITS = 40
_EPOCHS_BITS = 32
_RESTORE_ID_DIGITS = 32


class Era(NamedTuple):
    """restore_id: 32 hexadecimal digits; empty in era 1."""

    number: int
    restore_id: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """The inverse of str(): "2.00ff…", or "1". Raises InvalidArgument."""
        number, _, restore_id = text.partition(".")
        if not number.isascii() or not number.isdecimal() or len(number) > 4:
            raise InvalidArgument(f"{text[:80]!r} is no era: its number is 1 to {ERA_MAX}", field="era")
        return cls.checked(int(number), restore_id)

    @classmethod
    def checked(cls, number: int, restore_id: str) -> Self:
        """Raises InvalidArgument."""
        if not 1 <= number <= ERA_MAX:
            raise InvalidArgument(f"era {number} is not between 1 and {ERA_MAX}", field="era")
        wanted = 0 if number == 1 else _RESTORE_ID_DIGITS
        if len(restore_id) != wanted or not set(restore_id) <= set("0123456789abcdef"):
            raise InvalidArgument(f"the restore id of era {number} must have {wanted} hexadecimal digits", field="era")
        return cls(number, restore_id)

    def __str__(self) -> str:
        return f"{self.number}.{self.restore_id}" if self.restore_id else str(self.number)

    @property
    def first_id(self) -> int:
        """The lowest ledger id and producer id of this era."""
        return 1 if self.number == 1 else self.number << _IDS_BITS

    @property
    def first_epoch(self) -> int:
        """The owner epoch of a topic that no owner has served in this era."""
        return 0 if self.number == 1 else self.number << _EPOCHS_BITS


def era_of(owner_epoch: OwnerEpoch) -> int:
    """The number of the era in which an owner got this epoch."""
    return max(1, owner_epoch >> _EPOCHS_BITS)


FIRST_ERA = Era(1, "")
