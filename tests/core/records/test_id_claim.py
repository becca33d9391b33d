"""No id is granted twice, whatever the store does with a claim."""

import random
from dataclasses import dataclass, field

import pytest

from oncelog.core.errors import CorruptEntry, InvalidArgument
from oncelog.core.ids import Incarnation
from oncelog.core.records.id_claim import (
    ID_MAX,
    ClaimState,
    Counter,
    CounterRecord,
    IdAllocated,
    IdClaim,
    IdClaimEffect,
    IdClaimEvent,
    IdRefused,
    IdRequested,
    decode_counter,
    encode_counter,
)
from oncelog.core.records.records import ABSENT_VERSION, ReadRecord, RecordRead, RecordWritten, WriteRecord
from oncelog.core.records.status import WriteStatus

S1, S2 = Incarnation("s1"), Incarnation("s2")
KEY = Counter.LEDGER
FAILURES = (WriteStatus.CONFLICT, WriteStatus.UNKNOWN)


def record(following: int, claimer: Incarnation = S1, tries: int = 1) -> CounterRecord:
    return CounterRecord(following, claimer, f"{claimer}-{tries}")


#: as the cluster was created with it
UNCLAIMED = CounterRecord(1, Incarnation(""), "")


def written(status: WriteStatus, version: int) -> RecordWritten[Counter, CounterRecord]:
    """The answer to a claim. At most one is being written."""
    return RecordWritten(KEY, record(1), status, version)


def claiming(block: int = 100, following: int = 101) -> IdClaim:
    """A claim of S1 whose first write, to `following` + block, is in flight."""
    claim = IdClaim(KEY, S1, block=block)
    assert claim.handle(IdRequested(1)) == [ReadRecord(KEY)]
    wanted = [WriteRecord(KEY, record(following + block), 5)]
    assert claim.handle(RecordRead(KEY, record(following, S2), 5)) == wanted
    return claim


def test_ids_start_at_one() -> None:
    """0 means "not deduplicated", so it is never granted."""
    claim = IdClaim(KEY, S1, block=100)
    assert claim.handle(IdRequested(7)) == [ReadRecord(KEY)]
    assert claim.handle(RecordRead(KEY, UNCLAIMED, 0)) == [WriteRecord(KEY, record(101), 0)]
    assert claim.handle(written(WriteStatus.OK, 1)) == [IdAllocated(7, 1)]
    assert claim.handle(IdRequested(8)) == [IdAllocated(8, 2)]
    assert claim.free_count == 98


@pytest.mark.hazard("lost-counter")
def test_missing_counter_is_not_one_that_has_given_no_id() -> None:
    """Its first ids would be given a second time. It is read until it is there."""
    claim = IdClaim(KEY, S1, block=100)
    claim.handle(IdRequested(1))
    assert claim.handle(RecordRead(KEY, None, ABSENT_VERSION)) == [ReadRecord(KEY)]
    assert claim.handle(RecordRead(KEY, record(301, S2), 9)) == [WriteRecord(KEY, record(401), 9)]


def test_requests_are_served_in_order_by_one_claim() -> None:
    """Many producers open at once; one block is enough for them."""
    claim = claiming()
    assert claim.handle(IdRequested(2)) == []
    assert claim.handle(IdRequested(0)) == []
    granted = claim.handle(written(WriteStatus.OK, 6))
    assert granted == [IdAllocated(1, 101), IdAllocated(2, 102), IdAllocated(0, 103)]


def test_next_block_is_claimed_before_the_last_one_ends() -> None:
    """Opening a producer must not wait for ZooKeeper every hundredth time."""
    claim = IdClaim(KEY, S1, block=3, prefetch_below=2)
    claim.handle(IdRequested(1))
    claim.handle(RecordRead(KEY, UNCLAIMED, 0))
    assert claim.handle(written(WriteStatus.OK, 0)) == [IdAllocated(1, 1)]
    assert claim.handle(IdRequested(2)) == [IdAllocated(2, 2), ReadRecord(KEY)]
    assert claim.handle(IdRequested(3)) == [IdAllocated(3, 3)]
    assert claim.handle(RecordRead(KEY, record(9, S2), 4)) == [WriteRecord(KEY, record(12, S1, 2), 4)]
    assert claim.handle(written(WriteStatus.OK, 5)) == []
    assert claim.handle(IdRequested(4)) == [IdAllocated(4, 9)]


