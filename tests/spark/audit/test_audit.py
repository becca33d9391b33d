"""The audit of a real cluster with takeovers and duplicates, and of stored entries with planted damage."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from crc32c import crc32c
from pyspark.sql import SparkSession
from rich.console import Console

from oncelog.cli.connection import Connection
from oncelog.core.errors import InvalidArgument
from oncelog.core.formats.entry import EntryKind, SequenceMode
from oncelog.core.ids import BEFORE_ALL, EntryId, Generation, Incarnation, LedgerId, Position, ProducerId, SequenceId
from oncelog.core.publishing.producer_record import encode_record
from oncelog.core.publishing.producer_state import ProducerState
from oncelog.core.snapshots.dedup_format import SnapshotManifest, encode_chunks, encode_manifest
from oncelog.verify.owner_report import LiveMap, owner_report
from oncelog.verify.range_summary import Finding
from oncelog.verify.snapshots import SnapshotSearch
from oncelog.wire import metadata_pb2 as pb
from oncelog_spark.audit.chart import chart_of
from oncelog_spark.audit.job import TopicAudit, audit_topics, check_plan, run_tasks
from oncelog_spark.audit.ledger_ranges import AuditedLedger, LedgerSlice, cut
from oncelog_spark.audit.range_task import fold_entries, fold_range
from oncelog_spark.audit.report import report_of, topic_report
from oncelog_spark.audit.topic_plan import TopicPlan, kept_ledgers, search_snapshots
from oncelog_spark.cli.audit_table import show_report
from oncelog_spark.cli.options import given, topics_given
from oncelog_spark.cluster import ClusterConnection, process_loop
from oncelog_spark.source.options import source_options
from tests.cluster.cluster_fixture import Cluster, rest_path
from tests.contract.proof.planted_log import TOPIC_ID, PlantedLog, searched
from tests.spark.planted_storage import FLIGHTS, NODE, PlantedStorage, without_start
from tests.spark.source.test_source import kill_owner, publish, run

IdPlaces = list[tuple[str, str | None]]
ENTRIES = 20
SIZE = 25


def silent(_step: str, _done: int, _count: int) -> None:
    """What a job would tell of its progress."""


def states(topic: dict[str, Any]) -> dict[str, str]:
    return {check["check"]: check["state"] for check in topic["checks"]}


# --- a real cluster ---------------------------------------------------------------------------------------------------


def test_a_topic_with_duplicates_and_takeovers_is_good(spark: SparkSession, cluster: Cluster) -> None:
    """Two producers, one of them opened twice, a partly known batch, an owner that was killed, and one that handed over
    and left a snapshot; split into many ranges, with two further topics."""
    run(publish(cluster.url, "audited", "importer", 0, ENTRIES))
    run(publish(cluster.url, "audited", "importer", ENTRIES * SIZE - 10, 1))
    run(kill_owner(cluster, "audited"))
    run(publish(cluster.url, "audited", "other", 0, ENTRIES))
    before = run(cluster.stats("audited"))
    run(cluster.change("PUT", f"{rest_path('audited')}/unload"))
    run(cluster.served_by_another("audited", before["owner_epoch"]))
    run(publish(cluster.url, "audited", "importer", 10_000, 2))
    run(cluster.change("PUT", f"{rest_path('audited-parts')}/partitions", json=2))
    run(publish(cluster.url, "audited-parts-partition-1", "p", 0, 1))
    options = source_options(
        given(**Connection(cluster.url).as_job_options()) | topics_given(None, "audited.*"), {}, streaming=False
    )
    told: list[tuple[str, int, int]] = []
    audits = audit_topics(
        spark, options, entries_max=7, report=lambda *progress: told.append(progress), all_copies=True
    )
    report = report_of(audits, began_ms=1, seconds=1.0)
    assert report["verdict"] == "good", json.dumps(report)
    by_name = {topic["topic"].rpartition("/")[2]: topic for topic in report["topics"]}
    assert {"audited", "audited-parts-partition-1"} <= by_name.keys() <= {
        "audited", "audited-parts-partition-0", "audited-parts-partition-1",
    }  # fmt: skip
    topic = by_name["audited"]
    assert topic["messages"] == topic["end"]["next_index"] == (2 * ENTRIES + 1 + 2) * SIZE - 10
    assert (topic["violations"], topic["not_checked"], topic["producers"]) == ([], [], 2)
    assert set(states(topic).values()) == {"good"}, "a snapshot was compared, too"
    assert (topic["duplicates_refused"]["in_log"], sum(topic["timeline"]["duplicates_refused"])) == (10, 10)
    assert len(topic["takeovers"]) >= 2
    assert topic["ranges"] >= topic["entries"] / 7 > 5
    held = {check["check"]: check["compared_with"] for check in topic["checks"]}
    assert int(held["copies"].partition(" ")[0].replace(",", "")) >= 2 * topic["entries"]
    assert " 0 remembered" not in held["snapshot"]
    assert sum(topic["timeline"]["stored"]) == topic["messages"]
    assert (told[0][0], told[0][1], told[-1][1]) == ("reading", 0, told[-1][2])


# --- planted damage ---------------------------------------------------------------------------------------------------


def damaged_log() -> PlantedLog:
    """Three ledgers of two producers; a duplicate and a hole are in it."""
    log = PlantedLog()
    log.open("a")  # 1:0
    log.store("a", range(10))  # 1:1
    log.open("b")  # 1:2
    log.store("b", [100, 200])  # 1:3
    log.roll(epoch=2)
    log.store("a", range(10, 20))  # 2:0
    log.store("b", [200, 300])  # 2:1, of which 200 is there
    log.store("a", [20])  # 2:2
    log.roll(epoch=3)
    log.next_index += 2
    log.store("a", [30])  # 3:0, behind a hole
    log.store("b", [400])  # 3:1
    log.store("b", [350])  # 3:2, out of order
    log.store("a", [40])  # 3:3
    return log


def audit_on(spark: SparkSession, storage: PlantedStorage, plan_of: Callable[[], TopicPlan]) -> TopicAudit:
    """The plan's ranges folded by Spark's workers, while the node serves them here."""

    async def work() -> TopicAudit:
        async with storage.serving():
            plan = plan_of()
            return await asyncio.to_thread(audit, plan)

    def audit(plan: TopicPlan) -> TopicAudit:
        def each(task: Any, ranges: Any) -> Any:
            return run_tasks(spark, task, ranges, lambda _done, _count: None)

        return TopicAudit(plan, check_plan(plan, each(fold_range, plan.ranges), each), 0)

    return process_loop().run_until_complete(work())


def test_damage_in_stored_entries_is_reported_exactly(spark: SparkSession) -> None:
    """Through storage nodes, Spark's workers, and the second job, which searches for messages that are stored twice."""
    log = damaged_log()
    storage = PlantedStorage(log, Position(LedgerId(3), EntryId(1)))
    live = log.live()
    producers = dict(live.producers)
    producers[ProducerId(1)] = producers[ProducerId(1)]._replace(mark=SequenceId(39))
    audit = audit_on(spark, storage, lambda: storage.plan(live=live._replace(producers=producers)))
    topic = topic_report(audit)
    found = [(one["rule"], one["position"]) for one in topic["violations"]]
    assert found == [
        ("once", "2:1"), ("base_index", "3:0"), ("chain", "3:0"), ("unreadable", "3:1"), ("live map", None),
    ], topic["violations"]  # fmt: skip
    messages = [one["message"] for one in topic["violations"]]
    assert messages[0] == "id 200 of 'b' stored again: it is at 1:3"
    assert "checksum mismatch" in messages[3]
    assert messages[4] == "'a' (1) has the mark 39 in the report, 40 in the log"
    assert (topic["verdict"], topic["violations_count"]) == ("violations", 5)
    assert states(topic) == {
        "once": "violated", "order": "incomplete", "contiguous": "good", "producers": "incomplete",
        "base_index": "violated", "digests": "violated", "copies": "good", "chain": "violated", "live map": "violated",
        "snapshot": "none", "subscriptions": "good",
    }  # fmt: skip


