"""No id is granted twice, whatever the store does with a claim."""

import random
from dataclasses import dataclass, field

import pytest

from oncelog.core.errors import CorruptEntry, InvalidArgument
from oncelog.core.ids import Incarnation
from oncelog.core.records.id_claim import ID_MAX, CounterRecord, IdClaim, decode_counter, encode_counter
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.core.records.status import WriteStatus
from tests.core.records.claimers import IDLE, READ, UNCLAIMED, Ask, Claimer

S1, S2 = Incarnation("s1"), Incarnation("s2")
FAILURES = (WriteStatus.CONFLICT, WriteStatus.UNKNOWN)


def record(following: int, claimer: Incarnation = S1, tries: int = 1) -> CounterRecord:
    return CounterRecord(following, claimer, f"{claimer}-{tries}")


def claiming(block: int = 100, following: int = 101) -> Claimer:
    """A claimer S1 whose first write, to `following` + block, is in flight."""
    claimer = Claimer(S1, block=block)
    claimer.request(1)
    assert claimer.asks == READ
    claimer.answer((record(following, S2), 5))
    assert claimer.asks == Ask(record(following + block), 5)
    return claimer


def test_ids_start_at_one() -> None:
    """0 means "not deduplicated", so it is never granted."""
    claimer = Claimer(S1, block=100)
    claimer.request(7)
    assert claimer.asks == READ
    claimer.answer((UNCLAIMED, 0))
    assert claimer.asks == Ask(record(101), 0)
    claimer.answer(WriteStatus.OK)
    assert claimer.granted == {7: 1}
    claimer.request(8)
    assert claimer.granted == {7: 1, 8: 2}
    assert (claimer.asks, claimer.core.free_count) == (IDLE, 98)


@pytest.mark.hazard("lost-counter")
def test_missing_counter_is_not_one_that_has_given_no_id() -> None:
    """Its first ids would be given a second time. It is read until it is there."""
    claimer = Claimer(S1, block=100)
    claimer.request(1)
    claimer.answer((None, ABSENT_VERSION))
    assert claimer.asks == READ
    claimer.answer((record(301, S2), 9))
    assert claimer.asks == Ask(record(401), 9)


@pytest.mark.hazard("lost-counter")
def test_counter_that_is_lost_during_a_claim_proves_nothing() -> None:
    """Its record would be created again, from its first id on."""
    claimer = claiming()
    claimer.answer(WriteStatus.UNKNOWN)
    claimer.answer((None, ABSENT_VERSION))
    assert (claimer.asks, claimer.granted) == (READ, {})


def test_requests_are_served_in_order_by_one_claim() -> None:
    """Many producers open at once; one block is enough for them."""
    claimer = claiming()
    claimer.request(2)
    claimer.request(0)
    claimer.answer(WriteStatus.OK)
    assert list(claimer.granted.items()) == [(1, 101), (2, 102), (0, 103)]


def test_next_block_is_claimed_before_the_last_one_ends() -> None:
    """Opening a producer must not wait for ZooKeeper every hundredth time."""
    claimer = Claimer(S1, block=3, prefetch_below=2)
    claimer.request(1)
    claimer.answer((UNCLAIMED, 0))
    claimer.answer(WriteStatus.OK)
    assert (claimer.granted, claimer.asks) == ({1: 1}, IDLE)
    claimer.request(2)
    assert (claimer.granted[2], claimer.asks) == (2, READ)
    claimer.request(3)
    assert claimer.granted[3] == 3
    claimer.answer((record(9, S2), 4))
    assert claimer.asks == Ask(record(12, S1, 2), 4)
    claimer.answer(WriteStatus.OK)
    assert claimer.asks == IDLE
    claimer.request(4)
    assert claimer.granted[4] == 9


def test_single_ids_are_claimed_only_on_request() -> None:
    """A ledger id must be newer than its request, so that a topic's ledgers ascend."""
    claimer = Claimer(S1, block=1)
    claimer.request(1)
    claimer.answer((UNCLAIMED, 0))
    claimer.request(2)
    claimer.answer(WriteStatus.OK)
    assert (claimer.granted, claimer.asks) == ({1: 1}, READ)
    claimer.answer((record(2), 0))
    claimer.answer(WriteStatus.OK)
    assert claimer.granted == {1: 1, 2: 2}
    assert (claimer.asks, claimer.core.free_count) == (IDLE, 0)


def test_one_claim_serves_all_that_wait_when_it_is_written() -> None:
    """A thousand takeovers at once would wait for a thousand claims, each of which is two requests to ZooKeeper. A
    request that comes after the write waits for the next claim, because its id must be newer."""
    claimer = Claimer(S1, block=1, for_all_waiting=True)
    for request in range(50):
        claimer.request(request)
    claimer.answer((record(7), 3))
    assert claimer.asks == Ask(record(57), 3)
    claimer.request(50)
    claimer.answer(WriteStatus.OK)
    assert claimer.granted == {request: 7 + request for request in range(50)}
    assert (claimer.asks, claimer.core.free_count) == (READ, 0)


def test_the_last_ids_are_granted_to_those_that_came_first() -> None:
    """Two ids are left for three requests: a claim of three would be refused as a whole."""
    claimer = Claimer(S1, block=1, for_all_waiting=True)
    for request in range(3):
        claimer.request(request)
    claimer.answer((record(ID_MAX - 1), 3))
    assert claimer.asks == Ask(record(ID_MAX + 1), 3)
    claimer.answer(WriteStatus.OK)
    assert (claimer.granted, claimer.asks) == ({0: ID_MAX - 1, 1: ID_MAX}, READ)


