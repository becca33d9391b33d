"""Routes for storage: nodes, ledgers, repair, decommission. All are for superusers."""

import re
import time
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query

from oncelog.core.address import join_address
from oncelog.core.errors import InvalidArgument, NotFound
from oncelog.core.ids import EntryId, Incarnation, LedgerId, TopicId
from oncelog.core.ledger.metadata import LedgerMetadata, LedgerState
from oncelog.core.ledger.storage_nodes import NodeState
from oncelog.core.names import parse_topic
from oncelog.metadata.repair.cluster_watch import ClusterWatch
from oncelog.metadata.repair.ledger_health import copy_state, health_of
from oncelog.metadata.repair.storage_nodes_reader import StorageSeen
from oncelog.metadata.replica import Coordination
from oncelog.metadata.rest.routers import new_router
from oncelog.metadata.rest.storage_values import (
    LEDGER_STATES,
    CopyView,
    EntryRangeView,
    LedgerPage,
    LedgerReport,
    MayReplaceAnswer,
    RepairReport,
    StorageNodeReport,
    VerifiedCopy,
    VerifyReport,
    ledger_row,
    no_repair,
    repair_report,
)
from oncelog.metadata.rest.values import EveryNode
from oncelog.metadata_store.records.registry import Decommission
from oncelog.wire import storage_pb2 as pb

_PREFIX = "/admin/v2/storage"
_INCARNATION = re.compile(r"[0-9a-f]{32}")
#: Ledgers of one page.
PAGE_MAX = 1_000
#: For reports that only name topics and storage nodes: a look at the cluster asks every storage node.
_SEEN_WITHIN_MS = 2_000


class HealthFilter(StrEnum):
    """The states by which ledgers can be listed."""

    UNDER_REPLICATED = "under-replicated"
    UNAVAILABLE = "unavailable"
    LOST = "lost"
    FROZEN = "frozen"


async def _incarnation(
    incarnation: Annotated[str, Path(description="The storage node's incarnation, from the list")],
) -> Incarnation:
    """Raises InvalidArgument."""
    if _INCARNATION.fullmatch(incarnation) is None:
        raise InvalidArgument(
            "an incarnation must have 32 hexadecimal digits: list the storage nodes", field="incarnation"
        )
    return Incarnation(incarnation)


NodePath = Annotated[Incarnation, Depends(_incarnation)]
SeenQuery = Annotated[
    int,
    Query(
        description="0: the cluster is looked at now, which asks every storage node and reads thousands of records. "
        "Otherwise a look of this replica that is not older is enough, unless a storage node was changed here since",
        ge=0,
        le=60,
    ),
]
LedgerPath = Annotated[int, Path(description="The ledger's id, from the list", ge=0, lt=2**63)]


def routes(coordination: Coordination) -> APIRouter:
    """All routes about storage."""
    router = new_router(prefix=_PREFIX, tags=["storage"])
    _add_nodes(router, coordination)
    _add_ledgers(router, coordination)
    _add_repair(router, coordination)
    return router


