"""Spark's source and the jobs over a topic of which an operator has given up a ledger: numbers that no message has."""

import logging
from dataclasses import replace
from typing import Any, cast

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import oncelog
from oncelog.core.errors import NotFound
from oncelog.core.formats.entry import GIVEN_UP_INDEXES, EntryKind, GivenUp, encode_given_up
from oncelog.core.ids import EntryId, LedgerId, TopicId
from oncelog.rpc.codecs.metadata_codec import LEDGERS
from oncelog.wire import metadata_pb2 as pb
from oncelog_spark.cluster import ClusterConnection
from oncelog_spark.compaction.job import refuse_given_up
from oncelog_spark.compaction.options import compact_options
from oncelog_spark.export.manifest import decode_manifest, encode_manifest
from oncelog_spark.options import ConnectionOptions
from oncelog_spark.source.offsets import (
    ClosedLedger,
    GivenUpNumbers,
    Span,
    TopicOffset,
    TopicState,
    kept_of,
    offsets_after,
)
from oncelog_spark.source.topic_catalog import TopicCatalog, without_given_up
from tests.contract.proof.planted_log import PlantedLog, check_log
from tests.contract.sdk.fakes.fake_cluster import FakeCluster
from tests.spark.jobs.export_world import Export, World, all_of, manifest_of
from tests.spark.source.test_source_calls import A, Stream, offset, spans
from tests.spark.source.test_source_range_reader import read

ID = TopicId("1" * 32)
#: A ledger was given up at message 100; the next message has this number.
BEHIND = 100 + GIVEN_UP_INDEXES
GAP = GivenUpNumbers(100, BEHIND)
pytestmark = pytest.mark.hazard("index-given-twice")


def state(end: int = BEHIND + 10, *, earliest: int = 0) -> TopicState:
    return TopicState(A, ID, earliest, end, (), (GAP,))


def test_numbers_that_were_given_up_are_a_loss_between_two_spans() -> None:
    """For every overlap of the wanted range with the lost one. A range that does not overlap loses nothing."""
    found = {A: state()}

    def cut(first: int, end: int) -> tuple[list[tuple[int, int]], list[tuple[int, int | None]]]:
        kept, losses = kept_of([Span(A, ID, first, end)], found)
        assert all(loss.given_up for loss in losses)
        return [(span.first, span.end) for span in kept], [(loss.first, loss.end) for loss in losses]

    assert cut(90, BEHIND + 5) == ([(90, 100), (BEHIND, BEHIND + 5)], [(100, BEHIND)])
    assert cut(90, 120) == ([(90, 100)], [(100, 120)])
    assert cut(120, BEHIND + 1) == ([(BEHIND, BEHIND + 1)], [(120, BEHIND)])
    assert cut(120, BEHIND) == ([], [(120, BEHIND)])
    assert cut(90, 100) == ([(90, 100)], [])
    assert cut(BEHIND, BEHIND + 10) == ([(BEHIND, BEHIND + 10)], [])


def test_stream_fails_at_the_gap_with_its_numbers_and_the_remedy() -> None:
    """What was stored before the gap is delivered first."""
    reader = Stream(state())
    assert reader.latestOffset(offset(a=90), ReadAllAvailable()) == offset(a=100)
    match = rf"messages 100 to {BEHIND - 1} of {A} were given up .*ledger end.*backup restore.*{BEHIND}.*failOnData"
    for end in (100, 120):
        with pytest.raises(NotFound, match=match.replace("100", str(end), 1)):
            reader.latestOffset(offset(a=end), ReadAllAvailable())
    with pytest.raises(NotFound, match="were given up"):
        reader.partitions(offset(a=90), offset(a=120))


def test_stream_goes_on_behind_the_gap_where_losses_are_allowed(caplog: pytest.LogCaptureFixture) -> None:
    """Each message once, within the limits, also if the batch was planned before the gap existed. Behind the gap the
    query may be strict again."""
    caplog.set_level(logging.WARNING)
    reader = Stream(state(), failOnDataLoss="false", rowsPerPartition="4")
    ends, at, read_spans = [], 90, []
    while at < BEHIND + 10:
        after = reader.latestOffset(offset(a=at), ReadMaxRows(7))
        read_spans += spans(reader.partitions(offset(a=at), after))
        at = after["topics"][A]["next"]
        ends.append(at)
    assert ends == [97, 100, BEHIND + 7, BEHIND + 10]
    numbers = [number for _, first, end in read_spans for number in range(first, end)]
    assert numbers == [*range(90, 100), *range(BEHIND, BEHIND + 10)]
    assert "were given up" in caplog.text
    assert spans(reader.partitions(offset(a=90), offset(a=120))) == [(A, 90, 93), (A, 93, 96), (A, 96, 100)]
    strict = Stream(state())
    assert strict.latestOffset(offset(a=BEHIND + 7), ReadAllAvailable()) == offset(a=BEHIND + 10)


