"""Ids from one counter in ZooKeeper: producer ids in blocks of 100, ledger ids as many as are requested (hazard
block-claimed-twice).

    IDLE --more ids are requested than are free, or few are left--> READING (the counter)
    READING --read--> WRITING (CAS: next + block, or + the requests that wait; this claimer, a new nonce)
    WRITING --OK--> block claimed: IDLE              --CONFLICT | UNKNOWN--> VERIFYING (read again, after a sync)
    VERIFYING --the record has this nonce--> block claimed: IDLE     --anything else--> the claim is discarded: WRITING
    READING | VERIFYING --the block would pass 2**63 - 1--> every waiting request is refused: IDLE

Rules
- A claim counts only if its write was answered OK, or a second read shows its nonce. A claimer that finds the number it
  tried to write has proved nothing: another claimer may have written the same number. A discarded claim is never used,
  even if its write is applied later.
- A nonce is never used twice: it holds the claimer, which is one run of a process, and the number of the attempt.
- An id is granted at most once. Ids left over at a crash are lost. Ids start at 1.
- A cluster is created with its counters. One that is missing was lost: it is read until it is there (hazard
  lost-counter).
- With a block of 1 nothing is claimed in advance, so an id is never older than its request: a topic's ledgers ascend.
  One claim serves all requests that wait when it is written: a thousand takeovers at once need a few claims.
"""

import json
from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import Any, assert_never

from oncelog.core.errors import CorruptEntry, InvalidArgument, InvariantViolated
from oncelog.core.formats.record_fields import Further, no_fields, parse_json, rest
from oncelog.core.ids import Incarnation
from oncelog.core.records.records import ReadRecord, RecordKey, RecordRead, RecordWritten, WriteRecord
from oncelog.core.records.status import WriteStatus

FORMAT = 1
FIRST_ID = 1
ID_MAX = 2**63 - 1
#: A block has at most so many ids. So the number of writes of a counter bounds the ids that were given.
BLOCK_MAX = 1 << 16


class Counter(RecordKey["CounterRecord"], Enum):
    """The counters of a cluster. Each has a record of its own."""

    LEDGER = "ledger"
    PRODUCER = "producer"


@dataclass(frozen=True, slots=True)
class CounterRecord:
    """next: the lowest unclaimed id. claimer, nonce: the process that wrote the record, and its attempt.
    further: see `record_fields`."""

    next: int
    claimer: Incarnation
    nonce: str
    further: Further = field(default_factory=no_fields, hash=False)


def encode_counter(record: CounterRecord) -> bytes:
    fields = {"format": FORMAT, "next": record.next, "claimer": record.claimer, "nonce": record.nonce}
    return json.dumps({**record.further, **fields}, separators=(",", ":")).encode()


def decode_counter(data: bytes) -> CounterRecord:
    """Raises CorruptEntry unless the bytes are a counter record."""
    try:
        fields: dict[str, Any] = parse_json(data, number_max=ID_MAX + 1)  # the number after the last id
        if fields["format"] != FORMAT:
            raise CorruptEntry(f"counter record has format {fields['format']}; this version reads format {FORMAT}")
        following, claimer, nonce = fields["next"], fields["claimer"], fields["nonce"]
        if not isinstance(following, int) or isinstance(following, bool) or following < FIRST_ID:
            raise CorruptEntry(f"invalid next id in a counter record: {following!r}")
        further = rest(fields, ("format", "next", "claimer", "nonce"))
        return CounterRecord(following, Incarnation(claimer), nonce, further)
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptEntry(f"cannot read a counter record: {error!r}") from error


# --- events ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class IdRequested:
    """request: a number by which the caller recognises the answer."""

    request: int


IdClaimEvent = IdRequested | RecordRead[Counter, CounterRecord] | RecordWritten[Counter, CounterRecord]


# --- effects --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class IdAllocated:
    request: int
    id: int


@dataclass(frozen=True, slots=True)
class IdRefused:
    """There are no ids left."""

    request: int


IdClaimEffect = ReadRecord[Counter] | WriteRecord[Counter, CounterRecord] | IdAllocated | IdRefused


# --- the machine ----------------------------------------------------------------------------------------------------


class ClaimState(Enum):
    IDLE = "idle"
    READING = "reading"
    WRITING = "writing"
    VERIFYING = "verifying"