def audit_here(storage: PlantedStorage, plan_of: Callable[[], TopicPlan]) -> TopicAudit:
    """Without Spark; nothing of it has to be looked for a second time."""

    async def work() -> TopicAudit:
        async with storage.serving():
            plan = plan_of()
            summaries = [await fold_entries(one) for one in plan.ranges]
            return TopicAudit(plan, check_plan(plan, summaries, lambda _task, _ranges: []), 7)

    return process_loop().run_until_complete(work())


def good_log() -> PlantedLog:
    log = PlantedLog()
    log.open("a")
    log.store("a", range(10))
    log.roll(epoch=2)
    log.store("a", range(8, 14), skip=2)
    return log


def test_what_cannot_be_checked_is_reported_and_never_good() -> None:
    """A trimmed beginning, a snapshot from before it, and an incomplete list of producers."""
    log = good_log()
    storage = PlantedStorage(log)
    snapshot = log.snapshot()
    whole = topic_report(audit_here(storage, lambda: storage.plan(snapshot=snapshot)))
    assert (whole["verdict"], whole["not_checked"], states(whole)["snapshot"]) == ("good", [], "good")
    assert whole["notes"] == ["stored since the audit began, and not checked: 7 messages"]
    trimmed = topic_report(audit_here(storage, lambda: without_start(storage.plan(snapshot=snapshot), 5)))
    assert "messages 0 to 4 were trimmed" in trimmed["not_checked"][0]
    gone = snapshot._replace(position=Position(LedgerId(0), EntryId(3)), remembered=())
    unreached = topic_report(audit_here(storage, lambda: storage.plan(snapshot=gone)))
    assert "snapshot 1 has the position 0:3" in unreached["not_checked"][0]
    later = searched(None)
    later.newer, later.taken = True, 3
    newer = topic_report(audit_here(storage, lambda: replace(storage.plan(), snapshots=later)))
    assert newer["not_checked"] == ["later snapshots have replaced those of this position: run the audit again"]
    cut_off = log.live()._replace(producers={}, lists_all=False)
    listed = topic_report(audit_here(storage, lambda: storage.plan(live=cut_off)))
    assert "lists 0 producers; 1 other" in listed["not_checked"][0]
    for one in (unreached, newer, listed):
        assert (one["verdict"], one["violations"]) == ("incomplete", [])
    assert "incomplete" in states(listed).values()


