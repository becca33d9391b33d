"""What one request or one record lacks is its own error: the process goes on, and the topic says why it waits."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oncelog.core.errors import BY_CODE, IdsExhausted, OncelogError, TopicLoading
from oncelog.core.formats.entry import GIVEN_UP_INDEXES
from oncelog.core.ids import EntryId, Incarnation, LedgerId, TopicId
from oncelog.core.ledger.member_selection import StorageNodesUpdated
from oncelog.core.ledger.metadata import EntryRange, LedgerMetadata
from oncelog.core.records.id_claim import ID_MAX, Counter, CounterRecord
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.core.topic.topic import Phase
from oncelog.metadata_store.records.counter_store import CounterStore
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.owner_codec import TOPIC_STATES, OpenRequest, PublishFrame
from oncelog.topic_owner.metrics_export import waiting_topics
from oncelog.topic_owner.shell.topic_runner import TopicRunner
from oncelog.wire.owner_pb2 import TopicStatesRequest
from tests.cluster.until import until
from tests.contract.owner.owner_world import (
    DEADLINE_S,
    PATIENT,
    OwnerLimits,
    OwnerWorld,
    PublishClient,
    batch_of,
    owner_world,
)

TOPIC = "public/default/flights"
LOST = LedgerId(1 << 40)
#: An opening is refused at its end, because the topic never serves.
REFUSES_SOON = OwnerLimits(replace(PATIENT, openings_wait_max_ms=100))
pytestmark = pytest.mark.asyncio


async def set_counter(world: OwnerWorld, counter: Counter, following: int) -> None:
    store = CounterStore(world.session, counter)
    stored = await store.read()
    await store.write(CounterRecord(following, world.node.incarnation, "by hand"), version=stored.version)


async def opening(client: PublishClient, runner: TopicRunner, name: str) -> OncelogError | None:
    """The error of an attempt to open; None: it was granted."""
    await client.stream.write(PublishFrame(opens=[OpenRequest(99, TOPIC, runner.topic_id, name)]))
    frame = await client.receive()
    return frame.denied[0].error if frame.denied else None


def unhandled() -> list[Any]:
    """Errors that no code handles: each of them ends a real process."""
    found: list[Any] = []

    def handle(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        # gRPC's poller also reports completions that arrive for the closed loop of an earlier test.
        if "PollerCompletionQueue" not in context["message"]:
            found.append(context)

    asyncio.get_running_loop().set_exception_handler(handle)
    return found


async def waiting(channel: Channel, topic_id: TopicId) -> dict[str, Any] | None:
    """As the statistics of the topic show it."""
    answer = await channel.call(TOPIC_STATES, TopicStatesRequest(topic_ids=[topic_id]), timeout_ms=30_000)
    shown: dict[str, Any] | None = json.loads(answer.states[0].stats_json)["waiting"]
    return shown


async def test_exhausted_producer_ids_fail_only_that_opening(tmp_path: Path) -> None:
    """They used to end the owner with all its topics."""
    async with owner_world(tmp_path) as (world, channel):
        errors = unhandled()
        client = PublishClient(channel)
        runner = await world.serve(TOPIC)
        world.parts.producer_ids._claim._free.clear()
        known = await client.open(runner, "known")
        world.parts.producer_ids._claim._free.clear()
        await set_counter(world, Counter.PRODUCER, ID_MAX + 1)
        for _ in range(2):
            assert isinstance(await opening(client, runner, "new"), IdsExhausted)
        await client.stored(known, batch_of(known, [0]))
        assert world.metrics.counts.events["ids_exhausted"] == 2
        await set_counter(world, Counter.PRODUCER, 1_000_000)
        assert await opening(client, runner, "new") is None
        assert errors == []


async def test_topic_without_a_ledger_id_reports_it_and_other_topics_continue(tmp_path: Path) -> None:
    async with owner_world(tmp_path) as (world, channel):
        errors = unhandled()
        client = PublishClient(channel)
        served = await client.open(await world.serve("public/default/other"), "importer")
        world.parts.ledger_ids._claim._free.clear()
        await set_counter(world, Counter.LEDGER, ID_MAX + 1)
        topic_id = await world.new_topic(TOPIC)
        world.topics.assign(topic_id)
        runner = world.topics.find(topic_id)
        assert runner is not None
        await until(lambda: "ids_exhausted" in world.metrics.counts.events, DEADLINE_S, waiting_for="the refusal")
        shown = await waiting(channel, topic_id)
        assert shown is not None
        assert (shown["code"], shown["message"].split(":")[0]) == ("ids_exhausted", "an id for the next ledger")
        assert "counters" in shown["help"]
        await client.stored(served, batch_of(served, [0]))
        assert errors == []


async def issued_until(world: OwnerWorld, ledger_id: LedgerId) -> None:
    """The next ledger gets a later id, without a claim for all of those before."""
    await set_counter(world, Counter.LEDGER, ledger_id + 1)
    world.parts.ledger_ids._claim._free.clear()


async def lost_ledger(world: OwnerWorld) -> TopicRunner:
    """A topic whose list names a closed ledger of six entries, of which the only node has none."""
    topic_id = await world.new_topic(TOPIC)
    await issued_until(world, LOST)
    metadata = LedgerMetadata(LOST, topic_id, (world.node.incarnation,), 1).in_recovery()
    await world.parts.ledgers.write(metadata.closed(end=EntryId(5), length=600), version=ABSENT_VERSION)
    await world.list_ledger(topic_id, LOST)
    world.topics.assign(topic_id)
    runner = world.topics.find(topic_id)
    assert runner is not None
    return runner


def reason_of(runner: TopicRunner) -> str:
    waiting = runner.wait_reason()
    return "" if waiting is None else waiting.code


async def test_topic_with_lost_copies_reports_cause_place_and_remedy(tmp_path: Path) -> None:
    """Its statistics used to contain only `waiting`."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await lost_ledger(world)
        await until(lambda: reason_of(runner) == "unreadable_entry", DEADLINE_S, waiting_for="the takeover to fail")
        shown = await waiting(channel, runner.topic_id)
        assert shown is not None
        since_ms = shown.pop("since_ms")
        assert shown == {
            "code": "unreadable_entry",
            "message": f"entry {LOST}:0 cannot be read: entry {LOST}:0 ({world.node.incarnation}: does not hold it): "
            "every storage node of its ledger has refused it",
            "ledger_id": LOST,
            "entry_id": 0,
            "last_entry_id": None,
            "members": {world.node.incarnation: "does not hold it"},
            "help": "start the storage nodes of this ledger with their newest directories; if there are none, give up "
            "what is lost: oncelog admin ledger end LEDGER",
        }
        failures = world.metrics.counts.events["takeover_failed"]
        await until(
            lambda: world.metrics.counts.events["takeover_failed"] > failures, DEADLINE_S, waiting_for="another attempt"
        )
        again = await waiting(channel, runner.topic_id)
        assert again is not None
        assert again["since_ms"] == since_ms, "it is the same trouble as before"


