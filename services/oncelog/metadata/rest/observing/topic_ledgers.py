"""The ledgers of one topic's log in their order, with the state of their copies. They come from the topic's record and
from the records of the ledgers: the owner is not asked, so a topic that no owner serves is shown, too."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from oncelog.core.access import Right
from oncelog.core.formats.topic_record import LedgerLink, TopicRecord
from oncelog.core.ledger.metadata import LedgerState
from oncelog.metadata.repair.cluster_watch import ClusterWatch
from oncelog.metadata.replica import Coordination
from oncelog.metadata.rest.access import requires
from oncelog.metadata.rest.routers import new_router
from oncelog.metadata.rest.storage_values import ledger_row
from oncelog.metadata.rest.values import TopicPath
from oncelog.metadata.topics.topic_lookup import require_unpartitioned

#: A look at the cluster asks every storage node, so that viewers share one.
_SEEN_WITHIN_MS = 2_000
LimitQuery = Annotated[int, Query(description="The newest ledgers, at most so many", ge=1, le=1_000)]


class TopicLedger(BaseModel):
    """A ledger of the log: the messages first_index to next_index - 1. Its copies are counted by registrations and
    reports of damage: they were not read for this answer."""

    ledger_id: int
    first_index: int
    next_index: int | None = Field(description="null: messages are still added")
    entries: int | None = Field(description="null: the ledger is open, or its record is not known yet")
    bytes: int | None = Field(description="Bytes of its messages; null as for entries")
    state: str = Field(description="open, recovering or closed; unknown: its record is not known yet")
    health: str = Field(
        description="ok, unverified, under-replicated, unavailable, lost, frozen or unlisted; unknown as for state"
    )
    copies: int | None = Field(description="Members that are registered and have not reported damage; null: unknown")
    write_quorum: int | None = Field(description="Copies that it should have; null: unknown")


class OlderLedgers(BaseModel):
    """The ledgers before those of the list, together."""

    ledgers: int
    first_index: int
    next_index: int
    bytes: int | None = Field(description="Bytes of their messages; null: not all are known yet")


class TopicLedgers(BaseModel):
    """The log of a topic, oldest ledger first."""

    ledger_count: int
    older: OlderLedgers | None = Field(description="null: the list has all ledgers")
    ledgers: list[TopicLedger]


def routes(coordination: Coordination) -> APIRouter:
    """The route of this module."""
    router = new_router(tags=["topics"], dependencies=[requires(Right.ADMIN)])

    @router.get(
        "/admin/v2/persistent/{tenant}/{namespace}/{topic}/ledgers",
        summary="List the ledgers of a topic",
        operation_id="list_topic_ledgers",
    )
    async def topic_ledgers(topic: TopicPath, limit: LimitQuery = 200) -> TopicLedgers:
        """The newest ledgers of the log with their copies, and one sum of all before them. `storage/ledgers` lists also
        those of snapshots and acknowledgements, for superusers."""
        name, record = await coordination.lookup.record(topic)
        require_unpartitioned(topic, name.partitions)
        assert record is not None, "a topic that is not partitioned has a record"
        watch = coordination.repair.watch
        await watch.refresh(within_ms=_SEEN_WITHIN_MS)
        links = record.ledgers
        if any(_is_older(link, watch, closed=link != links[-1]) for link in links):
            await watch.refresh()
        ends = [*(link.base_index for link in links), None][1:]
        rows = [_row(link, end, watch) for link, end in zip(links, ends, strict=True)]
        shown = rows[-limit:]
        return TopicLedgers(
            ledger_count=record.ledger_count,
            older=_older(record, rows[: len(rows) - len(shown)], shown[0].first_index if shown else 0),
            ledgers=shown,
        )

    return router


def _is_older(link: LedgerLink, watch: ClusterWatch, *, closed: bool) -> bool:
    """Whether what was seen is from before the topic's record. closed: the record says so, of all but the last."""
    seen = watch.seen_record(link.ledger_id)
    return seen is None or (closed and seen.state is not LedgerState.CLOSED)


def _row(link: LedgerLink, end_index: int | None, watch: ClusterWatch) -> TopicLedger:
    record = watch.seen_record(link.ledger_id)
    row = None if record is None else ledger_row(record, watch)
    return TopicLedger(
        ledger_id=link.ledger_id,
        first_index=link.base_index,
        next_index=end_index,
        entries=None if row is None else row.entries,
        bytes=None if record is None or row is None or row.entries is None else record.length,
        state="unknown" if row is None else row.state,
        health="unknown" if row is None else row.health,
        copies=None if row is None else row.copies,
        write_quorum=None if row is None else row.write_quorum,
    )


def _older(record: TopicRecord, rows: list[TopicLedger], next_index: int) -> OlderLedgers | None:
    """rows: those that are in no page and not listed."""
    if not record.pages and not rows:
        return None
    first = record.first
    assert first is not None, "there are older ledgers"
    sizes = [*(page.message_bytes for page in record.pages), *(row.bytes for row in rows)]
    known = [size for size in sizes if size is not None]
    return OlderLedgers(
        ledgers=sum(page.ledgers for page in record.pages) + len(rows),
        first_index=first.base_index,
        next_index=next_index,
        bytes=sum(known) if len(known) == len(sizes) else None,
    )
