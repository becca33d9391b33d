"""The checker: what was promised to each client, held against what everybody reads. Pure, and ignorant of faults.

Each message of the workload says in its value whose it is and which number it has, so that the log can be judged
without believing anybody's account of ids or positions:

    no loss       what was answered "stored" is in the log
    once          no message is in the log twice
    order         a client's numbers ascend along the log
    no ghost      nothing is in the log that was not handed over, with that very value; nor what was refused for good
    dense         base_index counts the messages of the log without a hole, from 0
    one log       every reader saw the same messages under the same index, in the same order, none left out

The names are those of the oracles in verify/, whose `Violation` is raised here for single rules. Their fold needs the
control entries too, which readers are not served; what it proves of the marks is held by the simulation.
"""

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from oncelog.verify.violation import Violation

_STORIES_MAX = 8
_FILLER = b"effectively once "


def message_value(client: str, number: int, seed: int) -> bytes:
    """What a client hands over as its number-th message, from 0: of changing length, with a checksum of its own."""
    head = f"{client} {number} ".encode()
    body = head + _FILLER * (1 + (number * 7 + seed) % 5)
    return body + b"%08x" % zlib.crc32(body, seed & 0xFFFFFFFF)


def parse_value(value: bytes, seed: int) -> tuple[str, int]:
    """Whose message it is and its number. Raises Violation when it is no message of this workload."""
    parts = value.split(b" ", 2)
    client = parts[0].decode(errors="replace")
    if len(parts) != 3 or not parts[1].isdigit() or value != message_value(client, int(parts[1]), seed):
        raise Violation("no ghost", f"{value[:60]!r} was never handed over")
    return client, int(parts[1])


class Fate(IntEnum):
    """What is known of a message; a higher one is never taken back by a lower one."""

    NEVER = 0
    #: handed over; whether it is stored is not known
    INFO = 1
    #: refused for good: it is not stored
    FAILED = 2
    STORED = 3


@dataclass(slots=True)
class Promises:
    """{client: fate of each of its numbers, from 0}, as the clients were told."""

    fates: dict[str, bytearray] = field(default_factory=dict)

    def note(self, client: str, first: int, count: int, fate: Fate) -> None:
        fates = self.fates.setdefault(client, bytearray())
        missing = first + count - len(fates)
        if missing > 0:
            fates.extend(bytes(missing))
        for number in range(first, first + count):
            # A retry that is in doubt takes nothing from an answer that came before.
            fates[number] = max(fates[number], fate)

    @property
    def stored_count(self) -> int:
        return sum(fates.count(Fate.STORED) for fates in self.fates.values())


@dataclass(frozen=True, slots=True)
class ReadEntry:
    """What a reader was given at once. first_index: dense number of its first message. topic: which log it is of."""

    topic: str
    first_index: int
    values: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Counts of messages; stories: the first few of what is wrong, told."""

    acked: int
    stored: int
    lost: int
    duplicated: int
    out_of_order: int
    ghosts: int
    holes: int
    disagreements: int
    stories: tuple[str, ...]

    @property
    def perfect(self) -> bool:
        wrong = (self.lost, self.duplicated, self.out_of_order, self.ghosts, self.holes, self.disagreements)
        return not any(wrong)


class ReaderTrail:
    """What one reader saw of one topic, as a checksum for each index: small enough to keep for a whole run."""

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
        """The next entry. Raises Violation: not the one that follows."""
        if self.first_index is None:
            self.first_index = entry.first_index
        if entry.first_index != self.next_index:
            raise Violation("one log", f"{self.name} was given message {entry.first_index}, not {self.next_index}")
        self.checksums += map(zlib.crc32, entry.values)


class Checker:
    """Takes every topic's log in its order, as one last reader reads it."""

    def __init__(self, promises: Promises, seed: int) -> None:
        self._promises = promises
        self._seed = seed
        #: {client: for each number, how often it was seen}
        self._seen: dict[str, bytearray] = {}
        self._furthest: dict[str, int] = {}
        #: {topic: checksum of each message, by index}
        self._logs: dict[str, list[int]] = {}
        self._wrong = dict.fromkeys(("lost", "once", "order", "ghost", "dense", "one log"), 0)
        self._stories: list[str] = []

    def add(self, entries: Iterable[ReadEntry]) -> None:
        """The next entries of the read-back; each topic from its start."""
        for entry in entries:
            log = self._logs.setdefault(entry.topic, [])
            if entry.first_index != len(log):
                self._tell("dense", f"{entry.topic}: message {len(log)} is followed by index {entry.first_index}")
                log.extend([-1] * (entry.first_index - len(log)))
                del log[entry.first_index :]
            for value in entry.values:
                self._add_message(entry.topic, len(log), value)
                log.append(zlib.crc32(value))

    def _add_message(self, topic: str, index: int, value: bytes) -> None:
        place = f"{topic}, message {index}"
        try:
            client, number = parse_value(value, self._seed)
        except Violation as violation:
            self._tell("ghost", f"{place}: {violation}")
            return
        fates = self._promises.fates.get(client, b"")
        fate = fates[number] if number < len(fates) else Fate.NEVER
        if fate in {Fate.NEVER, Fate.FAILED}:
            said = "was never handed over" if fate is Fate.NEVER else "was refused for good"
            self._tell("ghost", f"{place}: {client} {number} {said} and is stored")
        seen = self._seen.setdefault(client, bytearray())
        if number >= len(seen):
            seen.extend(bytes(number + 1 - len(seen)))
        if seen[number]:
            self._tell("once", f"{place}: {client} {number} is stored again")
            return
        seen[number] = 1
        if number < self._furthest.get(client, -1):
            self._tell("order", f"{place}: {client} {number} comes after {self._furthest[client]}")
        self._furthest[client] = max(number, self._furthest.get(client, -1))

    def compare(self, trail: ReaderTrail, failure: str | None = None) -> None:
        """What another reader saw is what was read back. failure: a rule that it found broken itself."""
        log = self._logs.get(trail.topic, [])
        first = trail.first_index or 0
        expected = log[first : first + len(trail.checksums)]
        if failure is not None:
            self._tell("one log", failure)
        elif expected != trail.checksums:
            pairs = enumerate(zip(expected, trail.checksums, strict=False))
            at = next((i for i, (a, b) in pairs if a != b), len(expected))
            self._tell("one log", f"{trail.name} saw another message {first + at} of {trail.topic}")
        elif trail.next_index < len(log) and trail.first_index is not None:
            self._tell("one log", f"{trail.name} ended at message {trail.next_index} of {len(log)} of {trail.topic}")

    def verdict(self) -> Verdict:
        """After everything was added and compared."""
        for client, fates in sorted(self._promises.fates.items()):
            seen = self._seen.get(client, b"")
            for number, fate in enumerate(fates):
                if fate == Fate.STORED and not (number < len(seen) and seen[number]):
                    self._tell("lost", f"{client} {number} was answered and is not in the log")
        wrong = self._wrong
        return Verdict(
            acked=self._promises.stored_count,
            stored=sum(len(log) for log in self._logs.values()),
            lost=wrong["lost"],
            duplicated=wrong["once"],
            out_of_order=wrong["order"],
            ghosts=wrong["ghost"],
            holes=wrong["dense"],
            disagreements=wrong["one log"],
            stories=tuple(self._stories),
        )

    def _tell(self, rule: str, story: str) -> None:
        self._wrong[rule] += 1
        if len(self._stories) < _STORIES_MAX:
            self._stories.append(story)