def _add_nodes(router: APIRouter, coordination: Coordination) -> None:
    @router.get("/nodes", summary="List storage nodes with their copies", operation_id="list_storage_copies")
    async def list_nodes(every: EveryNode = False, seen_within_s: SeenQuery = 0) -> list[StorageNodeReport]:
        """Each storage node: what it holds, what it lacks, and what it owes.

        Retired and removed ones are listed while a ledger names or may need them, and afterwards only with `all`.
        """
        repair = coordination.repair
        seen = await repair.watch.refresh(within_ms=seen_within_s * 1_000)
        described = await repair.report.descriptions(seen.nodes.registered)
        waits = {node: await repair.decommissions.waits_for(node, repair.watch) for node in _draining(seen)}
        reports = [_node(node, repair.watch, described.get(node), waits.get(node, ())) for node in seen.nodes.views]
        ended = [each.state in ("retired", "removed") and each.emptied and not each.ledgers for each in reports]
        return [each for each, has_ended in zip(reports, ended, strict=True) if every or not has_ended]

    @router.post(
        "/nodes/{incarnation}/decommission",
        status_code=204,
        summary="Decommission a storage node",
        operation_id="decommission_storage_node",
    )
    async def decommission(incarnation: NodePath) -> None:
        """The node becomes read-only, and its copies are moved to other nodes. When no ledger needs it any more, it is
        removed: its directory is refused from then on.

        `conflict` if fewer live storage nodes than the write quorum would remain, or if the node is retired.
        """
        repair = coordination.repair
        await coordination.copies.before("the decommission of a storage node")
        await repair.watch.refresh()
        quorum = max((owner.write_quorum for owner in coordination.owners.live), default=1)
        await repair.decommissions.begin(incarnation, repair.watch.queue.nodes, write_quorum=quorum)
        repair.watch.changed()

    @router.delete(
        "/nodes/{incarnation}/decommission",
        status_code=204,
        summary="Cancel a decommission",
        operation_id="cancel_decommission",
    )
    async def cancel_decommission(incarnation: NodePath) -> None:
        """The node stays, and is writable again. Copies that were moved stay where they are.

        `conflict` if the node was removed already.
        """
        await coordination.repair.decommissions.cancel(incarnation)
        coordination.repair.watch.changed()

    @router.get(
        "/nodes/{incarnation}/may-replace",
        summary="Check whether a storage node may be replaced",
        operation_id="may_replace_storage_node",
    )
    async def may_replace(incarnation: NodePath) -> MayReplaceAnswer:
        """Whether the disk of this node may be replaced now: every ledger stays readable and gets its copies back.

        Each other storage node is asked now: one that is registered and does not answer is a reason against it. The
        answer is valid at this moment, while no other disk fails.
        """
        watch = coordination.repair.watch
        seen = await watch.refresh()
        if incarnation not in seen.live and incarnation not in seen.cookies:
            raise NotFound(f"storage node {incarnation} does not exist: list the storage nodes")
        answer = watch.may_replace(incarnation)
        reasons = [f"ledger {one.ledger_id}: {one.reason}" for one in answer.blockers]
        if answer.blocking > len(reasons):
            reasons.append(f"{answer.blocking - len(reasons)} further ledgers need this node, too")
        unnoted = await coordination.repair.notes.refusal(incarnation, seen)
        reasons += [] if unnoted is None else [unnoted]
        return MayReplaceAnswer(may_replace=not reasons, incarnation=incarnation, reasons=reasons)