def test_single_ids_are_claimed_only_on_request() -> None:
    """A ledger id must be newer than its request, so that a topic's ledgers ascend."""
    claim = IdClaim(KEY, S1, block=1)
    assert claim.handle(IdRequested(1)) == [ReadRecord(KEY)]
    claim.handle(RecordRead(KEY, UNCLAIMED, 0))
    assert claim.handle(IdRequested(2)) == []
    assert claim.handle(written(WriteStatus.OK, 0)) == [IdAllocated(1, 1), ReadRecord(KEY)]
    claim.handle(RecordRead(KEY, record(2), 0))
    assert claim.handle(written(WriteStatus.OK, 1)) == [IdAllocated(2, 2)]
    assert (claim.state, claim.free_count) == (ClaimState.IDLE, 0)


def test_one_claim_serves_all_that_wait_when_it_is_written() -> None:
    """A thousand takeovers at once would wait for a thousand claims, each of which is two requests to ZooKeeper. A
    request that comes after the write waits for the next claim, because its id must be newer."""
    claim = IdClaim(KEY, S1, block=1, for_all_waiting=True)
    assert claim.handle(IdRequested(0)) == [ReadRecord(KEY)]
    for request in range(1, 50):
        assert claim.handle(IdRequested(request)) == []
    assert claim.handle(RecordRead(KEY, record(7), 3)) == [WriteRecord(KEY, record(57), 3)]
    assert claim.handle(IdRequested(50)) == []
    granted = [IdAllocated(request, 7 + request) for request in range(50)]
    assert claim.handle(written(WriteStatus.OK, 4)) == [*granted, ReadRecord(KEY)]
    assert claim.free_count == 0
    claim.check_invariants()


def test_the_last_ids_are_granted_to_those_that_came_first() -> None:
    """Two ids are left for three requests: a claim of three would be refused as a whole."""
    claim = IdClaim(KEY, S1, block=1, for_all_waiting=True)
    for request in range(3):
        claim.handle(IdRequested(request))
    assert claim.handle(RecordRead(KEY, record(ID_MAX - 1), 3)) == [WriteRecord(KEY, record(ID_MAX + 1), 3)]
    granted = [IdAllocated(0, ID_MAX - 1), IdAllocated(1, ID_MAX)]
    assert claim.handle(written(WriteStatus.OK, 4)) == [*granted, ReadRecord(KEY)]


@pytest.mark.parametrize("status", FAILURES)
def test_claim_counts_when_the_record_shows_its_nonce(status: WriteStatus) -> None:
    """The write was applied and its reply lost, or a retransmission met the first transmission."""
    claim = claiming()
    assert claim.handle(written(status, -1)) == [ReadRecord(KEY)]
    assert claim.handle(RecordRead(KEY, record(201), 6)) == [IdAllocated(1, 101)]


@pytest.mark.hazard("block-claimed-twice")
@pytest.mark.parametrize("status", FAILURES)
def test_same_number_by_another_claimer_proves_no_claim(status: WriteStatus) -> None:
    """S1's claim 101 -> 201 was not applied, but S2's identical one was: otherwise one id would name two producers."""
    claim = claiming()
    assert claim.handle(written(status, -1)) == [ReadRecord(KEY)]
    assert claim.handle(RecordRead(KEY, record(201, S2), 6)) == [WriteRecord(KEY, record(301, S1, 2), 6)]
    assert claim.handle(written(WriteStatus.OK, 7)) == [IdAllocated(1, 201)]


def test_discarded_claim_is_never_used() -> None:
    """The first write arrives after the second read: its block was discarded, and its nonce no longer counts."""
    claim = claiming()
    claim.handle(written(WriteStatus.UNKNOWN, -1))
    assert claim.handle(RecordRead(KEY, record(101, S2), 5)) == [WriteRecord(KEY, record(201, S1, 2), 5)]
    assert claim.handle(written(WriteStatus.CONFLICT, -1)) == [ReadRecord(KEY)]
    assert claim.handle(RecordRead(KEY, record(201, S1, 1), 6)) == [WriteRecord(KEY, record(301, S1, 3), 6)]
    assert claim.handle(written(WriteStatus.OK, 7)) == [IdAllocated(1, 201)]


def test_late_answers_are_ignored() -> None:
    """Nothing is in flight, so no answer is expected."""
    claim = claiming()
    assert claim.handle(RecordRead(KEY, record(900, S2), 9)) == []
    claim.handle(written(WriteStatus.OK, 6))
    assert claim.handle(written(WriteStatus.OK, 6)) == []
    assert claim.free_count == 99


