"""An owner proves that it is the current owner before it answers a question about the end of the log.

    await until_current(runner, owner_epoch_seen)     # before a question is answered, or a read stream begins
    OwnershipWatch(...).run()                          # for readers that wait at the end of the log

Rules
- A question that carries a higher epoch makes the owner read the topic record and refuse with NotOwner.
- Every other question is answered after a proof that began after the question. Either an ack quorum of members holds
  the open ledger unfenced (`core.chain.ownership_proof`), or the topic record, read after a sync, names this owner and
  epoch. No proof needs a clock, and the first kind works without ZooKeeper. Questions that arrive during a proof share
  the next one.
- Topics with waiting readers or consumers are checked together, with one call for each storage node. The streams of
  waiting readers end when a member is fenced, or when no quorum of members has responded for longer than a ZooKeeper
  session lasts, by this process's clock. Consumers: see `delivery_lease`.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from oncelog.core.chain import ownership_proof
from oncelog.core.errors import InvariantViolated, NotOwner, OncelogError, TopicNotFound
from oncelog.core.ids import Incarnation, LedgerId, OwnerEpoch
from oncelog.core.ledger.member_status import FenceState
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.topic.topic import open_ledger
from oncelog.core.topic_events.events import HigherEpochReported
from oncelog.rpc.storage_codec import FENCE_STATES_MAX
from oncelog.storage_client.storage_links import StorageLinks

if TYPE_CHECKING:
    from oncelog.topic_owner.shell.topic_registry import TopicRegistry
    from oncelog.topic_owner.shell.topic_runner import TopicRunner

logger = logging.getLogger(__name__)

#: A live member responds within milliseconds. After this time the topic record is read.
FENCES_TIMEOUT_MS = 1_000
#: For a whole proof. The client asks again, and may find a newer owner meanwhile.
PROOF_TIMEOUT_MS = 3_000
#: How long a question waits for a takeover to finish.
SERVING_TIMEOUT_MS = 10_000
#: Between two checks for waiting readers.
CHECK_INTERVAL_MS = 1_000


async def until_current(
    runner: "TopicRunner", owner_epoch_seen: OwnerEpoch, *, serving_timeout_ms: int = SERVING_TIMEOUT_MS
) -> None:
    """Return once this owner was the current one at some moment after this call began.

    Raises NotOwner; TopicNotFound for a deleted topic; TopicLoading if a takeover takes too long.
    """
    if owner_epoch_seen > runner.owner_epoch and await runner.record_shows_higher_epoch():
        # Only the record counts: a client can claim any epoch.
        runner.post(HigherEpochReported())
    try:
        async with asyncio.timeout(serving_timeout_ms / 1000):
            await runner.progress.until_serving()
    except TimeoutError as error:
        raise runner.progress.wait_reasons.error() from error
    if owner_epoch_seen > runner.owner_epoch:
        raise NotOwner("a newer owner exists: look the topic up again", owner_epoch=runner.owner_epoch)
    await runner.ownership_proofs.prove()


class OwnershipProofs:
    """Runs the proofs of one topic, one at a time."""

    def __init__(self, runner: "TopicRunner") -> None:
        self._runner = runner
        self._one_at_a_time = asyncio.Lock()
        #: proofs begun; the number of the last finished one, with its error
        self._begun = 0
        self._ended: tuple[int, OncelogError | None] = (0, None)
        #: when the newest successful proof began, on the monotonic clock
        self.proved_at = float("-inf")

    async def prove(self) -> None:
        """Return after a proof that began after this call. Raises NotOwner, TopicNotFound."""
        begun_before = self._begun
        async with self._one_at_a_time:
            if self._ended[0] <= begun_before:
                self._begun += 1
                number = self._begun
                failure: OncelogError | None = None
                began = time.monotonic()
                try:
                    async with asyncio.timeout(PROOF_TIMEOUT_MS / 1000):
                        await self._prove()
                except InvariantViolated:
                    raise
                except TimeoutError:
                    failure = NotOwner(
                        "neither storage nodes nor ZooKeeper confirm this owner: look the topic up again"
                    )
                except OncelogError as error:
                    failure = error if isinstance(error, TopicNotFound) else NotOwner(error.message)
                else:
                    self.proved_at = began
                self._ended = (number, failure)
            if self._ended[1] is not None:
                raise self._ended[1]
        self._runner.progress.trust()

    async def _prove(self) -> None:
        runner = self._runner
        ledger = open_ledger(runner.core)
        if ledger is not None:
            verdict = await self._ask_members(ledger)
            if verdict is ownership_proof.OwnershipProof.PROVED and open_ledger(runner.core) is ledger:
                return
            if verdict is ownership_proof.OwnershipProof.REFUTED:
                runner.post(HigherEpochReported())
                raise NotOwner(f"ledger {ledger.ledger_id} is fenced by a newer owner: look the topic up again")
        stored = await runner.parts.topics.read(runner.topic_id)
        if stored is None:
            runner.post(HigherEpochReported())
            raise TopicNotFound(f"topic {runner.name} was deleted", topic_id=runner.topic_id)
        record, mine = stored.value, runner.core.ownership
        if (record.owner, record.owner_epoch) != (mine.me, mine.epoch):
            runner.post(HigherEpochReported())
            raise NotOwner(f"owner_epoch {record.owner_epoch} belongs to {record.owner}: look the topic up again")

    async def _ask_members(self, ledger: LedgerMetadata) -> ownership_proof.OwnershipProof:
        """Ask all members until the responses suffice, or all have responded or timed out."""
        links, states = self._runner.parts.links, list[FenceState]()
        asks = [_states_of(links, member, [ledger.ledger_id]) for member in ledger.members]
        verdict = ownership_proof.assess((), ack_quorum=ledger.ack_quorum)
        async with aclosing(_as_they_come(asks)) as answers:
            async for answer in answers:
                states += answer
                verdict = ownership_proof.assess(states, ack_quorum=ledger.ack_quorum)
                if verdict is not ownership_proof.OwnershipProof.UNPROVED:
                    break
        return verdict


async def _states_of(links: StorageLinks, member: Incarnation, ledger_ids: Sequence[LedgerId]) -> Sequence[FenceState]:
    """The fence states; empty if the member does not respond."""
    try:
        return await links.fence_states(member, ledger_ids, timeout_ms=FENCES_TIMEOUT_MS)
    except InvariantViolated:
        raise
    except OncelogError:
        return ()


async def _as_they_come(
    asks: Sequence[Coroutine[Any, Any, Sequence[FenceState]]],
) -> AsyncGenerator[Sequence[FenceState], None]:
    """Yield the results in the order of completion; cancel the rest when closed."""
    waiting = {asyncio.ensure_future(ask) for ask in asks}
    try:
        while waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                yield task.result()
    finally:
        for task in waiting:
            task.cancel()


@dataclass(slots=True)
class _Waiting:
    """A topic with waiting readers: its open ledger, and the fence states of its members."""

    runner: "TopicRunner"
    ledger: LedgerMetadata
    states: list[FenceState] = field(default_factory=list)


class OwnershipWatch:
    """Checks the topics of one owner that have consumers, or readers that wait at the end of the log."""

    def __init__(self, topics: "TopicRegistry", links: StorageLinks, *, doubt_after_ms: int) -> None:
        self._topics = topics
        self._links = links
        self._doubt_after_ms = doubt_after_ms
        #: {topic: since when no quorum has responded, on the monotonic clock}
        self._unanswered_since: dict[TopicRunner, float] = {}

    async def run(self) -> None:
        """Check at intervals, forever."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL_MS / 1000)
            await self.check()

    async def check(self) -> None:
        """Check every topic with waiting readers or with consumers once."""
        began = time.monotonic()
        runners = [runner for runner in self._topics if runner.progress.waiting_count or runner.consumers.any_attached]
        self._unanswered_since = {r: since for r, since in self._unanswered_since.items() if r in runners}
        waiting: dict[LedgerId, _Waiting] = {}
        by_member: dict[Incarnation, list[LedgerId]] = {}
        for runner in runners:
            ledger = open_ledger(runner.core)
            if ledger is None:
                self._unanswered(runner)
                continue
            waiting[ledger.ledger_id] = _Waiting(runner, ledger)
            for member in ledger.members:
                by_member.setdefault(member, []).append(ledger.ledger_id)
        await asyncio.gather(*(self._ask(member, ids, waiting) for member, ids in by_member.items()))
        for one in waiting.values():
            self._judge(one, began)

    async def _ask(
        self, member: Incarnation, ledger_ids: Sequence[LedgerId], waiting: dict[LedgerId, _Waiting]
    ) -> None:
        for first in range(0, len(ledger_ids), FENCE_STATES_MAX):
            some = ledger_ids[first : first + FENCE_STATES_MAX]
            for ledger_id, state in zip(some, await _states_of(self._links, member, some), strict=False):
                waiting[ledger_id].states.append(state)

    def _judge(self, one: _Waiting, began: float) -> None:
        """began: when the members were asked."""
        runner = one.runner
        verdict = ownership_proof.assess(one.states, ack_quorum=one.ledger.ack_quorum)
        if verdict is ownership_proof.OwnershipProof.PROVED and open_ledger(runner.core) is one.ledger:
            runner.ownership_proofs.proved_at = began
        if ownership_proof.may_wait(one.states, ack_quorum=one.ledger.ack_quorum):
            self._unanswered_since.pop(runner, None)
        elif FenceState.FENCED not in one.states:
            self._unanswered(runner)
        elif open_ledger(runner.core) is one.ledger:
            logger.warning("topic %s: a newer owner has fenced ledger %d", runner.name, one.ledger.ledger_id)
            runner.progress.doubt(NotOwner("a newer owner has fenced the topic's ledger: look the topic up again"))
            runner.post(HigherEpochReported())

    def _unanswered(self, runner: "TopicRunner") -> None:
        now = time.monotonic()
        since = self._unanswered_since.setdefault(runner, now)
        if now - since > self._doubt_after_ms / 1000:
            runner.progress.doubt(
                NotOwner("no quorum of storage nodes responds to this owner: look the topic up again")
            )
