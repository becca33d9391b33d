"""The parts of an owner between its streams and its cores: absent peers and invalid requests."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any, cast
from uuid import uuid4

import pytest
from crc32c import crc32c

from oncelog.core.errors import InvalidArgument, StoreUnavailable
from oncelog.core.formats.topic_record import LedgerLink, TopicRecord, encode_topic
from oncelog.core.ids import EntryId, Incarnation, LedgerId, OwnerEpoch, SessionNumber, TopicId
from oncelog.core.ledger.member_selection import StorageNodesUpdated
from oncelog.core.ledger.member_status import FenceState
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.ledger.recovery import MemberFenced, RecoveryReadAnswered
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.core.topic.serving import TopicSettings
from oncelog.metadata_store.records.cursor_store import CursorStore
from oncelog.metadata_store.records.ledger_store import LedgerStore
from oncelog.metadata_store.records.policy_store import PolicyStore
from oncelog.metadata_store.records.registry import LiveMetadata, LiveStorageNode, Registry, StorageCookie
from oncelog.metadata_store.records.topic_store import TopicStore
from oncelog.metadata_store.session import paths
from oncelog.runtime.telemetry import Telemetry
from oncelog.storage_client.client import StorageClient
from oncelog.topic_owner.metadata_streams import MetadataStreams
from oncelog.topic_owner.observe.rates import OwnerRates
from oncelog.topic_owner.shell.effect_executor import OwnerParts
from oncelog.topic_owner.shell.entry_cache import CacheBudget
from oncelog.topic_owner.shell.id_source import IdSource
from oncelog.topic_owner.shell.ledger_routes import LedgerRoutes
from oncelog.topic_owner.shell.owner_metrics import OwnerMetrics
from oncelog.topic_owner.shell.store_clock import StoreClock
from oncelog.topic_owner.shell.topic_registry import TopicRegistry
from oncelog.topic_owner.shell.topic_runner import TopicRunner
from oncelog.topic_owner.storage_view import StorageView
from oncelog.topic_owner.streams.admin_service import AdminService
from oncelog.wire import owner_pb2 as pb
from tests.cluster.until import until
from tests.contract.owner.storage_views import SeenLinks, node_of, session_with_a_cluster, storage_view
from tests.contract.stores.memory_store import MemorySession, MemoryTree

ME = Incarnation("e" * 32)
TOPIC_ID = TopicId("0f" * 16)
A, B, C = Incarnation("a" * 32), Incarnation("b" * 32), Incarnation("c" * 32)
DEADLINE_S = 30.0


class OneMemberHangs:
    """Storage nodes of which C never answers, and the others lack an entry that was acknowledged."""

    def __init__(self) -> None:
        self.attempts = 0
        #: asks of C that run
        self.hanging = 0

    async def fence(self, member: Incarnation, ledger_id: LedgerId) -> MemberFenced:
        await self._of(member)
        self.attempts += member == A
        return MemberFenced(ledger_id, member, EntryId(5), EntryId(5))

    async def recovery_read(
        self, member: Incarnation, ledger_id: LedgerId, first: EntryId, count: int
    ) -> RecoveryReadAnswered:
        await self._of(member)
        missing = frozenset(EntryId(entry_id) for entry_id in range(first, first + count))
        return RecoveryReadAnswered(ledger_id, member, first, {}, missing)

    async def fence_states(
        self,
        member: Incarnation,
        ledger_ids: Sequence[LedgerId],
        *,
        timeout_ms: int,
    ) -> list[FenceState]:
        await self._of(member)
        return [FenceState.UNKNOWN] * len(ledger_ids)

    async def _of(self, member: Incarnation) -> None:
        if member == C:
            self.hanging += 1
            try:
                await asyncio.Event().wait()
            finally:
                self.hanging -= 1


def owner_parts(session: MemorySession, links: object) -> OwnerParts:
    ids = cast("IdSource", None)  # a takeover that fails claims none
    metrics = OwnerMetrics(Telemetry("topic_owner", "owner-1"))
    return OwnerParts(
        TopicStore(session), CursorStore(session), LedgerStore(session), cast("StorageClient", links), LedgerRoutes(),
        ids, ids, PolicyStore(session), metrics, StoreClock(session, paths.CLUSTER_POLICIES),
    )  # fmt: skip


@pytest.mark.asyncio
async def test_failed_takeovers_leave_no_requests_behind() -> None:
    """Each attempt left its requests to the absent node behind, one more each second."""
    session = await session_with_a_cluster()
    record = TopicRecord(TOPIC_ID, "public/default/t", ME, OwnerEpoch(1), (LedgerLink(LedgerId(1), 0),))
    await session.create(paths.topic(TOPIC_ID), encode_topic(record))
    await LedgerStore(session).write(LedgerMetadata(LedgerId(1), TOPIC_ID, (A, B, C), 2), version=ABSENT_VERSION)
    links = OneMemberHangs()
    runner = TopicRunner(
        TOPIC_ID, ME, TopicSettings(retry_ms=1), crc32c, owner_parts(session, links),
        nodes=StorageNodesUpdated((A, B, C)), first_session=SessionNumber(1), cache_budget=CacheBudget(1 << 20),
        finished=lambda _, __: None,
    )  # fmt: skip
    runner.assigned()
    await until(lambda: links.attempts > 10, DEADLINE_S, waiting_for="more attempts")
    assert links.hanging <= 2, "the fence and the read of one attempt"
    await session.delete(paths.topic(TOPIC_ID), version=0)
    await until(lambda: runner.progress.ended, DEADLINE_S)


class LateRegistry:
    """Shows one storage node, and cannot read the cookies at first."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.storage_nodes = self

    async def watch(self) -> AsyncIterator[dict[str, LiveStorageNode]]:
        yield {A: LiveStorageNode(A, "127.0.0.1", 1, 1)}
        await asyncio.Event().wait()

    async def cookies(self) -> dict[Incarnation, StorageCookie]:
        self.failures -= 1
        if self.failures >= 0:
            raise StoreUnavailable("ZooKeeper did not answer")
        return {A: StorageCookie(A, "127.0.0.1", 1)}


