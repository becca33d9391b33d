"""Offsets of groups at a real owner: durable when they are answered, and told by the current owner alone."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from oncelog.core.acks.changes import SubscriptionType
from oncelog.core.delivery.events import ConsumerDetached, Subscribed
from oncelog.core.delivery.group_offsets.events import GROUP_GENERATION_MAX, METADATA_BYTES_MAX
from oncelog.core.errors import InvalidArgument, InvalidName, NotOwner, PermissionDenied
from oncelog.core.names import parse_namespace
from oncelog.metadata_store.records.policies import Policies
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.group_offset_codec import (
    COMMIT_OFFSETS,
    DELETE_OFFSETS,
    FETCH_OFFSETS,
    GROUP_TOPICS_MAX,
    RAISE_GENERATIONS,
)
from oncelog.runtime.credentials import Credentials
from oncelog.topic_owner.shell.topic_runner import TopicRunner
from oncelog.wire import group_offsets_pb2 as pb
from oncelog.wire.clients_pb2 import OnBehalfOf
from tests.cluster.until import until
from tests.contract.owner.consuming.test_topic_owner_consuming import stored
from tests.contract.owner.consuming.test_topic_owner_subscriptions import Administrator
from tests.contract.owner.owner_world import DEADLINE_S, OwnerWorld, owner_world
from tests.contract.process.security_world import secured, token
from tests.contract.sdk.fakes.consume_client import ConsumeClient

pytestmark = pytest.mark.asyncio

TIMEOUT_MS = 30_000


class Group:
    """Calls of a gateway about one group and some topics. Errors of a topic are their codes."""

    def __init__(self, channel: Channel, *runners: TopicRunner, role: str = "", name: str = "billing") -> None:
        self._channel = channel
        self._topics = [pb.GroupTopic(topic=each.name, topic_id=each.topic_id) for each in runners]
        self._of: dict[str, Any] = {"group": name}
        if role:
            self._of["on_behalf_of"] = OnBehalfOf(role=role)

    async def commit(self, *offsets: int, generation: int | None = None, metadata: str = "") -> list[object]:
        commits = [
            pb.OffsetCommit(topic=topic, offset=offset, metadata=metadata)
            for topic, offset in zip(self._topics, offsets, strict=True)
        ]
        request = pb.CommitOffsetsRequest(generation=generation, commits=commits, **self._of)
        return generations(await self._channel.call(COMMIT_OFFSETS, request, timeout_ms=TIMEOUT_MS))

    async def raised(self, generation: int, *, create: bool = False) -> list[object]:
        request = pb.RaiseGenerationsRequest(generation=generation, create=create, topics=self._topics, **self._of)
        return generations(await self._channel.call(RAISE_GENERATIONS, request, timeout_ms=TIMEOUT_MS))

    async def fetched(self) -> list[object]:
        """(offset, metadata) of each topic."""
        request = pb.FetchOffsetsRequest(topics=self._topics, **self._of)
        answer = await self._channel.call(FETCH_OFFSETS, request, timeout_ms=TIMEOUT_MS)
        return [each.error.code or (each.offset if each.HasField("offset") else None, each.metadata)
                for each in answer.results]  # fmt: skip

    async def deleted(self, generation: int = 1, *, unused_for_ms: int = 0) -> list[object]:
        request = pb.DeleteOffsetsRequest(
            generation=generation, topics=self._topics, unused_for_ms=unused_for_ms, **self._of
        )
        return generations(await self._channel.call(DELETE_OFFSETS, request, timeout_ms=TIMEOUT_MS))


def generations(answer: pb.GroupOffsetsAnswer) -> list[object]:
    return [each.error.code or each.generation for each in answer.results]


async def next_owner(world: OwnerWorld, runner: TopicRunner) -> TopicRunner:
    """Another life of the topic, at this owner."""
    topic_id = runner.topic_id
    await world.place(topic_id, runner.core.ownership.me)
    world.topics.assign(topic_id)
    await runner.progress.until_ended()
    world.topics.assign(topic_id)
    found = world.topics.find(topic_id)
    assert found is not None
    await found.progress.until_serving()
    return found


async def test_offsets_outlive_the_owner(tmp_path: Path) -> None:
    """Each topic has an answer of its own; what the next owner tells is what was committed, with the metadata. The
    statistics show the same position."""
    async with owner_world(tmp_path) as (world, channel):
        first, second = await world.serve("orders"), await world.serve("payments")
        await stored(channel, first, 3, 3)
        await stored(channel, second, 2)
        group = Group(channel, first, second)
        assert await group.fetched() == [(None, ""), (None, "")]
        assert await group.commit(4, 3, generation=2, metadata="pläce") == [2, "invalid_argument"]
        assert await group.commit(5, 1, generation=2, metadata="m") == [2, 2]
        assert await group.commit(3, 1, generation=3, metadata="back") == [3, 3]
        assert await group.commit(6, 2, generation=2) == ["consumer_fenced", "consumer_fenced"]
        for runner in (first, second):
            await next_owner(world, runner)
        assert await group.fetched() == [(3, "back"), (1, "back")]
        assert await group.commit(6, 2, generation=2) == ["consumer_fenced", "consumer_fenced"]
        shown = (await Administrator(channel, first).described())["billing"]
        assert (shown["mark_delete"], shown["type"], shown["generation"], shown["msg_backlog"]) == (3, "failover", 3, 3)
        assert (shown["committed"]["metadata"], shown["committed"]["position"]) == ("back", 3)


async def test_metadata_is_of_the_offset_that_was_committed(tmp_path: Path) -> None:
    """An operator has moved the position since: the client's note is not about this place."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        await stored(channel, runner, 3)
        group = Group(channel, runner)
        await group.commit(1, generation=1, metadata="note")
        await Administrator(channel, runner).change(skip=1)
        assert await group.fetched() == [(2, "")]


