"""Leases of producer ids: many of one topic in one call of its owner."""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeAlias

from oncelog.core.access import Caller
from oncelog.core.errors import DeadlineExceeded, Fatal, OncelogError
from oncelog.core.ids import OwnerEpoch, TopicId
from oncelog.core.names import TopicName
from oncelog.rpc.codecs.owner_codec import caller_to_wire
from oncelog.rpc.status import error_from_wire
from oncelog.wire import owner_pb2 as pb

#: Of one call.
LEASES_MAX = 1_000


class WantedLease(NamedTuple):
    """producer_id 0: a new one. generation 0: the next one. expire_ms 0: the default, or as before. request_id:
    INSTANCE_ID_BYTES, the same whenever the request is repeated."""

    producer_id: int
    generation: int
    expire_ms: int
    request_id: bytes


LeaseResult: TypeAlias = pb.LeaseProducerIdAnswer | OncelogError


class LeaseCalls:
    """Leases of one topic, and those of their results that are final. The others are asked for until there are none."""

    def __init__(self, wanted: Sequence[WantedLease]) -> None:
        """wanted: at most LEASES_MAX."""
        #: {place: lease}, {place: its final result}
        self._waiting = dict(enumerate(wanted))
        self._results: dict[int, LeaseResult] = {}

    async def ask(
        self,
        call: Callable[[pb.LeaseProducerIdRequest], Awaitable[pb.LeaseProducerIdAnswer]],
        topic: TopicName,
        topic_id: TopicId,
        *,
        owner_epoch_seen: OwnerEpoch = OwnerEpoch(0),
        on_behalf_of: Caller | None = None,
    ) -> OncelogError | None:
        """Ask the owner by `call`. Returns why some leases are asked for again later; None: each has a final result.
        Raises retriable errors of the call."""
        again = None
        while self._waiting and again is None:
            first, *further = self._waiting.values()
            request = pb.LeaseProducerIdRequest(
                topic=str(topic), topic_id=topic_id, owner_epoch_seen=owner_epoch_seen,
                producer_id=first.producer_id, generation=first.generation, expire_ms=first.expire_ms,
                request_id=first.request_id, further=[pb.FurtherLease(**each._asdict()) for each in further],
                on_behalf_of=None if on_behalf_of is None else caller_to_wire(on_behalf_of),
            )  # fmt: skip
            results: Sequence[LeaseResult]
            try:
                answer = await call(request)
                # An owner that knows no further leases answers for the first one, and refuses it, alone.
                results = [_result_of(each) for each in answer.results] or [answer]
            except Fatal as error:
                results = [error]
            for place, result in zip(list(self._waiting), results, strict=False):
                if isinstance(result, OncelogError) and result.retriable:
                    again = result
                else:
                    self._results[place] = result
                    del self._waiting[place]
        return again

    def results(self, unanswered: OncelogError | None = None) -> list[LeaseResult]:
        """In the order in which they were wanted. unanswered: of those that have none; None: each has one."""
        if unanswered is not None:
            self._results.update(dict.fromkeys(self._waiting, unanswered))
        return [self._results[place] for place in sorted(self._results)]


def _result_of(result: pb.LeaseResult) -> LeaseResult:
    return error_from_wire(result.error) if result.HasField("error") else result.lease


def unanswered(topic: TopicName, timeout_ms: int, advice: str, cause: OncelogError) -> DeadlineExceeded:
    """What a caller is told after its time: one text, wherever the time went. advice: what to do."""
    return DeadlineExceeded(
        f"a lease of a producer id of {topic} was not answered within {timeout_ms / 1000:g} s, so it is unknown "
        f"whether it was granted: {advice}. The last attempt: {cause.message}",
        **cause.details,
    )
