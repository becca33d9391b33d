"""Ids for this process from one counter in ZooKeeper: performs the effects of `core.records.id_claim`."""

import asyncio
from collections.abc import Coroutine

from oncelog.core.errors import IdsExhausted
from oncelog.core.records.id_claim import (
    Counter,
    CounterRecord,
    IdAllocated,
    IdClaim,
    IdClaimEvent,
    IdRefused,
    IdRequested,
)
from oncelog.core.records.records import ReadRecord, RecordRead, WriteRecord
from oncelog.metadata_store.records.counter_store import CounterStore
from oncelog.metadata_store.session.answers import sent_once, until_answered
from oncelog.runtime.tasks import start

#: Ids are claimed ahead when fewer are left.
PREFETCH_BELOW = 20


class IdSource:
    """`await next_id()` returns an id that was never returned before, in any process. It waits for ZooKeeper."""

    def __init__(self, claim: IdClaim, store: CounterStore) -> None:
        self._claim = claim
        self._store = store
        self._requests = 0
        self._waiting: dict[int, asyncio.Future[int]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def next_id(self) -> int:
        """Raises IdsExhausted when the counter is used up."""
        self._requests += 1
        request = self._requests
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting[request] = answer
        self._handle(IdRequested(request))
        try:
            return await answer
        finally:
            self._waiting.pop(request, None)

    def _handle(self, event: IdClaimEvent) -> None:
        for effect in self._claim.handle(event):
            match effect:
                case IdAllocated(request, value):
                    if (answer := self._waiting.get(request)) is not None and not answer.done():
                        answer.set_result(value)
                case IdRefused(request):
                    if (answer := self._waiting.get(request)) is not None and not answer.done():
                        answer.set_exception(self._exhausted())
                case ReadRecord():
                    self._start(self._read(effect))
                case WriteRecord():
                    self._start(self._write(effect))

    def _exhausted(self) -> IdsExhausted:
        name = self._store.name
        return IdsExhausted(
            f"the counter {name} in ZooKeeper has no id left, or its record is wrong: compare it with a backup",
            counter=name,
        )

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = start(work, what="a counter's task")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _read(self, effect: ReadRecord[Counter]) -> None:
        """No id is safe without the counter. The requests continue once it is repaired."""
        stored = await until_answered("a counter", self._store.read)
        self._handle(RecordRead(effect.key, *stored))

    async def _write(self, effect: WriteRecord[Counter, CounterRecord]) -> None:
        written = await sent_once(self._store.write(effect.value, version=effect.version))
        self._handle(effect.answered(*written))

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
