"""A year of a topic that many short-lived producers write to: each is leased, stores a message and is never seen again.

    python -m tests.core.publishing.expiry.short_lived COUNT

Their grants, messages and expiries are folded as the log has them; the owner's part that expires producers decides, and
time is what the log says. Prints the size of the fold with nothing in it, once a quarter, and at the end.
"""

import sys
from collections.abc import Iterator
from typing import NamedTuple, cast

from oncelog.core.formats.entry import EntryHeader, EntryKind
from oncelog.core.formats.producers_aged import ProducersAged, decode_aged, encode_aged
from oncelog.core.ids import EntryId, LedgerId, OwnerEpoch, ProducerId
from oncelog.core.policies.producer_lifetimes import ProducerLifetimes, lease_ms
from oncelog.core.publishing.dedup_state import DedupState, assigned_name
from oncelog.core.publishing.dedup_table import DedupTable
from oncelog.core.publishing.expiry import Presence, ProducerExpiry
from oncelog.core.publishing.log import TopicLog
from oncelog.core.snapshots.dedup_encoder import SnapshotEncoder
from oncelog.core.topic_events.effects import StartTopicTimer, Step
from tests.core.builders import CONTIGUOUS, TOPIC, checksum, grant, received

YEAR_MS = 365 * 86_400_000
LIFETIME_MS = lease_ms(7 * 86_400_000)
#: Producers that live at the same time, so many of a year's.
LIVING = LIFETIME_MS * 9 / 8 / YEAR_MS


class Size(NamedTuple):
    """Of a fold. snapshot_bytes: of a base."""

    producers: int
    batches_bytes: int
    snapshot_bytes: int


def size_of(state: DedupState) -> Size:
    encoder = SnapshotEncoder(state, 1, checksum, base=True)
    while not encoder.done:
        encoder.step()
    return Size(len(state.producers), state.producers.bytes, encoder.size_bytes)


class Year:
    """One topic, whose entries are durable at once: it stands for the log of the part that expires producers."""

    open = True

    def __init__(self) -> None:
        self.state = DedupState()
        self.table = DedupTable(self.state)
        self._step = Step()
        presence = Presence(connected=lambda _: False, awaited=lambda _: False, left={})
        self._expiry = ProducerExpiry(self._step, cast("TopicLog", self), presence, ProducerLifetimes())
        self._timer = StartTopicTimer("", 0)
        self._entries = 0
        #: the message of each producer, but for its id
        self._batch = received(1, [0]).header

    @property
    def time_ms(self) -> int:
        return self.state.time_ms

    def append_aged(self, aged: ProducersAged) -> None:
        self.state.fold_aged(self._header(EntryKind.PRODUCERS_AGED), decode_aged(encode_aged(aged)))

    def _header(self, kind: EntryKind, count: int = 0) -> EntryHeader:
        self._entries += 1
        return EntryHeader(
            kind, LedgerId(1), EntryId(self._entries), EntryId(0), 0, OwnerEpoch(1), self.time_ms,
            self.state.next_index, 0, count, 0, TOPIC,
        )  # fmt: skip

    def lives(self, number: int) -> None:
        """A producer is leased, and stores its only message."""
        pid = ProducerId(number)
        leased = grant(assigned_name(pid), pid=pid, mode=CONTIGUOUS, lifetime_ms=LIFETIME_MS)
        self._expiry.begins(LIFETIME_MS)
        self.state.fold_opened(self._header(EntryKind.PRODUCER_OPENED), leased)
        self._expiry.granted(pid)
        self.state.fold_messages(self._header(EntryKind.MESSAGES, 1), self._batch._replace(producer_id=pid), b"")

    def passes(self, until_ms: float) -> None:
        """The timers of the log fire until so much time has passed in it, and a snapshot is written."""
        self._expiry.tick()
        while self.time_ms < until_ms and self._next_timer():
            self._expiry.period_ended(self._timer.key)
        self.state.dirty.clear()
        self.state.producers.make_idle(before_ms=self.time_ms)

    def _next_timer(self) -> bool:
        started = [effect for effect in self._step.take() if isinstance(effect, StartTopicTimer)]
        self._timer = started[-1] if started else self._timer
        return bool(started)


def quarters(year: Year, count: int) -> Iterator[Size]:
    """The size after each quarter, in which a fourth of the producers live, one after the other."""
    done = 0
    for hour in range(1, 365 * 24 + 1):
        until = count * hour // (365 * 24)
        for number in range(done + 1, until + 1):
            year.lives(number)
        done = until
        year.passes(YEAR_MS * hour / (365 * 24))
        if hour % (365 * 6) == 0:
            yield size_of(year.state)


def main() -> None:
    year = Year()
    print("empty", size_of(year.state))
    for size in quarters(year, int(sys.argv[1])):
        print(size, flush=True)
    year.passes(YEAR_MS + 2 * LIFETIME_MS)
    print("nobody lives", size_of(year.state))


if __name__ == "__main__":
    main()
