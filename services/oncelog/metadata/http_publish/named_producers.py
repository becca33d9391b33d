"""Publishing over HTTP by producer name: the sender gives the sequence ids, the log decides, producers stay open.

Rules
- Opening a producer fences older instances of the same name, whether another replica or an application opened them.
- Requests of one sender may reach several replicas behind one address. A replica whose instance was fenced opens the
  name again and sends the same ids again, which the log deduplicates. After `ATTEMPTS` the sender gets the error that
  another instance uses the name. Each opening costs an entry in the log, so a sender should keep its connection open.
- A contiguous producer that was fenced without noticing would report a gap that does not exist. So a gap is reported
  only after the producer was opened again.
- At most `producers_max` producers are open. The producer that is idle for longest makes room for a new one, and a
  producer that is idle for IDLE_S is closed.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from oncelog.client.client import AsyncClient
from oncelog.client.producing.producer import AsyncProducer
from oncelog.client.values.results import BatchResult
from oncelog.core.access import UNCHECKED, Caller
from oncelog.core.errors import (
    OncelogError,
    ProducerClosed,
    ProducerFenced,
    SequenceGap,
    StaleSequence,
    TooManyRequests,
)
from oncelog.core.names import TopicName
from oncelog.core.sdk.producer.opening import MESSAGE_BYTES_MAX
from oncelog.metadata.http_publish.publish_body import Messages

ATTEMPTS = 4
IDLE_S = 60.0
SWEEP_S = 10.0
Mode = Literal["monotonic", "contiguous"]


class NamedProducerKey(NamedTuple):
    topic: TopicName
    name: str
    mode: Mode
    #: the role that publishes: the name belongs to it, and requests of another role do not share the producer
    caller: Caller = UNCHECKED


@dataclass(slots=True)
class _NamedProducer:
    """One producer, open or being opened. users: requests that use it. used_at: loop time when the last use ended."""

    users: int = 0
    used_at: float = 0.0
    producer: AsyncProducer | None = None
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)


class NamedProducers:
    """`run` closes idle producers; the client closes the others."""

    def __init__(self, client: AsyncClient, *, producers_max: int) -> None:
        self._client = client
        self._producers_max = producers_max
        self._slots: dict[NamedProducerKey, _NamedProducer] = {}

    @property
    def open_count(self) -> int:
        return len(self._slots)

    def last_error(self, key: NamedProducerKey) -> OncelogError | None:
        """Why its producer cannot publish now; None: it can, or the producer is not open."""
        slot = self._slots.get(key)
        return None if slot is None or slot.producer is None else slot.producer.last_error

    async def publish(self, key: NamedProducerKey, ids: Sequence[int], messages: Messages) -> BatchResult:
        """Return when all messages are stored. Raises the errors of `AsyncProducer.send_many` and `create_producer`."""
        attempts = gaps = 0
        unknown = False
        while True:
            attempts += 1
            slot = await self._take(key)
            try:
                producer = await self._opened(key, slot)
                return await send(producer, ids, messages)
            except OncelogError as error:
                again = isinstance(error, ProducerFenced | ProducerClosed | SequenceGap)
                gaps += isinstance(error, SequenceGap)
                if again:
                    self._forget(key, slot)
                if not again or attempts == ATTEMPTS or gaps == 2:
                    if unknown and error.stored is False and not isinstance(error, StaleSequence):
                        raise error.of_send(stored=None) from error  # an earlier attempt may have been stored
                    raise
                unknown = unknown or error.stored is None
            finally:
                slot.users -= 1
                slot.used_at = asyncio.get_running_loop().time()
                await self._close_unused(key, slot)

    async def _take(self, key: NamedProducerKey) -> _NamedProducer:
        slot = self._slots.get(key)
        if slot is None:
            if len(self._slots) >= self._producers_max:
                await self._make_room()
            slot = self._slots.setdefault(key, _NamedProducer())
        slot.users += 1
        return slot

    async def _opened(self, key: NamedProducerKey, slot: _NamedProducer) -> AsyncProducer:
        async with slot.opening:
            if slot.producer is not None and slot.producer.failure is not None:
                slot.producer = None
            if slot.producer is None:
                try:
                    slot.producer = await self._client.create_producer(
                        str(key.topic),
                        producer_name=key.name,
                        sequence_mode=key.mode,
                        batch_bytes_max=MESSAGE_BYTES_MAX,
                        on_behalf_of=key.caller,
                        # Each request has rules of its own; see HttpPublishService.
                        on_unverified="accept",
                        on_content_differs="accept",
                    )
                except OncelogError as error:
                    raise error.of_send(stored=False) from error
            return slot.producer

    async def _make_room(self) -> None:
        idle = [(slot.used_at, key) for key, slot in self._slots.items() if not slot.users]
        if not idle:
            message = f"this service has {self._producers_max} producers in use, the maximum: retry shortly"
            raise TooManyRequests(message, field="producer_name", limit=self._producers_max).of_send(stored=False)
        _, key = min(idle)
        slot = self._slots[key]
        self._forget(key, slot)
        await self._close_unused(key, slot)

    def _forget(self, key: NamedProducerKey, slot: _NamedProducer) -> None:
        """The next request opens a new producer; requests that still wait for this one get their answers."""
        if self._slots.get(key) is slot:
            del self._slots[key]

    async def _close_unused(self, key: NamedProducerKey, slot: _NamedProducer) -> None:
        if slot.producer is not None and not slot.users and self._slots.get(key) is not slot:
            await slot.producer.close(flush=False)

    async def run(self) -> None:
        """Close idle producers; never returns."""
        while True:
            await asyncio.sleep(SWEEP_S)
            now = asyncio.get_running_loop().time()
            for key, slot in list(self._slots.items()):
                if not slot.users and now - slot.used_at > IDLE_S:
                    self._forget(key, slot)
                    await self._close_unused(key, slot)


async def send(producer: AsyncProducer, ids: Sequence[int], messages: Messages) -> BatchResult:
    """Send all messages as one batch; columns without values are left out."""
    return await producer.send_many(
        messages.values,
        sequence_ids=ids,
        keys=messages.keys if any(key is not None for key in messages.keys) else None,
        event_times_ms=messages.event_times_ms if any(t is not None for t in messages.event_times_ms) else None,
        properties=messages.properties if any(messages.properties) else None,
    )
