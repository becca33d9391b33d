"""An owner proves that it is the current owner before it answers a question about the end of the log.

    await proofs.until_current(owner_epoch_seen)     # before a question is answered, or a read stream begins

Rules
- A question that carries a higher epoch makes the owner read the topic record and refuse with NotOwner.
- Every other question is answered after a proof that began after the question. Either an ack quorum of members holds
  the open ledger unfenced (`core.chain.ownership_proof`), or the topic record, read after a sync, names this owner and
  epoch, and an ack quorum of storage nodes is of its era. No proof needs a clock, and the first kind works without
  ZooKeeper. Questions that arrive during a proof share the next one.
- A topic record that is missing means a deletion, which is final for clients, only if an ack quorum of storage nodes is
  of this owner's era afterwards (`storage_client.era_proof`). The ZooKeeper of a former era may have been told of a
  deletion that no storage node has noted, and the topic lives (hazard the-lost-ensemble-returns).
- This module decides in which order is asked, because answers arrive one by one. What they mean is decided by
  `core.chain.ownership_proof` and by the topic, which reads its record again when it is in doubt.
- Readers that wait at the end of the log: see `ownership_watch`. Consumers: see `core.delivery.delivery_gate`.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import aclosing

from oncelog.core.chain import ownership_proof
from oncelog.core.errors import InvariantViolated, NotOwner, OncelogError, ServiceUnavailable, TopicNotFound
from oncelog.core.ids import OwnerEpoch
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.topic.topic import Topic, open_ledger
from oncelog.core.topic_events.events import HigherEpochReported, TopicEvent
from oncelog.metadata_store.records.topic_store import TopicStore
from oncelog.storage_client.client import StorageClient
from oncelog.storage_client.era_proof import growing_states, require_era
from oncelog.topic_owner.shell.progress import TopicProgress

#: For a whole proof. The client asks again, and may find a newer owner meanwhile.
PROOF_TIMEOUT_MS = 3_000
#: How long a question waits for a takeover to finish.
SERVING_TIMEOUT_MS = 10_000


logger = logging.getLogger(__name__)


class OwnershipProofs:
    """Runs the proofs of one topic, one at a time."""

    def __init__(
        self,
        core: Topic,
        progress: TopicProgress,
        *,
        topics: TopicStore,
        links: StorageClient,
        post: Callable[[TopicEvent], None],
    ) -> None:
        self._core = core
        self._progress = progress
        self._topics = topics
        self._links = links
        self._post = post
        self._one_at_a_time = asyncio.Lock()
        #: proofs begun; the number of the last finished one, with its error
        self._begun = 0
        self._ended: tuple[int, OncelogError | None] = (0, None)
        #: when the newest successful proof began, on the monotonic clock
        self.proved_at = float("-inf")

    async def until_current(
        self, owner_epoch_seen: OwnerEpoch, *, serving_timeout_ms: int = SERVING_TIMEOUT_MS
    ) -> None:
        """Return once this owner was the current one at some moment after this call began.

        Raises NotOwner; TopicNotFound for a deleted topic; TopicLoading if a takeover takes too long.
        """
        ownership, progress = self._core.ownership, self._progress
        if owner_epoch_seen > ownership.epoch and await self._record_shows_higher_epoch():
            # Only the record counts: a client can claim any epoch.
            self._post(HigherEpochReported())
        try:
            async with asyncio.timeout(serving_timeout_ms / 1000):
                await progress.until_serving()
        except TimeoutError as error:
            raise progress.not_served() from error
        if owner_epoch_seen > ownership.epoch:
            raise NotOwner("a newer owner exists: look the topic up again", owner_epoch=ownership.epoch)
        await self.prove()

    async def _record_shows_higher_epoch(self) -> bool:
        """Read the topic record. Returns whether it has a newer epoch than this owner, or does not exist."""
        stored = await self._topics.read(self._core.ownership.topic_id)
        return stored is None or stored.value.owner_epoch > self._core.ownership.epoch

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
        self._progress.trust()

    async def _prove(self) -> None:
        mine = self._core.ownership
        ledger = open_ledger(self._core)
        if ledger is not None:
            verdict = await self._ask_members(ledger)
            if verdict is ownership_proof.OwnershipProof.PROVED and open_ledger(self._core) is ledger:
                return
            if verdict is ownership_proof.OwnershipProof.REFUTED:
                self._post(HigherEpochReported())
                raise NotOwner(f"ledger {ledger.ledger_id} is fenced by a newer owner: look the topic up again")
        await self._require_era()
        stored = await self._topics.read(mine.topic_id)
        if stored is None:
            await self._require_era()  # again: the era may have ended between the first answers and the read
            self._post(HigherEpochReported())
            raise TopicNotFound(f"topic {mine.record.name} was deleted", topic_id=mine.topic_id)
        record = stored.value
        if (record.owner, record.owner_epoch) != (mine.me, mine.epoch):
            self._post(HigherEpochReported())
            raise NotOwner(f"owner_epoch {record.owner_epoch} belongs to {record.owner}: look the topic up again")

    async def _ask_members(self, ledger: LedgerMetadata) -> ownership_proof.OwnershipProof:
        """Ask all members until the responses suffice, or all have responded or timed out."""
        verdict = ownership_proof.assess((), ack_quorum=ledger.ack_quorum)
        async with aclosing(growing_states(self._links, ledger.members, ledger.ledger_id)) as answers:
            async for states in answers:
                verdict = ownership_proof.assess(states, ack_quorum=ledger.ack_quorum)
                if verdict is not ownership_proof.OwnershipProof.UNPROVED:
                    break
        return verdict

    async def era_is_proved(self) -> bool:
        """Whether storage nodes say that this owner's era has not ended: a record that was missing before was deleted.
        Where the era has ended, the process ends by itself."""
        try:
            await self._require_era()
        except ServiceUnavailable as error:
            logger.warning("topic %s has no record: %s", self._core.ownership.topic_id, error.message)
            return False
        return True

    async def _require_era(self) -> None:
        """Return if the topic record may be believed. Raises ServiceUnavailable."""
        nodes = self._core.nodes
        await require_era(self._links, (*nodes.live, *nodes.read_only), ack_quorum=self._core.settings.ack_quorum)
