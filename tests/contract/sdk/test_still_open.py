"""What a client has opened: opening one costs the same however many are open."""

from oncelog.client.still_open import StillOpen


class Opened:
    def __init__(self) -> None:
        self.ended = False
        self.asked = 0

    def has_ended(self) -> bool:
        self.asked += 1
        return self.ended


def test_ended_ones_are_dropped() -> None:
    """A client that opens and closes for ever keeps few of them."""
    kept = StillOpen(Opened.has_ended)
    first = Opened()
    kept.add(first)
    for _ in range(10_000):
        opened = Opened()
        kept.add(opened)
        opened.ended = True
    assert first in list(kept)
    assert len(list(kept)) < 50


def test_each_is_looked_at_a_few_times() -> None:
    """10,000 producers of one client were looked at each time another one was opened."""
    kept = StillOpen(Opened.has_ended)
    opened = [Opened() for _ in range(10_000)]
    for each in opened:
        kept.add(each)
    assert list(kept) == opened
    assert sum(each.asked for each in opened) < 3 * len(opened)
