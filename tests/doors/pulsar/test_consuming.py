"""What consumers with subscriptions are sent, and what their acknowledgements do, over real sockets."""

import pytest

from oncelog.core.acks.changes import IndexRange
from oncelog.core.errors import CorruptEntry, LedgerUnavailable, ServiceUnavailable
from oncelog_doors.core.pulsar.consuming.acknowledgements import LATER_DELAY_MS, UNREADABLE_DELAY_MS
from oncelog_doors.core.pulsar.consuming.outstanding import UNACKNOWLEDGED_MAX
from oncelog_doors.pulsar.consumer_acks import WAITING_MAX
from tests.cluster.until import until
from tests.doors.core.pulsar.stored_batches import columns, of_client, stored
from tests.doors.pulsar.bytes_of_clients import ACK, CONNECT, body, command, frame
from tests.doors.pulsar.consumer_client import (
    CUMULATIVE,
    EXCLUSIVE,
    FAILOVER,
    SHARED,
    ack,
    billing,
    counts,
    id_of,
    log_of,
    messages,
    opened,
    place,
    redeliver,
    subscribe,
    the_consumer,
    three_delivered,
)
from tests.doors.pulsar.entries_at_clients import read
from tests.doors.pulsar.raw_client import DoorWorld, RawClient, door_world, raw_client
from tests.doors.pulsar.reader_client import CLOSE_CONSUMER, STATS, filled, flow, nothing_comes, the_connection, three
from tests.doors.raw_connection import DEADLINE_S

NOT_FOUND, NOT_ALLOWED, NOT_NOW = 13, 22, 2

# --- delivering -------------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
@pytest.mark.hazard("entry-above-the-permits")
async def test_permits_are_summed_and_an_entry_goes_whole() -> None:
    """With one permit the batch of three; the next entry when the client has given as many."""
    async with door_world() as world, raw_client(world.port) as client:
        log_of(world).append(*three())
        await opened(client)
        client.write(flow(1))
        assert await counts(client, 1) == [(0, 0)]
        await nothing_comes(client)
        client.write(flow(1))
        assert await counts(client, 1) == [(1, 0)]
        client.write(flow(2))
        await nothing_comes(client)
        client.write(flow(1))
        assert await counts(client, 1) == [(2, 0)]


@pytest.mark.asyncio
async def test_message_has_its_place_index_and_append_time() -> None:
    """As for a reader."""
    async with door_world() as world, raw_client(world.port) as client:
        log_of(world).append(*three())
        await client.answer(frame(command(CONNECT, (1, b"Pulsar-CPP-v4.2.0"), (4, 20), (10, body((2, 1))))))
        await client.answer(subscribe())
        client.write(flow(1000))
        answer = [(await client.read()).broker_entry for _ in range(3)]
        assert [each and each.index for each in answer] == [10, 13, 14]


@pytest.mark.asyncio
async def test_two_shared_consumers_never_have_the_same_message() -> None:
    """Each gets what it has permits for."""
    async with door_world() as world, raw_client(world.port) as client, raw_client(world.port) as other:
        await opened(client, SHARED)
        await opened(other, SHARED)
        client.write(flow(1))
        await nothing_comes(client)
        log_of(world).append(*three())
        assert await counts(client, 1) == [(0, 0)]
        other.write(flow(4))
        assert await counts(other, 2) == [(1, 0), (2, 0)]


@pytest.mark.asyncio
async def test_part_of_an_entry_is_a_batch_of_its_own() -> None:
    """A consumer that may not have all messages of an entry gets the others, and acknowledges these."""
    async with door_world() as world, raw_client(world.port) as client:
        log_of(world).append(*three())
        await opened(client, SHARED)
        billing(world).acked.update({10, 12})
        client.write(flow(10))
        got = await client.read()
        assert got.entry is not None
        assert (place(got.command.message), list(got.command.message.ack_set)) == ((5, 1), [])
        assert [each.value for each in read(got.entry)[1]] == [b"b", b"d"]
        client.write(ack(id_of(5, 1)))
        await until(lambda: billing(world).acked == {10, 11, 12, 13}, DEADLINE_S)


