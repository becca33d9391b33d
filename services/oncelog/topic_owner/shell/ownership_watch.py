"""Checks whether this owner is still the current one, for clients that send no question.

Topics with waiting readers or consumers are checked together, with one call for each storage node. The streams of
waiting readers end when a member is fenced, or when no quorum of members has responded for longer than a ZooKeeper
session lasts, by this process's clock. For consumers a check is a proof (`core.delivery.delivery_gate`).

No fence shows that a topic without an open ledger, or with one that has no entry, was given to another owner, and
consumers that get nothing here would stay for ever. So where nothing has been proved for long, the record is asked.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from oncelog.core.chain.ownership_proof import OwnershipProof, WaitVerdict, assess, assess_wait
from oncelog.core.errors import InvariantViolated, NotOwner, OncelogError
from oncelog.core.ids import Incarnation, LedgerId
from oncelog.core.ledger.member_status import FenceState
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.topic.topic import open_ledger
from oncelog.core.topic_events.events import HigherEpochReported
from oncelog.rpc.codecs.storage_codec import FENCE_STATES_MAX
from oncelog.runtime.observing.events import EventKind
from oncelog.storage_client.client import StorageClient
from oncelog.storage_client.era_proof import states_of
from oncelog.topic_owner.shell.topic_registry import TopicRegistry
from oncelog.topic_owner.shell.topic_runner import TopicRunner

logger = logging.getLogger(__name__)

#: Between two checks.
CHECK_INTERVAL_MS = 1_000
#: Between two proofs for consumers that no fence gives, and for how many topics at one check.
PROOF_INTERVAL_MS = 30_000
PROOFS_MAX = 50


@dataclass(slots=True)
class _Waiting:
    """A topic with waiting readers: its open ledger, and the fence states of its members."""

    runner: TopicRunner
    ledger: LedgerMetadata
    states: list[FenceState] = field(default_factory=list)


class OwnershipWatch:
    """Checks the topics of one owner that have consumers, or readers that wait at the end of the log."""

    def __init__(
        self, topics: TopicRegistry, links: StorageClient, *, doubt_after_ms: int,
        proof_interval_ms: int = PROOF_INTERVAL_MS,
    ) -> None:  # fmt: skip
        self._topics = topics
        self._links = links
        self._doubt_after_ms = doubt_after_ms
        self._proof_interval_ms = proof_interval_ms
        #: {topic: when a proof for its consumers began last, on the monotonic clock}
        self._proof_began: dict[TopicRunner, float] = {}
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
            self._answered(one, began)
        await self._prove([runner for runner in runners if runner.consumers.any_attached])

    async def _prove(self, consumed: list[TopicRunner]) -> None:
        """Prove the ownership of those topics that nothing has proved for long. A refuted owner steps down."""
        self._proof_began = {
            runner: max(runner.ownership_proofs.proved_at, self._proof_began.get(runner, float("-inf")))
            for runner in consumed
        }
        now = time.monotonic()
        due = [runner for runner, at in self._proof_began.items() if now - at > self._proof_interval_ms / 1000]
        due = sorted(due, key=self._proof_began.__getitem__)[:PROOFS_MAX]
        self._proof_began |= dict.fromkeys(due, now)
        await asyncio.gather(*map(_prove_one, due))

    async def _ask(
        self, member: Incarnation, ledger_ids: Sequence[LedgerId], waiting: dict[LedgerId, _Waiting]
    ) -> None:
        for first in range(0, len(ledger_ids), FENCE_STATES_MAX):
            some = ledger_ids[first : first + FENCE_STATES_MAX]
            for ledger_id, state in zip(some, await states_of(self._links, member, some), strict=False):
                waiting[ledger_id].states.append(state)

    def _answered(self, one: _Waiting, began: float) -> None:
        """began: when the members were asked."""
        runner = one.runner
        is_open, ack_quorum = open_ledger(runner.core) is one.ledger, one.ledger.ack_quorum
        if is_open and assess(one.states, ack_quorum=ack_quorum) is OwnershipProof.PROVED:
            runner.ownership_proofs.proved_at = began
        match assess_wait(one.states, ack_quorum=ack_quorum):
            case WaitVerdict.MAY_WAIT:
                self._unanswered_since.pop(runner, None)
            case WaitVerdict.UNANSWERED:
                self._unanswered(runner)
            case WaitVerdict.FENCED if is_open:
                runner.parts.metrics.events.note(
                    EventKind.LEDGER_FAILED, logger, "a newer owner has fenced the open ledger", level="warning",
                    topic=runner.name, ledger_id=one.ledger.ledger_id,
                )  # fmt: skip
                runner.progress.doubt(NotOwner("a newer owner has fenced the topic's ledger: look the topic up again"))
                runner.post(HigherEpochReported())
            case WaitVerdict.FENCED:
                pass  # this owner has closed the ledger meanwhile

    def _unanswered(self, runner: TopicRunner) -> None:
        now = time.monotonic()
        since = self._unanswered_since.setdefault(runner, now)
        if now - since > self._doubt_after_ms / 1000:
            runner.progress.doubt(
                NotOwner("no quorum of storage nodes responds to this owner: look the topic up again")
            )


async def _prove_one(runner: TopicRunner) -> None:
    try:
        await runner.ownership_proofs.prove()
    except InvariantViolated:
        raise
    except OncelogError as error:
        logger.info("nothing proves that this process still owns %s: %s", runner.name, error.message)
