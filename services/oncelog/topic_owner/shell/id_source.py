"""Ids for this process from one counter in ZooKeeper: runs `core.records.id_claim`, one claim at a time."""

import asyncio

from oncelog.core.errors import IdsExhausted
from oncelog.core.records.id_claim import CounterRecord, IdClaim
from oncelog.core.records.status import WriteStatus
from oncelog.metadata_store.records.counter_store import CounterStore
from oncelog.metadata_store.session.answers import sent_once, until_answered
from oncelog.metadata_store.session.store_session import Versioned
from oncelog.runtime.tasks import start

#: Ids are claimed ahead when fewer are left.
PREFETCH_BELOW = 20


class IdSource:
    """`await next_id()` returns an id that was never returned before, in any process. It waits for ZooKeeper."""

    def __init__(self, claim: IdClaim, store: CounterStore) -> None:
        self._claim = claim
        self._store = store
        self._claiming: asyncio.Task[None] | None = None

    async def next_id(self) -> int:
        """Raises IdsExhausted when the counter is used up."""
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def grant(number: int | None) -> None:
            if answer.done():
                return  # cancelled: the id is lost
            if number is None:
                answer.set_exception(self._exhausted())
            else:
                answer.set_result(number)

        if self._claim.request(grant):
            self._claiming = start(self._claim.claim(self), what="a counter's task")
        return await answer

    def _exhausted(self) -> IdsExhausted:
        name = self._store.name
        return IdsExhausted(
            f"the counter {name} in ZooKeeper has no id left, or its record is wrong: compare it with a backup",
            counter=name,
        )

    async def read(self) -> Versioned[CounterRecord]:
        """No id is safe without the counter. The requests continue once it is repaired."""
        return await until_answered("a counter", self._store.read)

    async def write(self, record: CounterRecord, *, version: int) -> WriteStatus:
        return (await sent_once(self._store.write(record, version=version))).status

    def close(self) -> None:
        if self._claiming is not None:
            self._claiming.cancel()