GONE = Finding("snapshot", None, "it is gone")


def test_an_unreadable_snapshot_that_the_owner_took_is_a_violation() -> None:
    """A takeover would need it."""
    storage = PlantedStorage(good_log())
    lost = searched(None)
    lost.findings.append(GONE)
    topic = topic_report(audit_here(storage, lambda: replace(storage.plan(), snapshots=lost)))
    assert (topic["verdict"], topic["violations"]) == (
        "violations", [{"rule": "snapshot", "position": None, "message": "it is gone"}],
    )  # fmt: skip


def test_a_batch_with_a_wrong_digest_is_reported() -> None:
    """The entry around it has the right checksum: the batch was damaged before it was stored."""
    log = good_log()
    log.store("a", [14], bad_batch=True)
    storage = PlantedStorage(log)
    topic = topic_report(audit_here(storage, storage.plan))
    assert [(one["rule"], one["position"]) for one in topic["violations"]] == [("digest", "2:1")]
    assert "the batch's checksum does not match" in topic["violations"][0]["message"]


def test_the_picture_and_the_table_show_the_report() -> None:
    """Both are well-formed, also for an empty topic."""
    storage = PlantedStorage(good_log())
    empty = PlantedStorage(PlantedLog())
    nothing = LiveMap(BEFORE_ALL, 0, {}, True)
    audits = [
        audit_here(storage, storage.plan),
        audit_here(empty, lambda: replace(empty.plan(live=nothing), ledgers=(), ranges=())),
    ]
    report = report_of(audits, began_ms=1, seconds=2.0)
    assert report["verdict"] == "good"
    assert report["topics"][0]["takeovers"] == [
        {"owner_epoch": 2, "time_ms": 3_000, "position": "2:0", "reported_by": "log"}
    ]
    root = ET.fromstring(chart_of(report))
    texts = [text for element in root.iter() if (text := element.text)]
    assert [text for text in texts if "1 takeover (dashed, newest owner epoch 2)" in text]
    assert "duplicates refused (in the log): 2 in all, highest bar 2" in texts
    assert "nothing is stored" in texts
    console = Console(record=True, width=120, file=None, quiet=False)
    with console.capture() as captured:
        show_report(report, console)
    table = captured.get()
    assert "takeovers: 1, owner epochs 2" in table
    assert "2 topics in 2.0 s: good" in table
    assert report_of([], began_ms=1, seconds=0.1)["verdict"] == "incomplete", "no topic was audited"


# --- planning ---------------------------------------------------------------------------------------------------------


def ledger(number: int, last: int) -> AuditedLedger:
    return AuditedLedger(LedgerId(number), 0, EntryId(last), True, 0, ((NODE, ""),))


def bounds(ranges: list[tuple[LedgerSlice, ...]]) -> list[list[tuple[int, int, int]]]:
    return [[(one.ledger_id, one.first, one.last) for one in slices] for slices in ranges]