@pytest.mark.parametrize("status", FAILURES)
def test_claim_counts_when_the_record_shows_its_nonce(status: WriteStatus) -> None:
    """The write was applied and its reply lost, or a retransmission met the first transmission."""
    claimer = claiming()
    claimer.answer(status)
    assert claimer.asks == READ
    claimer.answer((record(201), 6))
    assert (claimer.granted, claimer.asks) == ({1: 101}, IDLE)


@pytest.mark.hazard("block-claimed-twice")
@pytest.mark.parametrize("status", FAILURES)
def test_same_number_by_another_claimer_proves_no_claim(status: WriteStatus) -> None:
    """S1's claim 101 -> 201 was not applied, but S2's identical one was: otherwise one id would name two producers."""
    claimer = claiming()
    claimer.answer(status)
    assert claimer.asks == READ
    claimer.answer((record(201, S2), 6))
    assert claimer.asks == Ask(record(301, S1, 2), 6)
    claimer.answer(WriteStatus.OK)
    assert claimer.granted == {1: 201}


def test_discarded_claim_is_never_used() -> None:
    """The first write arrives after the second read: its block was discarded, and its nonce no longer counts."""
    claimer = claiming()
    claimer.answer(WriteStatus.UNKNOWN)
    claimer.answer((record(101, S2), 5))
    assert claimer.asks == Ask(record(201, S1, 2), 5)
    claimer.answer(WriteStatus.CONFLICT)
    claimer.answer((record(201, S1, 1), 6))
    assert claimer.asks == Ask(record(301, S1, 3), 6)
    claimer.answer(WriteStatus.OK)
    assert claimer.granted == {1: 201}


def test_last_id_is_granted_and_none_after_it() -> None:
    """2**63 - 1 is valid; one more would be negative in other languages."""
    claimer = Claimer(S1, block=1)
    claimer.request(1)
    claimer.answer((record(ID_MAX), 3))
    assert claimer.asks == Ask(record(ID_MAX + 1), 3)
    claimer.answer(WriteStatus.OK)
    assert claimer.granted == {1: ID_MAX}
    claimer.request(2)
    claimer.request(3)
    claimer.answer((record(ID_MAX + 1), 4))
    assert (claimer.granted, claimer.asks) == ({1: ID_MAX, 2: None, 3: None}, IDLE)
    claimer.request(4)
    assert claimer.asks == READ  # the counter may have been repaired meanwhile
    claimer.answer((record(700), 5))
    assert claimer.asks == Ask(record(701, tries=2), 5)
    claimer.answer(WriteStatus.OK)
    assert claimer.granted[4] == 700


def test_block_that_does_not_fit_is_not_claimed() -> None:
    """A block is claimed completely or not at all."""
    claimer = Claimer(S1, block=100)
    claimer.request(1)
    claimer.answer((record(ID_MAX - 98), 3))
    assert claimer.granted == {1: None}


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
        IdClaim(S1, block=0)


@dataclass
class Store:
    """A correct store that loses replies, applies writes late, and repeats them."""

    rng: random.Random
    record: CounterRecord = UNCLAIMED
    version: int = 0
    late: list[Ask] = field(default_factory=list)

    def write(self, ask: Ask) -> WriteStatus:
        assert ask.record is not None
        if ask.version != self.version:
            return WriteStatus.CONFLICT
        self.record, self.version = ask.record, self.version + 1
        return WriteStatus.OK

    def answer(self, ask: Ask) -> object:
        while self.late and self.rng.random() < 0.5:
            self.write(self.late.pop())
        if ask == READ:
            return self.record, self.version
        luck = self.rng.random()
        if luck < 0.2:
            self.late.append(ask)
            return WriteStatus.UNKNOWN
        if luck < 0.4:
            self.write(ask)
            return WriteStatus.UNKNOWN
        if luck < 0.5:
            self.write(ask)  # the store's client repeats a write whose reply was lost
        return self.write(ask)


@pytest.mark.hazard("block-claimed-twice")
@pytest.mark.parametrize("seed", range(100))
def test_no_id_is_granted_twice_despite_races_lost_replies_and_crashes(seed: int) -> None:
    """Three claimers, one counter. A claimer may crash at any await and restart as a new incarnation."""
    rng = random.Random(seed)
    store = Store(rng)
    block = rng.choice([1, 3, 100])
    claimers: list[Claimer] = []
    living: list[Claimer] = []
    for step in range(400):
        while len(living) < 3:
            name = Incarnation(f"s{len(claimers)}")
            prefetch_below, for_all_waiting = block // 2, len(claimers) % 2 == 0
            claimers.append(Claimer(name, block=block, prefetch_below=prefetch_below, for_all_waiting=for_all_waiting))
            living.append(claimers[-1])
        claimer = rng.choice(living)
        if rng.random() < 0.02:
            living.remove(claimer)
        elif claimer.asks != IDLE and rng.random() < 0.8:
            claimer.answer(store.answer(claimer.asks))
        else:
            claimer.request(step)
    granted = [number for claimer in claimers for number in claimer.granted.values()]
    assert len(granted) > 10
    assert len(set(granted)) == len(granted)
    assert min(number or 0 for number in granted) >= 1
