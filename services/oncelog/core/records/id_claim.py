"""Ids from one counter in ZooKeeper: producer ids in blocks of 100, ledger ids as many as are requested (hazard
block-claimed-twice).

    more ids are requested than are free, or few are left:
    read the counter ──> write: next + block, or + the requests that wait; this claimer, a new nonce
        |                    ^        +── OK: the block is claimed
        |                    |        +── CONFLICT | UNKNOWN: read again, after a sync
        |                    |                +── the record has this nonce: the block is claimed
        |                    +────────────────+── anything else: the claim is discarded
        +── the block would pass 2**63 - 1: every waiting request is refused

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
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import Any, Protocol

from oncelog.core.errors import CorruptEntry, InvalidArgument, InvariantViolated
from oncelog.core.formats.record_fields import Further, no_fields, parse_json, rest
from oncelog.core.ids import Incarnation
from oncelog.core.records.records import RecordKey
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


class CounterAccess(Protocol):
    """One counter's record."""

    async def read(self) -> tuple[CounterRecord | None, int]:
        """The record after a sync, and its version. None: there is no such record."""

    async def write(self, record: CounterRecord, *, version: int) -> WriteStatus:
        """Compare-and-set from `version`, attempted once."""


#: Takes an id. None: there are no ids left.
Grant = Callable[[int | None], None]


class IdClaim:
    """Claims and grants the ids of one counter for one process.

    claimer: the incarnation of this run of the process. block: ids of one claim. prefetch_below: another block is
    claimed when fewer ids are free; with 0, ids are claimed only on request. for_all_waiting: a claim is larger than
    `block` if more requests wait for it.
    """

    def __init__(
        self, claimer: Incarnation, *, block: int, prefetch_below: int = 0, for_all_waiting: bool = False
    ) -> None:
        if not 1 <= block <= BLOCK_MAX or prefetch_below < 0:
            message = f"block={block}: give 1 to {BLOCK_MAX}, and prefetch_below must not be negative"
            raise InvalidArgument(message, field="block", limit=BLOCK_MAX)
        #: `claim` runs
        self.claiming = False
        self._claimer = claimer
        self._block = block
        self._for_all_waiting = for_all_waiting
        self._prefetch_below = prefetch_below
        #: claimed and not granted, ascending, no empty ranges
        self._free: deque[range] = deque()
        #: requests in the order of arrival
        self._waiting: deque[Grant] = deque()
        self._tries = 0

    @property
    def free_count(self) -> int:
        """Ids that can be granted without a claim."""
        return sum(map(len, self._free))

    def request(self, grant: Grant) -> bool:
        """grant: called once, at once if an id is free. Returns whether `claim` must be run now."""
        self._waiting.append(grant)
        self._grant()
        starts = not self.claiming and self._is_short()
        self.claiming = self.claiming or starts
        return starts

    async def claim(self, counter: CounterAccess) -> None:
        """Claim blocks until no request waits and enough ids are free."""
        while self._is_short():
            block = await self._claim_block(counter)
            if block is None:
                # The next request reads the counter again: an operator may have repaired it by then.
                while self._waiting:
                    self._waiting.popleft()(None)
                break
            self._free.append(block)
            self._grant()
        self.claiming = False

    async def _claim_block(self, counter: CounterAccess) -> range | None:
        """None: no such block is left."""
        record, version = await self._read(counter)
        while True:
            first = record.next
            # They are all older than the claim, so nothing is claimed in advance.
            demand = min(len(self._waiting), ID_MAX + 1 - first) if self._for_all_waiting else 0
            block = range(first, first + max(self._block, demand))
            if block[-1] > ID_MAX:
                return None
            self._tries += 1
            claim = CounterRecord(block.stop, self._claimer, f"{self._claimer}-{self._tries}", record.further)
            if await counter.write(claim, version=version) is WriteStatus.OK:
                return block
            record, version = await self._read(counter)
            if self._shows(record, claim):
                return block

    async def _read(self, counter: CounterAccess) -> tuple[CounterRecord, int]:
        while True:
            record, version = await counter.read()
            if record is not None:
                return record, version

    def _shows(self, record: CounterRecord, claim: CounterRecord) -> bool:
        """Whether the record proves that the claim was written."""
        return record.nonce == claim.nonce

    def _grant(self) -> None:
        """Grant ids in the order of the requests."""
        while self._waiting and self._free:
            block = self._free.popleft()
            if len(block) > 1:
                self._free.appendleft(block[1:])
            self._waiting.popleft()(block[0])

    def _is_short(self) -> bool:
        return bool(self._waiting) or self.free_count < self._prefetch_below

    def check_invariants(self) -> None:
        """Raises InvariantViolated if this contradicts itself."""
        if self._waiting and (self._free or not self.claiming):
            raise InvariantViolated(f"{len(self._waiting)} requests wait with {self.free_count} ids free")
        if any(not block or block[0] < FIRST_ID for block in self._free):
            raise InvariantViolated("a free block is empty or below the first id")
        if any(block[-1] >= after[0] for block, after in pairwise(self._free)):
            raise InvariantViolated("free blocks do not ascend")
