"""Consumers with a store of effects at a real owner, over the wire."""

import json
from pathlib import Path

import pytest

from oncelog.core.acks.changes import IndexRange, SubscriptionType
from oncelog.core.delivery.events import (
    AnswerAck,
    ConsumerDetached,
    ConsumerOpening,
    EndConsumer,
    FlowReported,
    Subscribed,
    SubscriptionSought,
)
from oncelog.core.delivery.store_binding.events import (
    AnswerEffects,
    BindRequested,
    EffectsAsked,
    RewindRequested,
    SubscriptionEffects,
)
from oncelog.core.errors import (
    Conflict,
    InvalidArgument,
    InvalidName,
    NotOwner,
    OncelogError,
    StoreMismatch,
)
from oncelog.wire import subscriptions_pb2 as pb
from oncelog.wire.owner_pb2 import ReaderStart
from tests.cluster.until import until
from tests.contract.owner.consuming.test_topic_owner_consuming import stored
from tests.contract.owner.consuming.test_topic_owner_subscriptions import Administrator
from tests.contract.owner.owner_world import ANOTHER, DEADLINE_S, owner_world
from tests.contract.owner.ownership.fencing import fence
from tests.contract.sdk.fakes.consume_client import WINDOW, ConsumeClient

pytestmark = pytest.mark.asyncio

STORE = "5a" * 16


def opening(call: int, store_id: str = STORE, effect: str = "invoices") -> ConsumerOpening:
    return ConsumerOpening(
        call, "billing", SubscriptionType.FAILOVER, f"c{call}", b"%016d" % call, first_index=0, store_id=store_id,
        effect=effect,
    )  # fmt: skip


async def attached(client: ConsumeClient, call: int) -> Subscribed:
    result = await client.open(opening(call))
    assert isinstance(result, Subscribed), result
    await client.send(FlowReported(result.consumer, 0, WINDOW))
    return result


async def bind(client: ConsumeClient, consumer: Subscribed, request: int) -> OncelogError | None:
    await client.send(BindRequested(consumer.consumer, request, consumer.seek_epoch, consumer.generation))
    return (await client.report(AnswerAck, lambda answer: answer.request == request)).error


async def effects_of(client: ConsumeClient, consumer: Subscribed) -> SubscriptionEffects:
    await client.send(EffectsAsked(consumer.consumer, 1, 0))
    return (await client.report(AnswerEffects)).effects


async def test_bound_consumed_and_rewound(tmp_path: Path) -> None:
    """What was lost is delivered again, and a consumer without a store is refused."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        await stored(channel, runner, 3, 3)
        client = ConsumeClient(channel, runner)
        consumer = await attached(client, 1)
        assert await client.received(6) == list(range(6))
        assert await bind(client, consumer, 1) is None
        assert (await client.ack(consumer, 0, 3, request=2)).error is None
        found = await effects_of(client, consumer)
        assert (found.store_id, found.effect, found.consumed) == (STORE, "invoices", (IndexRange(0, 3),))
        assert isinstance(await ConsumeClient(channel, runner).ask(SubscriptionType.FAILOVER, name="x"), StoreMismatch)
        lost = (IndexRange(1, 2),)
        await client.send(RewindRequested(consumer.consumer, 3, consumer.seek_epoch, consumer.generation, lost))
        assert (await client.report(SubscriptionSought)).seek_epoch == 1
        assert (await client.report(AnswerAck, lambda answer: answer.request == 3)).error is None
        assert await client.received(4) == [1, 2, 4, 5]
        found = await effects_of(client, consumer)
        assert (found.seek_epoch, found.consumed) == (1, (IndexRange(0, 0), IndexRange(3, 3)))


@pytest.mark.hazard("log-known-by-a-deposed-owner")
async def test_deposed_owner_does_not_say_what_the_log_knows(tmp_path: Path) -> None:
    """It has not heard of its unload, and has proved itself a moment ago."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        await stored(channel, runner, 3)
        client = ConsumeClient(channel, runner)
        consumer = await attached(client, 1)
        assert await client.received(3) == [0, 1, 2]
        await world.place(runner.topic_id, ANOTHER)
        await fence(world, runner)
        await client.send(EffectsAsked(consumer.consumer, 1, 0))
        report = (await anext(aiter(client.stream)))[0].report
        assert isinstance(report, EndConsumer)
        assert isinstance(report.error, NotOwner)