@pytest.mark.asyncio
@pytest.mark.hazard("mask-that-is-swallowed")
async def test_mask_is_sent_to_a_client_that_has_sent_one() -> None:
    """It has acknowledged one message of three; the whole entry comes again, and the mask hides that one."""
    async with door_world() as world, raw_client(world.port) as client:
        log_of(world).append(*three()[1:2])
        await opened(client, SHARED)
        client.write(flow(10))
        await messages(client, 1)
        client.write(ack(body((1, 5), (2, 1), (5, 0b101), (6, 3))))
        await until(lambda: billing(world).acked == {12}, DEADLINE_S)
        client.write(redeliver(id_of(5, 1)))
        [again] = await messages(client, 1)
        assert (list(again.ack_set), again.redelivery_count) == ([0b101], 1)


@pytest.mark.asyncio
async def test_delivery_stops_when_the_client_reads_nothing() -> None:
    """About a mebibyte waits for it, whatever it has permits for; then it goes on."""
    async with door_world() as world, raw_client(world.port) as client:
        filled(log_of(world), 1000)
        await opened(client)
        connection = the_connection(world)
        client.write(flow(100_000))
        await until(lambda: not connection.reads_along, DEADLINE_S)
        assert the_consumer(world).given < 900
        assert connection.unsent_bytes < 1_200_000
        assert len(await messages(client, 1000)) == 1000


@pytest.mark.asyncio
async def test_entry_that_cannot_be_read_is_passed_over() -> None:
    """It stays unacknowledged, and what is behind it comes."""
    async with door_world() as world, raw_client(world.port) as client:
        log_of(world).append(*three())
        await opened(client)
        the_consumer(world).damage = [CorruptEntry("entry 5:9 is damaged")]
        client.write(flow(1000))
        assert await counts(client, 3) == [(0, 0), (1, 0), (2, 0)]


@pytest.mark.asyncio
async def test_entry_that_no_client_can_be_sent_waits_for_a_minute() -> None:
    """Its permits are for what is behind it."""
    async with door_world() as world, raw_client(world.port) as client:
        await opened(client, SHARED)
        log_of(world).append(
            stored(of_client(b"\x0e\x01 no metadata", [1, 2]), entry_id=3, base_index=20, skip_first=1), *three()[2:]
        )
        client.write(flow(1))
        assert await counts(client, 1) == [(2, 0)]
        assert billing(world).delays_ms == [UNREADABLE_DELAY_MS]
        assert world.home.counts.undeliverable == 1


@pytest.mark.asyncio
async def test_consumer_waits_for_storage_that_is_away() -> None:
    """It stays open."""
    async with door_world() as world, raw_client(world.port) as client:
        await opened(client)
        client.write(flow(100))
        await nothing_comes(client)
        consumer = the_consumer(world)
        consumer.trouble = LedgerUnavailable("no storage node has the next entries")
        consumer.woken.set()
        await until(lambda: consumer.trouble is None, DEADLINE_S)
        log_of(world).append(*three())
        assert len(await messages(client, 3)) == 3


# --- acknowledging ----------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_receipt_comes_when_the_acknowledgement_is_durable() -> None:
    """And only where one is wanted. One for each command, in any order."""
    async with door_world() as world, raw_client(world.port) as client:
        await three_delivered(world, client)
        billing(world).acks_at_once = False
        client.write(ack(id_of(5, 0)) + ack(id_of(5, 1), request_id=70) + ack(id_of(5, 2), request_id=71))
        await nothing_comes(client)
        assert billing(world).acked == set()
        billing(world).settle()
        receipts = [(await client.read()).command.ack_response for _ in range(2)]
        assert [(each.consumer_id, each.request_id, each.HasField("error")) for each in receipts] == [
            (1, 70, False), (1, 71, False),
        ]  # fmt: skip
        assert billing(world).acked == {10, 11, 12, 13, 14}
        await nothing_comes(client)


@pytest.mark.asyncio
async def test_acknowledgement_in_memory_alone_is_no_success() -> None:
    """Its receipt says so; the client goes on."""
    async with door_world() as world, raw_client(world.port) as client:
        await three_delivered(world, client)
        billing(world).durable = False
        assert (await client.answer(ack(id_of(5, 0), request_id=70))).error == NOT_NOW
        await nothing_comes(client)


