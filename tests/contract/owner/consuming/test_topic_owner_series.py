"""What an owner shows of itself: its series at /metrics, its statistics, and the spans of messages."""

import json
from pathlib import Path

import pytest

from oncelog.core.acks.changes import IndexRange
from oncelog.core.delivery.events import NackRequested
from oncelog.core.errors import SessionEnded
from oncelog.core.formats.outcome import ResultKind, ResultRange
from oncelog.core.ids import EntryId, LedgerId, Position
from oncelog.rpc.codecs.owner_codec import LAST_MESSAGE, TOPIC_STATES
from oncelog.rpc.codecs.reader_codec import READ, ReadControl, ReaderStart, StartEdge
from oncelog.topic_owner.shell.owner_metrics import OwnerCounts
from oncelog.wire import owner_pb2 as pb
from tests.cluster.until import until
from tests.contract.owner.owner_world import DEADLINE_S, OwnerWorld, PublishClient, batch_of, owner_world, until_streams
from tests.contract.sdk.fakes.consume_client import ConsumeClient

TOPIC = "public/default/flights"
PLACE = Position(LedgerId(1), EntryId(0))


def series(world: OwnerWorld) -> dict[str, float]:
    """{series with its labels: value}"""
    text = world.metrics.telemetry.metrics_text().decode()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_duplicate_is_not_counted_as_stored() -> None:
    """A batch may contain both: each message counts by its own verdict, each refused batch as one event."""
    counts = OwnerCounts()
    counts.answered((ResultRange(ResultKind.DUPLICATE, 3, PLACE, 0), ResultRange(ResultKind.STORED, 2, PLACE, 3)))
    counts.answered((ResultRange(ResultKind.BELOW_MARK, 4, None, 0),))
    counts.answered(SessionEnded("open again"))
    assert counts.messages == {"duplicate": 3, "stored": 2, "below_mark": 4}
    assert counts.events == {"batch_refused_session_ended": 1}


@pytest.mark.asyncio
async def test_every_metric_appears(tmp_path: Path) -> None:
    """With the values that were caused."""
    async with owner_world(tmp_path) as (world, channel):
        client = PublishClient(channel)
        runner = await world.serve(TOPIC)
        granted = await client.open(runner, "importer")
        batches = [batch_of(granted, range(3)), batch_of(granted, range(3, 5))]
        await client.stored(granted, *batches)
        await client.stored(granted, *batches)
        await client.stored(granted, batch_of(granted, range(4, 8)))
        shown = series(world)
        assert {
            name: shown.get(name)
            for name in (
                'oncelog_messages_total{verdict="stored"}',
                'oncelog_messages_total{verdict="duplicate"}',
                'oncelog_owner_events_total{event="takeover"}',
                'oncelog_owner_events_total{event="entry_replayed"}',
                "oncelog_received_frames_total",
                "oncelog_received_bytes_total",
                'oncelog_topics{phase="serving"}',
                "oncelog_producers",
                "oncelog_sessions",
                "oncelog_entries_in_flight",
                "oncelog_takeover_seconds_count",
                "oncelog_publish_seconds_count",
            )
        } == {
            'oncelog_messages_total{verdict="stored"}': 8,
            'oncelog_messages_total{verdict="duplicate"}': 6,
            'oncelog_owner_events_total{event="takeover"}': 1,
            'oncelog_owner_events_total{event="entry_replayed"}': 0,
            "oncelog_received_frames_total": 3,
            "oncelog_received_bytes_total": 2 * sum(map(len, batches)) + len(batch_of(granted, range(4, 8))),
            'oncelog_topics{phase="serving"}': 1,
            "oncelog_producers": 1,
            "oncelog_sessions": 1,
            "oncelog_entries_in_flight": 0,
            "oncelog_takeover_seconds_count": 1,
            "oncelog_publish_seconds_count": 3,
        }
        assert shown["oncelog_entry_cache_bytes"] == runner.cache.bytes > 0
        assert not [name for name in shown if TOPIC in name], "labels of topics grow with them"


