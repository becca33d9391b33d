"""The ack log of a real owner: ledgers on a storage node, both lists in the store, and a takeover of both chains."""

from pathlib import Path

import pytest

from oncelog.core.acks.changes import PropertiesSet, SubscriptionCreated, SubscriptionType
from oncelog.core.ids import SubscriptionNumber
from oncelog.core.ledger.metadata import LedgerState
from oncelog.core.topic_events.events import DedupToggled
from oncelog.metadata_store.records.ledger_store import LedgerStore
from oncelog.topic_owner.shell.topic_runner import TopicRunner
from tests.cluster.until import until
from tests.contract.owner.owner_world import DEADLINE_S, PublishClient, batch_of, owner_world

pytestmark = pytest.mark.asyncio

NUMBER = SubscriptionNumber(1)
CREATED = SubscriptionCreated(NUMBER, "5" * 32, "billing", SubscriptionType.SHARED, 0)


class Settled:
    """Hears what became of changes (AckLogUser)."""

    def __init__(self) -> None:
        self.tokens: list[object] = []

    def settled(self, tokens: list[object]) -> None:
        self.tokens += tokens

    def dropped(self, tokens: list[object]) -> None:
        raise AssertionError(f"dropped {tokens}")


async def append(runner: TopicRunner) -> None:
    """Append two changes, and wait until they are durable."""
    assert runner.core.serving is not None
    acks, heard = runner.core.serving.acks, Settled()
    acks.user = heard
    acks.append(CREATED, 1)
    acks.append(PropertiesSet(NUMBER, (("team", "payments"),)), 2)
    runner.post(DedupToggled(enabled=True))  # any event ends the step
    await until(lambda: heard.tokens == [1, 2], DEADLINE_S, waiting_for="the changes to be durable")


def properties(runner: TopicRunner) -> object:
    assert runner.core.serving is not None
    return {each.name: each.properties for each in runner.core.serving.acks.state.subscriptions.values()}


@pytest.mark.hazard("deposed-owner-acks")
async def test_ack_log_outlives_its_owner(tmp_path: Path) -> None:
    """The first change links the first ledger of the chain. The next owner has closed it, and has all its changes."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("acked")
        client = PublishClient(channel)
        granted = await client.open(runner, "importer")
        await client.stored(granted, batch_of(granted, [1]))
        await append(runner)
        topic_id, before = runner.topic_id, await world.parts.topics.read(runner.topic_id)
        assert before is not None
        (ledger_id,) = before.value.acks
        await world.place(topic_id, runner.core.ownership.me)
        world.topics.assign(topic_id)
        await runner.progress.until_ended()
        world.topics.assign(topic_id)
        anew = world.topics.find(topic_id)
        assert anew is not None
        await anew.progress.until_serving()
        assert properties(anew) == {"billing": (("team", "payments"),)}
        stored = await LedgerStore(world.session).read(ledger_id)
        assert stored is not None
        assert stored.value.state is LedgerState.CLOSED


async def test_hand_over_closes_the_ack_log(tmp_path: Path) -> None:
    """An unloaded topic leaves no open ledger, and the next owner begins from its last snapshot."""
    async with owner_world(tmp_path) as (world, _channel):
        runner = await world.serve("acked")
        await append(runner)
        topic_id = runner.topic_id
        await world.topics.unload(topic_id)
        await until(lambda: world.topics.find(topic_id) is None, DEADLINE_S, waiting_for="the topic to be closed")
        record = await world.parts.topics.read(topic_id)
        assert record is not None
        ledgers = [*record.value.acks, *(link.ledger_id for link in record.value.ledgers)]
        states = [await LedgerStore(world.session).read(ledger_id) for ledger_id in ledgers]
        assert {each.value.state for each in states if each is not None} == {LedgerState.CLOSED}
        await world.place(topic_id, runner.core.ownership.me)
        world.topics.assign(topic_id)
        anew = world.topics.find(topic_id)
        assert anew is not None
        await anew.progress.until_serving()
        assert properties(anew) == {"billing": (("team", "payments"),)}
