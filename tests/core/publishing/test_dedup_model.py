"""Dedup against a model that is only the set of stored ids: a producer replays its source with any batch boundaries.

Writes become durable or fail, owners change, ids of recent batches are forgotten. In every case each id is stored once,
each answer names the id's true position, and nothing is called stored that is not.
"""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.errors import SequenceGap, StaleSequence
from oncelog.core.formats.batch import decode_ids, deltas_of, peek_batch
from oncelog.core.formats.entry import EntryKind, SequenceMode, body_of
from oncelog.core.formats.outcome import ResultKind, ResultRange
from oncelog.core.ids import Position
from oncelog.core.publishing.dedup_table import Accept, BatchVerdict, DedupTable, NothingNew, Refused
from oncelog.core.publishing.recent_batches import NeedIds
from tests.core.builders import CONTIGUOUS, MONOTONIC, PID, fold, parts
from tests.core.publishing.test_dedup import DedupWorld


class Model:
    """The table under test, and the log, from which the set of stored ids is read."""

    def __init__(self, mode: SequenceMode, source: list[int]) -> None:
        self.world = DedupWorld(mode)
        self.contiguous = mode is CONTIGUOUS
        self.source = source
        #: the ids of each entry; how often each id is in the first `_counted` of them
        self._ids: list[list[int]] = []
        self._stored: Counter[int] = Counter()
        self._counted = 0

    def ids_at(self, entry: int) -> list[int]:
        """The ids of an entry, read from its bytes once."""
        while len(self._ids) <= entry:
            header, data = self.world.log.entries[len(self._ids)]
            body = body_of(data)
            batch = peek_batch(body) if header.kind == EntryKind.MESSAGES else None
            self._ids.append(list(decode_ids(batch, deltas_of(batch, body))) if batch else [])
        return self._ids[entry]

    def stored(self) -> Counter[int]:
        """How often each id is in the log, in flight or durable."""
        entries = self.world.log.entries
        if len(entries) < self._counted:
            self._counted, self._stored = 0, Counter()
            del self._ids[len(entries) :]
        for entry in range(self._counted, len(entries)):
            self._stored.update(self.ids_at(entry)[entries[entry][0].skip_first :])
        self._counted = len(entries)
        return self._stored

    def send(self, start: int, size: int) -> None:
        ids = self.source[start : start + size]
        if not ids:
            return
        stored = self.stored()
        verdict = self.world.check(ids)
        while isinstance(verdict, NeedIds):
            held = self.ids_at(verdict.position.entry_id)
            self.world.table.state.learn_deltas(verdict.position, *parts(held))
            verdict = self.world.check(ids)
        new = [each for each in ids if not stored[each]]
        self.check(verdict, ids, new, stored)
        if isinstance(verdict, Accept):
            self.world.write(ids)

    def check(self, verdict: BatchVerdict, ids: list[int], new: list[int], stored: Counter[int]) -> None:
        mark = max(stored, default=-1)
        match verdict:
            case Accept(skip, known):
                assert ids[skip:] == [each for each in new if each > mark]
                self.check_parts(known, ids[:skip])
            case NothingNew(known, _):
                assert all(each < mark for each in new)
                self.check_parts(known, ids)
            case Refused(StaleSequence()):
                assert new == ids
                assert ids[-1] < mark
            case Refused(SequenceGap() as gap):
                assert self.contiguous
                assert (ids[0], gap.details["expected"]) > (mark + 1, mark)
            case _:
                raise AssertionError(verdict)

    def check_parts(self, known: tuple[ResultRange, ...], ids: list[int]) -> None:
        """Each message answered is exactly where the answer says."""
        assert sum(part.count for part in known) == len(ids)
        at = 0
        for part in known:
            if part.kind is ResultKind.STALE_SEQUENCE:
                assert not any(self.stored()[each] for each in ids[at : at + part.count])
            if part.position is not None:
                held = self.ids_at(part.position.entry_id)[part.offset : part.offset + part.count]
                assert held == ids[at : at + part.count]
            at += part.count

    def new_owner(self) -> None:
        """Start a new owner from the durable log. Ids of batches with holes are only in their entries."""
        state = fold(self.world.log.entries)
        state.producers.make_idle(before_ms=1 << 60)
        self.world.table = DedupTable(state)

    def do(self, step: tuple[str, int, int]) -> None:
        kind, first, second = step
        if kind == "send":
            self.send(first % len(self.source), 1 + second)
        elif kind == "persist":
            self.world.persist(1 + second)
        else:
            self.world.fail()
            self.stored()
            if kind == "owner":
                self.new_owner()
        assert max(self.stored().values(), default=0) <= 1

    def replay_everything(self) -> None:
        """Resend the source from its start, like a restarted application. Then each id is stored once."""
        for start in range(0, len(self.source), 7):
            self.send(start, 7)
        self.world.persist()
        assert self.stored() == Counter(self.source)