@pytest.mark.asyncio
async def test_zookeeper_outage_between_two_reads_does_not_end_the_owner() -> None:
    """ZooKeeper went away after the live nodes were read and before their cookies were: every owner ended with all its
    topics, although each of them could have gone on."""
    registry = LateRegistry(failures=2)
    topics = TopicRegistry(lambda *_: pytest.fail("no topic is assigned"))
    links = StorageClient(lambda *_: None, lambda *_: None)
    session = MemorySession(MemoryTree())
    view = StorageView(session, cast("Registry", registry), links, topics, quorums=(1, 1))
    following = asyncio.create_task(view.follow())
    try:
        await until(lambda: registry.failures < 0, DEADLINE_S)
        assert not following.done()
    finally:
        following.cancel()
        await asyncio.wait([following])
        await links.close()


@pytest.mark.asyncio
async def test_read_only_storage_nodes_are_distinguished_from_absent_ones() -> None:
    """Full, or set so by an operator: live, and of no use for a new ledger but to fill its list. Not so a retired one,
    and one that is not live is absent, whatever was ordered."""
    seen: list[StorageNodesUpdated] = []
    session = await session_with_a_cluster()
    d, e = Incarnation("d" * 32), Incarnation("e" * 32)
    await storage_view(
        session, seen, [node_of(A), node_of(B, read_only=True), node_of(C, 3), node_of(e, 5, read_only=True)],
        StorageCookie(A, "127.0.0.1", 1), StorageCookie(B, "127.0.0.1", 1),
        StorageCookie(C, "127.0.0.1", 3, read_only=True), StorageCookie(d, "127.0.0.1", 4, read_only=True),
        StorageCookie(e, "127.0.0.1", 5, retired=True),
    )  # fmt: skip
    assert seen[-1] == StorageNodesUpdated((A,), (d,), (e,), store_reachable=True, read_only=(B, C), full=(B,))


