"""A key is published once, wherever its request is interrupted: each await fails, is never resumed, or is cancelled.

The procedure is driven by `send`. A crash is a procedure that is never resumed, and that is kept until the test ends.
"""

from collections.abc import Callable, Coroutine, Generator
from types import coroutine
from typing import Any

import pytest

from oncelog.core.errors import (
    CorruptEntry,
    IdempotencyKeyReused,
    IdempotencyUnavailable,
    InvalidArgument,
    InvariantViolated,
    MessageTooLarge,
    OncelogError,
    ProducerFenced,
    PublishInProgress,
    ServiceUnavailable,
)
from oncelog.core.http_publish.idempotency import ATTEMPTS_MAX, KeyedResult, publish_once
from oncelog.core.http_publish.key_record import FoundKey, KeyRecord, decode_key_record, encode_key_record
from oncelog.core.http_publish.keyed_producer import Claim, KeyedProducer
from oncelog.core.ids import SequenceId
from oncelog.core.records.status import WriteStatus

PENDING = KeyRecord("body", Claim("dead", SequenceId(7), 1))


@coroutine
def _asked(call: str, perform: Callable[[], Any]) -> Generator[tuple[str, Callable[[], Any]], Any, Any]:
    return (yield call, perform)


class World:
    """One key and one log. stored: the claims in the log. opened: producers that were fenced. calls: in order."""

    def __init__(self, record: KeyRecord | None = None, *, holders: tuple[str, ...] = ()) -> None:
        self.record = None if record is None else encode_key_record(record)
        self.holders = holders
        self.stored: list[Claim] = []
        self.fenced: set[str] = set()
        self.calls: list[str] = []
        self.producers = 0

    def found(self) -> FoundKey | None:
        return None if self.record is None else FoundKey(decode_key_record(self.record), self.record)


class Request:
    """The ports of one request of a process of its own, and its procedure. ended: by "release" or "retire"."""

    def __init__(self, world: World, body: str = "body", **named: Any) -> None:
        self.world = world
        self.ended: list[str] = []
        self._run: Coroutine[Any, Any, KeyedResult] = publish_once(body, self, self, self, **named)
        self.asks: tuple[str, Callable[[], Any]] = self._run.send(None)

    def answer(self, result: Any = None, *, error: BaseException | None = None) -> KeyedResult | None:
        """Resume it: with this error or result, or with what the world says. Returns its end. Raises its error."""
        try:
            if error is None:
                error, result = _tried(self.asks[1]) if result is None else (None, result)
            self.asks = self._run.send(result) if error is None else self._run.throw(error)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        return None

    def until(self, call: str) -> "Request":
        while self.asks[0] != call:
            assert self.answer() is None
        return self

    def finish(self) -> KeyedResult:
        while (end := self.answer()) is None:
            pass
        return end

    async def _ask(self, call: str, perform: Callable[[], Any]) -> Any:
        self.world.calls.append(call)
        return await _asked(call, perform)

    async def read(self) -> FoundKey | None:
        return await self._ask("read", self.world.found)  # type: ignore[no-any-return]

    async def write(self, record: KeyRecord, *, replaces: bytes | None) -> tuple[WriteStatus, FoundKey | None]:
        def write() -> tuple[WriteStatus, FoundKey | None]:
            if self.world.record != replaces:
                return WriteStatus.CONFLICT, self.world.found()
            self.world.record = encode_key_record(record)
            return WriteStatus.OK, None

        return await self._ask("claim" if record.answer is None else "record", write)  # type: ignore[no-any-return]

    async def has_live_holder(self, producer_name: str) -> bool:
        return await self._ask("holder", lambda: producer_name in self.world.holders)  # type: ignore[no-any-return]

    async def reserve(self) -> Claim:
        self.world.producers += 1
        claim = Claim(f"http-{self.world.producers}", SequenceId(0), 1)
        return await self._ask("reserve", lambda: claim)  # type: ignore[no-any-return]

    def _store(self, claim: Claim, *, fences: bool) -> str:
        if claim.producer_name in self.world.fenced and not fences:
            raise ProducerFenced
        if claim not in self.world.stored:
            self.world.stored.append(claim)
        return f"stored as {claim.producer_name}"

    async def publish(self, claim: Claim) -> str:
        return await self._ask("publish", lambda: self._store(claim, fences=False))  # type: ignore[no-any-return]

    async def fence(self, producer_name: str) -> SequenceId:
        def fence() -> SequenceId:
            self.world.fenced.add(producer_name)
            return SequenceId(max([c.last for c in self.world.stored if c.producer_name == producer_name], default=-1))

        return await self._ask("fence", fence)  # type: ignore[no-any-return]

    async def republish(self, claim: Claim) -> str:
        return await self._ask("republish", lambda: self._store(claim, fences=True))  # type: ignore[no-any-return]

    def release(self) -> None:
        self.ended.append("release")

    def retire(self) -> None:
        self.ended.append("retire")


