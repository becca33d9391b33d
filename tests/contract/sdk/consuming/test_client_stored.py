"""What a log has stored by now: it ends where the log ends, or at an id, and waits for nothing."""

import asyncio

import pytest

import oncelog
from oncelog.client.stored import end_of, stored_batches, stored_by, stored_message
from oncelog.core.formats.message_id import EARLIEST, MessageId

pytest_plugins = ["tests.contract.sdk.fakes.client_fixtures"]
pytestmark = pytest.mark.asyncio
DEADLINE_S = 30.0


async def filled(client: oncelog.AsyncClient) -> list[MessageId]:
    """Messages with sequence ids 0, 10, 20 … of two producers in turn, each a batch."""
    producers = [await client.create_producer("flights", producer_name=name) for name in ("a", "b")]
    places = []
    for number in range(8):
        sent = await producers[number % 2].send_many([b"x", b"y"], sequence_ids=[number * 10, number * 10 + 5])
        assert sent.message_ids[0] is not None
        places += [sent.message_ids[0]]
    return places


@pytest.mark.parametrize(("last_id", "expected"), [(20, [20, 25]), (25, [20, 25]), (30, [20, 25, 40, 45]), (99, None)])
async def test_reading_ends_behind_the_batch_of_the_last_id(
    client: oncelog.AsyncClient, last_id: int, expected: list[int] | None
) -> None:
    """Or at the end of the log. Ids have gaps, and other producers publish between them."""
    places = await filled(client)
    async with asyncio.timeout(DEADLINE_S):
        batches = [each async for each in stored_by(client, "flights", "a", places[1], last_id)]
    assert {batch.producer_name for batch in batches} == {"a"}
    assert [number for batch in batches for number in batch.sequence_ids] == (expected or [20, 25, 40, 45, 60, 65])


async def test_nothing_is_behind_the_end(client: oncelog.AsyncClient) -> None:
    """A reader that begins there would wait for what comes."""
    producer = await client.create_producer("empty")
    async with asyncio.timeout(DEADLINE_S):
        assert [each async for each in stored_by(client, "empty", producer.producer_name, EARLIEST, 0)] == []
        assert await end_of(client, "empty") == 0
        places = await filled(client)
        assert await end_of(client, "flights") == 16
        for start in (oncelog.Index(16), oncelog.Index(99), await client.last_message_id("flights")):
            assert start is not None
            assert [each async for each in stored_batches(client, "flights", start)] == []
        assert await stored_message(client, "flights", oncelog.Index(16)) is None
        assert len(places) == 8


async def test_message_of_a_place_is_that_one_only(client: oncelog.AsyncClient) -> None:
    """The next one that is stored would be compared in its place."""
    places = await filled(client)
    for place in (places[3], oncelog.Index(6)):
        found = await stored_message(client, "flights", place)
        assert found is not None
        assert (found.message_id, found.sequence_id) == (places[3], 30)
    missing = MessageId(places[3].topic_id, places[3].partition, places[3].ledger_id, places[3].entry_id, batch_index=7)
    async with asyncio.timeout(DEADLINE_S):
        assert await stored_message(client, "flights", missing) is None