def test_gap_at_the_end_of_the_log_is_passed_over_once() -> None:
    """Nothing was published since. The next batch is empty, and the query may be strict again behind it."""
    reader = Stream(state(BEHIND), failOnDataLoss="false")
    assert reader.latestOffset(offset(a=100), ReadAllAvailable()) == offset(a=BEHIND)
    assert reader.partitions(offset(a=100), offset(a=BEHIND)) == []
    assert Stream(state(BEHIND)).latestOffset(offset(a=BEHIND), ReadAllAvailable()) == offset(a=BEHIND)


def test_lag_does_not_count_numbers_that_were_given_up() -> None:
    """They are 2**31 rows that will never come."""
    reader = Stream(state(), failOnDataLoss="false")
    reader.latestOffset(offset(a=90), ReadMaxRows(4))
    assert reader.reportLatestOffset()["lag"] == {"rows": 16, "topics": {A: 16}}
    reader.latestOffset(offset(a=100), ReadAllAvailable())
    assert reader.reportLatestOffset()["lag"] == {"rows": 0, "topics": {}}


def test_topic_without_readable_messages_is_passed_over_up_to_its_losses() -> None:
    """A loss without an end, of a deleted topic, moves nothing."""
    start = {A: offset_of(100)}
    _, losses = kept_of([Span(A, ID, 100, BEHIND)], {A: state(BEHIND)})
    assert offsets_after(start, {A: offset_of(BEHIND)}, [], losses) == {A: offset_of(BEHIND)}
    endless = [losses[0]._replace(end=None)]
    assert offsets_after(start, {A: offset_of(BEHIND)}, [], endless) == {A: offset_of(100)}


def offset_of(number: int) -> TopicOffset:
    return TopicOffset(ID, number)


def test_ledgers_begin_behind_the_numbers_that_were_given_up() -> None:
    """So a row's average size and the search in a ledger are right; a ledger of GivenUp alone has no message. A log
    that was trimmed up to the gap begins behind it."""
    first = ClosedLedger(LedgerId(1), 0, 100, EntryId(9), ())
    second = ClosedLedger(LedgerId(2), 100, BEHIND + 5, EntryId(3), ())
    whole = TopicState(A, ID, 0, BEHIND + 5, (first, second))
    assert without_given_up(whole, [GAP]) == replace(
        whole, closed=(first, second._replace(first=BEHIND)), given_up=(GAP,)
    )
    trimmed = replace(whole, earliest=100, closed=(second._replace(end=BEHIND),))
    assert without_given_up(trimmed, [GAP]) == replace(whole, earliest=BEHIND, closed=())


class Connection:
    """A connection to the fake cluster, with a list of ledgers in which the second one begins with GivenUp."""

    def __init__(self, inner: ClusterConnection, firsts: list[int]) -> None:
        self._inner = inner
        self._firsts = firsts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def partitions(self, _topic: str) -> int:
        return 0

    async def ask_metadata(self, method: object, request: pb.LedgersRequest) -> pb.LedgersAnswer:
        assert method is LEDGERS
        route = await self._inner.route(request.topic, fresh=False)
        return pb.LedgersAnswer(
            topic_id=route.topic_id,
            ledgers=[
                pb.TopicLedger(ledger_id=n + 1, state=pb.LEDGER_STATE_CLOSED, first_base_index=first, end=1)
                for n, first in enumerate(self._firsts)
            ],
        )