@pytest.mark.hazard("former-member-commits")
async def test_raise_is_durable_where_the_group_has_an_offset(tmp_path: Path) -> None:
    """It is skipped elsewhere, unless the subscription shall be created. The next owner fences, too."""
    async with owner_world(tmp_path) as (world, channel):
        first, second = await world.serve("orders"), await world.serve("payments")
        await stored(channel, first, 3)
        one, both = Group(channel, first), Group(channel, first, second)
        await one.commit(1, generation=1)
        assert await both.raised(4) == [4, 0]
        assert await both.raised(3) == [4, 0]
        first = await next_owner(world, first)
        one, both = Group(channel, first), Group(channel, first, second)
        assert await one.commit(2, generation=3) == ["consumer_fenced"]
        assert await both.raised(5, create=True) == [5, 5]
        assert await both.fetched() == [(1, ""), (0, "")]


@pytest.mark.hazard("offset-without-its-owner", "former-member-commits")
async def test_owner_that_was_replaced_tells_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its offset, its generation and the end of its log may be old ones."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        await stored(channel, runner, 3)
        group = Group(channel, runner)
        await group.commit(1, generation=2)

        async def refute() -> None:
            raise NotOwner("another owner has the topic")

        monkeypatch.setattr(runner.ownership_proofs, "prove", refute)
        assert await group.fetched() == ["not_owner"]
        assert await group.raised(2) == ["not_owner"]
        assert await group.commit(4, generation=2) == ["not_owner"]
        assert await group.commit(1, generation=1) == ["not_owner"]
        assert await group.deleted() == ["not_owner"]


@pytest.mark.hazard("offset-without-its-owner")
async def test_question_waits_for_commits_in_flight(tmp_path: Path) -> None:
    """A commit that the storage node has not answered is neither told nor left out."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        await stored(channel, runner, 3)
        group = Group(channel, runner)
        await group.commit(1, generation=1)
        with world.node.hold():
            committing = asyncio.ensure_future(group.commit(3, generation=1))
            await until(lambda: len(runner.consumers._administering) == 1, DEADLINE_S)
            asking = asyncio.ensure_future(group.fetched())
            await until(lambda: len(runner.consumers._administering) == 2, DEADLINE_S)
            assert not asking.done()
        assert await committing == [1]
        assert await asking == [(3, "")]


async def test_one_slow_topic_holds_up_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its outcome is unknown."""
    monkeypatch.setattr("oncelog.topic_owner.streams.group_offset_service.ANSWERED_WITHIN_S", 0.5)
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        await stored(channel, runner, 3)
        with world.node.hold():
            assert await Group(channel, runner).commit(1, generation=1) == ["deadline_exceeded"]
        await until(lambda: runner.core.serving is not None and bool(runner.core.serving.acks.state.names), DEADLINE_S)


