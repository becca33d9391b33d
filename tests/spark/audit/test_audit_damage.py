"""Damage that an audit must report with its position: gaps, snapshots, and copies on storage nodes. Undamaged logs
pass."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from crc32c import crc32c

from oncelog.core.formats.entry import EntryKind, SequenceMode
from oncelog.core.formats.epoched_ids import first_of
from oncelog.core.formats.producers_aged import ProducersAged, encode_aged
from oncelog.core.ids import EntryId, Incarnation, LedgerId, Position
from oncelog.verify.owner_report import SnapshotDue
from oncelog.verify.snapshots import SnapshotSearch
from oncelog.wire import metadata_pb2 as pb
from oncelog_spark.audit.job import TopicAudit, check_plan
from oncelog_spark.audit.range_task import fold_entries
from oncelog_spark.audit.report import topic_report
from oncelog_spark.audit.topic_plan import TopicPlan, search_snapshots
from oncelog_spark.cluster import ClusterConnection, Members, process_loop
from oncelog_spark.options import ConnectionOptions
from tests.contract.proof.planted_log import TOPIC_ID, PlantedLog, check_log
from tests.spark.planted_storage import FLIGHTS, PlantedStorage

NODES = tuple(Incarnation(letter * 32) for letter in "abc")
Found = list[tuple[str, str | None]]


def at(ledger: int, entry: int) -> Position:
    return Position(LedgerId(ledger), EntryId(entry))


def found_in(report: dict[str, Any]) -> Found:
    return [(one["rule"], one["position"]) for one in report["violations"]]


# --- holes of contiguous producers ------------------------------------------------------------------------------------


def contiguous(*batches: Sequence[int], mode: SequenceMode = SequenceMode.CONTIGUOUS) -> PlantedLog:
    log = PlantedLog()
    log.open("a", mode=mode)
    for ids in batches:
        log.store("a", ids)
    return log


def cuts(log: PlantedLog) -> Iterator[tuple[int, ...]]:
    """No cut, one at each place, and one behind every entry."""
    count = len(log.entries)
    yield ()
    yield from ((place,) for place in range(1, count))
    yield tuple(range(1, count))


@pytest.mark.parametrize(
    ("batches", "place", "missing"),
    [
        ([range(5), range(6, 9)], at(1, 2), "id 5 is missing of 'a'"),
        ([range(5), [5, 6, 9], range(10, 12)], at(1, 2), "ids 7 to 8 are missing of 'a'"),
        ([range(3, 5), range(5, 9)], at(1, 1), "ids 0 to 2 are missing of 'a'"),
    ],
)
def test_gap_of_a_contiguous_producer_is_reported(batches: list[Sequence[int]], place: Position, missing: str) -> None:
    """However the log is split into ranges; a monotonic producer may have the same gaps."""
    log = contiguous(*batches)
    for some in cuts(log):
        holes = [one for one in check_log(log, *some).findings if one.rule == "hole"]
        assert [one.position for one in holes] == [place], some
        assert missing in holes[0].message
    assert check_log(contiguous(*batches, mode=SequenceMode.MONOTONIC)).findings == []


def of_epoch(epoch: int, numbers: range) -> range:
    first = first_of(epoch)
    return range(first + numbers.start, first + numbers.stop)


@pytest.mark.parametrize(
    ("batches", "place"),
    [
        ([of_epoch(0, range(5)), of_epoch(3, range(2)), of_epoch(3, range(2, 4)), of_epoch(4, range(1))], None),
        ([of_epoch(7, range(5)), of_epoch(9, range(1))], None),
        ([of_epoch(0, range(5)), of_epoch(3, range(1, 2))], at(1, 2)),
        ([of_epoch(3, range(5)), of_epoch(3, range(6, 7)), of_epoch(4, range(2))], at(1, 2)),
        ([of_epoch(3, range(1, 5)), of_epoch(4, range(2))], at(1, 1)),
    ],
)
def test_only_the_first_id_of_a_higher_epoch_may_follow_a_gap(batches: list[range], place: Position | None) -> None:
    """Of an epoched producer, however the log is split into ranges. Control: for a contiguous one each is a gap."""
    log = contiguous(*batches, mode=SequenceMode.EPOCHED)
    for some in cuts(log):
        holes = [one.position for one in check_log(log, *some).findings if one.rule == "hole"]
        assert holes == ([] if place is None else [place]), some
    gaps = sum(two[0] != one[-1] + 1 for one, two in pairwise([range(-1, 0), *batches]))
    for some in cuts(log := contiguous(*batches)):
        assert len([one for one in check_log(log, *some).findings if one.rule == "hole"]) == gaps, some


def with_expired() -> PlantedLog:
    """`a` has expired, and its name is that of another producer now."""
    log = contiguous(range(5))
    log.append(EntryKind.PRODUCERS_AGED, encode_aged(ProducersAged(1000, (), (log.producers["a"].producer_id,))))
    log.producers["expired"] = log.producers.pop("a")
    log.open("b")
    log.open("a")
    log.store("a", range(3))
    return log


def test_producer_may_expire_and_its_name_come_back() -> None:
    """However the log is split into ranges. A batch of the expired one is reported."""
    log = with_expired()
    expired = log.producers.pop("expired")
    for some in cuts(log):
        assert check_log(log, *some).findings == [], some
    log.producers["expired"] = expired
    place = log.store("expired", [5])
    for some in cuts(log):
        assert [one.position for one in check_log(log, *some).findings if one.rule in ("expired", "grants")] == [place]


def test_contiguous_producer_without_a_gap_is_good() -> None:
    """Also a producer of which a known prefix was skipped, and one whose grant was trimmed."""
    log = contiguous(range(5), range(5, 9))
    log.store("a", range(7, 12), skip=2)
    for some in cuts(log):
        assert check_log(log, *some).findings == []
    rest = replace(log, entries={place: data for place, data in log.entries.items() if place.entry_id >= 2})
    facts = log.facts()
    holes = [one for one in check_log(rest, facts=facts, from_start=False).findings if one.rule == "hole"]
    assert holes == []


def test_gap_is_reported_for_a_producer_whose_grant_was_trimmed() -> None:
    """The topic owner reports that it is contiguous; ids before its first kept one are not known."""
    log = contiguous(range(5), range(5, 9), range(10, 12))
    rest = replace(log, entries={place: data for place, data in log.entries.items() if place.entry_id >= 2})
    for some in ((), (1,)):
        findings = check_log(rest, *some, facts=log.facts(), from_start=False).findings
        assert [one.position for one in findings if one.rule == "hole"] == [at(1, 3)]


# --- storage ----------------------------------------------------------------------------------------------------------


def two_ledgers() -> PlantedLog:
    log = contiguous(range(5), range(5, 9))
    log.roll()
    log.store("a", range(9, 12))
    log.store("a", range(12, 14))
    log.roll()
    log.store("a", range(14, 20))
    return log


def audited(storages: Sequence[PlantedStorage], **options: Any) -> dict[str, Any]:
    """The first one knows the log; the others are further members."""

    async def work() -> TopicAudit:
        async with AsyncExitStack() as stack:
            for storage in storages:
                await stack.enter_async_context(storage.serving())
            plan: TopicPlan = storages[0].plan(others=storages[1:], **options)
            summaries = list(await asyncio.gather(*map(fold_entries, plan.ranges)))
            return TopicAudit(plan, check_plan(plan, summaries, lambda _task, _ranges: []), 0)

    return topic_report(process_loop().run_until_complete(work()))


def nodes_of(log: PlantedLog, *damaged: PlantedLog) -> list[PlantedStorage]:
    """Three nodes, of which the last ones hold something else."""
    logs = [log] * (len(NODES) - len(damaged)) + list(damaged)
    return [PlantedStorage(each, node=node) for each, node in zip(logs, NODES, strict=True)]


def without(log: PlantedLog, *ledgers: int) -> PlantedLog:
    kept = {place: data for place, data in log.entries.items() if place.ledger_id not in ledgers}
    return replace(log, entries=kept)


@pytest.mark.parametrize("all_copies", [False, True])
def test_undamaged_copies_are_good(all_copies: bool) -> None:
    """The control: three complete nodes, and every copy compared."""
    report = audited(nodes_of(two_ledgers()), all_copies=all_copies)
    assert (report["verdict"], report["violations"], report["notes"]) == ("good", [], ["no snapshot was taken yet"])
    copies = next(check for check in report["checks"] if check["check"] == "copies")
    assert copies["compared_with"].startswith("18 copies" if all_copies else "the beginning of 3 ledgers")


@pytest.mark.parametrize("all_copies", [False, True])
def test_ledger_that_is_lost_on_one_or_two_of_three_nodes_is_reported(all_copies: bool) -> None:
    """One copy is enough for reading, so readers do not notice that it is the last one."""
    log = two_ledgers()
    one = audited(nodes_of(log, without(log, 2)), all_copies=all_copies)
    assert found_in(one) == [("copies", "2:0")]
    assert "storage node cccccccc does not hold ledger 2" in one["violations"][0]["message"]
    two = audited(nodes_of(log, without(log, 2), without(log, 2)), all_copies=all_copies)
    places = [("copies", "2:0")] * (3 if all_copies else 2)
    assert found_in(two) == places
    if all_copies:
        assert "entries 0 to 1 have fewer than 2 copies" in two["violations"][2]["message"]


@pytest.mark.hazard("answer-of-a-former-member")
@pytest.mark.parametrize("all_copies", [False, True])
@pytest.mark.parametrize("former", ["erased", "missing"])
def test_members_that_repair_replaces_during_an_audit_are_not_believed(all_copies: bool, former: str) -> None:
    """The plan names nodes that are swapped out since, one of them while it is read. They have erased their copies, or
    do not even know the ledgers any more. The present members are read, and nothing is reported as lost."""
    log = two_ledgers()
    old = [PlantedStorage(log if former == "erased" else PlantedLog(), node=node) for node in NODES[:2]]
    if former == "erased":
        old[0].swapped_after, old[1].swapped_after = 2, 0
    new = [PlantedStorage(log, node=Incarnation(letter * 32)) for letter in "de"]

    async def work() -> TopicAudit:
        async with AsyncExitStack() as stack:
            for storage in (*old, *new):
                await stack.enter_async_context(storage.serving())
            old[0].present = tuple((storage.node, storage.address) for storage in new)
            planned = new[0].plan(others=(), all_copies=all_copies)
            members = tuple((storage.node, storage.address) for storage in old)
            plan = renamed(planned, members, old[0].connection)
            summaries = [await fold_entries(range_) for range_ in plan.ranges]
            return TopicAudit(plan, check_plan(plan, summaries, lambda _task, _ranges: []), 0)

    report = topic_report(process_loop().run_until_complete(work()))
    assert (report["verdict"], report["violations"]) == ("good", [])
    copies = next(check for check in report["checks"] if check["check"] == "copies")
    assert copies["compared_with"].startswith("12 copies" if all_copies else "the beginning of 3 ledgers")


def renamed(plan: TopicPlan, members: Members, connection: ConnectionOptions) -> TopicPlan:
    """The plan with other members of each ledger, and another metadata service."""
    ranges = tuple(
        replace(one, connection=connection, slices=tuple(piece._replace(members=members) for piece in one.slices))
        for one in plan.ranges
    )
    ledgers = tuple(ledger._replace(members=members) for ledger in plan.ledgers)
    return replace(plan, ledgers=ledgers, ranges=ranges)


@pytest.mark.hazard("lost-too-early")
def test_lost_entries_are_reported_while_a_member_is_away() -> None:
    """The ledger's record proves the loss, so the audit does not wait for the member."""
    log = two_ledgers()
    short = replace(log, entries={place: data for place, data in log.entries.items() if place != at(2, 1)})
    storage = PlantedStorage(short)
    storage.lost = ((1, 1),)

    async def work() -> TopicAudit:
        async with storage.serving():
            plan = storage.plan()
            away = (*plan.ledgers[0].members, (NODES[2], ""))
            storage.present = away
            plan = renamed(plan, away, storage.connection)
            summaries = [await fold_entries(range_) for range_ in plan.ranges]
            return TopicAudit(plan, check_plan(plan, summaries, lambda _task, _ranges: []), 0)

    report = topic_report(process_loop().run_until_complete(work()))
    assert ("unreadable", "2:1") in found_in(report)


