"""A whole owner writes heads: when the cluster has their level, and once it gets it."""

from pathlib import Path

import pytest

from oncelog.core.formats.entry import EntryKind, body_of, peek_header
from oncelog.core.formats.head import decode_head
from oncelog.core.formats.topic_record import FORMAT_WITH_HEADS
from oncelog.core.ids import EntryId, LedgerId
from oncelog.storage_client.reader import read_entry
from oncelog.topic_owner.shell.topic_runner import TopicRunner
from tests.contract.owner.owner_world import ME, OwnerWorld, PublishClient, batch_of, owner_world

pytestmark = pytest.mark.asyncio


async def first_entry(world: OwnerWorld, ledger_id: LedgerId) -> bytes:
    stored = await world.parts.ledgers.read(ledger_id)
    assert stored is not None
    return bytes(await read_entry(world.parts.links, stored.value, EntryId(0)))


def last_ledger(runner: TopicRunner) -> LedgerId:
    return runner.core.ownership.record.ledgers[-1].ledger_id


async def test_first_entry_of_a_ledger_is_its_head(tmp_path: Path) -> None:
    """The record of its topic has the format of topics with ledgers before that."""
    async with owner_world(tmp_path) as (world, channel):
        client = PublishClient(channel)
        runner = await world.serve("served")
        assert runner.core.ownership.record.format == FORMAT_WITH_HEADS
        granted = await client.open(runner, "p")
        await client.stored(granted, batch_of(granted, [0]))
        data = await first_entry(world, last_ledger(runner))
        head = decode_head(body_of(data))
        assert (peek_header(data).kind, head.name, head.owner) == (EntryKind.HEAD_LOG, runner.name, ME)
        assert (head.members, head.former) == ((world.node.incarnation,), None)
