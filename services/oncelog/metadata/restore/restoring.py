"""The restore and the drill of one metadata service: begins them, and tells their progress, also that of another one.

The progress is an ephemeral record at the root of the cluster, so any metadata service can tell it, two of them do not
begin the same work, and the work of one that dies is seen to be interrupted. It makes nothing safe: each write of a
restore checks the cluster's record (`tree_writer`).
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from enum import Enum

from oncelog.core.era import Era
from oncelog.core.errors import Conflict, CorruptEntry, InvariantViolated, OncelogError, StoreUnavailable
from oncelog.core.rebuild.restore_events import RestoreRequest, RestoreStep
from oncelog.core.records.status import WriteStatus
from oncelog.metadata.restore.drill import Differing, differences, live_records
from oncelog.metadata.restore.performer import Performer, RestoreSources
from oncelog.metadata.restore.progress import (
    RestoreProgress,
    RestoreState,
    decode_progress,
    encode_progress,
    shown_time,
)
from oncelog.metadata.restore.tree_writer import FencedError
from oncelog.metadata_store.records.cluster_store import ClusterState, ClusterStore
from oncelog.metadata_store.session import paths
from oncelog.runtime.observing.events import EventKind

logger = logging.getLogger(__name__)

#: How often the record of the progress is written.
SHOWN_EVERY_S = 1.0
#: What to do when a restore is not performed by anybody.
RESTORE = "restore the records by `oncelog admin backup restore`"
RESUME = "resume it by `oncelog admin backup restore`"


class Work(Enum):
    RESTORE = "restore"
    DRILL = "drill"


class Restoring:
    """For one event loop."""

    def __init__(
        self, sources: RestoreSources, start: Callable[[Coroutine[None, None, None]], asyncio.Task[None]]
    ) -> None:
        """start: runs a background task."""
        self._sources = sources
        self._session = sources.session
        self._start = start
        #: called with the era before this service claims it; the process may have joined a former one
        self.on_claim: Callable[[Era], None] = lambda _: None
        self._running: dict[Work, RestoreProgress] = {}
        #: what was asked for: the request without its id, and the given addresses
        self._asked: dict[Work, tuple[RestoreRequest, tuple[str, ...]]] = {}

    @property
    def sources(self) -> RestoreSources:
        return self._sources

    async def begin(self, work: Work, request: RestoreRequest, *, given: Sequence[str], by: str) -> RestoreProgress:
        """Begin the work, or join it if this service performs the same already: then nobody's options are left out.

        Raises Conflict while another metadata service performs it, or this one with other options, for example a dry
        run where a restore is wanted; StoreUnavailable.
        """
        asked = replace(request, restore_id=""), tuple(sorted(given))
        mine = self._running.get(work)
        if mine is not None and mine.state is RestoreState.RUNNING:
            if mine.dry_run is not request.dry_run:
                done = "only looks (a dry run)" if mine.dry_run else "restores"
                raise Conflict(f"this metadata service {done} since {shown_time(mine.started_ms)}: repeat it later")
            if self._asked[work] != asked:
                raise Conflict(
                    f"this metadata service performs a {work.value} with other options since "
                    f"{shown_time(mine.started_ms)}, for {mine.by}: wait for its end, then repeat yours if it is needed"
                )
            mine.joined += 1
            return mine
        progress = RestoreProgress()
        progress.begin(by=by, dry_run=request.dry_run)
        self._running[work], self._asked[work] = progress, asked
        try:
            await self._reserve(work, progress)
        except BaseException:
            del self._running[work]
            raise
        self._start(self._run(work, request, given, by, progress))
        return progress

    async def progress(self, work: Work) -> RestoreProgress:
        """Of the newest work, whichever metadata service performs it. Raises StoreUnavailable."""
        mine = self._running.get(work)
        if mine is not None:
            return mine
        node = await self._session.read(self._path(work))
        if node is not None:
            return decode_progress(node.data)
        found, _ = (None, 0) if work is Work.DRILL else await ClusterStore(self._session).find_replaceable()
        if found is None:
            return RestoreProgress()
        era = found.value.era
        if found.value.state is ClusterState.SERVING:
            return RestoreProgress(era=era.number, restore_id=era.restore_id)
        return RestoreProgress(
            RestoreState.INTERRUPTED, RestoreStep.CLAIM, era=era.number, restore_id=era.restore_id,
            message=f"era {era.number} is claimed, and no metadata service performs its restore: {RESUME}",
        )  # fmt: skip

    async def _reserve(self, work: Work, progress: RestoreProgress) -> None:
        """Create the record of the progress. Raises Conflict, StoreUnavailable."""
        await self._session.ensure_path(paths.RESTORES)
        while True:
            status = await self._session.create(self._path(work), encode_progress(progress), ephemeral=True)
            if status is WriteStatus.OK:
                return
            node = await self._session.read(self._path(work))
            if node is None:
                continue
            other = decode_progress(node.data)
            ours = node.holder is not None and node.holder == self._session.session_id
            if other.state is RestoreState.RUNNING and not ours:
                raise Conflict(
                    f"another metadata service performs this {work.value} since {shown_time(other.started_ms)}, for "
                    f"{other.by}: show its progress; if that service is gone, its session ends within seconds"
                )
            await self._session.delete(self._path(work), version=node.version)

    async def _run(
        self, work: Work, request: RestoreRequest, given: Sequence[str], by: str, progress: RestoreProgress
    ) -> None:
        showing = asyncio.create_task(self._show(work, progress))
        try:
            if work is Work.DRILL:
                await self._drill(request, given, by, progress)
            else:
                performer = Performer(self._sources, request, given=given, by=by, progress=progress)
                performer.on_claim = self.on_claim
                await performer.run()
                await self._remove_old_roots(performer)
        except InvariantViolated:
            raise
        except OncelogError as error:
            progress.end(RestoreState.FAILED, f"{error.message}: {RESUME}" if work is Work.RESTORE else error.message)
            await self._sources.audit.write("restore of ZooKeeper's records", progress.brief())
        finally:
            showing.cancel()
            level = "info" if progress.state is RestoreState.DONE else "warning"
            self._sources.audit.events.note(
                EventKind.ADMINISTRATION, logger, f"a {work.value} of ZooKeeper's records has ended", level=level,
                state=progress.state.value, reason=progress.message,
            )  # fmt: skip
        await self._show_once(work, progress)

    async def _remove_old_roots(self, performer: Performer) -> None:
        """After the commit: nobody waits for it, and what is left is removed by the next restore."""
        if performer.progress.state is not RestoreState.DONE:
            return
        try:
            await performer.remove_old_roots()
        except (FencedError, StoreUnavailable) as error:
            logger.warning("the records of old eras are not all removed; the next restore does it: %s", error)

    async def _drill(self, request: RestoreRequest, given: Sequence[str], by: str, progress: RestoreProgress) -> None:
        """Compare twice if something differs: the cluster is in use."""
        found: list[Differing] | None = None
        for _ in range(2):
            differs = await self._compared(request, given, by, progress)
            if progress.state is not RestoreState.RUNNING:
                return
            found = differs if found is None else [each for each in differs if each in found]
            if not found:
                break
        progress.differences, progress.step = [each.message for each in found or ()], RestoreStep.DONE
        progress.end(RestoreState.DONE)

    async def _compared(
        self, request: RestoreRequest, given: Sequence[str], by: str, progress: RestoreProgress
    ) -> list[Differing]:
        """What differs, unless it is refused. Nothing else of it stays in memory."""
        performer = Performer(self._sources, request, given=given, by=by, progress=progress)
        performer.compared_next = True
        await performer.run()
        cluster = await ClusterStore(self._session).find()
        if performer.rebuilt is None:
            return []  # refused
        if cluster is None:
            text = f"ZooKeeper has no cluster's record that can be read, so nothing was compared: {RESTORE}"
            return [Differing(text)]
        live = await live_records(self._session.below(paths.era_root(cluster.value.era.number)))
        tree = await performer.tree()
        return await asyncio.to_thread(differences, performer.rebuilt, tree, live)

    async def _show(self, work: Work, progress: RestoreProgress) -> None:
        while True:
            await asyncio.sleep(SHOWN_EVERY_S)
            await self._show_once(work, progress)

    async def _show_once(self, work: Work, progress: RestoreProgress) -> None:
        """For others; this service shows its own."""
        try:
            node = await self._session.read(self._path(work))
            if node is not None and node.holder == self._session.session_id:
                await self._session.write(self._path(work), encode_progress(progress), version=node.version)
        except (StoreUnavailable, CorruptEntry) as error:
            logger.info("the progress of the %s is not told to other services: %s", work.value, error.message)

    @staticmethod
    def _path(work: Work) -> str:
        return f"{paths.RESTORES}/{work.value}"