@pytest.mark.asyncio
async def test_cumulative_acknowledgement_means_all_that_was_sent_in_front() -> None:
    """With the named entry whole."""
    async with door_world() as world, raw_client(world.port) as client:
        await three_delivered(world, client)
        receipt = await client.answer(ack(id_of(5, 1), kind=CUMULATIVE, request_id=70))
        assert not receipt.HasField("error")
        assert billing(world).acked == {10, 11, 12, 13}


@pytest.mark.asyncio
async def test_cumulative_acknowledgement_of_a_shared_subscription_is_refused() -> None:
    """As on Pulsar."""
    async with door_world() as world, raw_client(world.port) as client:
        await three_delivered(world, client, SHARED)
        assert (await client.answer(ack(id_of(5, 1), kind=CUMULATIVE, request_id=70))).error == NOT_ALLOWED
        assert billing(world).acked == set()


@pytest.mark.asyncio
@pytest.mark.hazard("ack-of-another-part")
async def test_acknowledgement_of_a_former_connection_is_ignored_and_counted() -> None:
    """Its sender had the message; this consumer has not. And a number of a consumer that is not open has none."""
    async with door_world() as world, raw_client(world.port) as client:
        await three_delivered(world, client)
        await client.answer(subscribe())
        assert (await client.answer(ack(id_of(5, 0), request_id=70))).error == NOT_FOUND
        assert (await client.answer(ack(id_of(5, 0), request_id=71, consumer_id=9))).error == NOT_FOUND
        assert billing(world).acked == set()
        assert world.home.counts.acks_ignored == 2


@pytest.mark.asyncio
@pytest.mark.hazard("ack-of-another-part")
async def test_message_that_was_acknowledged_on_a_former_connection_is_not_sent_again() -> None:
    """If it is alone in its entry, and its client wants no answer. Also before SUBSCRIBE is answered."""
    async with door_world() as world, raw_client(world.port) as client:
        log_of(world).append(*three())
        await opened(client)
        client.write(subscribe() + ack(id_of(5, 0), id_of(5, 1)))
        assert (await client.read()).command.success.request_id == 50
        client.write(flow(1))
        assert await counts(client, 1) == [(1, 0)]
        await until(lambda: billing(world).acked == {10}, DEADLINE_S)
        assert world.home.counts.acks_ignored == 2


@pytest.mark.asyncio
@pytest.mark.hazard("late-ack-after-seek")
async def test_new_subscription_begins_with_what_was_acknowledged_in_a_former_one() -> None:
    """It was deleted; its client comes back, and makes it again."""
    async with door_world() as world, raw_client(world.port) as client:
        log_of(world).append(*three())
        await client.connect()
        client.write(subscribe() + ack(id_of(5, 0)))
        assert (await client.read()).command.success.request_id == 50
        client.write(flow(1))
        assert await counts(client, 1) == [(0, 0)]
        assert billing(world).acked == set()


@pytest.mark.asyncio
async def test_acknowledgement_inside_of_a_transaction_is_refused() -> None:
    """There are none here; nothing is acknowledged."""
    async with door_world() as world, raw_client(world.port) as client:
        await three_delivered(world, client)
        inside = ((1, 1), (2, 0), (3, id_of(5, 0)), (6, 7), (7, 8))
        client.write(frame(command(ACK, *inside)))
        refused = await client.answer(frame(command(ACK, *inside, (8, 70))))
        assert (refused.request_id, refused.error) == (70, NOT_ALLOWED)
        assert billing(world).acked == set()


@pytest.mark.asyncio
@pytest.mark.hazard("ack-of-the-unreadable")
async def test_what_a_client_cannot_read_comes_again_later() -> None:
    """It is not acknowledged, as it would be on Pulsar, but counted."""
    async with door_world() as world, raw_client(world.port) as client:
        await three_delivered(world, client)
        client.write(frame(command(ACK, (1, 1), (2, 0), (3, id_of(5, 0)), (4, 0))))
        await nothing_comes(client)
        assert billing(world).delays_ms == [UNREADABLE_DELAY_MS]
        assert world.home.counts.undeliverable == 1
        billing(world).come_due()
        assert await counts(client, 1) == [(0, 1)]
        assert billing(world).acked == set()


