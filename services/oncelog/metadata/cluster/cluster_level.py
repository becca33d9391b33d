"""Shows and raises the level of the cluster. The rules are in `core.placement.level`."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from oncelog.core.era import FIRST_ERA, Era
from oncelog.core.errors import Conflict, ServiceUnavailable
from oncelog.core.placement.level import (
    CountProcesses,
    KnownProcess,
    Level,
    LevelKept,
    LevelRaised,
    WriteLevel,
    after_count,
    after_read,
    behind_of,
)
from oncelog.core.process_version import PROCESS_VERSION
from oncelog.core.records.status import WriteStatus
from oncelog.metadata_store.records.cluster_store import ClusterRecord, ClusterState, ClusterStore
from oncelog.metadata_store.records.registry import Registry
from oncelog.metadata_store.session.store_session import Versioned

logger = logging.getLogger(__name__)

#: A change by somebody else leads to another try. So many in a row are no accident.
_TRIES_MAX = 20


@dataclass(frozen=True, slots=True)
class LevelReport:
    """target: to which this replica can raise the level. processes: all that take part, or may again."""

    level: Level
    target: int
    processes: Sequence[KnownProcess]

    @property
    def behind(self) -> tuple[KnownProcess, ...]:
        """Those that do not know the target."""
        return behind_of(self.processes, self.target)


async def _nothing() -> None:
    pass


class ClusterLevel:
    """Of one replica. registry: of the era that it joined."""

    def __init__(
        self,
        cluster: ClusterStore,
        registry: Registry,
        *,
        era: Era = FIRST_ERA,
        prepare: Callable[[], Awaitable[None]] = _nothing,
        conclude: Callable[[], Awaitable[None]] = _nothing,
        target: int = PROCESS_VERSION,
    ) -> None:
        """prepare: what must be done before a level is raised; if it raises an error, nothing is. conclude: what must
        be done once it is raised; if it raises an error, `finalize` does, and is repeated. target: the level of this
        program."""
        self._cluster = cluster
        self._registry = registry
        self._era = era
        self._prepare = prepare
        self._conclude = conclude
        self._target = target
        #: one request at a time; other replicas are met by the compare-and-sets
        self._lock = asyncio.Lock()

    async def report(self) -> LevelReport:
        """Raises StoreUnavailable, NotFound."""
        record, processes = await asyncio.gather(self._cluster.require(), self._registry.processes())
        return LevelReport(record.level, self._target, processes)

    async def finalize(self) -> LevelReport:
        """Raise the level to the target, unless it is there. It can be repeated after any error.

        Raises Conflict that names who does not know the target; ServiceUnavailable, StoreUnavailable: the level may be
        announced or raised. Raises as `prepare` and `conclude`.
        """
        async with self._lock:
            level = (await self._found()).value.level
            if level.stored < self._target:
                # A running process ends as soon as it reads an announcement that it does not know.
                behind = behind_of(await self._registry.processes(), self._target)
                if behind and not level.announced:
                    raise _conflict(LevelKept(behind), Level(level.stored, self._target))
                await self._prepare()
            for _ in range(_TRIES_MAX):
                found = await self._found()
                step = after_read(found.value.level, self._target)
                if isinstance(step, LevelRaised):
                    # An earlier call may have raised it and not noted it (`noting_session`).
                    written = await self._cluster.write(found.value, version=found.version)
                    if written.status is WriteStatus.OK:
                        await self._conclude()
                        return await self._raised()
                elif isinstance(step, CountProcesses):
                    write, kept = after_count(found.value.level, self._target, await self._registry.processes())
                    if await self._written(found, write) and kept is not None:
                        raise _conflict(kept, found.value.level)
                elif isinstance(step, WriteLevel):
                    await self._written(found, step)
                else:
                    raise _conflict(step, found.value.level)
        raise ServiceUnavailable("the record of the cluster changes all the time: retry", retry_after_ms=1_000)

    async def _raised(self) -> LevelReport:
        """A program that reads no announcement may have joined since the count: it is named."""
        report = await self.report()
        for one in report.behind:
            logger.error("a process does not know the level of the cluster: end it", extra={"fields": {"process": one}})
        return report

    async def _found(self) -> Versioned[ClusterRecord]:
        await self._cluster.require()
        found = await self._cluster.find()
        if found is None:
            raise ServiceUnavailable("ZooKeeper has no record of the cluster any more", retry_after_ms=1_000)
        if found.value.era != self._era or found.value.state is not ClusterState.SERVING:
            # The processes that this replica would count are those of another era.
            raise ServiceUnavailable(
                f"this metadata service has the records of era {self._era.number}, and ZooKeeper is in era "
                f"{found.value.era.number} since: it starts again when that era serves; then repeat it",
                retry_after_ms=1_000,
            )
        return found

    async def _written(self, found: Versioned[ClusterRecord], step: WriteLevel) -> bool:
        """Whether it is certain that the record is as written: otherwise it is read again."""
        record = replace(found.value, level=step.level)
        written = await self._cluster.write(record, version=found.version)
        if written.status is WriteStatus.OK:
            fields = {"level": step.level.stored, "announced": step.level.announced}
            logger.warning("the level of the cluster was written", extra={"fields": fields})
        return written.status is WriteStatus.OK


def _conflict(kept: LevelKept, level: Level) -> Conflict:
    if kept.announced:
        return Conflict(
            f"the cluster is being raised to level {kept.announced} by a newer program: repeat it there",
            announced=kept.announced,
        )
    named = ", ".join(map(str, kept.behind))
    return Conflict(
        f"the cluster stays at level {level.stored}, because these processes do not know level {level.announced}: "
        f"{named}. Upgrade them, or decommission storage nodes that do not come back, then repeat",
        behind=len(kept.behind),
    )
