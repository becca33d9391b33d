"""Many leases in one call of the owner, and what is left of them when an answer is late."""

import pytest

from oncelog.core.errors import NotOwner, OncelogError, ProducerFenced, ServiceUnavailable
from oncelog.core.ids import TopicId
from oncelog.core.names import parse_topic
from oncelog.rpc.codecs.lease_codec import LeaseCalls, LeaseResult, WantedLease, unanswered
from oncelog.rpc.status import error_to_wire
from oncelog.wire import owner_pb2 as pb

pytestmark = pytest.mark.asyncio
TOPIC = parse_topic("orders")
LATE = ServiceUnavailable("topic orders has not granted this lease yet: ask again")


class Owner:
    """Gives each request the lease whose producer id is its first byte. late: requests that it leaves for later.
    refused: those that it refuses. alone: it knows no further leases."""

    def __init__(self, *, late: bytes = b"", refused: bytes = b"", alone: bool = False) -> None:
        self.late, self.refused, self.alone = late, refused, alone
        #: the request ids of each call
        self.calls: list[bytes] = []

    async def call(self, request: pb.LeaseProducerIdRequest) -> pb.LeaseProducerIdAnswer:
        asked = b"".join([request.request_id, *(each.request_id for each in request.further)])
        self.calls.append(asked)
        results = [self._result(number) for number in asked]
        if not self.alone and request.further:
            return pb.LeaseProducerIdAnswer(
                results=[
                    pb.LeaseResult(error=error_to_wire(each)) if isinstance(each, OncelogError)
                    else pb.LeaseResult(lease=each)
                    for each in results
                ]
            )  # fmt: skip
        if isinstance(results[0], OncelogError):
            raise results[0]
        return results[0]

    def _result(self, number: int) -> LeaseResult:
        if number in self.late:
            return LATE
        return ProducerFenced("fenced") if number in self.refused else pb.LeaseProducerIdAnswer(producer_id=number)


def wanted(*numbers: int) -> LeaseCalls:
    return LeaseCalls([WantedLease(0, 0, 0, bytes([number])) for number in numbers])


def shown(results: list[LeaseResult]) -> list[int | str]:
    return [each.code if isinstance(each, OncelogError) else each.producer_id for each in results]


async def test_only_leases_without_a_result_are_asked_for_again() -> None:
    """The others are leased already, and perhaps to somebody else by then."""
    owner, calls = Owner(late=b"\x02", refused=b"\x03"), wanted(1, 2, 3, 4)
    again = await calls.ask(owner.call, TOPIC, TopicId("t"))
    assert again is not None
    assert again.message == LATE.message
    owner.late = b""
    assert await calls.ask(owner.call, TOPIC, TopicId("t")) is None
    assert owner.calls == [b"\x01\x02\x03\x04", b"\x02"]
    assert shown(calls.results()) == [1, 2, ProducerFenced.code, 4]


async def test_owner_that_knows_no_further_leases_is_asked_for_one_at_a_time() -> None:
    """During an upgrade. What it refuses is the first one alone."""
    owner, calls = Owner(alone=True, refused=b"\x01\x03"), wanted(1, 2, 3, 4)
    assert await calls.ask(owner.call, TOPIC, TopicId("t")) is None
    assert shown(calls.results()) == [ProducerFenced.code, 2, ProducerFenced.code, 4]


async def test_leases_that_were_answered_keep_their_results_when_others_are_late() -> None:
    """Of one text, which says what to do and why the last attempt failed."""

    async def moved(request: pb.LeaseProducerIdRequest) -> pb.LeaseProducerIdAnswer:
        raise NotOwner("the topic has moved")

    calls = wanted(1, 2)
    await calls.ask(Owner(late=b"\x02").call, TOPIC, TopicId("t"))
    with pytest.raises(NotOwner) as last:
        await calls.ask(moved, TOPIC, TopicId("t"))
    first, second = calls.results(unanswered(TOPIC, 30_000, "lease again", last.value))
    assert shown([first, second]) == [1, "deadline_exceeded"]
    assert str(second) == (
        "a lease of a producer id of public/default/orders was not answered within 30 s, so it is unknown whether "
        "it was granted: lease again. The last attempt: the topic has moved"
    )