SOURCES = st.one_of(
    st.integers(1, 40).map(lambda n: list(range(n))),
    st.lists(st.integers(0, 200), min_size=1, max_size=40, unique=True).map(sorted),
)
#: mostly sends, from near the beginning or anywhere
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["send", "send", "send", "send", "persist", "fail", "owner"]),
        st.integers(0, 60),
        st.integers(0, 9),
    ),
    max_size=40,
)


@pytest.mark.hazard("id-between-stored-ids")
@given(source=SOURCES, steps=STEPS)
def test_monotonic_producer_may_send_in_any_order(source: list[int], steps: list[tuple[str, int, int]]) -> None:
    """Pieces sent out of order leave ids behind that can never be stored: stale, and never called stored."""
    model = Model(MONOTONIC, source)
    for step in steps:
        model.do(step)


@given(length=st.integers(1, 40), steps=STEPS)
def test_contiguous_producer_is_complete_after_its_replay(length: int, steps: list[tuple[str, int, int]]) -> None:
    """Gaps are refused, so a replay from the start always completes the log."""
    model = Model(CONTIGUOUS, list(range(length)))
    for step in steps:
        model.do(step)
    model.replay_everything()


@given(source=SOURCES, steps=STEPS)
def test_replaying_producer_is_complete_after_its_replay(source: list[int], steps: list[tuple[str, int, int]]) -> None:
    """In order up to where it crashes, then from any earlier point, with other boundaries: each id once."""
    model = Model(MONOTONIC, source)
    cursor = 0
    for kind, first, second in steps:
        if kind == "send":
            model.send(cursor, 1 + second)
            cursor += 1 + second
        else:
            model.do((kind, first, second))
            # After a failure or a restart, resend from an earlier point, at or below the last stored id.
            stored = model.stored()
            sure = next((i for i, each in enumerate(source) if not stored[each]), len(source))
            cursor = min(cursor, sure, first) if kind != "persist" else cursor
    model.replay_everything()


@pytest.mark.parametrize("mode", [MONOTONIC, CONTIGUOUS])
@pytest.mark.parametrize("seed", range(3))
def test_answers_stay_correct_below_the_recent_batches(mode: SequenceMode, seed: int) -> None:
    """Hundreds of batches: floors, forgotten ids and resends from far below."""
    rng = random.Random(seed)
    source = list(range(600)) if mode is CONTIGUOUS else sorted(rng.sample(range(3000), 600))
    model = Model(mode, source)
    cursor = 0
    while cursor < len(source):
        size = rng.randint(1, 6)
        model.send(cursor, size)
        cursor += size
        if rng.random() < 0.3:
            model.world.persist(rng.randint(1, 9))
        if rng.random() < 0.03:
            model.do((rng.choice(["fail", "owner"]), 0, 0))
            stored = model.stored()
            sure = next((i for i, each in enumerate(source) if not stored[each]), len(source))
            cursor = rng.randint(0, sure)
    model.replay_everything()
    assert model.world.table.state.producers[PID].recent_floor > 0
    assert isinstance(model.world.table.state.position, Position)