@pytest.mark.hazard("lost-too-early")
async def test_topic_with_lost_entries_goes_on_when_they_are_given_up(tmp_path: Path) -> None:
    """Its statistics name the command until then. The next attempt of the takeover finds the operator's decision."""
    async with owner_world(tmp_path) as (world, channel):
        await set_counter(world, Counter.LEDGER, LOST + 1)
        runner = await lost_ledger(world)
        stored = await world.parts.ledgers.read(LOST)
        assert stored is not None
        lost = stored.value.mark_lost([EntryRange(EntryId(0), EntryId(5))])
        await world.parts.ledgers.write(lost, version=stored.version)

        def reason() -> str | None:
            found = runner.wait_reason()
            return None if found is None else found.code

        await until(lambda: reason() == "entries_lost", DEADLINE_S, waiting_for="the reason")
        shown = await waiting(channel, runner.topic_id)
        assert shown is not None
        assert "oncelog admin ledger end LEDGER" in shown["help"]
        await world.parts.ledgers.write(lost.give_up_entries((), by="ann"), version=stored.version + 1)
        await until(lambda: runner.core.phase is Phase.SERVING, DEADLINE_S, waiting_for="the topic to be served")
        client = PublishClient(channel)
        granted = await client.open(runner, "importer")
        await client.stored(granted, batch_of(granted, [0]))
        assert runner.core.serving is not None
        assert runner.core.serving.log.table.state.next_index == GIVEN_UP_INDEXES + 1
        assert await waiting(channel, runner.topic_id) is None


async def test_waiting_clients_get_the_cause(tmp_path: Path) -> None:
    """Producers and readers get a retriable error that names the cause, not only a timeout."""
    async with owner_world(tmp_path, REFUSES_SOON) as (world, channel):
        runner = await lost_ledger(world)
        error = await opening(PublishClient(channel), runner, "importer")
        assert isinstance(error, TopicLoading)
        assert error.retriable
        assert "unreadable_entry" in error.message
        assert f"{LOST}:0" in error.message
        with pytest.raises(TopicLoading, match="unreadable_entry"):
            await runner.ownership_proofs.until_current(runner.owner_epoch, serving_timeout_ms=100)


async def test_full_disk_reaches_the_producer_as_its_reason(tmp_path: Path) -> None:
    """It used to name no node and no disk, and to say that listed nodes are to be started, of which there were none."""
    async with owner_world(tmp_path, REFUSES_SOON) as (world, channel):
        full, closed, gone = world.node.incarnation, Incarnation("c" * 32), Incarnation("d" * 32)
        world.topics.update_nodes(StorageNodesUpdated((), read_only=(full, closed), full=(full,), absent=(gone,)))
        topic_id = await world.new_topic(TOPIC)
        world.topics.assign(topic_id)
        runner = world.topics.find(topic_id)
        assert runner is not None
        await until(lambda: runner.core.phase is Phase.OPENING, DEADLINE_S, waiting_for="the takeover to open a ledger")
        shown = await waiting(channel, topic_id)
        assert shown is not None
        assert shown["code"] == "not_enough_storage_nodes"
        assert shown["message"].startswith(
            f"storage nodes have no space: {full}; 0 storage nodes are live and writable"
        )
        assert shown["members"] == {full: "has no space", closed: "was set read-only", gone: "is absent"}
        assert "free disk space" in shown["help"]
        error = await opening(PublishClient(channel), runner, "importer")
        assert isinstance(error, BY_CODE["not_enough_storage_nodes"])
        assert f"storage nodes have no space: {full}" in error.message
        assert "moving" not in error.message
        world.topics.update_nodes(StorageNodesUpdated(()))
        shown = await waiting(channel, topic_id)
        assert shown is not None
        assert (shown["members"], shown["help"]) == ({}, "add storage nodes")


async def test_waiting_topics_are_counted_by_reason(tmp_path: Path) -> None:
    async with owner_world(tmp_path) as (world, _):
        await world.serve("public/default/other")
        runner = await lost_ledger(world)
        await until(lambda: reason_of(runner) == "unreadable_entry", DEADLINE_S, waiting_for="the takeover to fail")
        counted = [(each.value, dict(each.attributes)) for each in waiting_topics(world.topics)]
        assert counted == [(1, {"reason": "unreadable_entry"})]