def test_diverging_replica_is_reported_when_all_copies_are_read() -> None:
    """Bytes with a right checksum that differ from the other copies, and bytes with a wrong checksum."""
    log, other = two_ledgers(), contiguous(range(5), [5, 6, 7, 99])
    other.roll()
    other.store("a", range(9, 12))
    other.store("a", range(12, 14))
    other.roll()
    other.store("a", range(14, 20))
    report = audited(nodes_of(log, other), all_copies=True)
    assert found_in(report) == [("copies", "1:2")]
    assert "its copies differ" in report["violations"][0]["message"]
    assert "cccccccc" in report["violations"][0]["message"]
    assert audited(nodes_of(log, other))["verdict"] == "good", "one copy alone shows nothing"
    rotten = [*nodes_of(log)[:2], PlantedStorage(log, at(1, 1), node=NODES[2])]
    report = audited(rotten, all_copies=True)
    assert found_in(report) == [("copies", "1:1")]
    assert "the copy on cccccccc is damaged" in report["violations"][0]["message"]


def test_node_that_lacks_the_end_of_a_ledger_is_no_violation() -> None:
    """An entry is acknowledged on two of three nodes: a node that died within the ledger lacks the rest. It is
    counted."""
    log = two_ledgers()
    short = replace(log, entries={place: data for place, data in log.entries.items() if place != at(2, 1)})
    report = audited(nodes_of(log, short), all_copies=True)
    assert (report["verdict"], report["violations"]) == ("good", [])
    assert "1 entry has fewer copies than members" in " ".join(report["notes"])