@pytest.mark.asyncio
@pytest.mark.hazard("ack-of-the-unreadable")
async def test_policy_acknowledges_what_a_client_cannot_read() -> None:
    """As Pulsar does. It is counted all the same, and the receipt comes when it is durable."""
    async with door_world() as world, raw_client(world.port) as client:
        await three_delivered(world, client)
        billing(world).acks_undecodable = True
        answer = await client.answer(frame(command(ACK, (1, 1), (2, 0), (3, id_of(5, 0)), (4, 0), (8, 70))))
        assert (answer.request_id, answer.HasField("error")) == (70, False)
        assert (billing(world).acked, billing(world).delays_ms) == ({10}, [])
        assert (world.home.counts.undeliverable, world.home.counts.acks_ignored) == (1, 0)


@pytest.mark.asyncio
@pytest.mark.hazard("ack-of-the-unreadable")
async def test_consumer_that_closes_waits_for_the_policy() -> None:
    """Else its client would lose or get again what the policy says otherwise."""
    async with door_world() as world, raw_client(world.port) as client:
        await three_delivered(world, client)
        billing(world).acks_undecodable = True
        billing(world).answers_policies.clear()
        client.write(frame(command(ACK, (1, 1), (2, 0), (3, id_of(5, 0)), (4, 0))))
        client.write(frame(command(CLOSE_CONSUMER, (1, 1), (2, 71))))
        for _ in range(3):  # else it is closed a moment after the first one
            await nothing_comes(client)
        assert (billing(world).acked, len(billing(world).consumers)) == (set(), 1)
        billing(world).answers_policies.set()
        assert (await client.read()).command.success.request_id == 71
        assert billing(world).acked == {10}


@pytest.mark.asyncio
async def test_undecodable_messages_beyond_a_limit_do_not_wait_for_the_policy() -> None:
    """So a client that sends them without end holds no memory of the door. They come again, which loses nothing."""
    async with door_world() as world, raw_client(world.port) as client:
        await three_delivered(world, client)
        billing(world).answers_policies.clear()
        unreadable = frame(command(ACK, (1, 1), (2, 0), (3, id_of(5, 0)), (4, 0)))
        client.write(unreadable * WAITING_MAX)
        await nothing_comes(client)
        assert billing(world).delays_ms == []
        client.write(unreadable)
        await until(lambda: billing(world).delays_ms == [UNREADABLE_DELAY_MS], DEADLINE_S)
        billing(world).answers_policies.set()


@pytest.mark.asyncio
async def test_failed_acknowledgement_closes_the_consumer() -> None:
    """It is not known what the log has: the client comes back with an empty queue."""
    async with door_world() as world, raw_client(world.port) as client:
        await three_delivered(world, client)
        billing(world).acks_at_once = False
        client.write(ack(id_of(5, 0), request_id=70))
        await until(lambda: billing(world).waiting, DEADLINE_S)
        billing(world).settle(ServiceUnavailable("the owner is away"))
        assert (await client.read()).command.ack_response.error == NOT_NOW
        assert (await client.read()).command.close_consumer.consumer_id == 1


# --- delivered again --------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_named_messages_come_again_and_count() -> None:
    """Each time once more."""
    async with door_world() as world, raw_client(world.port) as client:
        await three_delivered(world, client, SHARED)
        client.write(redeliver(id_of(5, 1)))
        assert await counts(client, 1) == [(1, 1)]
        client.write(redeliver(id_of(5, 1)))
        assert await counts(client, 1) == [(1, 2)]
        assert billing(world).delays_ms == [0, 0]


@pytest.mark.asyncio
async def test_all_messages_come_again_in_order() -> None:
    """Those that were acknowledged do not. The epoch of the request is in what comes behind it."""
    async with door_world() as world, raw_client(world.port) as client:
        await three_delivered(world, client, EXCLUSIVE, (19, 0))
        client.write(ack(id_of(5, 1)) + redeliver(epoch=4) + flow(100))
        again = await messages(client, 2)
        assert [(each.message_id.entry_id, each.consumer_epoch) for each in again] == [(0, 4), (2, 4)]


@pytest.mark.asyncio
async def test_epoch_is_told_if_the_client_has_sent_one() -> None:
    """Clients that do not count get none."""
    async with door_world() as world, raw_client(world.port) as client:
        log_of(world).append(*three())
        await opened(client)
        client.write(flow(1))
        assert not (await messages(client, 1))[0].HasField("consumer_epoch")
        await client.answer(subscribe(EXCLUSIVE, (19, 3)))
        client.write(flow(1))
        assert (await messages(client, 1))[0].consumer_epoch == 3