@pytest.mark.asyncio
async def test_unreachable_storage_node_is_absent() -> None:
    """It may stay registered for a session. Every open ledger used to roll at once, onto the dead node."""
    seen: list[StorageNodesUpdated] = []
    links, d = SeenLinks(), Incarnation("d" * 32)
    nodes = [node_of(A), node_of(B), node_of(C, read_only=True)]
    session = await session_with_a_cluster()
    await storage_view(session, seen, nodes, StorageCookie(d, "127.0.0.1", 4), links=links)
    links.lose(B)
    assert seen[-1] == StorageNodesUpdated((A,), (B, d), read_only=(C,), full=(C,))
    links.lose()
    assert seen[-1] == StorageNodesUpdated((A, B), (d,), read_only=(C,), full=(C,))


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("nodes", "cookies", "words"),
    [
        ([node_of(A)], [], "1 storage nodes are known, but each entry needs 3 copies"),
        ([node_of(A), node_of(B)], [], "lower ONCELOG_WRITE_QUORUM"),
        ([node_of(A), node_of(B, read_only=True), node_of(C, read_only=True)], [], "make them writable"),
        ([node_of(A), node_of(B, read_only=True), node_of(C, read_only=True)], [], "2 have no space"),
        ([node_of(A), node_of(B)], [StorageCookie(C, "127.0.0.1", 3)], None),
        ([node_of(A), node_of(B), node_of(C, read_only=True)], [], None),
    ],
)
async def test_owner_without_enough_storage_nodes_reports_what_to_do(
    nodes: list[LiveStorageNode], cookies: list[StorageCookie], words: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """A quorum that cannot be had, by mistake or for want of nodes: in the log, and why the owner is not ready.

    No error: services start in any order, and the nodes may be a moment behind.
    """
    view = await storage_view(await session_with_a_cluster(), [], nodes, *cookies)
    assert (view.shortage is None) is (words is None)
    assert not words or (words in str(view.shortage) and words in caplog.text)
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


@pytest.mark.hazard("unmounted-volume")
@pytest.mark.asyncio
async def test_joining_storage_node_is_no_member() -> None:
    """Its predecessor counts as absent until it is replaced. Also a joining node with a full disk is skipped."""
    seen: list[StorageNodesUpdated] = []
    joining = [replace(node_of(node, read_only=full), joining=True) for node, full in ((B, False), (C, True))]
    former = StorageCookie(Incarnation("f" * 32), "127.0.0.1", 1)
    await storage_view(await session_with_a_cluster(), seen, [node_of(A), *joining], former)
    assert (seen[-1].live, seen[-1].read_only, seen[-1].absent) == ((A,), (), (former.incarnation,))


@pytest.mark.asyncio
async def test_owner_stays_ready_when_storage_nodes_leave_later(caplog: pytest.LogCaptureFixture) -> None:
    """The owner has not failed: its topics wait, and its log names the reason."""
    session = await session_with_a_cluster()
    view = await storage_view(session, [], [node_of(A), node_of(B), node_of(C)])
    assert view.shortage is None
    for gone in (A, B):
        await session.delete(f"{paths.STORAGE}/{gone}", version=0)
    await view.first()
    assert view.shortage is None
    assert [each.levelname for each in caplog.records if "no ledger can be opened" in each.message] == ["ERROR"]


@pytest.mark.asyncio
@pytest.mark.parametrize("topic_id", ["", "../ids/producer", "0F" * 16, "0" * 33])
async def test_assignment_of_an_invalid_topic_id_is_refused(topic_id: str) -> None:
    """The id becomes a path in ZooKeeper. Another record would look damaged, and be read forever."""
    topics = TopicRegistry(lambda *_: pytest.fail("no topic is assigned"))
    with pytest.raises(InvalidArgument):
        await AdminService(topics, ME, cast("OwnerRates", None)).assign(pb.AssignRequest(target=ME, topic_id=topic_id))


class OneReplica:
    """A registry that shows one metadata service."""

    def __init__(self) -> None:
        self.metadata = self

    async def watch(self) -> AsyncIterator[dict[str, LiveMetadata]]:
        yield {"0": LiveMetadata("127.0.0.1", {"grpc": 1})}
        await asyncio.Event().wait()


@pytest.mark.asyncio
async def test_bug_in_a_metadata_stream_ends_the_process() -> None:
    """Its task ended silently, and the replica could not assign topics to the owner any more."""

    def broken(_address: str) -> Any:
        raise ValueError("a bug")

    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reported.append(context))
    topics = TopicRegistry(lambda *_: pytest.fail("no topic is assigned"))
    streams = MetadataStreams(
        cast("Registry", OneReplica()), topics, broken, cluster_id=uuid4().hex, incarnation=ME, address="127.0.0.1:2"
    )
    running = asyncio.create_task(streams.run())
    try:
        await until(lambda: any(isinstance(each.get("exception"), ValueError) for each in reported), DEADLINE_S)
    finally:
        running.cancel()
        await asyncio.wait([running])