def _add_ledgers(router: APIRouter, coordination: Coordination) -> None:
    @router.get("/ledgers", summary="List the ledgers", operation_id="list_ledgers")
    async def list_ledgers(
        state: Annotated[HealthFilter | None, Query(description="Only ledgers in this state")] = None,
        topic: Annotated[str | None, Query(description="Only ledgers of this topic")] = None,
        after: Annotated[int, Query(description="Only ledgers with a higher id", ge=-1, lt=2**63)] = -1,
        limit: Annotated[int, Query(description="Ledgers of this page", ge=1, le=PAGE_MAX)] = 100,
        seen_within_s: SeenQuery = 0,
    ) -> LedgerPage:
        """Ledgers by id, in pages: `next_after` of a page is `after` of the next one."""
        watch = coordination.repair.watch
        of_topic = await _topic_id(coordination, topic) if topic is not None else None
        await watch.refresh(within_ms=seen_within_s * 1_000)
        found: list[LedgerMetadata] = []
        for record in watch.records():
            if record.ledger_id > after and (of_topic is None or record.topic_id == of_topic):
                if state is None or _matches(state, record, watch):
                    found.append(record)
                if len(found) > limit:
                    break
        more = len(found) > limit
        page = found[:limit]
        return LedgerPage(
            ledgers=[ledger_row(record, watch) for record in page], next_after=page[-1].ledger_id if more else None
        )

    @router.get("/ledgers/{ledger_id}", summary="Show a ledger", operation_id="get_ledger")
    async def get_ledger(ledger_id: LedgerPath) -> LedgerReport:
        """The ledger's record, the state of each copy, and when each copy was last read from its disk and sound."""
        repair = coordination.repair
        record = await repair.watch.record(LedgerId(ledger_id))
        seen = await repair.watch.refresh()
        named = _named(record)
        live = [node for node in named if node in seen.live]
        described = await repair.report.descriptions(live, [record.ledger_id])
        verified = {node: _ledger_verified_ms(described.get(node)) for node in named}
        return _ledger(record, repair.watch, verified)

    @router.post("/ledgers/{ledger_id}/verify", summary="Verify the copies of a ledger", operation_id="verify_ledger")
    async def verify_ledger(
        ledger_id: LedgerPath,
        first_entry: Annotated[int, Query(description="Where to begin; `next_entry` of the part before", ge=0)] = 0,
    ) -> VerifyReport:
        """Each storage node of the ledger reads its copies back from its disk, and the checksums are compared.

        One request covers a part of a long ledger: repeat it from `next_entry` until `done`.
        """
        repair = coordination.repair
        record = await repair.watch.record(LedgerId(ledger_id))
        await repair.watch.refresh()
        part = await repair.report.verify(record, EntryId(first_entry))
        return VerifyReport(
            ledger_id=ledger_id,
            first_entry=part.first,
            next_entry=part.next_entry,
            last_entry=record.end,
            done=part.next_entry > record.end,
            verified_ms=_now_ms(),
            differing_entry=part.differing,
            copies=[
                VerifiedCopy(
                    incarnation=node,
                    answered=count.answered,
                    erased=count.erased,
                    sound=count.sound,
                    missing=count.missing,
                    unreadable=count.unreadable,
                )
                for node, count in part.parts.items()
            ],
        )


def _add_repair(router: APIRouter, coordination: Coordination) -> None:
    @router.get("/repair", summary="Show the progress of repair", operation_id="get_repair")
    async def get_repair() -> RepairReport:
        """The progress as the elected metadata replica last wrote it, every few seconds."""
        repair = coordination.repair
        progress = await repair.store.read()
        if progress is None:
            return no_repair()
        named = [*(one.topic_id for one in progress.running), *(one.topic_id for one in progress.stuck)]
        if not all(map(repair.watch.name_of, named)):
            await repair.watch.refresh(within_ms=_SEEN_WITHIN_MS)
        return repair_report(progress, repair.watch.name_of)

    @router.post("/repair/{ledger_id}", status_code=204, summary="Repair a ledger now", operation_id="repair_ledger")
    async def repair_ledger(ledger_id: LedgerPath) -> None:
        """The replica that answers repairs the ledger at once, without the delay for absent nodes.

        `conflict` for a ledger that is not closed: its topic owner writes to it.
        """
        await coordination.repair.repair_now(LedgerId(ledger_id))


# --- values -----------------------------------------------------------------------------------------------------------


def _draining(seen: StorageSeen) -> list[Incarnation]:
    return [node for node, cookie in sorted(seen.cookies.items()) if cookie.decommission is Decommission.DRAINING]


def _node(
    node: Incarnation, watch: ClusterWatch, described: pb.DescribeAnswer | None, waits_for: Sequence[str]
) -> StorageNodeReport:
    seen = watch.seen
    live, cookie = seen.live.get(node), seen.cookies.get(node)
    known = live or cookie
    assert known is not None, "a listed node is live or has a cookie"
    return StorageNodeReport(
        incarnation=node,
        address=join_address(known.host, known.port),
        state=_node_state(node, seen),
        read_only=seen.nodes[node].read_only,
        replaced_by=cookie.replaced_by if cookie else None,
        emptied=cookie is not None and not (cookie.may_return or cookie.is_replaced),
        ledgers=len(watch.queue.naming(node)),
        debt=watch.queue.debt(node),
        waits_for=list(waits_for),
        damaged_ledgers=len(seen.damaged[node]) if node in seen.damaged else None,
        erased_ledgers=described.erased_ledgers if described else None,
        stored_bytes=described.stored_bytes if described else None,
        dead_bytes=described.dead_bytes if described else None,
        free_bytes=live.free_bytes if live else None,
        verified_ms=_verified_ms(described),
    )


