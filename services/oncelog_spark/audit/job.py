"""The audit of some topics: their ranges as tasks of one Spark job, then a verdict for each topic.

Only where ids are not above the last id before them, a second job searches the whole log for these ids, to distinguish
messages that are stored twice from messages that are out of order.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import TypeVar

from pyspark.sql import SparkSession

from oncelog.client.network.lookup import Route
from oncelog.core.errors import OncelogError
from oncelog.core.ids import Position
from oncelog.rpc.codecs.owner_codec import LAST_MESSAGE
from oncelog.verify.range_join import looked_for
from oncelog.verify.range_summary import RangeSummary
from oncelog.verify.topic_check import LogJoin, TopicCheck
from oncelog.wire.owner_pb2 import LastMessageRequest
from oncelog_spark.audit.ledger_ranges import AuditRange, facts_of
from oncelog_spark.audit.range_task import fold_range, places_in
from oncelog_spark.audit.topic_plan import TopicPlan, plan_topic
from oncelog_spark.cluster import ClusterConnection, run_connected
from oncelog_spark.source.options import SourceOptions
from oncelog_spark.source.topic_catalog import TopicCatalog

ResultT = TypeVar("ResultT")
#: Runs the tasks, anywhere and in any order; results in the order of the tasks.
RunTasks = Callable[[Callable[[AuditRange], ResultT], Sequence[AuditRange]], list[ResultT]]
#: Reports a step, how many of its tasks are done, and how many there are.
ReportTasks = Callable[[str, int, int], None]
_REPORT_EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class TopicAudit:
    """grown: messages stored since the end was fixed; None: not known."""

    plan: TopicPlan
    check: TopicCheck
    grown: int | None


def audit_topics(
    session: SparkSession, options: SourceOptions, *, entries_max: int, report: ReportTasks, all_copies: bool = False
) -> list[TopicAudit]:
    """Audit each topic and partition that the options name. entries_max: of one task. all_copies: compare the copies of
    each entry on all members of its ledger. Raises OncelogError."""
    plans = run_connected(
        options.connection, partial(plan_topics, options=options, entries_max=entries_max, all_copies=all_copies)
    )
    ranges = [range_ for plan in plans for range_ in plan.ranges]
    summaries = run_tasks(session, fold_range, ranges, partial(report, "reading"))
    ends = list(accumulate((len(plan.ranges) for plan in plans), initial=0))
    audits: list[TopicAudit] = []
    for number, plan in enumerate(plans):
        mine = summaries[ends[number] : ends[number + 1]]
        check = check_plan(plan, mine, lambda task, some: run_tasks(session, task, some, partial(report, "searching")))
        audits.append(TopicAudit(plan, check, run_connected(options.connection, partial(_grown, plan))))
    return audits


async def plan_topics(
    cluster: ClusterConnection, options: SourceOptions, *, entries_max: int, all_copies: bool = False
) -> list[TopicPlan]:
    """One topic after the other, so that the time between its end and the list of its ledgers is short. Raises
    OncelogError."""
    states = await TopicCatalog(cluster, options.topics).states()
    return [
        await plan_topic(cluster, options.connection, topic, entries_max=entries_max, all_copies=all_copies)
        for topic in states
    ]


def check_plan(
    plan: TopicPlan, summaries: Sequence[RangeSummary], each: "RunTasks[list[tuple[int, int, Position, int]]]"
) -> TopicCheck:
    """summaries: of the plan's ranges, in their order."""

    modes = {producer_id: reported.mode for producer_id, reported in plan.owner.live.producers.items()}
    log = LogJoin(plan.snapshots, blind=not plan.from_start, modes=modes)
    for range_, summary in zip(plan.ranges, summaries, strict=True):
        log.add(summary, range_.end)
    log.compare_live(plan.owner.live)
    places: dict[tuple[int, int], list[tuple[Position, int]]] = {}
    wanted = looked_for(log.joined.low)
    for found in each(partial(places_in, wanted=wanted), plan.ranges) if wanted else ():
        for producer_id, number, position, index in found:
            places.setdefault((producer_id, number), []).append((position, index))
    return log.conclude(facts_of(plan.ledgers), places, plan.owner.snapshot_due)


async def _grown(plan: TopicPlan, cluster: ClusterConnection) -> int | None:
    def request(route: Route) -> LastMessageRequest:
        return LastMessageRequest(topic=plan.topic, topic_id=plan.topic_id, owner_epoch_seen=route.owner_epoch)

    try:
        last = await cluster.ask_owner(plan.topic, LAST_MESSAGE, request)
    except OncelogError:
        return None  # deleted, or not reachable now; the audit covers the log up to its end then
    return max(0, last.next_index - plan.owner.live.next_index)


def run_tasks(
    session: SparkSession,
    task: Callable[[AuditRange], ResultT],
    ranges: Sequence[AuditRange],
    report: Callable[[int, int], None],
) -> list[ResultT]:
    """One Spark task for each range; returns their results in order."""
    if not ranges:
        return []
    spark = session.sparkContext
    with _reported(session, len(ranges), report):
        return spark.parallelize(ranges, len(ranges)).map(task).collect()


@contextmanager
def _reported(session: SparkSession, count: int, report: Callable[[int, int], None]) -> Iterator[None]:
    """Report the progress of the job from another thread, because `collect` blocks until the job has ended."""
    ended = threading.Event()
    tracker = session.sparkContext.statusTracker()

    def follow() -> None:
        while not ended.wait(_REPORT_EVERY_S):
            stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
            report(sum(stage.numCompletedTasks for stage in stages if stage is not None), count)

    thread = threading.Thread(target=follow, name="progress", daemon=True)
    report(0, count)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    # Behind the thread's last report, which may have found no running stage.
    report(count, count)