@pytest.mark.hazard("log-known-by-a-deposed-owner")
async def test_answer_about_the_log_comes_behind_messages_that_wait_for_a_proof(tmp_path: Path) -> None:
    """That proof began before the question, so another one follows."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        await stored(channel, runner, 3)
        client = ConsumeClient(channel, runner)
        result = await client.open(opening(1))
        assert isinstance(result, Subscribed)
        runner.ownership_proofs.proved_at -= 60
        await client.send(FlowReported(result.consumer, 0, WINDOW))
        await client.send(EffectsAsked(result.consumer, 1, 0))
        assert await client.received(3) == [0, 1, 2]
        assert (await client.report(AnswerEffects)).effects.next_index == 3


async def test_operator_sees_the_store_redoes_and_rebinds(tmp_path: Path) -> None:
    """As a metadata service asks for it. A plain seek redoes nothing."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        await stored(channel, runner, 3, 3)
        admin = Administrator(channel, runner)
        client = ConsumeClient(channel, runner)
        consumer = await attached(client, 1)
        await client.received(6)
        assert (await admin.described())["billing"]["effects"] is None
        assert await bind(client, consumer, 1) is None
        await client.ack(consumer, 0, 3, request=2)
        short = (await admin.described())["billing"]["effects"]
        assert short == {"store_id": STORE, "effect": "invoices", "consumed_count": 4, "redo_epoch": 0, "redo_index": 0}
        known = json.loads((await admin.ask("billing", consumed_from=2)).statistics_json)["effects"]
        assert (known["consumed"], known["complete"], known["next_index"]) == ([[2, 3]], True, 6)
        with pytest.raises(Conflict, match="stop the programs"):
            await admin.change(rebind=pb.RebindStore(store_id="0b" * 16))
        await client.send(ConsumerDetached(consumer.consumer, lost=False))
        with pytest.raises(InvalidArgument, match="32 hexadecimal"):
            await admin.change(rebind=pb.RebindStore(store_id=""))

        async def rebind() -> bool:
            try:
                await admin.change(rebind=pb.RebindStore(store_id="0b" * 16))
            except Conflict:
                return False  # the consumer is still there
            return True

        await until(rebind, DEADLINE_S)
        await admin.change(seek=ReaderStart(index=1))
        assert (await admin.described())["billing"]["effects"]["redo_epoch"] == 0
        await admin.change(redo=ReaderStart(index=2))
        seen = (await admin.described())["billing"]
        assert seen["effects"] == {
            "store_id": "0b" * 16, "effect": "invoices", "consumed_count": 2, "redo_epoch": 2, "redo_index": 2,
        }  # fmt: skip
        assert seen["mark_delete"] == 2


@pytest.mark.parametrize(
    ("store_id", "effect", "error"),
    [("5A" * 16, "e", InvalidArgument), ("5a", "e", InvalidArgument), (STORE, "", InvalidArgument),
     (STORE, "a/b", InvalidName), (STORE, "e" * 2_000, InvalidArgument)],
    ids=["capitals", "short", "no effect", "name", "long"],
)  # fmt: skip
async def test_bad_store_is_refused(tmp_path: Path, store_id: str, effect: str, error: type[OncelogError]) -> None:
    """A frame that cannot be read ends the stream with the reason."""
    async with owner_world(tmp_path) as (world, channel):
        client = ConsumeClient(channel, await world.serve("orders"))
        try:
            result: object = await client.open(opening(1, store_id, effect))
        except OncelogError as refused:
            result = refused
        assert isinstance(result, error)
