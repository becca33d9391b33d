"""Ids for this process from one counter in ZooKeeper: performs the effects of `core.records.id_claim`."""

import asyncio
import logging
from collections.abc import Coroutine

from oncelog.core.errors import CorruptEntry, IdsExhausted, NotFound, StoreUnavailable
from oncelog.core.records.id_claim import (
    CounterRead,
    CounterWritten,
    IdClaim,
    IdClaimEvent,
    IdGranted,
    IdRefused,
    IdRequested,
    ReadCounter,
    WriteCounter,
)
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.core.records.status import WriteStatus
from oncelog.metadata_store.records.counter_store import CounterStore
from oncelog.runtime.tasks import start

logger = logging.getLogger(__name__)

RETRY_MS = 100
CORRUPT_RETRY_MS = 1000


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
                case IdGranted(request, value):
                    if (answer := self._waiting.get(request)) is not None and not answer.done():
                        answer.set_result(value)
                case IdRefused(request):
                    if (answer := self._waiting.get(request)) is not None and not answer.done():
                        answer.set_exception(self._exhausted())
                case ReadCounter():
                    self._start(self._read())
                case WriteCounter(record, version):
                    self._start(self._write(WriteCounter(record, version)))

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

    async def _read(self) -> None:
        while True:
            try:
                stored = await self._store.read()
            except StoreUnavailable as error:
                logger.warning("cannot read a counter, will retry: %s", error.message)
                await asyncio.sleep(RETRY_MS / 1000)
                continue
            except CorruptEntry as error:
                # No id is safe without it. The requests continue once the counter is repaired.
                logger.error("a counter is damaged: %s", error.message)
                await asyncio.sleep(CORRUPT_RETRY_MS / 1000)
                continue
            self._handle(CounterRead(None, ABSENT_VERSION) if stored is None else CounterRead(*stored))
            return

    async def _write(self, effect: WriteCounter) -> None:
        try:
            written = await self._store.write(effect.record, version=effect.version)
        except StoreUnavailable:
            self._handle(CounterWritten(WriteStatus.UNKNOWN, ABSENT_VERSION))
            return
        except NotFound as error:
            # The parent does not exist, so nothing was written. The requests continue once the tree is repaired.
            logger.error("cannot write a counter, will retry: %s", error.message)
            await asyncio.sleep(CORRUPT_RETRY_MS / 1000)
            self._handle(CounterWritten(WriteStatus.CONFLICT, ABSENT_VERSION))
            return
        self._handle(CounterWritten(written.status, written.version))

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
