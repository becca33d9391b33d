"""The verdict: what clients were answered about their messages, compared with the log that readers read.

Each message carries, in its value or its sequence id, the name of its client and its number. So the check needs no
message id or position that the cluster reported:

    lost                an acknowledged message is not in the log
    duplicated          a message is in the log twice
    out_of_order        the numbers of a client do not ascend along the log
    unexpected          a message is in the log that no client sent with this value, or that was refused permanently
    index_gaps          base_index does not count the messages of the log from 0 without a gap
    reader_mismatches   a reader saw other messages under an index, or left some out
    never_delivered     a stored message was not delivered to a subscription
    acked_seen_again    a message was delivered again after its acknowledgement was durable
    consumer_order      messages came to a consumer of an exclusive or failover subscription in another order

The module is pure and does not know which faults happened. The oracles in `oncelog.verify` check the same rules with
the control entries, which readers do not receive; the simulation uses those.
"""

import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import repeat
from typing import Any

from oncelog.verify.violation import Violation
from oncelog_lab.acknowledgements import AckRecord, SendFate

_VIOLATIONS_MAX = 8
#: The counts of a verdict that must be 0.
FAULTS = (
    "lost", "duplicated", "out_of_order", "unexpected", "index_gaps", "reader_mismatches", "never_delivered",
    "acked_seen_again", "consumer_order",
)  # fmt: skip

#: (client, number) of a message, by its value and its sequence id. Raises Violation for a message that no client sent.
Identify = Callable[[bytes, int], tuple[str, int]]


@dataclass(frozen=True, slots=True)
class ReadEntry:
    """Messages that a reader received together. first_index: index of the first message in its topic."""

    topic: str
    first_index: int
    values: Sequence[bytes]
    sequence_ids: Sequence[int] | None = None


@dataclass(frozen=True, slots=True)
class LogVerdict:
    """Counts of messages, and the first few violations as text."""

    acked: int
    stored: int
    lost: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    unexpected: int = 0
    index_gaps: int = 0
    reader_mismatches: int = 0
    never_delivered: int = 0
    acked_seen_again: int = 0
    consumer_order: int = 0
    #: of all subscriptions: messages handed to applications; of these, those that came again
    delivered: int = 0
    redelivered: int = 0
    violations: tuple[str, ...] = ()

    @property
    def perfect(self) -> bool:
        return not any(getattr(self, name) for name in FAULTS)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class ReaderTrail:
    """What one reader saw of one topic: a checksum for each index, so that a whole run fits into memory."""

    def __init__(self, name: str, topic: str, *, from_start: bool) -> None:
        self.name = name
        self.topic = topic
        self.from_start = from_start
        self.first_index: int | None = 0 if from_start else None
        #: checksum of each message from first_index on
        self.checksums: list[int] = []

    @property
    def next_index(self) -> int:
        return (self.first_index or 0) + len(self.checksums)

    def add(self, entry: ReadEntry) -> None:
        """Add the next entry. Raises Violation if another index was due."""
        if self.first_index is None:
            self.first_index = entry.first_index
        if entry.first_index != self.next_index:
            raise Violation(
                "reader_mismatches", f"{self.name} received message {entry.first_index} instead of {self.next_index}"
            )
        self.checksums += map(zlib.crc32, entry.values)


class LogChecker:
    """Receives each topic from its start, as one last reader reads it, and gives the verdict."""

    def __init__(self, record: AckRecord, identify: Identify) -> None:
        self._record = record
        self._identify = identify
        #: {client: 1 for each number that was seen}
        self._seen: dict[str, bytearray] = {}
        self._highest: dict[str, int] = {}
        #: {topic: checksum of each message, by index}
        self._logs: dict[str, list[int]] = {}
        self._counts = dict.fromkeys(FAULTS, 0)
        self._violations: list[str] = []

    def add(self, entries: Iterable[ReadEntry]) -> None:
        """Add the next entries."""
        for entry in entries:
            log = self._logs.setdefault(entry.topic, [])
            if entry.first_index != len(log):
                self._report("index_gaps", f"{entry.topic}: index {entry.first_index} follows instead of {len(log)}")
                log.extend([-1] * (entry.first_index - len(log)))
                del log[entry.first_index :]
            ids: Iterable[int] = repeat(0) if entry.sequence_ids is None else entry.sequence_ids
            for value, sequence_id in zip(entry.values, ids, strict=False):
                self._add_message(entry.topic, len(log), value, sequence_id)
                log.append(zlib.crc32(value))

    def _add_message(self, topic: str, index: int, value: bytes, sequence_id: int) -> None:
        try:
            client, number = self._identify(value, sequence_id)
        except Violation as violation:
            self._report("unexpected", f"{topic}, message {index}: {violation}")
            return
        fates = self._record.fates.get(client, b"")
        fate = fates[number] if number < len(fates) else SendFate.NOT_SENT
        if fate in {SendFate.NOT_SENT, SendFate.REFUSED}:
            reason = "was never sent" if fate == SendFate.NOT_SENT else "was refused"
            self._report("unexpected", f"{topic}, message {index}: {client} {number} {reason} and is stored")
        seen = self._seen.setdefault(client, bytearray())
        if number >= len(seen):
            seen.extend(bytes(number + 1 - len(seen)))
        if seen[number]:
            self._report("duplicated", f"{topic}, message {index}: {client} {number} is stored again")
            return
        seen[number] = 1
        highest = self._highest.get(client, -1)
        if number < highest:
            self._report("out_of_order", f"{topic}, message {index}: {client} {number} comes after {highest}")
        self._highest[client] = max(number, highest)

    def compare(self, trail: ReaderTrail, failure: str | None = None) -> None:
        """Compare what another reader saw. failure: why that reader stopped, if it did."""
        log = self._logs.get(trail.topic, [])
        first = trail.first_index or 0
        expected = log[first : first + len(trail.checksums)]
        if failure is not None:
            self._report("reader_mismatches", failure)
        elif expected != trail.checksums:
            pairs = enumerate(zip(expected, trail.checksums, strict=False))
            at = next((i for i, (a, b) in pairs if a != b), len(expected))
            self._report("reader_mismatches", f"{trail.name} saw another message {first + at} of {trail.topic}")
        elif trail.next_index < len(log) and trail.first_index is not None:
            end = f"message {trail.next_index} of {len(log)} of {trail.topic}"
            self._report("reader_mismatches", f"{trail.name} ended at {end}")

    def verdict(self) -> LogVerdict:
        """Call it after everything was added and compared."""
        for client, fates in sorted(self._record.fates.items()):
            seen = self._seen.get(client, b"")
            for number, fate in enumerate(fates):
                if fate == SendFate.ACKNOWLEDGED and not (number < len(seen) and seen[number]):
                    self._report("lost", f"{client} {number} was acknowledged and is not in the log")
        return LogVerdict(
            self._record.acknowledged_count,
            sum(len(log) for log in self._logs.values()),
            **self._counts,
            violations=tuple(self._violations),
        )

    def _report(self, name: str, text: str) -> None:
        self._counts[name] += 1
        if len(self._violations) < _VIOLATIONS_MAX:
            self._violations.append(text)