class IdClaim:
    """Claims and grants the ids of one counter for one process.

    claimer: the incarnation of this run of the process. block: ids of one claim. prefetch_below: another block is
    claimed when fewer ids are free; with 0, ids are claimed only on request. for_all_waiting: a claim is larger than
    `block` if more requests wait for it.
    """

    def __init__(
        self,
        counter: Counter,
        claimer: Incarnation,
        *,
        block: int,
        prefetch_below: int = 0,
        for_all_waiting: bool = False,
    ) -> None:
        if not 1 <= block <= BLOCK_MAX or prefetch_below < 0:
            message = f"block={block}: give 1 to {BLOCK_MAX}, and prefetch_below must not be negative"
            raise InvalidArgument(message, field="block", limit=BLOCK_MAX)
        self.state = ClaimState.IDLE
        self._counter = counter
        self._claimer = claimer
        self._block = block
        self._for_all_waiting = for_all_waiting
        self._prefetch_below = prefetch_below
        #: claimed and not granted, ascending, no empty ranges
        self._free: deque[range] = deque()
        #: requests in the order of arrival
        self._waiting: deque[int] = deque()
        #: the block that is being claimed, and the record that claims it
        self._claim: tuple[range, CounterRecord] | None = None
        self._tries = 0

    @property
    def free_count(self) -> int:
        """Ids that can be granted without a claim."""
        return sum(map(len, self._free))

    def handle(self, event: IdClaimEvent) -> list[IdClaimEffect]:
        match event:
            case IdRequested():
                self._waiting.append(event.request)
                return self._grant()
            case RecordRead():
                return self._counter_read(event)
            case RecordWritten():
                return self._counter_written(event)
            case _:
                assert_never(event)

    def _counter_read(self, event: RecordRead[Counter, CounterRecord]) -> list[IdClaimEffect]:
        if self.state not in (ClaimState.READING, ClaimState.VERIFYING):
            return []
        record = event.value
        if record is None:
            return [ReadRecord(self._counter)]
        if self._claim is not None and record.nonce == self._claim[1].nonce:
            return self._won()
        first = record.next
        # They are all older than the claim, so nothing is claimed in advance.
        demand = min(len(self._waiting), ID_MAX + 1 - first) if self._for_all_waiting else 0
        block = range(first, first + max(self._block, demand))
        if block[-1] > ID_MAX:
            # The next request reads the counter again: an operator may have repaired it by then.
            self.state = ClaimState.IDLE
            self._claim = None
            refused = [IdRefused(request) for request in self._waiting]
            self._waiting.clear()
            return [*refused]
        self._tries += 1
        claim = CounterRecord(block.stop, self._claimer, f"{self._claimer}-{self._tries}", record.further)
        self._claim = (block, claim)
        self.state = ClaimState.WRITING
        return [WriteRecord(self._counter, claim, event.version)]

    def _counter_written(self, event: RecordWritten[Counter, CounterRecord]) -> list[IdClaimEffect]:
        if self.state is not ClaimState.WRITING:
            return []
        if event.status is WriteStatus.OK:
            return self._won()
        self.state = ClaimState.VERIFYING
        return [ReadRecord(self._counter)]

    def _won(self) -> list[IdClaimEffect]:
        if self._claim is None:
            raise InvariantViolated("a claim succeeded that was never made")
        self._free.append(self._claim[0])
        self._claim = None
        self.state = ClaimState.IDLE
        return self._grant()

    def _grant(self) -> list[IdClaimEffect]:
        """Grant ids in the order of the requests. Begin a claim if there are not enough."""
        effects: list[IdClaimEffect] = []
        while self._waiting and self._free:
            block = self._free.popleft()
            effects.append(IdAllocated(self._waiting.popleft(), block[0]))
            if len(block) > 1:
                self._free.appendleft(block[1:])
        if self.state is ClaimState.IDLE and (self._waiting or self.free_count < self._prefetch_below):
            self.state = ClaimState.READING
            effects.append(ReadRecord(self._counter))
        return effects

    def check_invariants(self) -> None:
        """Raises InvariantViolated if this machine contradicts itself."""
        if self._waiting and (self._free or self.state is ClaimState.IDLE):
            raise InvariantViolated(f"{len(self._waiting)} requests wait while the counter is {self.state.value}")
        if (self._claim is None) is (self.state in (ClaimState.WRITING, ClaimState.VERIFYING)):
            raise InvariantViolated(f"the claim and the state {self.state.value} disagree")
        if any(not block or block[0] < FIRST_ID for block in self._free):
            raise InvariantViolated("a free block is empty or below the first id")
        if any(block[-1] >= after[0] for block, after in pairwise(self._free)):
            raise InvariantViolated("free blocks do not ascend")