def _node_state(node: Incarnation, seen: StorageSeen) -> str:
    cookie, view = seen.cookies.get(node), seen.nodes[node]
    if cookie is not None and cookie.decommission is Decommission.DONE:
        return "removed"
    if view.draining:
        return "draining"
    if view.state is NodeState.RETIRED:
        return "retired"
    if view.state is NodeState.ABSENT:
        return "away"
    return "joining" if view.joining else "live"


def _verified_ms(described: pb.DescribeAnswer | None) -> int | None:
    """When the node's last whole reading ended. Without a scrubber, or before its first pass, it was never."""
    if described is None or described.scrubbed_ms_ago < 0:
        return None
    return _now_ms() - described.scrubbed_ms_ago


def _ledger_verified_ms(described: pb.DescribeAnswer | None) -> int | None:
    """When the last sound reading of the one ledger that was asked for began. An older node does not answer that."""
    if described is None or not described.verified_ms_ago or described.verified_ms_ago[0] < 0:
        return None
    return _now_ms() - described.verified_ms_ago[0]


def _named(record: LedgerMetadata) -> list[Incarnation]:
    return [*record.members, *([record.joining] if record.joining else [])]


def _matches(state: HealthFilter, record: LedgerMetadata, watch: ClusterWatch) -> bool:
    """A ledger may be in several states."""
    ledgers, ledger_id = watch.queue.ledgers, record.ledger_id
    return (
        ledger_id
        in {
            HealthFilter.UNDER_REPLICATED: ledgers.under_replicated,
            HealthFilter.UNAVAILABLE: ledgers.unavailable,
            HealthFilter.LOST: ledgers.lost,
            HealthFilter.FROZEN: ledgers.frozen,
        }[state]
    )


def _ledger(record: LedgerMetadata, watch: ClusterWatch, verified: dict[Incarnation, int | None]) -> LedgerReport:
    closed = record.state is LedgerState.CLOSED
    assessment = watch.queue.assessment(record.ledger_id)
    return LedgerReport(
        ledger_id=record.ledger_id,
        topic=watch.name_of(record.topic_id),
        topic_id=record.topic_id,
        state=LEDGER_STATES[record.state],
        health=health_of(record, assessment).value,
        whole=record.verified,
        frozen=record.frozen,
        last_entry=record.end if closed else None,
        bytes=record.length if closed else None,
        write_quorum=record.write_quorum,
        ack_quorum=record.ack_quorum,
        verified_ms=_oldest(verified[node] for node in record.members) if record.verified else None,
        waiting_for=list(assessment.waiting_for) if assessment else [],
        unavailable=[EntryRangeView(first=one.first, last=one.last) for one in assessment.unavailable]
        if assessment
        else [],
        lost=[EntryRangeView(first=each.first, last=each.last) for each in record.lost],
        copies=[
            CopyView(
                incarnation=node,
                role="joining" if node == record.joining else "member",
                state=copy_state(record, node, watch.seen),
                verified_ms=verified[node],
            )
            for node in _named(record)
        ],
    )


def _oldest(times: Iterable[int | None]) -> int | None:
    known = list(times)
    return min((one for one in known if one is not None), default=None) if None not in known else None


async def _topic_id(coordination: Coordination, topic: str) -> TopicId:
    """Raises InvalidName, TopicNotFound, NotFound."""
    record = await coordination.lookup.find(parse_topic(topic))
    if record.partitions:
        raise NotFound(f"topic {topic} is partitioned: its partitions have the ledgers", topic=topic)
    return record.topic_id


def _now_ms() -> int:
    return int(time.time() * 1000)