def test_ranges_hold_each_entry_once_and_one_ends_with_the_snapshot() -> None:
    """Small ledgers share a range, large ones are split, empty ones have none."""
    ledgers = [ledger(1, 4), ledger(2, -1), ledger(3, 0), ledger(4, 2)]
    assert bounds(cut(ledgers, entries_max=4, behind=None)) == [
        [(1, 0, 3)], [(1, 4, 4), (3, 0, 0), (4, 0, 1)], [(4, 2, 2)],
    ]  # fmt: skip
    for at in (Position(LedgerId(1), EntryId(2)), Position(LedgerId(1), EntryId(4)), Position(LedgerId(4), EntryId(2))):
        ranges = cut(ledgers, entries_max=100, behind=at)
        assert (ranges[0][-1].ledger_id, ranges[0][-1].last) == at
        assert sum(one.last - one.first + 1 for slices in ranges for one in slices) == 9


def test_the_audit_ends_at_the_owners_position_when_it_begins() -> None:
    """Ledgers that are closed or linked later do not count."""
    listed = [
        pb.TopicLedger(ledger_id=1, state=pb.LEDGER_STATE_CLOSED, end=9, length_bytes=90),
        pb.TopicLedger(ledger_id=4, state=pb.LEDGER_STATE_CLOSED, end=9, length_bytes=80, first_base_index=10),
        pb.TopicLedger(ledger_id=6, state=pb.LEDGER_STATE_OPEN, end=-1, first_base_index=20),
    ]
    end = Position(LedgerId(4), EntryId(7))
    assert [(one.ledger_id, one.last, one.whole, one.length) for one in kept_ledgers(listed, end)] == [
        (1, 9, True, 90), (4, 7, False, 0),
    ]  # fmt: skip
    internal = {
        "producers": [{"producer_id": 5, "name": "a", "mode": "contiguous", "generation": 2, "persisted": 8}],
        "snapshot": {"number": 3},
    }
    told = owner_report(4, {"last_position": "4:7", "message_count": 18, "producer_count": 2}, internal)
    assert (told.live.position, told.live.next_index, told.live.lists_all, told.snapshot_number) == (end, 18, False, 3)
    assert told.live.producers[ProducerId(5)].mark == SequenceId(8)


def test_the_newest_complete_snapshot_is_found_while_a_member_is_away() -> None:
    """In an open ledger, whose end cannot be found then; a later snapshot, and one without its manifest, do not
    count."""
    cursor = PlantedLog()
    for number, entry in ((1, 3), (2, 9)):
        producer = ProducerState("a", ProducerId(1), Generation(1), SequenceMode.MONOTONIC, SequenceId(entry))
        [chunk] = encode_chunks(number, [encode_record(producer)])
        cursor.append(EntryKind.SNAPSHOT_CHUNK, chunk)
        position = Position(LedgerId(1), EntryId(entry))
        cursor.append(
            EntryKind.SNAPSHOT_MANIFEST,
            encode_manifest(SnapshotManifest(number, {1: -1, 2: 1}[number], position, entry, 1, 1, crc32c(chunk))),
        )
    cursor.append(EntryKind.SNAPSHOT_CHUNK, encode_chunks(3, [])[0])
    storage = PlantedStorage(cursor)

    async def read(end: int) -> SnapshotSearch:
        async with storage.serving():
            members = [
                pb.LedgerMember(incarnation=NODE, address=storage.address), pb.LedgerMember(incarnation="b" * 32)
            ]  # fmt: skip
            storage.present = tuple((Incarnation(one.incarnation), one.address) for one in members)
            position = Position(LedgerId(1), EntryId(end))
            async with ClusterConnection(storage.connection) as cluster:
                ledger = pb.TopicLedger(ledger_id=1, state=pb.LEDGER_STATE_OPEN, end=-1, members=members)
                search = SnapshotSearch(crc32c, taken=0, end=position)
                await search_snapshots(cluster, FLIGHTS, TOPIC_ID, [ledger], search, end_patience_ms=50)
            return search

    for end, number, newer in ((9, 2, False), (8, 1, True)):
        reading = run(read(end))
        assert reading.found is not None
        assert (reading.found.number, reading.newer) == (number, newer)
        assert reading.found.producers[ProducerId(1)].mark == {1: 3, 2: 9}[number]
    nothing = run(read(2))
    assert (nothing.found, nothing.newer) == (None, True)


def test_topics_are_named_either_by_names_or_by_a_pattern() -> None:
    """By their names or by a pattern."""
    for topics, pattern in ((None, None), (["a"], "b")):
        with pytest.raises(InvalidArgument, match="name topics, or set --pattern"):
            topics_given(topics, pattern)
    assert topics_given(["a", "b"], None) == {"topics": "a,b"}