def _tried(perform: Callable[[], Any]) -> tuple[BaseException | None, Any]:
    try:
        return None, perform()
    except OncelogError as error:
        return error, None


# --- the steps --------------------------------------------------------------------------------------------------------


def test_claim_is_written_before_the_message_is_published() -> None:
    """The steps for a new key, and a repeat, which gets its answer from the record alone."""
    world = World()
    end = Request(world).finish()
    assert world.calls == ["read", "reserve", "claim", "publish", "record"]
    world.calls.clear()
    again = Request(world).finish()
    assert again == KeyedResult(end.claim, end.answer, replayed=True)
    assert world.calls == ["read"]


@pytest.mark.parametrize("answer", [None, "it is stored"])
def test_other_messages_under_the_same_key_are_refused(answer: str | None) -> None:
    """Whether or not the first request was answered."""
    with pytest.raises(IdempotencyKeyReused):
        Request(World(KeyRecord("another body", PENDING.claim, answer))).finish()


def test_record_without_a_role_is_taken_from_an_older_service() -> None:
    """A repeat during an update gets its answer, and is not stored again."""
    world = World(KeyRecord("body", PENDING.claim, "it is stored"))
    assert Request(world, "role and body", without_role="body").finish().replayed


def test_pending_key_with_a_live_holder_is_in_progress() -> None:
    """A process that still works on the key is not fenced."""
    world = World(PENDING, holders=("dead",))
    with pytest.raises(PublishInProgress):
        Request(world).finish()
    assert world.calls == ["read", "holder"]


@pytest.mark.hazard("key-without-message")
def test_claim_of_a_dead_holder_is_settled_by_the_log_behind_a_fence() -> None:
    """Stored: sent again under the same ids. Not stored: the key is mapped to new ids."""
    world = World(PENDING)
    Request(world).finish()
    assert world.calls == ["read", "holder", "fence", "reserve", "claim", "publish", "record"]
    world = World(PENDING)
    world.stored.append(PENDING.claim)
    assert Request(world).finish().claim == PENDING.claim
    assert world.calls == ["read", "holder", "fence", "republish", "record"]


def test_request_that_is_fenced_while_settling_a_claim_reads_the_key_again() -> None:
    """Requests that settle the same key at the same time fence each other; the error must not reach their clients."""
    world = World(PENDING)
    request = Request(world).until("fence")
    request.answer(error=ProducerFenced())
    assert request.asks[0] == "read"
    for _ in range(ATTEMPTS_MAX - 2):
        request.until("fence").answer(error=ProducerFenced())
    with pytest.raises(PublishInProgress):
        request.until("fence").answer(error=ProducerFenced())


# --- how a reservation ends -------------------------------------------------------------------------------------------


class Cancelled(BaseException):
    """As asyncio's, which `core` does not import."""


@pytest.mark.hazard("key-without-message")
@pytest.mark.parametrize(
    ("call", "end", "outcome"),
    [
        ("claim", IdempotencyUnavailable("refused"), "release"),
        ("claim", Cancelled(), "retire"),
        ("claim", (WriteStatus.UNKNOWN, None), "retire"),
        ("publish", MessageTooLarge("too large"), "retire"),
        ("publish", Cancelled(), "retire"),
        ("record", Cancelled(), "retire"),
    ],
)
def test_reserved_ids_are_released_only_if_their_claim_was_not_written(call: str, end: Any, outcome: str) -> None:
    """Whatever else ends the request retires their producer, without another call."""
    world = World()
    request = Request(world).until(call)
    given = {"error": end} if isinstance(end, BaseException) else {"result": end}
    with pytest.raises((OncelogError, Cancelled)):
        request.answer(**given)
    assert request.ended == [outcome]
    assert world.calls[-1] == call