@pytest.mark.asyncio
async def test_message_that_the_owner_takes_back_may_come_again() -> None:
    """The client had it, and may acknowledge either delivery."""
    async with door_world() as world, raw_client(world.port) as client:
        await three_delivered(world, client, SHARED)
        billing(world).recall(the_consumer(world), IndexRange(10, 10))
        assert await counts(client, 1) == [(0, 1)]
        client.write(ack(id_of(5, 0)))
        await until(lambda: billing(world).acked == {10}, DEADLINE_S)


# --- parts, and what the owner takes back -----------------------------------------------------------------------------


async def with_a_part_that_waits(world: DoorWorld, client: RawClient) -> None:
    """The client has two messages of an entry of three; the third one has come back, and its permits are used."""
    log_of(world).append(three()[1])
    await opened(client, SHARED)
    billing(world).acked = {12}
    client.write(flow(3))
    await messages(client, 1)
    billing(world).acked.clear()
    billing(world).changed()
    await until(lambda: the_consumer(world).given == 3, DEADLINE_S)
    await nothing_comes(client)


@pytest.mark.asyncio
@pytest.mark.hazard("two-parts-under-one-id")
async def test_other_part_of_an_entry_waits_for_the_acknowledgement_of_the_first() -> None:
    """Both have one id."""
    async with door_world() as world, raw_client(world.port) as client:
        await with_a_part_that_waits(world, client)
        client.write(ack(id_of(5, 1)))
        assert await counts(client, 1) == [(1, 0)]
        client.write(ack(id_of(5, 1)))
        await until(lambda: billing(world).acked == {11, 12, 13}, DEADLINE_S)


@pytest.mark.asyncio
async def test_part_that_waits_comes_behind_one_that_is_given_back() -> None:
    """Else both would be sent under one id."""
    async with door_world() as world, raw_client(world.port) as client:
        await with_a_part_that_waits(world, client)
        client.write(redeliver(id_of(5, 1)))
        await until(lambda: len(billing(world).delays_ms) == 2, DEADLINE_S)
        assert billing(world).delays_ms == [0, LATER_DELAY_MS]


@pytest.mark.asyncio
async def test_permits_of_messages_that_are_not_sent_are_for_others() -> None:
    """The owner has counted them, and has taken them back."""
    async with door_world() as world, raw_client(world.port) as client:
        await with_a_part_that_waits(world, client)
        log_of(world).append(three()[2])
        await nothing_comes(client)
        billing(world).acked.add(12)
        billing(world).recall(the_consumer(world), IndexRange(12, 12))
        assert await counts(client, 1) == [(2, 0)]


@pytest.mark.asyncio
async def test_what_a_consumer_held_is_void_when_another_one_is_active() -> None:
    """That one gets it; the client learns the change, and its acknowledgements name nothing."""
    async with door_world() as world, raw_client(world.port) as client:
        log_of(world).append(*three())
        await opened(client, FAILOVER)
        await client.read()
        client.write(flow(1))
        await messages(client, 1)
        the_consumer(world).callbacks.active(False)
        assert (await client.read()).command.active_consumer_change.is_active is False
        assert (await client.answer(ack(id_of(5, 0), request_id=70))).error == NOT_FOUND


@pytest.mark.asyncio
async def test_consumer_that_holds_too_much_gets_nothing_more() -> None:
    """Whatever it has permits for; nothing more is kept for it in the door. It goes on when it has acknowledged."""
    async with door_world() as world, raw_client(world.port) as client:
        log_of(world).append(
            stored(columns([b""] * UNACKNOWLEDGED_MAX), entry_id=0, base_index=0),
            stored(columns([b"a"]), entry_id=1, base_index=UNACKNOWLEDGED_MAX),
        )
        await opened(client, SHARED)
        client.write(flow(100_000))
        await messages(client, 1)
        answer = await client.answer(frame(command(STATS, (1, 71), (4, 1))))
        assert (answer.unacked, answer.blocked) == (UNACKNOWLEDGED_MAX, True)
        assert the_consumer(world).given == UNACKNOWLEDGED_MAX
        client.write(ack(id_of(5, 0)))
        assert await counts(client, 1) == [(1, 0)]
