"""Leases of producer ids, for clients. The core of the topic decides; see `core.publishing.openings`."""

import asyncio
from collections.abc import Iterator

from oncelog.core.access import Caller, Right, caller_for
from oncelog.core.errors import InvalidArgument, InvariantViolated, OncelogError
from oncelog.core.formats.entry import SequenceMode
from oncelog.core.formats.opening import Lease, Leased, ProducerOpening
from oncelog.core.ids import (
    GENERATION_MAX,
    INSTANCE_ID_BYTES,
    Generation,
    InstanceId,
    OwnerEpoch,
    ProducerId,
    SessionNumber,
    TopicId,
)
from oncelog.core.policies.producer_lifetimes import LEASE_MS_MAX, LEASE_MS_MIN, lease_ms
from oncelog.core.topic_events.effects import AnswerOpen, BatchAnswer
from oncelog.rpc.codecs.owner_codec import caller_from_wire
from oncelog.topic_owner.shell.topic_registry import TopicRegistry
from oncelog.topic_owner.shell.topic_runner import TopicRunner
from oncelog.topic_owner.streams.authorization import authorize, is_known_to_have
from oncelog.topic_owner.streams.version_checks import until_leases_are_known
from oncelog.wire import owner_pb2 as pb


class _Answer:
    """Receives the answer of one request; a lease opens no session."""

    def __init__(self) -> None:
        self.future: asyncio.Future[Leased] = asyncio.get_running_loop().create_future()

    def opened(self, call: int, runner: TopicRunner, answer: AnswerOpen) -> None:
        result = answer.result
        if self.future.done():
            return
        if isinstance(result, Leased):
            self.future.set_result(result)
        elif isinstance(result, OncelogError):
            self.future.set_exception(result)
        else:
            self.future.set_exception(InvariantViolated("a lease was answered by a session"))

    def answered(self, answer: BatchAnswer) -> None: ...
    def ended(self, session: SessionNumber, error: OncelogError, owner_epoch: OwnerEpoch) -> None: ...
    def switched(self, session: SessionNumber, *, on: bool) -> None: ...


class LeaseService:
    """The handler."""

    def __init__(self, topics: TopicRegistry, calls: Iterator[int]) -> None:
        """calls: numbers of requests to open, which no other request of this process has."""
        self._topics = topics
        self._calls = calls

    async def lease(self, request: pb.LeaseProducerIdRequest, caller: Caller) -> pb.LeaseProducerIdAnswer:
        """Raises InvalidArgument, PermissionDenied, ProducerFenced, ProducerExpired; ServiceUnavailable while older
        processes are registered; NotOwner."""
        wanted = _lease_of(request)
        stated = caller_from_wire(request.on_behalf_of) if request.HasField("on_behalf_of") else None
        peer, caller = caller.address, caller_for(caller, stated)
        runner = self._topics.runner(TopicId(request.topic_id), request.topic)
        await authorize(runner, caller, Right.PRODUCE)
        await until_leases_are_known(runner)
        opening = ProducerOpening(
            next(self._calls), None, SequenceMode.CONTIGUOUS, owner_epoch_seen=OwnerEpoch(request.owner_epoch_seen),
            instance_id=InstanceId(request.request_id), role=caller.role,
            takes_any_name=is_known_to_have(runner, caller, Right.ADMIN), lease=wanted, peer=peer, peer_recorded=True,
            producers_elsewhere=self._topics.producers.elsewhere(runner),
        )  # fmt: skip
        answer = _Answer()
        runner.open(opening, answer)
        try:
            leased = await answer.future
        finally:
            runner.abandon(opening.call)
        return pb.LeaseProducerIdAnswer(
            producer_id=leased.instance.producer_id,
            generation=leased.instance.generation,
            last_sequence_id=leased.last_sequence_id,
            producer_name=leased.name,
            expires_in_ms=leased.expires_in_ms,
            owner_epoch=runner.owner_epoch,
        )


def _lease_of(request: pb.LeaseProducerIdRequest) -> Lease:
    if len(request.request_id) != INSTANCE_ID_BYTES:
        message = f"a request id has {INSTANCE_ID_BYTES} bytes"
        raise InvalidArgument(message, field="request_id", limit=INSTANCE_ID_BYTES)
    expire_ms = request.expire_ms
    if expire_ms and not LEASE_MS_MIN <= expire_ms <= LEASE_MS_MAX:
        message = f"a lease lasts {LEASE_MS_MIN} to {LEASE_MS_MAX} ms, not {expire_ms}"
        raise InvalidArgument(message, field="expire_ms", limit=LEASE_MS_MAX)
    if not request.producer_id:
        if request.generation:
            raise InvalidArgument("a new producer has no generation to prove", field="generation", limit=0)
        return Lease(None, None, lease_ms(expire_ms) if expire_ms else 0)
    if request.generation > GENERATION_MAX:
        raise InvalidArgument("no generation is as high", field="generation", limit=GENERATION_MAX)
    given = Generation(request.generation) if request.generation else None
    return Lease(ProducerId(request.producer_id), given, lease_ms(expire_ms) if expire_ms else 0)