def test_last_id_is_granted_and_none_after_it() -> None:
    """2**63 - 1 is valid; one more would be negative in other languages."""
    claim = IdClaim(KEY, S1, block=1)
    claim.handle(IdRequested(1))
    assert claim.handle(RecordRead(KEY, record(ID_MAX), 3)) == [WriteRecord(KEY, record(ID_MAX + 1), 3)]
    assert claim.handle(written(WriteStatus.OK, 4)) == [IdAllocated(1, ID_MAX)]
    assert claim.handle(IdRequested(2)) == [ReadRecord(KEY)]
    assert claim.handle(IdRequested(3)) == []
    assert claim.handle(RecordRead(KEY, record(ID_MAX + 1), 4)) == [IdRefused(2), IdRefused(3)]
    claim.check_invariants()
    assert claim.handle(IdRequested(4)) == [ReadRecord(KEY)]  # the counter may have been repaired meanwhile
    assert claim.handle(RecordRead(KEY, record(700), 5)) == [WriteRecord(KEY, record(701, tries=2), 5)]
    assert claim.handle(written(WriteStatus.OK, 6)) == [IdAllocated(4, 700)]
    claim.check_invariants()


def test_block_that_does_not_fit_is_not_claimed() -> None:
    """A block is claimed completely or not at all."""
    claim = IdClaim(KEY, S1, block=100)
    claim.handle(IdRequested(1))
    assert claim.handle(RecordRead(KEY, record(ID_MAX - 98), 3)) == [IdRefused(1)]


def test_record_round_trips() -> None:
    """A written record reads back the same."""
    assert decode_counter(encode_counter(record(4711))) == record(4711)


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b'{"format":2,"next":1,"claimer":"a","nonce":"b"}', encode_counter(record(0))]
)
def test_invalid_record_is_refused(data: bytes) -> None:
    """Guessing a counter would grant ids twice."""
    with pytest.raises(CorruptEntry):
        decode_counter(data)


def test_empty_blocks_are_refused() -> None:
    """A claim of no id would repeat for ever."""
    with pytest.raises(InvalidArgument):
        IdClaim(KEY, S1, block=0)


@dataclass
class Store:
    """A correct store that loses replies, applies writes late, and repeats them."""

    rng: random.Random
    record: CounterRecord = UNCLAIMED
    version: int = 0
    late: list[WriteRecord[Counter, CounterRecord]] = field(default_factory=list)

    def write(self, effect: WriteRecord[Counter, CounterRecord]) -> WriteStatus:
        if effect.version != self.version:
            return WriteStatus.CONFLICT
        self.record, self.version = effect.value, self.version + 1
        return WriteStatus.OK

    def perform(self, effect: IdClaimEffect) -> IdClaimEvent:
        while self.late and self.rng.random() < 0.5:
            self.write(self.late.pop())
        if isinstance(effect, ReadRecord):
            return RecordRead(KEY, self.record, self.version)
        assert isinstance(effect, WriteRecord)
        luck = self.rng.random()
        if luck < 0.2:
            self.late.append(effect)
            return effect.answered(WriteStatus.UNKNOWN)
        if luck < 0.4:
            self.write(effect)
            return effect.answered(WriteStatus.UNKNOWN)
        if luck < 0.5:
            self.write(effect)  # the store's client repeats a write whose reply was lost
        return effect.answered(self.write(effect), self.version)


@pytest.mark.hazard("block-claimed-twice")
@pytest.mark.parametrize("seed", range(100))
def test_no_id_is_granted_twice_despite_races_lost_replies_and_crashes(seed: int) -> None:
    """Three claimers, one counter. A claimer may crash after any step and restart as a new incarnation."""
    rng = random.Random(seed)
    store = Store(rng)
    block = rng.choice([1, 3, 100])
    born = 0
    granted: list[int] = []
    claims: list[tuple[IdClaim, list[IdClaimEffect]]] = []
    for step in range(400):
        while len(claims) < 3:
            born += 1
            claimer = Incarnation(f"s{born}")
            claim = IdClaim(KEY, claimer, block=block, prefetch_below=block // 2, for_all_waiting=born % 2 == 0)
            claims.append((claim, []))
        at = rng.randrange(3)
        claim, effects = claims[at]
        if rng.random() < 0.02:
            del claims[at]
            continue
        event: IdClaimEvent = IdRequested(step)
        if effects and rng.random() < 0.8:
            event = store.perform(effects.pop(0))
        for effect in claim.handle(event):
            if isinstance(effect, IdAllocated):
                granted.append(effect.id)
            else:
                effects.append(effect)
        claim.check_invariants()
    assert len(granted) > 10
    assert len(set(granted)) == len(granted)
    assert min(granted) >= 1
