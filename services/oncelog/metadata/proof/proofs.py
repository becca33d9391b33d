"""The proofs of topics. Any replica takes requests; the elected one works on them, one at a time, of each role in
turn (`verify.proof_turns`).

A request is a record. The elected replica takes it, writes its progress each WRITE_S, and replaces it by the verdict.
After a restart, or at another replica that is elected, the same record is taken again: see `verify.proof` for what is
kept. Every write is a compare-and-set, so two replicas that both believe to be elected cannot mix their work.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from oncelog.core.access import NO_ROLE
from oncelog.core.errors import (
    CorruptEntry,
    OncelogError,
    ServiceUnavailable,
    StoreUnavailable,
    TopicNotFound,
)
from oncelog.core.ids import TopicId
from oncelog.core.names import TopicName
from oncelog.core.records.status import WriteStatus
from oncelog.metadata.proof.owner_folds import OwnerFolds
from oncelog.metadata.proof.owner_view import OwnerViews
from oncelog.metadata.proof.proof_run import ProofRun
from oncelog.metadata.proof.topic_range import OwnerEnd, TopicRanges
from oncelog.metadata_store.records.proof_store import ProofStore
from oncelog.metadata_store.records.topic_store import TopicStore
from oncelog.metadata_store.session.store_session import Versioned
from oncelog.runtime.observing.events import EventKind, EventRing
from oncelog.verify.proof import Part, ProofState, TopicProof
from oncelog.verify.proof_turns import ROLE_PROOFS_MAX, ProofTurns, check_room

logger = logging.getLogger(__name__)

#: Between two looks for requests, and between two writes of the progress.
LOOK_S = 1.0
WRITE_S = 0.5
#: A proof that has begun so often ends: perhaps it ends the processes that work on it.
BEGUN_MAX = 5
#: Between two searches for verdicts of deleted topics, which an older replica has left.
SWEEP_S = 3_600.0

Elected = Callable[[], str | None]


class Proofs:
    """`run` lives as long as the process."""

    def __init__(
        self,
        store: ProofStore,
        topics: TopicStore,
        ranges: TopicRanges,
        folds: OwnerFolds,
        views: OwnerViews,
        refresh: Callable[[], Awaitable[object]],
        events: EventRing,
    ) -> None:
        """refresh: looks which storage nodes are registered, so that the nodes of `views` have
        addresses."""
        self.store = store
        self.ranges = ranges
        self._topics = topics
        self._folds = folds
        self.views = views
        self._refresh = refresh
        self._events = events
        self._asked = asyncio.Event()
        self._swept_s: float | None = None
        self._turns = ProofTurns()

    # --- requests -----------------------------------------------------------------------------------------------------

    async def ask(self, topic: TopicName, *, by: str, bytes_per_second: int, cpu_percent: int) -> TopicProof:
        """Ask for a proof; one that is asked for or goes on is joined, unless its record cannot be read.

        Raises LimitReached while too many proofs wait, of all or of this role; and the errors of `TopicCalls.of_owner`.
        """
        end = await self.ranges.end_of(topic)
        going = await self._readable(end.topic_id)
        if going is not None:
            return going.value
        asked = TopicProof(end.topic_id, str(topic), by or NO_ROLE, wall_ms(), bytes_per_second, cpu_percent)
        if len(await self.store.topics_with_proofs()) >= ROLE_PROOFS_MAX:  # else no role can have as many
            check_room([each.value.by for each in await self._waiting()], asked.by)
        status = await self.store.ask(asked)
        self._asked.set()
        if status is WriteStatus.OK:
            return asked
        going = await self.store.proof(end.topic_id)
        if going is None:
            raise ServiceUnavailable(f"it is not known whether the proof of {topic} was asked for: try again")
        return going.value

    async def cancel(self, topic_id: TopicId) -> TopicProof | None:
        """Cancel the proof that is asked for or goes on; returns it, or its verdict if it had not begun. None: there is
        none. Raises StoreUnavailable."""
        while (going := await self.store.proof(topic_id)) is not None:
            proof, version = going
            if proof.state is ProofState.QUEUED:
                ended = proof.cancelled(wall_ms())
                if await self.store.conclude(ended, version=version) is WriteStatus.OK:
                    return ended
            elif proof.cancel:
                return proof
            else:
                cancelled = replace(proof, cancel=True)
                if (await self.store.write(cancelled, version=version)).status is WriteStatus.OK:
                    return cancelled
        return None

    async def end_of(self, topic: TopicName) -> OwnerEnd | None:
        """The end of the topic now; None: no owner says it. Nothing is placed."""
        try:
            return await self.ranges.end_of(topic, placed=False)
        except TopicNotFound:
            raise
        except OncelogError:
            return None

    # --- the elected replica ------------------------------------------------------------------------------------------

    async def run(self, elected: Elected) -> None:
        """Prove what is asked for while elected; never returns. elected: the name of this replica if it is elected."""
        while True:
            name = elected()
            self._asked.clear()
            if name is None:
                self._swept_s = None
            else:
                try:
                    await self._round(name, elected)
                except OncelogError as error:
                    logger.warning("could not look for proofs; will retry: %s", error.message)
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._asked.wait()
            except TimeoutError:
                continue

    async def _round(self, name: str, elected: Elected) -> None:
        """Prove what is asked for, of each role in turn, until nothing is. Raises StoreUnavailable, CorruptEntry."""
        if self._swept_s is None or time.monotonic() - self._swept_s > SWEEP_S:
            await self._sweep()
            self._swept_s = time.monotonic()
        while elected() == name:
            waiting = {one.value.topic_id: one for one in await self._waiting()}
            if not waiting:
                return
            chosen = self._turns.next_of([each.value for each in waiting.values()])
            await self._prove(waiting[chosen.topic_id], name, elected)

    async def _waiting(self) -> list[Versioned[TopicProof]]:
        """Also the one that goes on. Raises StoreUnavailable."""
        found = [await self._readable(one) for one in await self.store.topics_with_proofs()]
        return [each for each in found if each is not None]

    async def _readable(self, topic_id: TopicId) -> Versioned[TopicProof] | None:
        """A record that cannot be read, which is logged, holds up no other proof. Raises StoreUnavailable."""
        try:
            return await self.store.proof(topic_id)
        except CorruptEntry:
            return None

    async def _sweep(self) -> None:
        for topic_id in await self.store.topics_with_verdicts():
            if await self._topics.read(topic_id) is None:
                await self.store.delete(topic_id)

    async def _prove(self, asked: Versioned[TopicProof], name: str, elected: Elected) -> None:
        await self._refresh()
        run = ProofRun(asked.value.taken(name, wall_ms()), self.ranges, self._folds, self.views)
        written = await self.store.write(run.proof, version=asked.version)
        if written.status is not WriteStatus.OK:
            return  # the next round reads it again
        logger.info("a proof begins", extra={"fields": _fields(run.proof)})
        if run.proof.cancel or run.proof.began > BEGUN_MAX:
            if not run.proof.cancel:
                reason = f"the proof has begun {BEGUN_MAX} times, and was interrupted each time"
                run.proof = run.proof.left_out(run.proof.next_part or Part.END, [reason])
            await self._conclude(run.proof, written.version)
            return
        work = asyncio.get_running_loop().create_task(run.work())
        try:
            version = await self._follow(run, work, written.version, name, elected)
        finally:
            work.cancel()
            await asyncio.wait([work])
        if version is None:
            return
        try:
            if not work.cancelled():
                work.result()
        except TopicNotFound:
            await self.store.delete(run.proof.topic_id)
            return
        await self._conclude(run.proof, version)

    async def _follow(
        self, run: ProofRun, work: "asyncio.Task[None]", version: int, name: str, elected: Elected
    ) -> int | None:
        """Write the progress until the work is over, or cancelled. The version of the record; None: the proof is not
        this process's any more."""
        written = run.proof
        while True:
            await asyncio.wait([work], timeout=WRITE_S)
            if work.done() or run.proof.cancel:
                return version
            if elected() != name:
                return None
            if run.proof == written:
                if (seen := await self._seen(run, name)) is None:
                    return None
                version = seen
                continue
            written = run.proof = replace(run.proof, updated_ms=wall_ms())
            try:
                result = await self.store.write(written, version=version)
            except StoreUnavailable as error:
                logger.info("could not write the progress of a proof; will retry: %s", error.message)
                continue
            if result.status is WriteStatus.OK:
                version = result.version
            elif (seen := await self._seen(run, name)) is None:
                return None
            else:
                version = seen

    async def _seen(self, run: ProofRun, name: str) -> int | None:
        """Take over a request to cancel. The version of the record; None: it is gone, or another replica has it."""
        while True:
            try:
                stored = await self.store.proof(run.proof.topic_id)
            except StoreUnavailable as error:
                logger.info("could not read the record of a proof; will retry: %s", error.message)
                await asyncio.sleep(WRITE_S)
                continue
            if stored is None or stored.value.replica != name:
                return None
            run.proof = replace(run.proof, cancel=stored.value.cancel)
            return stored.version

    async def _conclude(self, proof: TopicProof, version: int) -> None:
        """Raises StoreUnavailable: the proof is then taken again."""
        ended = proof.cancelled(wall_ms()) if proof.cancel else proof.concluded(wall_ms())
        while await self.store.conclude(ended, version=version) is not WriteStatus.OK:
            stored = await self.store.proof(proof.topic_id)
            if stored is None or stored.value.replica != proof.replica:
                return  # concluded after all, deleted with its topic, or taken by another replica
            version = stored.version
        level = "error" if ended.state is ProofState.FAILED else "info"
        self._events.note(
            EventKind.VERIFICATION, logger, "a proof of the topic has ended", level=level, **_fields(ended)
        )
        for part in ended.parts:
            for finding in part.findings:
                where = finding.position or "the topic as a whole"
                logger.error("topic %s is damaged: %s: %s", ended.topic, where, finding.message)


def _fields(proof: TopicProof) -> dict[str, Any]:
    return {
        "topic": proof.topic,
        "by": proof.by,
        "state": proof.state.value,
        "began": proof.began,
        "until_index": proof.until_index,
        "entries": proof.entries,
        "findings": proof.findings_count,
        "ms": max(0, proof.ended_ms - proof.began_ms) if proof.ended_ms else 0,
    }


def wall_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000
