"""Leases of producer ids, for clients. The core of the topic decides; see `core.publishing.openings`."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace

from oncelog.core.access import Caller, Right, caller_for
from oncelog.core.errors import Fatal, InvalidArgument, InvariantViolated, OncelogError, ServiceUnavailable
from oncelog.core.formats.entry import SequenceMode
from oncelog.core.formats.opening import Granted, Lease, Leased, ProducerOpening
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
from oncelog.rpc.codecs.lease_codec import LEASES_MAX
from oncelog.rpc.codecs.owner_codec import caller_from_wire
from oncelog.rpc.status import error_to_wire
from oncelog.topic_owner.shell.topic_registry import TopicRegistry
from oncelog.topic_owner.shell.topic_runner import TopicRunner
from oncelog.topic_owner.streams.authorization import authorize, is_known_to_have
from oncelog.wire import owner_pb2 as pb

#: A lease that is not granted by then is to be asked for again, and one that waits does not hold up the others of its
#: request. Longer than the topic waits before it says why it does not serve; shorter than the time-outs of callers.
ANSWERED_WITHIN_S = 4.0


class _Answer:
    """Receives the answer of one request; a lease opens no session."""

    def __init__(self) -> None:
        self.future: asyncio.Future[Leased | OncelogError] = asyncio.get_running_loop().create_future()

    def opened(self, call: int, runner: TopicRunner, answer: AnswerOpen) -> None:
        if isinstance(answer.result, Granted):
            raise InvariantViolated("a lease was answered by a session")
        if not self.future.done():
            self.future.set_result(answer.result)

    def answered(self, answer: BatchAnswer) -> None: ...
    def ended(self, session: SessionNumber, error: OncelogError, owner_epoch: OwnerEpoch) -> None: ...
    def switched(self, session: SessionNumber, *, on: bool) -> None: ...
    def wanted(self, session: SessionNumber) -> None: ...


class LeaseService:
    """The handler."""

    def __init__(self, topics: TopicRegistry, calls: Iterator[int]) -> None:
        """calls: numbers of requests to open, which no other request of this process has."""
        self._topics = topics
        self._calls = calls

    async def lease(self, request: pb.LeaseProducerIdRequest, caller: Caller) -> pb.LeaseProducerIdAnswer:
        """Raises InvalidArgument, PermissionDenied, ProducerFenced, ProducerExpired; ServiceUnavailable for a
        lease that is not granted in time; NotOwner. In a request for several leases
        each has an error of its own."""
        runner = self._topics.runner(TopicId(request.topic_id), request.topic)
        wanted: list[pb.LeaseProducerIdRequest | pb.FurtherLease] = [request, *request.further]
        try:
            results = await self._lease(runner, request, wanted, caller)
        except Fatal as error:
            results = [error] * len(wanted)
        if request.further:
            answer = pb.LeaseProducerIdAnswer(results=map(_result_on_wire, results))
        elif isinstance(results[0], OncelogError):
            raise results[0]
        else:
            answer = _on_wire(results[0])
        answer.owner_epoch = runner.owner_epoch
        return answer

    async def _lease(
        self, runner: TopicRunner, request: pb.LeaseProducerIdRequest,
        wanted: Sequence[pb.LeaseProducerIdRequest | pb.FurtherLease], caller: Caller,
    ) -> list[Leased | OncelogError]:  # fmt: skip
        """The core is asked for all of them at once, so the storage nodes get their grants in one frame."""
        if len(wanted) > LEASES_MAX:
            raise InvalidArgument(f"{len(wanted)} leases in one call", field="further", limit=LEASES_MAX)
        leases = [_lease_of(each) for each in wanted]
        stated = caller_from_wire(request.on_behalf_of) if request.HasField("on_behalf_of") else None
        peer, caller = caller.address, caller_for(caller, stated)
        await authorize(runner, caller, Right.PRODUCE)
        first = ProducerOpening(
            0, None, SequenceMode.CONTIGUOUS, owner_epoch_seen=OwnerEpoch(request.owner_epoch_seen), role=caller.role,
            takes_any_name=is_known_to_have(runner, caller, Right.ADMIN), peer=peer,
            producers_elsewhere=self._topics.producers.elsewhere(runner),
        )  # fmt: skip
        asked: dict[int, _Answer] = {}
        try:
            for each, lease in zip(wanted, leases, strict=True):
                call, answer = next(self._calls), _Answer()
                asked[call] = answer
                runner.open(replace(first, call=call, instance_id=InstanceId(each.request_id), lease=lease), answer)
            await asyncio.wait([answer.future for answer in asked.values()], timeout=ANSWERED_WITHIN_S)
        finally:
            for call in asked:
                runner.abandon(call)
        reason = runner.wait_reason()
        waits = ServiceUnavailable(f"topic {runner.name} has not granted this lease yet: ask again")
        late = waits if reason is None else reason.error()
        return [answer.future.result() if answer.future.done() else late for answer in asked.values()]


def _on_wire(leased: Leased) -> pb.LeaseProducerIdAnswer:
    return pb.LeaseProducerIdAnswer(
        producer_id=leased.instance.producer_id,
        generation=leased.instance.generation,
        last_sequence_id=leased.last_sequence_id,
        producer_name=leased.name,
        expires_in_ms=leased.expires_in_ms,
    )


def _result_on_wire(result: Leased | OncelogError) -> pb.LeaseResult:
    if isinstance(result, OncelogError):
        return pb.LeaseResult(error=error_to_wire(result))
    return pb.LeaseResult(lease=_on_wire(result))


def _lease_of(request: pb.LeaseProducerIdRequest | pb.FurtherLease) -> Lease:
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
