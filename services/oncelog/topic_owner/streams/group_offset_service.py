"""Offsets and generations of groups of gateways' clients (`core.delivery.group_offsets`).

A gateway asks for a member of a group, in one call for many topics, each of which has an answer of its own. Unless it
was written here, an answer follows a proof of ownership: an owner that was replaced knows neither the newest commit nor
the newest end of the log (hazards offset-without-its-owner, former-member-commits).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from oncelog.core.access import Caller, Right, caller_for
from oncelog.core.delivery.events import DeleteRequested
from oncelog.core.delivery.group_offsets.events import (
    GROUP_GENERATION_MAX,
    GenerationRaiseRequested,
    OffsetAsked,
    OffsetCommitRequested,
    check_offset,
)
from oncelog.core.errors import (
    DeadlineExceeded,
    Fatal,
    InvalidArgument,
    InvariantViolated,
    OncelogError,
    SubscriptionNotFound,
)
from oncelog.core.formats.client_token import OFFSETS, check_level
from oncelog.core.ids import Generation, OwnerEpoch, TopicId
from oncelog.core.names import check_part
from oncelog.rpc.codecs import group_offset_codec
from oncelog.rpc.codecs.group_offset_codec import GROUP_TOPICS_MAX
from oncelog.rpc.codecs.owner_codec import caller_from_wire
from oncelog.rpc.server import Server
from oncelog.rpc.status import error_to_wire
from oncelog.topic_owner.shell.topic_registry import TopicRegistry
from oncelog.topic_owner.shell.topic_runner import TopicRunner
from oncelog.topic_owner.streams.authorization import authorize
from oncelog.topic_owner.streams.current_topic import SERVING_TIMEOUT_MS, still_served
from oncelog.wire import group_offsets_pb2 as pb

#: A topic that has no answer by then does not hold up the others of its call. Below the callers' timeout of a call.
ANSWERED_WITHIN_S = 4.0

#: What is done about one topic.
_Done = Callable[[TopicRunner], Awaitable[pb.GroupOffsetResult]]
_Request = pb.CommitOffsetsRequest | pb.FetchOffsetsRequest | pb.RaiseGenerationsRequest | pb.DeleteOffsetsRequest


class GroupOffsetService:
    """The handlers. They raise InvalidArgument, InvalidName and PermissionDenied for what the topics share."""

    def __init__(self, topics: TopicRegistry, level: Callable[[], int]) -> None:
        """level: of the cluster."""
        self._topics = topics
        self._level = level

    def serve(self, server: Server) -> None:
        server.client_unary(group_offset_codec.COMMIT_OFFSETS, self.commit)
        server.client_unary(group_offset_codec.FETCH_OFFSETS, self.fetch)
        server.client_unary(group_offset_codec.RAISE_GENERATIONS, self.raise_generations)
        server.client_unary(group_offset_codec.DELETE_OFFSETS, self.delete)

    async def commit(self, request: pb.CommitOffsetsRequest, caller: Caller) -> pb.GroupOffsetsAnswer:
        generation = _generation(request.generation) if request.HasField("generation") else None
        role = self._checked(request, caller)

        def committing(commit: pb.OffsetCommit) -> _Done:
            async def done(runner: TopicRunner) -> pb.GroupOffsetResult:
                check_offset(commit.offset, commit.metadata)
                event = OffsetCommitRequested(0, request.group, commit.offset, generation, commit.metadata, role.role)
                return _written(await runner.consumers.administer(event))

            return done

        return await self._answer(role, [(each.topic, committing(each)) for each in request.commits])

    async def fetch(self, request: pb.FetchOffsetsRequest, caller: Caller) -> pb.GroupOffsetsAnswer:
        async def done(runner: TopicRunner) -> pb.GroupOffsetResult:
            await runner.consumers.administer(OffsetAsked(0, request.group))
            return _offset_of(runner, request.group)

        return await self._answer(
            self._checked(request, caller), [(topic, done) for topic in request.topics], prove=True
        )

    async def raise_generations(self, request: pb.RaiseGenerationsRequest, caller: Caller) -> pb.GroupOffsetsAnswer:
        generation, role = _generation(request.generation), self._checked(request, caller)

        async def done(runner: TopicRunner) -> pb.GroupOffsetResult:
            event = GenerationRaiseRequested(0, request.group, generation, request.create, role.role)
            return _written(await runner.consumers.administer(event))

        return await self._answer(role, [(topic, done) for topic in request.topics], prove=True)

    async def delete(self, request: pb.DeleteOffsetsRequest, caller: Caller) -> pb.GroupOffsetsAnswer:
        generation, role = _generation(request.generation), self._checked(request, caller)

        async def done(runner: TopicRunner) -> pb.GroupOffsetResult:
            found = _offset_of(runner, request.group)
            if found.HasField("offset"):
                event = DeleteRequested(0, request.group, generation=generation, unused_for_ms=request.unused_for_ms)
                with suppress(SubscriptionNotFound):  # it is as it was wanted
                    await runner.consumers.administer(event)
            return found

        return await self._answer(role, [(topic, done) for topic in request.topics], prove=True)

    def _checked(self, request: _Request, caller: Caller) -> Caller:
        """The caller whose rights count. Raises InvalidArgument, PermissionDenied."""
        check_level(self._level(), OFFSETS)
        check_part(request.group, field="group")
        stated = caller_from_wire(request.on_behalf_of) if request.HasField("on_behalf_of") else None
        return caller_for(caller, stated)

    async def _answer(
        self, role: Caller, asked: Sequence[tuple[pb.GroupTopic, _Done]], *, prove: bool = False
    ) -> pb.GroupOffsetsAnswer:
        """prove: also what is answered without an error."""
        if len(asked) > GROUP_TOPICS_MAX:
            message = f"{len(asked)} topics in one call, at most {GROUP_TOPICS_MAX} are allowed"
            raise InvalidArgument(message, field="topics", limit=GROUP_TOPICS_MAX)
        found = await asyncio.gather(*(self._of_topic(role, topic, done, prove) for topic, done in asked))
        return pb.GroupOffsetsAnswer(results=found)

    async def _of_topic(self, role: Caller, topic: pb.GroupTopic, done: _Done, prove: bool) -> pb.GroupOffsetResult:
        epoch = OwnerEpoch(0)
        try:
            runner = self._topics.runner(TopicId(topic.topic_id), topic.topic)
            epoch = runner.owner_epoch
            async with asyncio.timeout(ANSWERED_WITHIN_S):
                await authorize(runner, role, Right.CONSUME)
                result = await _proved(runner, OwnerEpoch(topic.owner_epoch_seen), done, prove)
            result.owner_epoch = runner.owner_epoch
        except InvariantViolated:
            raise
        except TimeoutError:
            late = DeadlineExceeded(f"topic {topic.topic} has not answered in time: what was asked may have been done")
            return pb.GroupOffsetResult(error=error_to_wire(late), owner_epoch=epoch)
        except OncelogError as error:
            return pb.GroupOffsetResult(error=error_to_wire(error), owner_epoch=epoch)
        return result


async def _proved(runner: TopicRunner, seen: OwnerEpoch, done: _Done, prove: bool) -> pb.GroupOffsetResult:
    """Raises the error of the topic, if it is one of the current owner; NotOwner."""
    if prove:
        await runner.ownership_proofs.until_current(seen, serving_timeout_ms=SERVING_TIMEOUT_MS)
    try:
        return await done(runner)
    except Fatal:
        await runner.ownership_proofs.until_current(seen, serving_timeout_ms=SERVING_TIMEOUT_MS)
        raise


def _generation(number: int) -> Generation:
    if number > GROUP_GENERATION_MAX:
        message = f"generation {number}: a group has one of up to {GROUP_GENERATION_MAX}"
        raise InvalidArgument(message, field="generation", limit=GROUP_GENERATION_MAX)
    return Generation(number)


def _written(generation: Generation) -> pb.GroupOffsetResult:
    return pb.GroupOffsetResult(generation=generation)


def _offset_of(runner: TopicRunner, group: str) -> pb.GroupOffsetResult:
    """By the durable state. Raises TopicLoading."""
    state = still_served(runner).acks.state.by_name(group)
    if state is None:
        return pb.GroupOffsetResult()
    found = pb.GroupOffsetResult(generation=state.generation, offset=state.mark_delete)
    if state.committed is not None:
        found.committed_ms = state.committed.time_ms
        if state.committed.position == state.mark_delete:
            found.metadata = state.committed.metadata
    return found
