"""The messages that a consumer holds: those that wait for the application, and those that it has received.

    delivered -> waiting -> begun -> acknowledged, negatively acknowledged, or recalled: the owner delivers it again
                    |
                    +-> dropped: recalled, sought, or given to another consumer

Credit is absolute (hazard relative-credit). `left` counts the messages of the present stream that have left the waiting
ones, in whatever way, so a dropped message costs no credit. Messages that an earlier stream brought take room in the
window until they leave.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from oncelog.core.acks.changes import IndexRange
from oncelog.core.delivery.credit import Credit
from oncelog.core.delivery.events import DeliverMessages, FlowReported
from oncelog.core.errors import InvariantViolated
from oncelog.core.ids import ConsumerNumber, SeekEpoch
from oncelog.core.sdk.consumer.events import AckWanted, MessageRange, NackWanted
from oncelog.core.sdk.consumer.index_set import IndexSet

#: So many delivery counts are kept before those of messages that are not held any more are dropped.
COUNTS_MIN = 1_000
#: Ranges of begun messages in a report: beyond that the owner counts the oldest ones, which is all that it needs.
BEGUN_RANGES_MAX = 1_000


class ReceivedMessages:
    """What was delivered to one consumer and not settled."""

    def __init__(self, receive_window: int, receive_bytes: int | None = None) -> None:
        self._receive_window = receive_window
        self._receive_bytes = receive_bytes
        #: (run, whether the present stream brought it), in the order of delivery
        self._runs: deque[tuple[MessageRange, bool]] = deque()
        #: the indexes of the runs
        self.waiting = IndexSet()
        #: received by the application, and not settled
        self.begun = IndexSet()
        #: negatively acknowledged, and neither received by the application since nor known to be acknowledged
        self.nacked = IndexSet()
        #: {index: how often it was delivered}, of those above 1; those that are not held any more are dropped at times
        self.delivery_counts: dict[int, int] = {}
        self._counts_max = COUNTS_MIN
        #: of the present stream: messages delivered; of these, messages that do not wait any more
        self.received = 0
        self.left = 0
        #: waiting messages that an earlier stream brought
        self._earlier = 0
        #: bytes of their entries, until the last of them leaves
        self._earlier_bytes = 0
        #: what the owner counts for the present stream, once it has the newest report of credit
        self._owner = Credit()
        #: whether the application found fewer messages than it wanted
        self._hungry = True

    @property
    def credit(self) -> tuple[int, int]:
        """(left, window): the owner may send up to their sum on the present stream. A change of either is reported."""
        return self.left, max(0, self._receive_window - self._earlier)

    @property
    def is_full(self) -> bool:
        """Whether the owner may send no more until messages are taken: it does not cut an entry to fill the window, and
        it stops at a limit of bytes."""
        self._report()
        return not self._owner.takes(self._receive_window)

    def flow(self, consumer: ConsumerNumber, seek_epoch: SeekEpoch) -> FlowReported:
        """The report of credit."""
        begun = tuple(part for part, _ in zip(self.reported_begun(), range(BEGUN_RANGES_MAX), strict=False))
        return FlowReported(consumer, *self.credit, begun, self.received, seek_epoch, self._receive_bytes)

    def reported_begun(self) -> Iterable[IndexRange]:
        """What the owner is to know as begun."""
        return self.begun

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the entries of which messages wait for the application."""
        self._report()
        return self._owner.unhanded_bytes + (self._earlier_bytes if self._earlier else 0)

    def wakes(self) -> bool:
        """Whether the application is to learn that there are messages, after there were none."""
        if not self._hungry or not self.waiting:
            return False
        self._hungry = False
        return True

    def held(self) -> tuple[IndexRange, ...]:
        held = IndexSet(self.waiting)
        for first, last in self.begun:
            held.add(first, last)
        return tuple(held)

    def held_counts(self) -> dict[int, int]:
        """{index: how often it was delivered}, of what is held, those above 1."""
        return {i: n for i, n in self.delivery_counts.items() if i in self.waiting or i in self.begun}

    def presented(self) -> tuple[tuple[IndexRange, ...], tuple[IndexRange, ...], dict[int, int]]:
        """What a reconnection presents: held, begun, delivery counts."""
        return self.held(), tuple(self.reported_begun()), self.held_counts()

    # --- the owner ----------------------------------------------------------------------------------------------------

    def delivered(self, frame: DeliverMessages) -> None:
        """Take a frame. It takes the place of a former delivery that waits here: an answer to that one would count for
        nothing (hazard nack-counted-twice). A message that was begun is handed out again."""
        self._count(frame)
        for delivered in frame.entries:
            self.drop_waiting(delivered.ranges)
            for part in delivered.ranges:
                self._wait(MessageRange(delivered.entry, *part, frame.seek_epoch, frame.generation), frame)

    def _report(self) -> None:
        left, window = self.credit
        self._owner.report(handed_out=left, window=window, bytes_max=self._receive_bytes)

    def _count(self, frame: DeliverMessages) -> None:
        self._report()
        for delivered in frame.entries:
            count = sum(last - first + 1 for first, last in delivered.ranges)
            self.received += count
            self._owner.spend(count, len(delivered.entry.data))

    def _wait(self, run: MessageRange, frame: DeliverMessages) -> None:
        if frame.delivery_counts:
            counts = {i: n for i, n in frame.delivery_counts.items() if run.first <= i <= run.last}
            run = replace(run, delivery_counts=counts)
            self.delivery_counts.update(counts)
            if len(self.delivery_counts) > self._counts_max:
                self.delivery_counts = self.held_counts()
                self._counts_max = max(COUNTS_MIN, 2 * len(self.delivery_counts))
        self.waiting.add(run.first, run.last)
        self.begun.remove(run.first, run.last)
        self._runs.append((run, True))

    def refused(self, frame: DeliverMessages) -> None:
        """A frame of a lower generation or seek epoch: its messages count, and are dropped."""
        before = self.received
        self._count(frame)
        self.left += self.received - before

    def drop_waiting(self, ranges: Iterable[IndexRange]) -> None:
        """These deliveries must not reach the application: it has received former ones at most."""
        dropped = IndexSet(part for first, last in ranges for part in self.waiting.overlap(first, last))
        if not dropped:
            return
        runs, self._runs = self._runs, deque()
        for run, present in runs:
            kept = dropped.gaps(run.first, run.last)
            self._gone(run.count - sum(part.last - part.first + 1 for part in kept), present=present)
            self._runs.extend((part_of(run, part), present) for part in kept)
        for first, last in dropped:
            self.waiting.remove(first, last)
        self.delivery_counts = {i: n for i, n in self.delivery_counts.items() if i not in dropped}

    def _gone(self, count: int, *, present: bool) -> None:
        if present:
            self.left += count
        else:
            self._earlier -= count

    def settled(self, request: AckWanted | NackWanted) -> bool:
        """The owner has done what was asked. Returns whether it was all that the application wanted."""
        match request:
            case NackWanted(ranges=ranges, delivery_counts=counts):
                self.nack_settled(ranges, counts)
                return True
            case AckWanted(below=None, ranges=ranges):
                self.drop(ranges)
                return True
            case AckWanted(below=below):
                assert below is not None
                self.drop((IndexRange(0, below - 1),) if below else ())
        return request.complete

    def drop(self, ranges: Iterable[IndexRange]) -> None:
        """These messages are acknowledged, or the owner has taken them back: none of them waits or is held here."""
        ranges = tuple(ranges)
        self.drop_waiting(ranges)
        for first, last in ranges:
            self.begun.remove(first, last)

    def recalled(self, ranges: Iterable[IndexRange]) -> None:
        """The owner has taken these messages back."""
        self.drop(ranges)

    def nack_settled(self, ranges: Iterable[IndexRange], counts: Mapping[int, int]) -> None:
        """The owner delivers these messages again. counts: of the deliveries that were meant, those above 1; one that
        has come again meanwhile stays begun."""
        for first, last in self._newest(ranges, counts):
            self.begun.remove(first, last)

    def _newest(self, ranges: Iterable[IndexRange], counts: Mapping[int, int]) -> list[IndexRange]:
        """Without the messages that were delivered here again, behind the deliveries that are meant."""
        newer = [i for i, count in self.delivery_counts.items() if count > counts.get(i, 1)]
        if not newer:
            return list(ranges)
        again = IndexSet(IndexRange(i, i) for i in newer)
        return [part for first, last in ranges for part in again.gaps(first, last)]

    def drop_all(self) -> None:
        """Another consumer has what was delivered here. Negative acknowledgements still count (hazard
        former-consumer-acks)."""
        self.drop_waiting(tuple(self.waiting))
        self.begun.clear()

    def sought(self) -> None:
        """Everything is delivered again from another place on."""
        self.drop_all()
        self.nacked.clear()
        self.delivery_counts.clear()

    def restart(self, kept: tuple[IndexRange, ...]) -> None:
        """A new stream begins; of the messages that were presented the owner leaves `kept` here."""
        keep = IndexSet(kept)
        self.drop_waiting([part for first, last in self.waiting for part in keep.gaps(first, last)])
        self.begun.keep_only(kept)
        self._runs = deque((run, False) for run, _ in self._runs)
        self._earlier, self.received, self.left = self.waiting.count, 0, 0
        entries = {id(run.entry): run.entry for run, _ in self._runs}
        self._earlier_bytes = sum(len(entry.data) for entry in entries.values())
        self._owner = Credit()

    # --- the application ----------------------------------------------------------------------------------------------

    def available(self, withheld: Callable[[int, int], list[IndexRange]]) -> int:
        """How many messages wait for the application. One whose acknowledgement is in flight is withheld, and does not
        count: a caller that waits for messages would be woken for ever by what it cannot get (hazard
        busy-loop-during-ack)."""
        parts = (part for first, last in self.waiting for part in withheld(first, last))
        return self.waiting.count - sum(part.last - part.first + 1 for part in parts)

    def take(self, count_max: int, withheld: Callable[[int, int], list[IndexRange]]) -> tuple[MessageRange, ...]:
        """Up to count_max messages for the application. withheld: the parts of a range whose acknowledgement is in
        flight; they wait for its answer."""
        taken: list[MessageRange] = []
        later: list[tuple[MessageRange, bool]] = []
        while self._runs and count_max > 0:
            run, present = self._runs.popleft()
            covered = withheld(run.first, run.last)
            if not covered:
                head, rest = _split(run, count_max)
                taken.append(head)
                self._gone(head.count, present=present)
                count_max -= head.count
                if rest is not None:
                    self._runs.appendleft((rest, present))
                continue
            held_back = IndexSet(covered)
            begin = run.first
            for part in held_back.gaps(run.first, run.last):
                last = min(part.last, part.first + count_max - 1)
                if last < part.first:
                    break
                later.extend((part_of(run, gap), present) for gap in held_back.overlap(begin, part.first - 1))
                taken.append(part_of(run, IndexRange(part.first, last)))
                self._gone(last - part.first + 1, present=present)
                count_max -= last - part.first + 1
                begin = last + 1
            if begin <= run.last:
                behind = (part_of(run, IndexRange(begin, run.last)), present)
                if count_max > 0:
                    later.append(behind)
                else:
                    self._runs.appendleft(behind)
        self._runs.extendleft(reversed(later))
        self._begin(taken)
        self._hungry = count_max > 0
        return tuple(taken)

    def _begin(self, taken: Iterable[MessageRange]) -> None:
        """The application receives these."""
        for run in taken:
            self.waiting.remove(run.first, run.last)
            self.begun.add(run.first, run.last)
            self.nacked.remove(run.first, run.last)

    def nack(self, ranges: Iterable[IndexRange], counts: Mapping[int, int]) -> None:
        """Remember messages that a cumulative acknowledgement must not cover (hazard former-consumer-acks). counts: as
        in `nack_settled`. A newer delivery that waits here says nothing: the application has not received it."""
        ranges = tuple(ranges)
        unseen = [part for first, last in ranges for part in self.waiting.overlap(first, last)]
        for first, last in (*self._newest(ranges, counts), *unseen):
            self.nacked.add(first, last)

    def acknowledged_below(self, index: int) -> None:
        """The owner reports that everything below `index` is acknowledged."""
        if index and self.nacked:
            self.nacked.remove(0, index - 1)

    def check_invariants(self) -> None:
        for each in (self.waiting, self.begun, self.nacked):
            each.check_invariants()
        runs = [run for run, _ in self._runs]
        if (
            sum(run.count for run in runs) != self.waiting.count
            or IndexSet(IndexRange(run.first, run.last) for run in runs).count != self.waiting.count
        ):
            raise InvariantViolated("the waiting runs and their indexes differ")
        present = sum(run.count for run, present in self._runs if present)
        if present != self.received - self.left or self._earlier != self.waiting.count - present:
            raise InvariantViolated(f"{self.received} received, {self.left} left, {present} wait")
        if any(self.waiting.overlap(first, last) for first, last in self.begun):
            raise InvariantViolated("a message waits and was begun")
        self._check_window()

    def _check_window(self) -> None:
        if self.received > self.left + self._receive_window:
            raise InvariantViolated("the owner has sent more than the window allows")


def _split(run: MessageRange, count: int) -> tuple[MessageRange, MessageRange | None]:
    """The first `count` messages of the run, and the others."""
    if count >= run.count:
        return run, None
    middle = run.first + count
    return part_of(run, IndexRange(run.first, middle - 1)), part_of(run, IndexRange(middle, run.last))


def part_of(run: MessageRange, part: IndexRange) -> MessageRange:
    """The messages of a run that are in `part`."""
    if part == (run.first, run.last):
        return run
    counts = run.delivery_counts
    if counts:
        counts = {i: n for i, n in counts.items() if part.first <= i <= part.last}
    return MessageRange(run.entry, part.first, part.last, run.seek_epoch, run.generation, counts)
