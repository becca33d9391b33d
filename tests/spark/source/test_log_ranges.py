"""Ranges of a log, folded separately and joined, give the same verdict as the whole log, however it is split."""

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations

import pytest
from crc32c import crc32c

from oncelog.core.formats.entry import SequenceMode
from oncelog.core.ids import BEFORE_ALL, EntryId, Generation, LedgerId, Position, ProducerId, SequenceId, TopicId
from oncelog.verify.owner_report import LiveMap
from oncelog.verify.producer_marks import ReportedProducer
from oncelog.verify.range_join import LedgerFact
from oncelog.verify.range_summary import FRONT_KEPT, LOW_KEPT
from oncelog.verify.stored_log import parse_entry
from oncelog.verify.topic_check import TopicCheck
from oncelog.verify.violation import Violation
from tests.contract.proof.planted_log import PlantedLog, PlantedProducer, check_log
from tests.oracles.fold import LogFold

Places = list[tuple[str, str | None]]
OTHER_TOPIC = TopicId("f" * 32)


def findings_of(found: TopicCheck) -> Places:
    """(rule, position) of each finding."""
    return [(one.rule, None if one.position is None else str(one.position)) for one in found.findings]


def rolled(log: PlantedLog, *, epoch: int | None = None, ledger_id: int | None = None) -> PlantedLog:
    log.roll(epoch=epoch, ledger_id=ledger_id)
    return log


def small_log(upto: int = 99) -> PlantedLog:
    """Two producers, three ledgers, a takeover, an instance that comes back, and a batch whose beginning was known.

    upto: entries.
    """
    log = PlantedLog()
    steps: list[Callable[[], object]] = [
        lambda: log.open("a"),  # 1:0
        lambda: log.store("a", range(5)),  # 1:1
        lambda: log.open("b"),  # 1:2
        lambda: log.store("b", [3, 10, 11, 40]),  # 1:3
        lambda: rolled(log).store("a", range(5, 8)),  # 2:0
        lambda: log.open("a"),  # 2:1
        lambda: log.store("a", range(6, 12), skip=2),  # 2:2
        lambda: rolled(log, epoch=4, ledger_id=9).store("b", [41, 60]),  # 9:0
        lambda: log.open("b"),  # 9:1
        lambda: log.store("a", [20]),  # 9:2
    ]
    for step in steps[:upto]:
        step()
    return log


ENTRIES = 10


def every_cut(entries: int) -> list[tuple[int, ...]]:
    """No cut, each one, each pair, and a range for each entry."""
    ones = range(1, entries)
    return [(), *((one,) for one in ones), *combinations(ones, 2), tuple(ones)]


def test_a_good_log_is_good_however_it_is_split() -> None:
    """With the last ids of its live map, and those of a snapshot at any of its entries."""
    log = small_log()
    snapshots = [small_log(upto).snapshot() for upto in range(1, ENTRIES + 1)]
    for cuts in [cuts for cuts in every_cut(ENTRIES) if len(cuts) != 2]:
        for snapshot in snapshots:
            found = check_log(log, *cuts, snapshot=snapshot)
            assert (findings_of(found), found.findings_count) == ([], 0), (cuts, snapshot)
            assert (found.live.whole, found.live.equal) == (True, 2)
            assert found.snapshot is not None
            assert (found.snapshot.whole, found.snapshot.equal) == (True, len(snapshot.producers))
    found = check_log(log, 4)
    assert {one.name: one.mark for one in found.joined.producers.values()} == {"a": 20, "b": 60}
    totals = found.joined.totals
    assert (totals.messages, totals.skipped, totals.grants, totals.entries) == (19, 2, 4, ENTRIES)
    assert [(one.owner_epoch, str(one.position), one.time_ms) for one in found.joined.epochs] == [
        (1, "1:0", 1_000), (4, "9:0", 8_000),
    ]  # fmt: skip