def test_node_that_lacks_the_beginning_of_a_ledger_still_holds_the_ledger() -> None:
    """Recovery writes back only entries behind the last confirmed one: no violation while two other nodes have them."""
    log = two_ledgers()
    late = replace(log, entries={place: data for place, data in log.entries.items() if place != at(2, 0)})
    for all_copies in (False, True):
        report = audited(nodes_of(log, late), all_copies=all_copies)
        assert (report["verdict"], report["violations"]) == ("good", [])


def test_copies_of_a_node_that_does_not_answer_are_unknown_not_missing() -> None:
    """With --all-copies its copies had to be compared, so the verdict is incomplete; otherwise it is a note."""
    log = two_ledgers()
    away = nodes_of(log)

    def audit(all_copies: bool) -> dict[str, Any]:
        async def work() -> TopicAudit:
            async with AsyncExitStack() as stack:
                for storage in away[:2]:
                    await stack.enter_async_context(storage.serving())
                plan = away[0].plan(others=away[1:], all_copies=all_copies)
                summaries = [await fold_entries(one) for one in plan.ranges]
                return TopicAudit(plan, check_plan(plan, summaries, lambda _task, _ranges: []), 0)

        return topic_report(process_loop().run_until_complete(work()))

    whole, quick = audit(True), audit(False)
    assert (whole["verdict"], whole["violations"]) == ("incomplete", [])
    assert "cccccccc: not registered" in whole["not_checked"][0]
    assert quick["verdict"] == "good"
    assert "cccccccc" in " ".join(quick["notes"])


