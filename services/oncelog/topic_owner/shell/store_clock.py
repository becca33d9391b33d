"""This process's clock compared with ZooKeeper's: one write of the process's own record, for all its topics.

ZooKeeper stamps each write with its own time. A clock that differs from it must not decide about messages (hazard
wrong-clock-expires).
"""

import asyncio
import time

from oncelog.core.errors import StoreUnavailable
from oncelog.core.records.status import WriteStatus
from oncelog.core.topic_events.events import ClockChecked
from oncelog.metadata_store.session.store_session import StoreSession

#: One comparison counts for all topics for so long.
KEPT_MS = 60_000


class StoreClock:
    def __init__(self, session: StoreSession, path: str) -> None:
        """path: of this process's own record, whose content is written again as it is."""
        self._session = session
        self._path = path
        self._one_at_a_time = asyncio.Lock()
        self._checked: ClockChecked | None = None

    async def compare(self) -> ClockChecked:
        """The newest comparison, from the last minute. Raises StoreUnavailable: there is none now."""
        async with self._one_at_a_time:
            checked = self._checked
            if checked is None or not 0 <= _now_ms() - checked.answered_ms < KEPT_MS:
                checked = self._checked = await self._compare()
            return checked

    async def _compare(self) -> ClockChecked:
        node = await self._session.read(self._path)
        if node is None:
            raise StoreUnavailable(f"{self._path} does not exist yet")
        written = await self._session.write(self._path, node.data, version=node.version)
        answered_ms = _now_ms()
        if written.status is not WriteStatus.OK:
            raise StoreUnavailable(f"{self._path} could not be written: {written.status.name}")
        node = await self._session.read(self._path)
        if node is None or node.version != written.version:
            raise StoreUnavailable(f"{self._path} has changed meanwhile")
        return ClockChecked(answered_ms, node.modified_ms)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