@pytest.mark.asyncio
async def test_batch_has_a_span_for_each_phase(tmp_path: Path) -> None:
    """In order and without gaps, beside the spans of the takeover."""
    async with owner_world(tmp_path) as (world, channel):
        world.trace()
        client = PublishClient(channel)
        granted = await client.open(await world.serve(TOPIC), "importer")
        taken = [span.name for span in world.spans.get_finished_spans()]
        assert taken == [f"takeover {phase}" for phase in ("acquire", "recover", "load snapshot", "replay", "open")]
        world.spans.clear()
        await client.stored(granted, batch_of(granted, range(3)), batch_of(granted, range(3, 5)))
        spans = world.spans.get_finished_spans()
        assert [span.name for span in spans] == [
            f"publish {phase}" for phase in ("receive", "check", "append", "confirm", "answer")
        ]
        times = [at_ns for span in spans for at_ns in (span.start_time, span.end_time)]
        assert times == sorted(times, key=lambda at_ns: at_ns or 0)
        assert [one.end_time for one in spans[:-1]] == [other.start_time for other in spans[1:]]
        assert {str((span.attributes or {})["oncelog.topic"]) for span in spans} == {TOPIC}


@pytest.mark.asyncio
async def test_traces_keep_no_answered_batch(tmp_path: Path) -> None:
    """A duplicate is answered during the check, and a stream may break at any time. Both used to stay in memory."""
    async with owner_world(tmp_path) as (world, channel):
        world.trace()
        client = PublishClient(channel)
        granted = await client.open(await world.serve(TOPIC), "importer")
        data = batch_of(granted, range(3))
        await client.stored(granted, data)
        world.spans.clear()
        await client.stored(granted, data)
        assert [span.name for span in world.spans.get_finished_spans()] == ["publish receive", "publish check"]
        assert world.publish.trace._traced == {}
        with world.node.hold():
            await client.send(granted.session, batch_of(granted, range(3, 5)))
            await until(lambda: world.publish.trace._traced, DEADLINE_S)
            client.stream.cancel()
            await until_streams(world, 0)
            assert world.publish.trace._traced == {}


@pytest.mark.asyncio
async def test_statistics_describe_the_topic(tmp_path: Path) -> None:
    """As JSON, with the internal state on request."""
    async with owner_world(tmp_path) as (world, channel):
        client = PublishClient(channel)
        runner = await world.serve(TOPIC)
        await world.serve("public/default/other")
        granted = await client.open(runner, "importer")
        await client.stored(granted, batch_of(granted, range(3)))
        await client.stored(granted, batch_of(granted, range(3)))
        request = pb.TopicStatesRequest(topic_ids=[runner.topic_id], internal=True)
        [state] = (await channel.call(TOPIC_STATES, request, timeout_ms=30_000)).states
        assert (state.topic, state.phase, state.owner_epoch) == (TOPIC, "serving", 1)
        stats, internal = json.loads(state.stats_json), json.loads(state.internal_stats_json)
        assert stats["messages_by_verdict"] == {"duplicate": 3, "stored": 3}
        assert (stats["message_count"], stats["last_position"]) == (3, str(runner.progress.confirmed))
        assert (stats["producer_count"], stats["connected_producer_count"]) == (1, 1)
        assert [list(each["phases_ms"]) for each in stats["takeovers"]] == [
            ["acquire", "recover", "load_snapshot", "replay", "open"]
        ]
        assert internal["owner"] == runner.core.ownership.me
        [producer] = internal["producers"]
        assert (producer["name"], producer["accepted"], producer["persisted"]) == ("importer", 2, 2)
        assert internal["open_ledger"]["members"] == [world.node.incarnation]
        answer = await channel.call(TOPIC_STATES, pb.TopicStatesRequest(), timeout_ms=30_000)
        assert [each.internal_stats_json for each in answer.states] == ["", ""]


@pytest.mark.asyncio
async def test_last_message_has_its_batch_index(tmp_path: Path) -> None:
    """None in a topic with grants only. In a partly known batch the index counts all of its messages."""
    async with owner_world(tmp_path) as (world, channel):
        client = PublishClient(channel)
        runner = await world.serve(TOPIC)
        granted = await client.open(runner, "importer")
        request = pb.LastMessageRequest(topic=TOPIC, topic_id=runner.topic_id)
        assert not (await channel.call(LAST_MESSAGE, request, timeout_ms=30_000)).present
        await client.stored(granted, batch_of(granted, range(3)))
        [parts] = await client.stored(granted, batch_of(granted, range(2, 6)))
        await client.open(runner, "another")
        last = await channel.call(LAST_MESSAGE, request, timeout_ms=30_000)
        assert (last.present, last.batch_index, last.next_index) == (True, 3, 6)
        assert Position(LedgerId(last.ledger_id), EntryId(last.entry_id)) == parts[-1].position