async def test_group_and_consumers_exclude_each_other(tmp_path: Path) -> None:
    """While a consumer of the SDK is attached, and where the subscription is shared."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        await stored(channel, runner, 3)
        group = Group(channel, runner)
        await group.commit(1, generation=1)
        client = ConsumeClient(channel, runner)
        attached = await client.ask(SubscriptionType.SHARED, first_index=None)
        assert isinstance(attached, Subscribed)
        assert await group.commit(2, generation=1) == ["consumer_busy"]
        assert await group.raised(9) == ["consumer_busy"]
        assert await group.deleted(9) == ["conflict"]
        assert await group.fetched() == [(1, "")]
        await client.send(ConsumerDetached(attached.consumer, lost=False))
        await until(lambda: not runner.consumers.any_attached, DEADLINE_S)
        assert await group.commit(2, generation=1) == ["subscription_type_mismatch"]


async def test_deletion_of_offsets(tmp_path: Path) -> None:
    """Up to a generation, and also of those that are not there."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        await stored(channel, runner, 3)
        group = Group(channel, runner)
        await group.commit(1, generation=1)
        assert await group.deleted(0) == ["consumer_fenced"]
        assert await group.deleted(unused_for_ms=3_600_000) == ["consumer_fenced"]
        assert await group.deleted() == [1]
        assert await group.deleted() == [0]
        assert await group.fetched() == [(None, "")]


@pytest.mark.parametrize("what", ["name", "topics", "generation", "level"])
async def test_call_beyond_a_limit_is_refused_as_a_whole(tmp_path: Path, what: str) -> None:
    """With the field and the limit; nothing of it is done."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        await stored(channel, runner, 3)
        error: type[InvalidArgument] = InvalidArgument
        group, generation = Group(channel, runner), 1
        field = {"name": "group", "level": "client"}.get(what, what)
        match what:
            case "name":
                group, error = Group(channel, runner, name="a b"), InvalidName
            case "topics":
                group = Group(channel, *[runner] * (GROUP_TOPICS_MAX + 1))
            case "generation":
                generation = GROUP_GENERATION_MAX + 1
            case "level":
                world.level = 8
        with pytest.raises(error) as caught:
            await group.commit(*[1] * len(group._topics), generation=generation)
        assert caught.value.details["field"] == field
        assert runner.core.serving is not None
        assert not runner.core.serving.subscriptions.activity.ticking
        assert list(runner.core.serving.subscriptions) == []


async def test_metadata_has_a_largest_size(tmp_path: Path) -> None:
    """In bytes, and only its topic is refused."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        await stored(channel, runner, 3)
        group = Group(channel, runner)
        assert await group.commit(1, generation=1, metadata="ä" * (METADATA_BYTES_MAX // 2)) == [1]
        assert await group.commit(2, generation=1, metadata="ä" * (METADATA_BYTES_MAX // 2) + "x") == [
            "invalid_argument"
        ]
        assert await group.fetched() == [(1, "ä" * (METADATA_BYTES_MAX // 2))]


async def test_right_to_consume_of_the_role_counts(tmp_path: Path) -> None:
    """Not that of the gateway; and only a superuser asks for others."""
    async with owner_world(tmp_path, security=secured(tmp_path)) as (world, channel):
        grants: dict[str, tuple[str, ...]] = {"auditor": ("consume",), "importer": ("produce",)}
        await world.parts.policies.change(parse_namespace("public/default"), lambda _: Policies(permissions=grants))
        runner = await world.serve("orders")
        denied, allowed = Group(channel, runner, role="importer"), Group(channel, runner, role="auditor")
        for outcome in (await denied.commit(0, generation=1), await denied.raised(1), await denied.deleted()):
            assert outcome == ["permission_denied"]
        assert await denied.fetched() == ["permission_denied"]
        assert await allowed.commit(0, generation=1) == [1]
        assert (await Administrator(channel, runner).described())["billing"]["role"] == "auditor"
        async with Channel(channel.address, credentials=Credentials.of(tls=False, token=token("auditor"))) as own:
            assert await Group(own, runner).fetched() == [(0, "")]
            with pytest.raises(PermissionDenied, match="not a superuser"):
                await Group(own, runner, role="auditor").fetched()
