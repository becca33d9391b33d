"""What a history has come to: what was acknowledged, and what is read back."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

#: A tag ends with it if its value was sent before.
AGAIN = "'"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Sends are named by their tags, in the order of their answers: a tag is the value, with AGAIN for a repetition.

    unanswered: the client waited for a receipt until its time-out. stored: values that a Reader got. told_stored:
    values that the answer to a new producer named as stored, by its last sequence id.
    """

    acknowledged: Sequence[str]
    refused: Sequence[str]
    unanswered: Sequence[str]
    stored: Sequence[str]
    told_stored: Sequence[str] = ()
    note: str = ""

    @property
    def lost(self) -> list[str]:
        """Sends that were acknowledged, or values that an answer named as stored, if no reader gets them."""
        claimed = dict.fromkeys((*self.acknowledged, *self.told_stored))
        return [each for each in claimed if each.rstrip(AGAIN) not in self.stored]

    @property
    def doubled(self) -> list[str]:
        return [value for value, count in Counter(self.stored).items() if count > 1]

    def __str__(self) -> str:
        shown = _shown(
            {
                "acknowledged": self.acknowledged, "read": self.stored, "LOST": self.lost, "DOUBLED": self.doubled,
                "refused": self.refused, "NO RECEIPT": self.unanswered,
            }
        )  # fmt: skip
        return f"{shown}; {self.note}" if self.note else shown


@dataclass(frozen=True, slots=True)
class Consumed:
    """Of a subscription. acknowledged: values that its consumer has acknowledged, with a receipt or before it was
    closed. received: values that another consumer got after that. missed: values for which it waited in vain."""

    acknowledged: Sequence[str]
    received: Sequence[str]
    missed: Sequence[str] = ()

    @property
    def again(self) -> list[str]:
        """Values that were delivered although they were acknowledged."""
        return [each for each in self.acknowledged if each in self.received]

    def __str__(self) -> str:
        return _shown(
            {
                "acknowledged": self.acknowledged, "received": self.received, "AGAIN": self.again,
                "MISSED": self.missed,
            }
        )  # fmt: skip


def _shown(parts: Mapping[str, Sequence[str]]) -> str:
    return "; ".join(f"{what} {compact(found)}" for what, found in parts.items() if found)


def compact(values: Sequence[str]) -> str:
    """1 2 3 5 as 1-3 5: numbers first, ascending; then the others as they come."""
    numbers = sorted({int(each) for each in values if each.isdigit()})
    runs = []
    for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        first, *others = (number for _, number in run)
        runs.append(f"{first}-{others[-1]}" if others else f"{first}")
    return " ".join([*runs, *(each for each in dict.fromkeys(values) if not each.isdigit())])
