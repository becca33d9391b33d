"""Topics without an owner, found in the topic records. Topic owners are asked for figures, and cannot give those of a
topic that none of them serves. After a start of the cluster these are all topics that no client has used since.

Rules
- A topic that never had an owner is left out: it has no message and no subscription. So is a partitioned topic as a
  whole; each of its partitions counts.
- One walk over all records answers all callers. It begins when somebody asks, and a pause follows that is PAUSE times
  as long as the walk: so it takes at most a twentieth of a core at any number of topics. When owners have come or gone,
  the pause is OWNERS_CHANGED_PAUSE times as long.
- What is found is as old as the walk. Before the first one has ended nothing is known, and after one that failed.
"""

import asyncio
import logging
from collections.abc import Callable

from oncelog.core.errors import CorruptEntry, StoreUnavailable
from oncelog.core.topic.listing import NAMED_MAX, UncountedTopics
from oncelog.metadata.owners.owners import Owners, Start
from oncelog.metadata_store.records.topic_store import TopicStore

logger = logging.getLogger(__name__)

PAUSE, OWNERS_CHANGED_PAUSE = 20, 4
#: How long a caller waits for a walk.
WAIT_S = 2.0


class UnownedTopics:
    def __init__(self, topics: TopicStore, owners: Owners, start: Start) -> None:
        """start: runs the walk."""
        self._topics = topics
        self._owners = owners
        self._start = start
        #: {full name}, ascending; None: not known
        self._names: dict[str, None] | None = None
        self._walk: asyncio.Task[None] | None = None
        #: of the last walk: when it ended, how long it took, and the owners' next change when it began
        self._ended_s = self._took_s = 0.0
        self._change: asyncio.Event | None = None

    def is_unowned(self, topic: str) -> bool:
        """As the last walk has found it. topic: full name."""
        return self._names is not None and topic in self._names

    async def look(self, *, wait_s: float = WAIT_S) -> None:
        """Begin a walk if one is due, and wait for its end, if that comes in time."""
        if self._walk is None or self._walk.done():
            now_s = asyncio.get_running_loop().time()
            changed = self._change is not None and self._change.is_set()
            pause_s = self._took_s * (OWNERS_CHANGED_PAUSE if changed else PAUSE)
            if self._walk is None or now_s >= self._ended_s + pause_s:
                self._walk = self._start(self._walk_once())
        if wait_s and not self._walk.done():
            await asyncio.wait({self._walk}, timeout=wait_s)

    async def found(self, matches: Callable[[str], bool]) -> UncountedTopics | None:
        """The topics for whose full names `matches` holds. None: not known yet."""
        await self.look()
        if self._names is None:
            return None
        names = [name for name in self._names if matches(name)]
        return UncountedTopics(len(names), names[:NAMED_MAX])

    async def _walk_once(self) -> None:
        self._change = self._owners.change
        clock_s = asyncio.get_running_loop().time
        began_s = clock_s()
        try:
            names = await self._read()
        except StoreUnavailable as error:
            logger.info("could not look for topics without an owner; will retry: %s", error.message)
            self._names = None
        else:
            self._names = dict.fromkeys(sorted(names))
        self._ended_s = clock_s()
        self._took_s = self._ended_s - began_s

    async def _read(self) -> list[str]:
        names: list[str] = []
        async for record in self._topics.each():
            if isinstance(record, CorruptEntry) or not record.owner_epoch:
                continue  # a damaged record is a finding of other calls
            if record.owner is None or self._owners.is_lost(record.owner):
                names.append(record.name)
        return names
