"""A whole owner writes heads: when the cluster has their level, and once it gets it."""

from pathlib import Path

import pytest

from oncelog.core.formats.entry import EntryKind, body_of, peek_header
from oncelog.core.formats.head import decode_head
from oncelog.core.formats.topic_record import FORMAT, FORMAT_WITH_HEADS
from oncelog.core.ids import EntryId, LedgerId
from oncelog.core.placement.level import Level
from oncelog.core.process_version import BEFORE_LEVELS, LEVELS_VERSION
from oncelog.storage_client.reader import read_entry
from oncelog.topic_owner.shell.topic_runner import TopicRunner
from tests.cluster.until import until
from tests.contract.owner.owner_world import DEADLINE_S, ME, OwnerWorld, PublishClient, batch_of, owner_world

pytestmark = pytest.mark.asyncio


async def first_entry(world: OwnerWorld, ledger_id: LedgerId) -> bytes:
    stored = await world.parts.ledgers.read(ledger_id)
    assert stored is not None
    return bytes(await read_entry(world.parts.links, stored.value, EntryId(0)))


def last_ledger(runner: TopicRunner) -> LedgerId:
    return runner.core.ownership.record.ledgers[-1].ledger_id


async def test_topics_learn_the_level_at_their_assignment_and_when_it_is_raised(tmp_path: Path) -> None:
    """A served topic has it in its record with the next tick, and its empty ledger gets a head."""
    async with owner_world(tmp_path) as (world, channel):
        client = PublishClient(channel)
        world.topics.level_seen(Level(BEFORE_LEVELS))
        served = await world.serve("served")
        assert served.core.ownership.record.format == FORMAT
        world.topics.level_seen(Level(LEVELS_VERSION))
        await until(lambda: served.core.ownership.record.format == FORMAT_WITH_HEADS, DEADLINE_S)
        later = await world.serve("later")
        assert later.core.ownership.record.format == FORMAT_WITH_HEADS
        for runner in (served, later):
            granted = await client.open(runner, "p")
            await client.stored(granted, batch_of(granted, [0]))
            data = await first_entry(world, last_ledger(runner))
            head = decode_head(body_of(data))
            assert (peek_header(data).kind, head.name, head.owner) == (EntryKind.HEAD_LOG, runner.name, ME)
            assert (head.members, head.former) == ((world.node.incarnation,), None)