@pytest.mark.parametrize("failure", [{"result": (WriteStatus.UNKNOWN, None)}, {"error": IdempotencyUnavailable("no")}])
def test_answer_that_cannot_be_recorded_is_returned_and_the_producer_retired(failure: dict[str, Any]) -> None:
    """The messages are stored; a repeat settles the key by the log."""
    request = Request(World()).until("record")
    assert request.answer(**failure) is not None
    assert request.ended == ["retire"]


def test_request_that_loses_the_key_to_another_one_continues_from_its_record() -> None:
    """Its ids are released. After some losses in a row its sender is asked to retry."""
    world = World()
    request = Request(world)
    for _ in range(ATTEMPTS_MAX - 1):
        request.until("claim").answer((WriteStatus.CONFLICT, None))
    with pytest.raises(PublishInProgress):
        request.until("claim").answer((WriteStatus.CONFLICT, None))
    assert request.ended == ["release"] * ATTEMPTS_MAX


def test_own_claim_that_is_found_after_a_conflict_is_published() -> None:
    """A repeated write finds what its first attempt wrote."""
    world = World()
    request = Request(world).until("claim")
    request.asks[1]()
    request.answer((WriteStatus.CONFLICT, world.found()))
    assert request.asks[0] == "publish"


def test_publish_of_unknown_outcome_is_settled_by_the_log_without_asking_for_its_holder() -> None:
    """The holder is this process, and has retired the producer."""
    world = World(holders=("http-1",))
    request = Request(world).until("publish")
    request.asks[1]()
    request.answer(error=ServiceUnavailable("no answer"))
    assert request.ended == ["retire"]
    assert request.finish().claim.producer_name == "http-1"
    assert "holder" not in world.calls
    assert len(world.stored) == 1


def test_invalid_messages_are_refused_when_they_are_sent_again() -> None:
    """As at the first time."""
    world = World(PENDING)
    world.stored.append(PENDING.claim)
    with pytest.raises(InvalidArgument):
        Request(world).until("republish").answer(error=InvalidArgument("invalid"))


# --- interrupted anywhere ---------------------------------------------------------------------------------------------


@pytest.mark.hazard("key-without-message")
@pytest.mark.parametrize("applied", ["before", "during", "after", "never"])
@pytest.mark.parametrize("steps", range(5))
def test_process_that_dies_at_any_await_leaves_a_key_that_is_published_once(steps: int, applied: str) -> None:
    """What it last asked for is performed before the key is repeated, during the repeat, after it, or never."""
    world = World()
    dead = Request(world)
    for _ in range(steps):
        assert dead.answer() is None
    if applied == "before":
        _tried(dead.asks[1])
    repeated, end = Request(world), None
    while end is None:
        end = repeated.answer()
        if applied == "during":
            _tried(dead.asks[1])
    if applied == "after":
        _tried(dead.asks[1])
    assert world.stored == [end.claim]
    again = Request(world).finish()
    assert (again.claim, again.answer) == (end.claim, end.answer)
    assert world.stored == [end.claim]


# --- the record, and the producer -------------------------------------------------------------------------------------


def test_key_record_round_trips_through_bytes() -> None:
    """Bytes that are not a record raise CorruptEntry."""
    for record in (PENDING, KeyRecord("f", Claim("ü", SequenceId(0), 1), '{"a": 1}')):
        assert decode_key_record(encode_key_record(record)) == record
    for data in (b"", b"{}", b'{"format":2}', b"[]"):
        with pytest.raises(CorruptEntry):
            decode_key_record(data)


@pytest.mark.hazard("key-without-message")
def test_keyed_producer_uses_ids_in_order_and_none_after_it_is_retired() -> None:
    """Released ids are reserved again; a retired producer reserves none."""
    keyed = KeyedProducer("http-1")
    first = keyed.reserve(2)
    with pytest.raises(InvariantViolated):
        keyed.reserve(1)
    keyed.release(first)
    assert keyed.reserve(2) == first
    keyed.use(first)
    assert keyed.reserve(1) == Claim("http-1", SequenceId(2), 1)
    keyed.retire()
    for act in (lambda: keyed.reserve(1), lambda: keyed.use(first)):
        with pytest.raises(InvariantViolated):
            act()