@pytest.mark.asyncio
async def test_catalog_finds_what_was_given_up_and_the_rest_is_read() -> None:
    """From the numbers of the ledgers, and the first entry behind; also before anything is published behind it."""
    name = "public/default/flights"
    async with FakeCluster.running() as cluster, await oncelog.connect(cluster.url) as client:
        producer = await client.create_producer("flights", producer_name="importer-0")
        await producer.send_many([b"%d" % n for n in range(5)])
        cluster.topic("flights").give_up()
        behind = 5 + GIVEN_UP_INDEXES
        async with ClusterConnection(ConnectionOptions(cluster.url)) as inner:
            catalog = TopicCatalog(cast("ClusterConnection", Connection(inner, [0, 5])), (name,))
            found = (await catalog.states())[name]
            assert (found.earliest, found.next, found.given_up) == (0, behind, ((5, behind),))
            again = await client.create_producer("flights", producer_name="importer-0")
            await again.send_many([b"%d" % n for n in range(3)])
            found = (await catalog.states())[name]
            assert (found.earliest, found.next, found.given_up) == (0, behind + 3, ((5, behind),))
            trimmed = TopicCatalog(cast("ClusterConnection", Connection(inner, [5])), (name,))
            found = (await trimmed.states())[name]
            assert (found.earliest, found.next, found.given_up) == (behind, behind + 3, ())
        for first, end in ((3, 5), (behind, behind + 3)):
            assert [number for number, _ in await read(cluster, first, end)] == list(range(first, end))


def given_up(world: World, topic: str, more: int) -> tuple[int, int]:
    """The topic goes on with `more` messages behind a gap; returns the gap."""
    before = world.topics[topic]
    gap = GivenUpNumbers(before.next, before.next + GIVEN_UP_INDEXES)
    world.topics[topic] = replace(before, next=gap.end + more, given_up=(*before.given_up, gap))
    return gap


def test_export_refuses_the_gap_unless_losses_are_allowed_and_lists_it() -> None:
    """The files hold every message on both sides, once; the next run continues behind them."""
    world = World()
    world.publish("orders", 8)
    first, end = given_up(world, "orders", 4)
    refused = Export(world).run()
    assert isinstance(refused, NotFound)
    assert f"messages 8 to {end - 1} of orders were given up" in refused.message
    assert "allowDataLoss" in refused.message
    made = manifest_of(Export(world, loss_allowed=True).run())
    assert made is not None
    [range_] = made.ranges
    assert (range_.first, range_.end, range_.kept, range_.rows, range_.given_up) == (0, end + 4, 0, 12, ((first, end),))
    assert decode_manifest(made.number, encode_manifest(made)) == made
    assert world.read() == sorted([*all_of(orders=8), *(("orders", "id", end + n) for n in range(4))])
    state = world.topics["orders"]
    world.topics["orders"] = replace(state, next=state.next + 2)
    made = manifest_of(Export(world).run())
    assert made is not None
    assert [(one.first, one.rows, one.given_up) for one in made.ranges] == [(end + 4, 2, ())]


def test_export_that_ended_at_the_gap_lists_it_as_lost() -> None:
    """Then nothing of the range precedes the gap."""
    world = World()
    world.publish("orders", 8)
    Export(world).run()
    _, end = given_up(world, "orders", 0)
    made = manifest_of(Export(world, loss_allowed=True).run())
    assert made is not None
    assert [(one.first, one.kept, one.end, one.given_up) for one in made.ranges] == [(8, end, end, ())]
    given = world.topics["orders"]
    world.topics["orders"] = replace(given, next=end + 3)
    made = manifest_of(Export(world).run())
    assert made is not None
    assert made.rows == 3


def test_compaction_refuses_the_gap_unless_losses_are_allowed() -> None:
    """The last message of a key may have been lost. The option does not change the identity of the job."""
    with pytest.raises(NotFound, match=r"were given up.*last message of a key.*allowDataLoss"):
        refuse_given_up({A: state()})
    refuse_given_up({A: state(earliest=BEHIND)})
    named = {"topic": "in", "target": "out"}
    strict, allowed = compact_options(named, {}), compact_options(named | {"allowDataLoss": "true"}, {})
    assert (strict.loss_allowed, allowed.loss_allowed) == (False, True)
    assert strict.job_id([state()]) == allowed.job_id([state()])


def test_audit_reports_what_was_given_up_and_checks_the_rest() -> None:
    """However the log is cut into ranges: one finding, at the entry GivenUp. The messages behind it are in order, and
    the producers' generations may jump."""
    log = PlantedLog()
    log.open("a")
    log.store("a", range(5))
    log.roll(epoch=2)
    body = encode_given_up(GivenUp(LedgerId(1), EntryId(2), "ann"))
    log.append(EntryKind.GIVEN_UP, body, count=GIVEN_UP_INDEXES)
    log.open("a", generation=2 + (1 << 16))
    log.store("a", range(5, 8))
    for some in ((), (1,), (2,), (3,), (4,), (1, 2, 3, 4)):
        checked = check_log(log, *some)
        assert [(one.rule, str(one.position)) for one in checked.findings] == [("unreadable", "2:0")], some
        assert "ann has given up the entries from 1:2 on" in checked.findings[0].message
