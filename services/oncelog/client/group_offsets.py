"""For gateways: offsets that groups of their clients commit.

The offset of a group in a topic is the position of the subscription that has the group's name, so it is the same for
retention, statistics and operators. A gateway has made sure that a member may commit; owners check the generation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from oncelog.client.client import AsyncClient, network_of
from oncelog.client.network.lookup import Route
from oncelog.client.network.network import Network
from oncelog.client.network.topic_calls import Ask, AskedTopic, ask_owners
from oncelog.core.access import Caller
from oncelog.core.delivery.group_offsets.events import check_offset
from oncelog.core.errors import ConsumerBusy, InvalidArgument, OncelogError
from oncelog.core.names import TopicName
from oncelog.rpc.codecs.group_offset_codec import (
    COMMIT_OFFSETS,
    DELETE_OFFSETS,
    FETCH_OFFSETS,
    GROUP_TOPICS_MAX,
    RAISE_GENERATIONS,
)
from oncelog.rpc.codecs.owner_codec import caller_to_wire
from oncelog.rpc.status import error_from_wire
from oncelog.wire import group_offsets_pb2 as pb
from oncelog.wire.clients_pb2 import OnBehalfOf

__all__ = ["GroupOffset", "GroupOffsets", "GroupResult", "NewOffset"]


class NewOffset(NamedTuple):
    """What a group commits. metadata: of the client, 4 KiB at most."""

    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """Of a group in one topic. offset: None: it has none; only an owner that has proved itself says so. generation: of
    its subscription, 0: no group has used it. metadata: of the newest commit, if nothing else has moved the offset
    since. committed_ms: when that was, by the owner's clock; 0: never."""

    offset: int | None
    generation: int = 0
    metadata: str = ""
    committed_ms: int = 0


#: Of one topic. A retriable error: it was asked for until the time was over, and what was to be written may be written.
GroupResult: TypeAlias = GroupOffset | OncelogError
_Answered: TypeAlias = tuple[int, GroupResult]


class GroupOffsets:
    """Of one group, asked for by one caller. Topics are those without partitions, or partitions.

    Each call returns a result for each topic, within timeout_ms about. Errors of topics: TopicNotFound,
    PermissionDenied, and those of the call.
    """

    def __init__(self, client: AsyncClient, group: str, *, on_behalf_of: Caller | None, timeout_ms: int) -> None:
        """on_behalf_of: for superusers: the caller whose right to consume is checked."""
        self._network: Network = network_of(client)
        self._group = group
        self._caller: OnBehalfOf | None = None if on_behalf_of is None else caller_to_wire(on_behalf_of)
        self._timeout_ms = timeout_ms

    async def commit(
        self, offsets: Mapping[TopicName, NewOffset], *, generation: int | None
    ) -> dict[TopicName, GroupResult]:
        """Durable when it returns. generation: of the member; None: of no member. A partition that was never used is
        created, the other topics must be there.

        InvalidArgument: `offset` is above the end of the topic; `metadata` is too long. ConsumerFenced: another member
        has the partition since. ConsumerBusy, SubscriptionTypeMismatch, Conflict: the subscription is used otherwise.
        """

        refused: dict[TopicName, GroupResult] = {}
        for topic, new in offsets.items():
            try:
                check_offset(new.offset, new.metadata)
            except InvalidArgument as error:
                refused[topic] = error

        async def ask(route: Route, topics: Sequence[AskedTopic]) -> list[_Answered]:
            commits = [
                pb.OffsetCommit(topic=_on_wire(each), offset=offsets[each.name].offset,
                                metadata=offsets[each.name].metadata)
                for each in topics
            ]  # fmt: skip
            request = pb.CommitOffsetsRequest(
                group=self._group, on_behalf_of=self._caller, generation=generation, commits=commits
            )
            return _results(await self._network.ask_kept(route, COMMIT_OFFSETS, request))

        topics = [topic for topic in offsets if topic not in refused]
        return refused | await self._ask(topics, ask, may_create=True)

    async def fetch(self, topics: Sequence[TopicName]) -> dict[TopicName, GroupResult]:
        """Where the group goes on. Commits in flight are settled first."""

        async def ask(route: Route, asked: Sequence[AskedTopic]) -> list[_Answered]:
            request = pb.FetchOffsetsRequest(group=self._group, on_behalf_of=self._caller, topics=map(_on_wire, asked))
            return _results(await self._network.ask_kept(route, FETCH_OFFSETS, request))

        return await self._ask(topics, ask)

    async def raise_generations(
        self, topics: Sequence[TopicName], generation: int, *, create: bool = False
    ) -> dict[TopicName, GroupResult]:
        """No member of a lower generation commits any more, durably. `generation` of a result: that which the topic has
        then, which may be a higher one; 0: the group has no offset there, and none was created. Errors as of a commit.
        """

        async def ask(route: Route, asked: Sequence[AskedTopic]) -> list[_Answered]:
            request = pb.RaiseGenerationsRequest(
                group=self._group, on_behalf_of=self._caller, generation=generation, create=create,
                topics=map(_on_wire, asked),
            )  # fmt: skip
            return _results(await self._network.ask_kept(route, RAISE_GENERATIONS, request))

        return await self._ask(topics, ask, may_create=create)

    async def delete(
        self, topics: Sequence[TopicName], generation: int, *, unused_for_ms: int = 0
    ) -> dict[TopicName, GroupResult]:
        """Delete the subscriptions of the group; the results are what it had. unused_for_ms: unless 0, keep also those
        without a commit of a group, and those with one that is not older. ConsumerFenced: the subscription is kept, or
        has a higher generation, and is in use. Conflict: it has consumers."""

        async def ask(route: Route, asked: Sequence[AskedTopic]) -> list[_Answered]:
            request = pb.DeleteOffsetsRequest(
                group=self._group, on_behalf_of=self._caller, generation=generation, topics=map(_on_wire, asked),
                unused_for_ms=unused_for_ms,
            )  # fmt: skip
            return _results(await self._network.ask_kept(route, DELETE_OFFSETS, request))

        return await self._ask(topics, ask)

    async def _ask(
        self, topics: Sequence[TopicName], ask: Ask[GroupOffset], *, may_create: bool = False
    ) -> dict[TopicName, GroupResult]:
        return await ask_owners(
            self._network, topics, ask, timeout_ms=self._timeout_ms, topics_max=GROUP_TOPICS_MAX,
            may_create=lambda topic: may_create and topic.partition is not None, final=(ConsumerBusy,),
        )  # fmt: skip


def _on_wire(asked: AskedTopic) -> pb.GroupTopic:
    return pb.GroupTopic(topic=str(asked.name), topic_id=asked.topic_id, owner_epoch_seen=asked.owner_epoch_seen)


def _results(answer: pb.GroupOffsetsAnswer) -> list[_Answered]:
    return [(each.owner_epoch, _result(each)) for each in answer.results]


def _result(found: pb.GroupOffsetResult) -> GroupResult:
    if found.HasField("error"):
        return error_from_wire(found.error)
    offset = found.offset if found.HasField("offset") else None
    return GroupOffset(offset, found.generation, found.metadata, found.committed_ms)
