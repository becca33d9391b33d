"""Publishing under producer names over HTTP: the ids are the sender's, the log decides, producers are kept open.

Rules
- A producer is opened as any newer instance is: it fences the one before, be it another replica's or an application's.
- Replicas behind one address serve a name in turns. Whoever finds its instance fenced opens the name again and sends
  the same ids again, which the log judges: at most `ATTEMPTS`, then the sender is told that another has the name. A
  turn costs an entry in the log, so a sender does best to keep its connection.
- A contiguous producer that was fenced unawares would see a gap in what is none: a gap is said only after opening anew.
- At most `producers_max` are open; the one idle for longest makes room, and nobody idle for IDLE_S stays.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from oncelog.client.client import AsyncClient
from oncelog.client.producer import AsyncProducer
from oncelog.client.results import BatchResult
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
from oncelog.core.producer.opening import MESSAGE_BYTES_MAX
from oncelog.metadata.http_publish.publish_body import Messages

ATTEMPTS = 4
IDLE_S = 60.0
SWEEP_S = 10.0
Mode = Literal["monotonic", "contiguous"]


class ProducerPlace(NamedTuple):
    topic: TopicName
    name: str
    mode: Mode
    #: for whom it is published: the name belongs to this role, and another one's publishes do not share the producer
    caller: Caller = UNCHECKED


@dataclass(slots=True)
class _NamedProducer:
    """One producer, being opened or open. users: requests that hold it; used_at: loop time of the last one's end."""

    users: int = 0
    used_at: float = 0.0
    producer: AsyncProducer | None = None
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)


class NamedProducers:
    """`run` closes what is idle; the client closes the rest."""

    def __init__(self, client: AsyncClient, *, producers_max: int) -> None:
        self._client = client
        self._producers_max = producers_max
        self._slots: dict[ProducerPlace, _NamedProducer] = {}

    @property
    def open_count(self) -> int:
        return len(self._slots)

    async def publish(self, place: ProducerPlace, ids: Sequence[int], messages: Messages) -> BatchResult:
        """Return when all are stored. Raises what `AsyncProducer.send_many` and `create_producer` raise."""
        attempts = gaps = 0
        unknown = False
        while True:
            attempts += 1
            slot = await self._take(place)
            try:
                producer = await self._opened(place, slot)
                return await send(producer, ids, messages)
            except OncelogError as error:
                again = isinstance(error, ProducerFenced | ProducerClosed | SequenceGap)
                gaps += isinstance(error, SequenceGap)
                if again:
                    self._forget(place, slot)
                if not again or attempts == ATTEMPTS or gaps == 2:
                    if unknown and error.stored is False and not isinstance(error, StaleSequence):
                        raise error.of_send(stored=None) from error  # an earlier attempt may be stored
                    raise
                unknown = unknown or error.stored is None
            finally:
                slot.users -= 1
                slot.used_at = asyncio.get_running_loop().time()
                await self._close_unused(place, slot)

    async def _take(self, place: ProducerPlace) -> _NamedProducer:
        slot = self._slots.get(place)
        if slot is None:
            if len(self._slots) >= self._producers_max:
                await self._make_room()
            slot = self._slots.setdefault(place, _NamedProducer())
        slot.users += 1
        return slot

    async def _opened(self, place: ProducerPlace, slot: _NamedProducer) -> AsyncProducer:
        async with slot.opening:
            if slot.producer is not None and slot.producer.failure is not None:
                slot.producer = None
            if slot.producer is None:
                try:
                    slot.producer = await self._client.create_producer(
                        str(place.topic),
                        producer_name=place.name,
                        sequence_mode=place.mode,
                        batch_bytes_max=MESSAGE_BYTES_MAX,
                        on_behalf_of=place.caller,
                    )
                except OncelogError as error:
                    raise error.of_send(stored=False) from error
            return slot.producer

    async def _make_room(self) -> None:
        idle = [(slot.used_at, place) for place, slot in self._slots.items() if not slot.users]
        if not idle:
            message = f"{self._producers_max} producers are at work here: repeat in a moment"
            raise TooManyRequests(message, field="producer_name", limit=self._producers_max).of_send(stored=False)
        _, place = min(idle)
        slot = self._slots[place]
        self._forget(place, slot)
        await self._close_unused(place, slot)

    def _forget(self, place: ProducerPlace, slot: _NamedProducer) -> None:
        """The next request opens anew; those that still wait for this producer's answers get them."""
        if self._slots.get(place) is slot:
            del self._slots[place]

    async def _close_unused(self, place: ProducerPlace, slot: _NamedProducer) -> None:
        if slot.producer is not None and not slot.users and self._slots.get(place) is not slot:
            await slot.producer.close(flush=False)

    async def run(self) -> None:
        """Close what nobody uses; never returns."""
        while True:
            await asyncio.sleep(SWEEP_S)
            now = asyncio.get_running_loop().time()
            for place, slot in list(self._slots.items()):
                if not slot.users and now - slot.used_at > IDLE_S:
                    self._forget(place, slot)
                    await self._close_unused(place, slot)


async def send(producer: AsyncProducer, ids: Sequence[int], messages: Messages) -> BatchResult:
    """All messages as one batch; columns that nobody uses are left out."""
    return await producer.send_many(
        messages.values,
        sequence_ids=ids,
        keys=messages.keys if any(key is not None for key in messages.keys) else None,
        event_times_ms=messages.event_times_ms if any(t is not None for t in messages.event_times_ms) else None,
        properties=messages.properties if any(messages.properties) else None,
    )
