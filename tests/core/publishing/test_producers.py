"""Producers are kept as states while they are active, and as a few bytes while they are idle."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.errors import InvariantViolated
from oncelog.core.ids import Generation, InstanceId, ProducerId
from oncelog.core.publishing.dedup_state import DedupState
from oncelog.core.publishing.producer_record import ProducerRow, encode_row
from tests.core.builders import LogOf, fold, grant, plain
from tests.core.snapshots.test_dedup_snapshot import LOGS

ALL_MS = 1 << 60


@given(log=LOGS, pauses=st.sets(st.integers(0, 40)))
def test_idle_producers_are_the_same_producers(log: LogOf, pauses: set[int]) -> None:
    """Whenever they become idle, the fold goes on as if they had not."""
    state = DedupState()
    for number, (header, data) in enumerate(log.entries):
        state.fold(header, data)
        if number in pauses:
            state.producers.make_idle(before_ms=ALL_MS)
            state.check_invariants()
    whole = fold(log.entries)
    assert plain(state) == plain(whole)
    assert state.unnamed == whole.unnamed


def _state(count: int, *, instance: bytes = b"i" * 16) -> DedupState:
    log = LogOf()
    for pid in range(1, count + 1):
        log.granted(grant(f"name {pid}", pid=pid, instance_id=InstanceId(instance)))
        log.stored([0], pid=pid)
    return fold(log.entries)


def test_change_of_an_idle_producer_is_kept() -> None:
    """What `[]` gives is never a copy."""
    producers = _state(3).producers
    producers.make_idle(before_ms=ALL_MS)
    producers[ProducerId(2)].generation = Generation(9)
    producers.make_idle(before_ms=ALL_MS)
    assert [producer.generation for producer in producers.values()] == [1, 1, 9]
    producers.check_invariants()


def test_reading_leaves_producers_idle() -> None:
    """A listing of a million producers must not unpack them for good."""
    producers = _state(3).producers
    producers.make_idle(before_ms=ALL_MS)
    held = producers.bytes
    assert [producer.name for producer in producers.values()] == ["name 1", "name 2", "name 3"]
    assert [producers.id_of(f"name {pid}") for pid in range(1, 5)] == [1, 2, 3, None]
    assert [producers.name_of(ProducerId(pid)) for pid in range(1, 5)] == ["name 1", "name 2", "name 3", None]
    assert all(producers.record(pid) for pid in producers)
    assert producers.bytes == held < 100


def test_state_that_is_no_longer_current_cannot_be_used() -> None:
    """Its changes would be lost."""
    producers = _state(2).producers
    old = producers[ProducerId(1)]
    producers.make_idle(before_ms=ALL_MS)
    with pytest.raises(InvariantViolated, match="no longer current"):
        producers.used(old)


def test_every_producer_is_changed() -> None:
    """Idle or not: after entries were given up, nobody's grant is valid."""
    state = _state(3)
    state.producers.make_idle(before_ms=ALL_MS)
    _ = state.producers[ProducerId(2)]

    def change(producer: object) -> None:
        producer.generation = Generation(5)  # type: ignore[attr-defined]

    state.producers.update_all(change)
    assert {producer.generation for producer in state.producers.values()} == {5}
    state.check_invariants()


def test_snapshot_replaces_idle_and_active_producers() -> None:
    """Whatever they were; the one that it replaces is told."""
    state = _state(3)
    state.producers.make_idle(before_ms=ALL_MS)
    active = state.producers[ProducerId(2)]
    newer = _state(3, instance=b"j" * 16)
    for pid in (1, 2):
        one = newer.producers[ProducerId(pid)]
        replaced = state.producers.restore(ProducerRow(one.producer_id, one.name, encode_row(one)))
        assert replaced is not None
    assert [each.instance_id for each in state.producers.values()] == [b"i" * 16, b"j" * 16, b"j" * 16]
    state.check_invariants()
    with pytest.raises(InvariantViolated):
        state.producers.used(active)


def test_a_call_makes_a_bounded_number_of_producers_idle() -> None:
    """The rest follows with the next snapshot."""
    producers = _state(7000).producers
    active = []
    for _ in range(3):
        producers.make_idle(before_ms=ALL_MS)
        active.append(len(producers._active))
    assert active == [4000, 1000, 0]


def test_idle_producers_lose_their_batches_in_their_order() -> None:
    """One after the other, as far as the budget demands; one that comes back keeps its own."""
    state = _state(100)
    producers = state.producers
    producers.make_idle(before_ms=ALL_MS)
    producers.bytes_max = producers.bytes // 2
    producers.used(producers[ProducerId(1)])
    remembering = [pid for pid, producer in producers.items() if len(producer.recent_batches)]
    assert remembering[-1] == 1
    assert remembering[:-1] == list(range(101 - len(remembering) + 1, 101))
    assert producers.bytes <= producers.bytes_max
    assert producers.evicted == 100 - len(remembering)
    state.check_invariants()


def test_names_of_an_idle_producer_may_have_any_characters() -> None:
    """The length in a row is that of the encoded name."""
    log = LogOf()
    log.granted(grant("größe ☃", pid=1))
    state = fold(log.entries)
    state.producers.make_idle(before_ms=ALL_MS)
    assert "größe ☃".encode() in state.producers.record(ProducerId(1))
    assert state.producers[ProducerId(1)].name == "größe ☃"
