"""What is killed when: fractions of acknowledged lines, producer and owner apart from each other."""

from dataclasses import dataclass
from enum import StrEnum


class Victim(StrEnum):
    PRODUCER = "producer"
    OWNER = "topic's owner"
    STORAGE = "storage node"


@dataclass(frozen=True, slots=True)
class Kill:
    """at: fraction of all lines that are acknowledged then.

    forgets: the producer that is run again remembers nothing of its last lines and sends them once more.
    """

    at: float
    victim: Victim
    forgets: bool = False


KILLS = (
    Kill(0.10, Victim.PRODUCER),
    Kill(0.22, Victim.OWNER),
    Kill(0.34, Victim.PRODUCER, forgets=True),
    Kill(0.46, Victim.OWNER),
    Kill(0.58, Victim.STORAGE),
    Kill(0.70, Victim.PRODUCER, forgets=True),
    Kill(0.82, Victim.OWNER),
)
#: The share of all lines that a forgetful producer sends again.
FORGOTTEN = 0.03