@pytest.mark.asyncio
async def test_readers_at_the_end_need_no_zookeeper(tmp_path: Path) -> None:
    """What is published while ZooKeeper is unavailable is read at once."""
    async with owner_world(tmp_path) as (world, channel):
        client = PublishClient(channel)
        runner = await world.serve(TOPIC)
        granted = await client.open(runner, "importer")
        stream = channel.stream(READ)
        await stream.write(ReadControl(ReaderStart(TOPIC, runner.topic_id, StartEdge.LATEST), 1 << 20))
        frames = aiter(stream)
        assert (await anext(frames)).at_end
        world.session.faults.suspend()
        for number in range(3):
            await client.stored(granted, batch_of(granted, [number]))
            frame = await anext(frames)
            assert (len(frame.entries), list(frame.names.values())) == (1, [] if number else ["importer"])
        world.session.faults.resume()


@pytest.mark.asyncio
async def test_subscriptions_show_their_backlog_and_their_deliveries(tmp_path: Path) -> None:
    """The same figures in the topic's statistics and, over all topics, at /metrics."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve(TOPIC)
        producer = PublishClient(channel)
        granted = await producer.open(runner, "importer")
        batches = [batch_of(granted, range(first, first + 4)) for first in (0, 4)]
        await producer.stored(granted, *batches)
        client = ConsumeClient(channel, runner)
        attached = await client.attach()
        assert await client.received(8) == list(range(8))
        await client.ack(attached, 2, 3)
        again = (IndexRange(0, 0),)
        await client.send(NackRequested(attached.consumer, 9, attached.seek_epoch, again, delay_ms=0))
        assert await client.received(1) == [0]
        states = await channel.call(TOPIC_STATES, pb.TopicStatesRequest(topic_ids=[runner.topic_id]), timeout_ms=10_000)
        shown = json.loads(states.states[0].stats_json)["subscriptions"]["billing"]
        (consumer,) = shown["consumers"]
        wanted = {"msg_backlog": 6, "unacked_messages": 6, "ack_ranges": 1, "msg_out_counter": 9}
        assert {name: shown[name] for name in wanted} == wanted
        assert 0 < shown["backlog_size"] <= sum(map(len, batches))
        assert (shown["msg_redeliver_counter"], consumer["msg_redeliver_counter"], consumer["msg_out_counter"]) == (
            1, 1, 9,
        )  # fmt: skip
        metrics = series(world)
        values = {
            "subscriptions": 1, "consumers": 1, "subscription_backlog_messages": 6, "subscription_unacked_messages": 6,
            "subscription_backlog_bytes": shown["backlog_size"], "ack_state_ranges": 1, "subscriptions_blocked": 0,
            "subscriptions_blocked_seconds": 0, "ack_state_bytes": shown["ack_state_bytes"],
            'delivered_messages_total{delivery="first"}': 8, 'delivered_messages_total{delivery="again"}': 1,
        }  # fmt: skip
        assert {name: metrics.get(f"oncelog_{name}") for name in values} == values


@pytest.mark.asyncio
async def test_message_to_a_consumer_is_traced_from_its_append_to_its_acknowledgement(tmp_path: Path) -> None:
    """Without gaps, and one message of each consumer at a time; a negative acknowledgement ends it, too."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve(TOPIC)
        producer = PublishClient(channel)
        granted = await producer.open(runner, "importer")
        await producer.stored(granted, batch_of(granted, range(3)))
        world.trace()
        client = ConsumeClient(channel, runner)
        attached = await client.attach()
        await client.received(3)
        await client.ack(attached, 1, 2, request=1)
        await client.ack(attached, 0, 0, request=2)
        spans = world.spans.get_finished_spans()
        names = ["consume deliver", "consume process", "consume acknowledge"]
        assert [span.name for span in spans] == names
        wanted = {"oncelog.topic": TOPIC, "oncelog.message_index": 0}
        assert all(span.attributes == wanted for span in spans)
        times = [at_ns for span in spans for at_ns in (span.start_time, span.end_time)]
        assert times[1:3] == [times[1]] * 2
        assert times[3:5] == [times[3]] * 2
        assert times == sorted(times, key=lambda at_ns: at_ns or 0)