# --- snapshots --------------------------------------------------------------------------------------------------------


def test_remembered_batches_are_compared_with_their_positions() -> None:
    """A wrong position gives a wrong answer to a repeated id, or reports it as never stored."""
    log = two_ledgers()
    [storage] = [PlantedStorage(log)]
    snapshot = log.snapshot()
    good = audited([storage], snapshot=snapshot)
    assert (good["verdict"], good["violations"]) == ("good", [])
    held = next(check["compared_with"] for check in good["checks"] if check["check"] == "snapshot")
    assert held.endswith("5 remembered batches in place")
    first, second, *rest = snapshot.remembered
    for wrong, place in ((second._replace(offset=1), "1:2"), (second._replace(position=at(9, 0)), "9:0")):
        report = audited([storage], snapshot=snapshot._replace(remembered=(first, wrong, *rest)))
        assert found_in(report) == [("snapshot", place)], wrong
        assert report["verdict"] == "violations"


def test_log_that_needs_a_snapshot_and_has_none_is_reported() -> None:
    """It is much longer than its owner says that it leaves it without a snapshot."""
    report = audited([PlantedStorage(two_ledgers())], due=SnapshotDue(len(two_ledgers().entries) - 1, 1_000))
    assert found_in(report) == [("snapshot", None)]
    assert "its snapshots are lost" in report["violations"][0]["message"]


def test_unreadable_closed_ledger_of_snapshots_is_reported() -> None:
    """Its metadata says that it has entries: they are lost."""
    cursor = PlantedLog()
    cursor.append(EntryKind.SNAPSHOT_CHUNK, b"chunk")
    storage = PlantedStorage(replace(cursor, entries={}))

    async def read() -> SnapshotSearch:
        async with storage.serving():
            member = pb.LedgerMember(incarnation=storage.node, address=storage.address)
            storage.present = ((storage.node, storage.address),)
            async with ClusterConnection(storage.connection) as cluster:
                ledger = pb.TopicLedger(ledger_id=7, state=pb.LEDGER_STATE_CLOSED, end=0, members=[member])
                search = SnapshotSearch(crc32c, taken=0, end=at(1, 9))
                await search_snapshots(cluster, FLIGHTS, TOPIC_ID, [ledger], search)
            return search

    reading = process_loop().run_until_complete(read())
    assert reading.found is None
    assert "ledger 7 of the snapshots cannot be read" in reading.findings[0].message