def hole(log: PlantedLog) -> None:
    log.next_index += 3
    log.store("a", [10])


def shifted(log: PlantedLog) -> None:
    log.ledgers[-1][3] += 7
    log.store("a", [10])


def skipped_entry(log: PlantedLog) -> None:
    log.ledgers[-1][2] += 1
    log.store("a", [10])


def lower_epoch(log: PlantedLog) -> None:
    log.roll(epoch=0)
    log.store("a", [10])


def other_epoch_in_a_ledger(log: PlantedLog) -> None:
    log.epoch = 2
    log.store("a", [10])


def confirmed_ahead(log: PlantedLog) -> None:
    log.confirmed_ahead = 1
    log.store("a", [10])
    log.confirmed_ahead = 0


def foreign_name(log: PlantedLog) -> None:
    log.producers["a"].name = "c"
    log.open("a")
    log.producers["a"].name = "a"


def second_id(log: PlantedLog) -> None:
    log.producers["a2"] = PlantedProducer("a", ProducerId(7))
    log.open("a2")


def never_granted(log: PlantedLog) -> None:
    log.producers["c"] = PlantedProducer("c", ProducerId(9), Generation(1))
    log.store("c", [5])


#: What is planted behind 1:3, and what must be said of it, exactly.
DAMAGE: dict[str, tuple[Callable[[PlantedLog], object], Places]] = {
    "duplicate": (lambda log: log.store("a", [9]), [("once", "1:4")]),
    "duplicates in a batch that goes on": (lambda log: log.store("a", range(5, 15)), [("once", "1:4")]),
    "duplicate among holes": (lambda log: log.store("b", [200, 250]), [("once", "1:4")]),
    "reordering": (lambda log: log.store("b", [150]), [("order", "1:4")]),
    "duplicate and reordering": (lambda log: log.store("b", [100, 150]), [("once", "1:4"), ("order", "1:4")]),
    "hole in base_index": (hole, [("base_index", "1:4")]),
    "entry that is passed over": (skipped_entry, [("positions", "1:5")]),
    "bytes that are missing": (shifted, [("ledger length", "1:4")]),
    "bad digest of a batch": (lambda log: log.store("a", [10], bad_batch=True), [("digest", "1:4")]),
    "count that is wrong": (lambda log: log.store("a", [10], count=2), [("count", "1:4")]),
    "entry of another topic": (lambda log: log.store("a", [10], topic_id=OTHER_TOPIC), [("topic", "1:4")]),
    "mark of a grant too low": (lambda log: log.open("a", persisted=8), [("grant's mark", "1:4")]),
    "mark of a grant too high": (lambda log: log.open("b", persisted=201), [("grant's mark", "1:4")]),
    "generation that is passed over": (lambda log: log.open("a", generation=3), [("generations", "1:4")]),
    "generation that was there": (lambda log: log.open("a", generation=1), [("generations", "1:4")]),
    "batch of an older instance": (lambda log: log.store("a", [10], generation=0), [("fencing", "1:4")]),
    "batch of a newer instance": (lambda log: log.store("a", [10], generation=2), [("fencing", "1:4")]),
    "batch of an unknown producer": (never_granted, [("grants", "1:4")]),
    "ids skipped that were never stored": (lambda log: log.store("a", [10, 11], skip=1), [("skipped", "1:4")]),
    "entry that was confirmed before it was there": (confirmed_ahead, [("confirmed", "1:4")]),
    "lower epoch": (lower_epoch, [("owner epoch", "2:0")]),
    "epoch that changes in a ledger": (other_epoch_in_a_ledger, [("owner epoch", "1:4")]),
    "name of another": (foreign_name, [("names", "1:4")]),
    "name with a second id": (second_id, [("names", "1:4")]),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_reported_with_its_position_within_and_across_ranges(damage: str) -> None:
    """Only the damage itself, nothing that follows from it, however the log is split."""
    plant, expected = DAMAGE[damage]
    log = PlantedLog()
    log.open("a")  # 1:0
    log.open("b")  # 1:1
    log.store("a", range(10))  # 1:2
    log.store("b", [100, 200])  # 1:3
    plant(log)
    log.store("b", [300])
    log.store("a", [1000])
    for cuts in every_cut(len(log.entries)):
        found = check_log(log, *cuts)
        assert findings_of(found) == expected, (cuts, found.findings)
        assert found.findings_count == len(expected), cuts


@pytest.mark.parametrize("mode", SequenceMode)
def test_producer_that_comes_from_another_cluster_begins_behind_its_mark_there(mode: SequenceMode) -> None:
    """Its first grant has a mark without a message. Ids below it are stored again, if they are there."""
    log = PlantedLog()
    log.open("a")
    log.producers["b"] = PlantedProducer("b", ProducerId(2), mark=SequenceId(99), mode=mode)
    log.open("b")
    log.store("b", [100])
    log.open("b")
    log.store("b", [101])
    for cuts in every_cut(len(log.entries)):
        assert findings_of(check_log(log, *cuts)) == []
    log.store("b", [50])
    for cuts in every_cut(len(log.entries)):
        assert findings_of(check_log(log, *cuts)) == [("order", "1:5")]


def test_duplicates_are_reported_with_ids_and_first_positions() -> None:
    """To repair a log, or a producer, one must know the messages."""
    log = PlantedLog()
    log.open("a")
    log.store("a", range(20))
    log.store("a", range(20, 40))
    log.store("a", [5, 6, 39, 77])
    for cuts in ((), (3,)):
        [finding] = check_log(log, *cuts).findings
        assert finding.message == "3 ids from 5 to 39 of 'a' stored again: the first is at 1:1"


# --- what others tell -------------------------------------------------------------------------------------------------


def test_a_wrong_last_id_in_the_live_map_is_found() -> None:
    """Too high, too low, of another instance, of another mode, missing, or of an unknown producer."""
    log = small_log()
    right = log.reported_producers()
    a = right[ProducerId(1)]
    wrong = {
        "'a' (1) has the mark 21 in the report, 20 in": {**right, ProducerId(1): a._replace(mark=SequenceId(21))},
        "'a' (1) has the mark 19 in the report, 20 in": {**right, ProducerId(1): a._replace(mark=SequenceId(19))},
        "'a' (1) has the generation 1 in the report, 2": {**right, ProducerId(1): a._replace(generation=Generation(1))},
        "'a' (1) is contiguous in the report": {**right, ProducerId(1): a._replace(mode=SequenceMode.CONTIGUOUS)},
        "'x' (1) is 'a' in the log": {**right, ProducerId(1): a._replace(name="x")},
        "'a' (1) has the mark 20 in the log and is not reported": {ProducerId(2): right[ProducerId(2)]},
        "'c' (3) has the mark -1 in the report and is not in": {
            **right, ProducerId(3): ReportedProducer("c", SequenceMode.MONOTONIC, Generation(1), SequenceId(-1)),
        },
    }  # fmt: skip
    for said, producers in wrong.items():
        for cuts in ((), (5,), tuple(range(1, ENTRIES))):
            [finding] = check_log(log, *cuts, live=log.live()._replace(producers=producers)).findings
            assert (finding.rule, finding.position) == ("live map", None)
            assert said in finding.message


def test_a_live_map_of_another_position_is_found() -> None:
    """It counts messages that the log does not have, or has the position of an entry that was not read."""
    log = small_log()
    [count] = check_log(log, live=log.live()._replace(next_index=20)).findings
    assert count.message == "its next message has index 20, in the log 19"
    [place] = check_log(log, live=log.live()._replace(position=Position(LedgerId(9), EntryId(3)))).findings
    assert place.message == "its position is 9:3, but the log was read up to 9:2"


def test_a_wrong_snapshot_is_found_although_later_messages_correct_it() -> None:
    """Its last id of 'a' is too low at its own position; replayed to the end of the log it would be right again."""
    log, then = small_log(), small_log(7)
    producers = then.reported_producers()
    low = producers[ProducerId(1)]._replace(mark=SequenceId(10))
    right = then.snapshot()
    wrong = {
        "has the mark 10 in the report, 11 in the log": right._replace(producers={**producers, ProducerId(1): low}),
        "its next message has index 15, in the log 16": right._replace(next_index=15),
    }
    for said, snapshot in wrong.items():
        for cuts in ((), (3,), tuple(range(1, ENTRIES))):
            [finding] = check_log(log, *cuts, snapshot=snapshot).findings
            assert finding.rule == "snapshot"
            assert said in finding.message


def test_producers_that_the_owner_does_not_list_are_counted_not_equal() -> None:
    """The owner lists a limited number."""
    log = small_log()
    some = {ProducerId(1): log.reported_producers()[ProducerId(1)]}
    found = check_log(log, live=log.live()._replace(producers=some, lists_all=False))
    assert findings_of(found) == []
    assert (found.live.whole, found.live.equal, found.live.not_listed) == (False, 1, 1)


# --- the record of the ledgers ----------------------------------------------------------------------------------------


def test_a_record_that_contradicts_the_ledgers_is_found() -> None:
    """Each of its fields; and a ledger without an entry is no gap."""
    log = small_log()
    log.roll()
    log.roll()
    log.store("a", [30])
    good = log.facts()
    assert findings_of(check_log(log)) == []

    def changed(number: int, **fields: object) -> list[LedgerFact]:
        return [fact._replace(**fields) if at == number else fact for at, fact in enumerate(good)]  # type: ignore[arg-type]

    wrong = {
        "its record has 8": changed(1, first_index=8),
        "the ledger begins at message 19, its record has 18": changed(3, first_index=18),
        "read entries 0 to 2 instead of 0 to 3": changed(1, last=EntryId(3)),
        "bodies have": changed(0, length=1),
        "is not closed": changed(1, whole=False),
        "lists it after": [good[1], good[0], *good[2:]],
    }
    for said, facts in wrong.items():
        for cuts in ((), (5,), tuple(range(1, ENTRIES + 1))):
            found = [one for one in check_log(log, *cuts, facts=facts).findings if one.rule == "chain"]
            assert [one for one in found if said in one.message], (said, found)
            assert len(found) == 1 or "behind" in said, found


# --- what is not seen -------------------------------------------------------------------------------------------------


def test_trimmed_messages_are_never_good() -> None:
    """The first ledgers are gone: last ids that depend on them are compared as lower bounds, and nothing is
    invented."""
    log = small_log()
    for position in [position for position in log.entries if position.ledger_id == 1]:
        del log.entries[position]
    for cuts in every_cut(len(log.entries)):
        found = check_log(log, *cuts, facts=log.facts()[1:], from_start=False)
        assert findings_of(found) == [], (cuts, found.findings)
        assert (found.live.whole, found.live.at_least, found.live.equal) == (False, 2, 0)
        low = log.reported_producers()
        low[ProducerId(2)] = low[ProducerId(2)]._replace(mark=SequenceId(59))
        worse = check_log(log, *cuts, facts=log.facts()[1:], from_start=False, live=log.live()._replace(producers=low))
        assert findings_of(worse) == [("live map", None)], "a mark below what is kept is wrong all the same"


def test_nothing_is_invented_behind_an_unreadable_entry() -> None:
    """It held the opening of an instance and some messages; only that it cannot be read is reported, once."""
    log = small_log()
    for lost in list(log.entries):
        cut = dict(log.entries)
        cut[lost] = bytes([cut[lost][0] ^ 1]) + cut[lost][1:]
        damaged = replace(log, entries=cut)
        for cuts in ((), (3,), (5, 8), tuple(range(1, ENTRIES))):
            found = check_log(damaged, *cuts)
            assert findings_of(found) == [("digest", str(lost))], (cuts, found.findings)
            assert (found.joined.blind, found.live.whole) == (True, False)


def test_a_summary_is_small_and_counts_what_it_leaves_out() -> None:
    """Of very many duplicates some are listed, and all are counted, or reported to be more."""
    log = PlantedLog()
    log.open("a")
    count = 2 * LOW_KEPT
    for number in range(count):
        log.store("a", [2 * number])
    for number in range(count):
        log.store("a", [2 * number])
    whole = check_log(log)
    assert [one.rule for one in whole.findings] == ["once"] * LOW_KEPT
    assert whole.findings_count == count
    halves = check_log(log, count + 1)
    assert [one.rule for one in halves.findings] == ["once"] * FRONT_KEPT
    assert halves.findings_count > FRONT_KEPT


# --- against the oracle that folds the whole log ----------------------------------------------------------------------


def random_log(seed: int) -> PlantedLog:
    """Openings, batches with and without holes, rolls, takeovers; sometimes something that must not be."""
    rng = random.Random(seed)
    log, names = PlantedLog(), ["a", "b", "c"]
    for name in names:
        log.open(name)
    for _ in range(rng.randint(5, 25)):
        name = rng.choice(names)
        producer, wild = log.producers[name], rng.random() < 0.05
        match rng.randint(0, 9):
            case 0:
                log.open(name, persisted=producer.mark + rng.choice([-1, 1]) if wild else None)
            case 1:
                log.roll(epoch=log.epoch + rng.randint(0, 2))
            case _:
                first = max(0, producer.mark + (rng.randint(-3, 0) if wild else rng.randint(1, 3)))
                steps = [rng.choice([1, 1, 1, 4]) for _ in range(rng.randint(0, 5))]
                ids = [first + sum(steps[:count]) for count in range(len(steps) + 1)]
                log.store(name, ids, generation=producer.generation + 1 if rng.random() < 0.01 else None)
    return log


def oracle(log: PlantedLog) -> tuple[LogFold, bool]:
    """The fold of the whole log, and whether it is good; it stops at the first fault, and sees no order."""
    fold = LogFold()
    marks: dict[str, int] = {}
    try:
        for position, data in log.entries.items():
            entry = parse_entry(data, position, crc32c)
            fold.add(entry)
            if entry.batch is not None:
                name = fold.producers[entry.batch.producer_id].name
                if entry.ids[0] <= marks.get(name, -1):
                    return fold, False
                marks[name] = max(marks.get(name, -1), entry.ids[-1])
    except Violation:
        return fold, False
    return fold, True


def test_ranges_give_the_verdict_of_the_whole_logs_fold() -> None:
    """For 80 logs, many of them with damage, and for every split."""
    good = 0
    for seed in range(80):
        log, rng = random_log(seed), random.Random(-seed)
        fold, sound = oracle(log)
        good += sound
        whole = check_log(log)
        assert (findings_of(whole) == []) is sound, (seed, whole.findings)
        for _ in range(4):
            cuts = rng.sample(range(1, len(log.entries)), rng.randint(1, 4))
            assert findings_of(check_log(log, *cuts)) == findings_of(whole), (seed, cuts)
        if sound:
            marks = {one.name: (one.mark, one.generation) for one in whole.joined.producers.values()}
            assert marks == {one.name: (one.mark, one.generation) for one in fold.producers.values()}
            assert whole.joined.last is not None
            assert whole.joined.last.next_index == fold.next_index
    assert 30 < good < 70


def test_an_empty_log_is_good() -> None:
    """A topic that was never used."""
    found = check_log(PlantedLog(), live=LiveMap(BEFORE_ALL, 0, {}, True), facts=[])
    assert (found.findings, found.live.whole) == ([], True)
