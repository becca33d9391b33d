"""Performs the effects of a topic's core on ZooKeeper and on storage nodes, and posts the responses as events."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeVar

from oncelog.core.access import Permissions
from oncelog.core.chain.next_ledger import ClaimLedgerId, DeleteLedgers, LedgerIdClaimed
from oncelog.core.chain.replay import EntriesRead, EntriesUnavailable, EntryUnreadable, ReadEntries
from oncelog.core.errors import (
    CorruptEntry,
    EntriesLost,
    IdsExhausted,
    LedgerUnavailable,
    LogHole,
    StoreUnavailable,
    UnreadableEntry,
)
from oncelog.core.formats.batch import Buffer
from oncelog.core.formats.ledger_page import ListPage
from oncelog.core.formats.topic_record import DEDUP_CURSOR
from oncelog.core.ids import EntryId, LedgerId, ProducerId, TopicId
from oncelog.core.ledger.metadata import LedgerKey, LedgerMetadata, LedgerState
from oncelog.core.ledger.recovery import FenceMember, RecoveryAdd, RecoveryRead
from oncelog.core.names import parse_topic
from oncelog.core.policies.ack_state_limit import PausePolicy
from oncelog.core.policies.producer_caps import ProducerCaps
from oncelog.core.policies.producer_lifetimes import ProducerLifetimes
from oncelog.core.policies.topic_policies import TopicPolicies
from oncelog.core.records.records import (
    ABSENT_VERSION,
    CursorKey,
    PageKey,
    ReadRecord,
    RecordRead,
    TopicKey,
    WriteRecord,
)
from oncelog.core.records.status import WriteStatus
from oncelog.core.topic.wait_reasons import WaitReasons
from oncelog.core.topic_events.effects import (
    AllocateProducerId,
    DeletePages,
    TopicEffect,
)
from oncelog.core.topic_events.events import (
    DedupToggled,
    PoliciesChanged,
    ProducerIdAllocated,
    ProducerIdRefused,
    TopicEvent,
)
from oncelog.metadata_store.records.cursor_store import CursorStore
from oncelog.metadata_store.records.ledger_store import LedgerStore
from oncelog.metadata_store.records.policies import EffectivePolicies
from oncelog.metadata_store.records.policy_store import PolicyStore
from oncelog.metadata_store.records.topic_store import TopicStore
from oncelog.metadata_store.session.answers import sent_once, until_answered
from oncelog.metadata_store.session.store_session import Versioned
from oncelog.rpc.entry_reader import READ_BYTES_MAX
from oncelog.runtime.tasks import start
from oncelog.storage_client.client import StorageClient
from oncelog.storage_client.reader import missing_entries, read_entries
from oncelog.topic_owner.shell.id_source import IdSource
from oncelog.topic_owner.shell.ledger_routes import LedgerRoutes
from oncelog.topic_owner.shell.metadata_calls import MetadataCalls
from oncelog.topic_owner.shell.owner_metrics import OwnerMetrics
from oncelog.topic_owner.shell.store_clock import StoreClock

logger = logging.getLogger(__name__)

POLICY_RETRY_MS = 1000
EXHAUSTED_RETRY_MS = 5000
#: Between two questions whether a topic record that is missing was deleted.
ERA_RETRY_MS = 1000
#: Entries of a takeover in one step: one chunk of a snapshot, or this many to replay.
STEP_BYTES, STEP_ENTRIES = 256 * 1024 + 1024, 1000
NEXT_LEDGER_ID = "an id for the next ledger"
T = TypeVar("T")
#: A record that does not exist, and the version that creates it.
_ABSENT = (None, ABSENT_VERSION)
Post = Callable[[TopicEvent], None]


class Pace(Protocol):
    """How fast entries are read. call_bytes_max: limit of one call to a storage node."""

    @property
    def call_bytes_max(self) -> int: ...

    async def wait(self, count: int) -> None:
        """Return when so many bytes, which were read, may be folded."""


class Unhurried:
    """No limit, but others have their turn."""

    call_bytes_max = READ_BYTES_MAX

    async def wait(self, count: int) -> None:
        await asyncio.sleep(0)


@dataclass(frozen=True, slots=True)
class OwnerParts:
    """The parts of one owner that all its topics share."""

    topics: TopicStore
    cursors: CursorStore
    ledgers: LedgerStore
    links: StorageClient
    routes: LedgerRoutes
    ledger_ids: IdSource
    producer_ids: IdSource
    policies: PolicyStore
    metrics: OwnerMetrics
    clock: StoreClock
    metadata: MetadataCalls = field(default_factory=MetadataCalls)
    #: whether a fold may be verified: one at a time in a process, because each takes the memory of another fold
    verifying: asyncio.Lock = field(default_factory=asyncio.Lock)


class EffectExecutor:
    """Performs one topic's effects on ZooKeeper and storage nodes."""

    def __init__(
        self,
        topic_id: TopicId,
        parts: OwnerParts,
        post: Post,
        wait_reasons: WaitReasons,
        pace: Pace | None = None,
        *,
        era_is_proved: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        """pace: of the reads of a replay. era_is_proved: whether a topic record that was missing was deleted; without
        it nothing reads that record."""
        self.topic_id = topic_id
        self._pace = pace or Unhurried()
        self._era_is_proved = era_is_proved
        self.parts = parts
        self._post = post
        self._wait_reasons = wait_reasons
        self._tasks: set[asyncio.Task[None]] = set()
        #: requests to members, repeated until they answer: cancelled once the step of the takeover is over
        self._of_members: set[asyncio.Task[None]] = set()
        self._cancelled = False
        #: what the topic's namespace grants to roles; None: not known yet
        self.grants: Permissions | None = None
        self._follows_policies = False
        #: {type of an effect: what performs it}
        self.performers: dict[type, Callable[[Any], None]] = {
            ReadRecord: partial(self._begin, self._read_record),
            WriteRecord: partial(self._begin, self._write_record),
            ClaimLedgerId: partial(self._begin, self._claim_ledger_id),
            DeleteLedgers: partial(self._begin, self._delete_ledgers),
            DeletePages: partial(self._begin, self._delete_pages),
            AllocateProducerId: partial(self._begin, self._allocate_producer_id),
            ReadEntries: partial(self._begin, self._read_entries),
            FenceMember: partial(self._ask_member, self._fence),
            RecoveryRead: partial(self._ask_member, self._recovery_read),
            RecoveryAdd: partial(self._ask_member, self._recovery_add),
        }

    def _begin(self, perform: Callable[[Any], Coroutine[None, None, None]], effect: TopicEffect) -> None:
        self._track(perform(effect), self._tasks)

    def _ask_member(self, perform: Callable[[Any], Coroutine[None, None, None]], effect: TopicEffect) -> None:
        self._track(perform(effect), self._of_members)

    def start(self, work: Coroutine[None, None, None]) -> None:
        """Other work of this topic, which ends with it."""
        self._track(work, self._tasks)

    def _track(self, work: Coroutine[None, None, None], group: "set[asyncio.Task[None]]") -> None:
        if self._cancelled:
            work.close()
            return
        task = start(work, what="a topic's effect")
        group.add(task)
        task.add_done_callback(group.discard)

    def cancel_member_requests(self) -> None:
        """A step of the takeover is over: members that have not answered for it need not any more."""
        for task in self._of_members:
            task.cancel()

    def cancel(self) -> None:
        """The topic has ended here: nothing goes on, and nothing begins, also if an answer asks for it."""
        self._cancelled = True
        for task in (*self._tasks, *self._of_members):
            task.cancel()

    # --- ids ----------------------------------------------------------------------------------------------------------

    async def _claim_ledger_id(self, effect: ClaimLedgerId) -> None:
        self._post(LedgerIdClaimed(effect.purpose, await self._ledger_id()))

    async def _allocate_producer_id(self, effect: AllocateProducerId) -> None:
        self._post(await self._producer_id(effect.allocation))

    async def _producer_id(self, allocation: int) -> ProducerIdAllocated | ProducerIdRefused:
        """Without an id only this opening fails."""
        try:
            return ProducerIdAllocated(allocation, ProducerId(await self.parts.producer_ids.next_id()))
        except IdsExhausted as error:
            self.parts.metrics.counts.event("ids_exhausted")
            logger.error("no producer can be opened under a new name: %s", error.message)
            return ProducerIdRefused(allocation, error)

    async def _ledger_id(self) -> LedgerId:
        """Wait until the counter is repaired if it is exhausted: without an id no ledger can be opened."""
        while True:
            try:
                ledger_id = LedgerId(await self.parts.ledger_ids.next_id())
            except IdsExhausted as error:
                self.parts.metrics.counts.event("ids_exhausted")
                self._wait_reasons.failed(NEXT_LEDGER_ID, error)
                logger.error("no ledger can be opened: %s", error.message)
                await asyncio.sleep(EXHAUSTED_RETRY_MS / 1000)
            else:
                self._wait_reasons.answered(NEXT_LEDGER_ID)
                return ledger_id

    # --- storage nodes ------------------------------------------------------------------------------------------------

    async def _fence(self, effect: FenceMember) -> None:
        self._post(await self.parts.links.fence(effect.member, effect.ledger_id))

    async def _recovery_read(self, effect: RecoveryRead) -> None:
        links = self.parts.links
        self._post(await links.recovery_read(effect.member, effect.ledger_id, effect.first, effect.count))

    async def _recovery_add(self, effect: RecoveryAdd) -> None:
        self._post(await self.parts.links.recovery_add(effect.member, effect.ledger_id, effect.entries))

    async def _read_entries(self, effect: ReadEntries) -> None:
        ledger_id = effect.metadata.ledger_id
        try:
            pages = read_entries(
                self.parts.links, effect.metadata, effect.first, effect.last, headers_only=effect.headers_only,
                record=self.parts.ledgers.record, call_bytes_max=self._pace.call_bytes_max,
            )  # fmt: skip
            async for entries in pages:
                for some in _in_steps(entries):
                    await self._pace.wait(sum(len(data) for _, data in some))
                    self._post(EntriesRead(ledger_id, some))
        except LedgerUnavailable as error:
            logger.warning("topic %s waits for entries: %s", self.topic_id, error.message)
            first, last, waiting_for = missing_entries(error)
            self._post(EntriesUnavailable(ledger_id, first, last, error.message, waiting_for))
        except (EntriesLost, LogHole, UnreadableEntry) as error:
            details = {"entry_id": effect.first, "first": effect.first} | error.details
            at = details["first"] if isinstance(error, EntriesLost) else details["entry_id"]
            members = tuple(error.members.items()) if isinstance(error, UnreadableEntry) else ()
            first, last = EntryId(int(at or 0)), EntryId(int(error.details.get("last") or at or 0))
            self._post(EntryUnreadable(ledger_id, first, error.message, members, error.code, last))

    # --- ZooKeeper ----------------------------------------------------------------------------------------------------

    async def _until_answered(self, what: str, read: Callable[[], Awaitable[T]]) -> T:
        """Repeat a read until it is answered; clients that wait meanwhile learn why. what: the name of the record."""
        answer = await until_answered(what, read, failed=partial(self._wait_reasons.failed, what))
        self._wait_reasons.answered(what)
        return answer

    def follow_policies(self, name: str) -> None:
        """Watch the policies of the topic of this name, unless they are watched already."""
        if not self._follows_policies:
            self._follows_policies = True
            self.start(self._follow_policies(name))

    async def _follow_policies(self, name: str) -> None:
        """Post the policies, and keep the grants, now and at each change.

        Ends when it is cancelled, or when the session is closed because the process ends.
        """
        topic = parse_topic(name)
        while True:
            try:
                async for policies in self.parts.policies.watch(topic, self.topic_id):
                    self.grants = policies.grants
                    self._post(DedupToggled(policies.deduplication.value))
                    self._post(PoliciesChanged(_of_topic(policies)))
            except StoreUnavailable:
                return
            except CorruptEntry as error:
                logger.error("a policy is damaged; the previous one stays in force: %s", error.message)
                await asyncio.sleep(POLICY_RETRY_MS / 1000)

    async def ledger(self, ledger_id: LedgerId) -> LedgerMetadata:
        """Read the record of a ledger of this topic. Raises LogHole when there is none."""
        return self._found(
            ledger_id, await self._until_answered(_ledger(ledger_id), lambda: self.parts.ledgers.read(ledger_id))
        )

    async def ledger_for_reader(self, ledger_id: LedgerId) -> LedgerMetadata:
        """The same for a client, which is told of a damaged record: nothing else would say what it waits for. Raises
        LogHole, CorruptEntry."""
        return self._found(ledger_id, await _answer_of(_ledger(ledger_id), lambda: self.parts.ledgers.read(ledger_id)))

    @staticmethod
    def _found(ledger_id: LedgerId, stored: Versioned[LedgerMetadata] | None) -> LedgerMetadata:
        if stored is None:
            raise LogHole(f"ledger {ledger_id} has no record", ledger_id=ledger_id)
        return stored.value

    async def page(self, name: LedgerId) -> ListPage | None:
        """Read a page of the topic's list of ledgers; None: there is no such record."""
        return await self._until_answered(_page(name), lambda: self.parts.topics.pages.read(self.topic_id, name))

    async def page_for_reader(self, name: LedgerId) -> ListPage | None:
        """The same for a client, which is told of a damaged record. Raises CorruptEntry."""
        return await _answer_of(_page(name), lambda: self.parts.topics.pages.read(self.topic_id, name))

    async def _delete_pages(self, effect: DeletePages) -> None:
        """Pages that a crash has left are deleted, too: all that are below the floor."""
        pages, topic_id = self.parts.topics.pages, self.topic_id
        try:
            for name in await pages.names(topic_id):
                page = await pages.read(topic_id, name) if name < effect.below else None
                if page is not None and page.ledgers[-1].ledger_id < effect.below:
                    await self.parts.ledgers.delete_all([ledger.ledger_id for ledger in page.ledgers])
                    await pages.delete(topic_id, name)
        except (StoreUnavailable, CorruptEntry) as error:
            logger.warning("trimmed pages of topic %s stay until the next trim: %s", self.topic_id, error.message)

    async def _read_record(self, effect: ReadRecord[TopicKey | CursorKey | LedgerKey | PageKey]) -> None:
        parts, key = self.parts, effect.key
        match key:
            case TopicKey():
                topic = await self._until_answered("the topic record", lambda: parts.topics.read(key.topic_id))
                while topic is None and self._era_is_proved is not None and not await self._era_is_proved():
                    await asyncio.sleep(ERA_RETRY_MS / 1000)
                    topic = await self._until_answered("the topic record", lambda: parts.topics.read(key.topic_id))
                self._post(RecordRead(key, *(topic or _ABSENT)))
            case CursorKey():
                cursor = await self._until_answered(
                    "the record of the dedup cursor", lambda: parts.cursors.read(key.topic_id, DEDUP_CURSOR)
                )
                self._post(RecordRead(key, *(cursor or _ABSENT)))
            case LedgerKey(ledger_id):
                ledger = await self._until_answered(_ledger(ledger_id), lambda: parts.ledgers.read(ledger_id))
                self._post(RecordRead(key, *(ledger or _ABSENT)))
            case PageKey():
                page = await self.page(key.name)
                self._post(RecordRead(key, page, ABSENT_VERSION if page is None else 0))

    async def _write_record(self, effect: WriteRecord[Any, Any]) -> None:
        parts, record, version = self.parts, effect.value, effect.version
        match effect.key:
            case TopicKey():
                write = parts.topics.write(record, version=version, page=effect.page)
            case CursorKey(topic_id):
                write = parts.cursors.write(topic_id, DEDUP_CURSOR, record, version=version)
            case _:
                write = parts.ledgers.write(record, version=version)
        written = await sent_once(write)
        self._post(effect.answered(*written))
        closed = isinstance(record, LedgerMetadata) and record.state is LedgerState.CLOSED
        if closed and written.status is WriteStatus.OK:
            parts.routes.forget(record.ledger_id)

    async def _delete_ledgers(self, effect: DeleteLedgers) -> None:
        """Delete the records of ledgers that no list names any more."""
        try:
            count = await self.parts.ledgers.delete_all(effect.ledger_ids)
        except StoreUnavailable as error:
            logger.warning("records of trimmed ledgers may not have been deleted: %s", error.message)
        else:
            logger.info("the records of %d ledgers were deleted", count)


def _of_topic(policies: EffectivePolicies) -> TopicPolicies:
    quota, ttl_s = policies.backlog_quota.value, policies.message_ttl_s.value
    return TopicPolicies(
        policies.retention.value,
        ttl_s * 1000 if ttl_s else None,
        None if quota.bytes_max is None and quota.age_ms_max is None else quota,
        PausePolicy(
            policies.dispatcher_pause_on_ack_state_persistent_enabled.value,
            policies.max_unacked_ranges_to_persist.value,
            policies.ack_state_bytes_max.value,
        ),
        ProducerLifetimes(
            policies.assigned_producer_expiry_s.value * 1000,
            policies.chosen_producer_expiry_s.value * 1000,
            policies.producer_lease_expiry_s.value * 1000,
        ),
        ProducerCaps(policies.max_known_producers_per_topic.value, policies.max_known_producers_per_namespace.value),
    )


def _in_steps(entries: list[tuple[EntryId, Buffer]]) -> Iterator[list[tuple[EntryId, Buffer]]]:
    """The same entries in lists that the topic folds within a few milliseconds, so that other topics go on."""
    some: list[tuple[EntryId, Buffer]] = []
    size = 0
    for entry in entries:
        if some and (size + len(entry[1]) > STEP_BYTES or len(some) == STEP_ENTRIES):
            yield some
            some, size = [], 0
        some.append(entry)
        size += len(entry[1])
    if some:
        yield some


def _ledger(ledger_id: LedgerId) -> str:
    return f"the record of ledger {ledger_id}"


def _page(name: LedgerId) -> str:
    return f"page {name} of the list of ledgers"


async def _answer_of(what: str, read: Callable[[], Awaitable[T]]) -> T:
    """Repeat a read until ZooKeeper answers. Raises CorruptEntry."""
    return await until_answered(what, read, retried=(StoreUnavailable,))
