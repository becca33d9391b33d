"""The route that rebuilds one record in ZooKeeper. For superusers."""

import json

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictStr

from oncelog.core.access import NO_ROLE
from oncelog.metadata.replica import Coordination
from oncelog.metadata.rest.access import CallerOfRequest
from oncelog.metadata.rest.recovering.restore import ReviewReport, review_report
from oncelog.metadata.rest.routers import new_router
from oncelog.metadata.restore.record_kinds import PATH_CHARACTERS_MAX
from oncelog.metadata.restore.record_rebuild import RebuiltRecord, RecordRebuild


class RebuildBody(BaseModel):
    """Which record."""

    model_config = ConfigDict(extra="forbid")

    path: StrictStr = Field(
        max_length=PATH_CHARACTERS_MAX,
        description="Path in ZooKeeper, below the root of the cluster's era: /topics/ID, /topics/ID/cursors/NAME, "
        "/pages/ID/LEDGER, /ledgers/ID, /deletions/ID, /tombstones/ID, /names/TENANT/NAMESPACE/TOPIC, /ids/ledger, "
        "/ids/producer, /storage_ends/NODE, or that of policies, of a storage cookie or of /idempotency",
    )
    dry_run: StrictBool = Field(default=False, description="Only say what would be written")
    accept: StrictBool = Field(default=False, description="Write the record although `reviews` is not empty")


class RebuiltView(BaseModel):
    """A record, and what else was written with it."""

    path: str
    fault: str = Field(description="Why the record could not be read")
    written: bool = Field(description="Whether the records were written; not in a dry run")
    records: dict[str, dict[str, object]] = Field(description="{path: what was written, or would be}")
    owner_epoch: int = Field(description="Of the topic, which has no owner now; 0: its owner stays")
    reviews: list[ReviewReport] = Field(description="What cannot be proved")
    unreadable: list[str] = Field(description="Records of the same topic that must be rebuilt, too")
    nodes: list[str] = Field(description="Storage nodes that were asked")
    silent: dict[str, str] = Field(description="Storage nodes that did not answer, and why")


def routes(coordination: Coordination) -> APIRouter:
    router = new_router(prefix="/admin/v2/cluster", tags=["cluster"])

    @router.post("/records/rebuild", summary="Rebuild one record in ZooKeeper", operation_id="rebuild_record")
    async def rebuild_record(caller: CallerOfRequest, body: RebuildBody) -> RebuiltView:
        """Write a record that is missing or cannot be read anew, from what storage nodes hold and have noted. A topic
        or a last ledger is taken from its owner; the next one takes it over.

        `conflict` if the record can be read, something must be decided or rebuilt first, or another one wrote it
        meanwhile; `not_found` if nothing says what it was; `service_unavailable` if too few storage nodes answer.
        """
        by = caller.role or NO_ROLE
        rebuild = RecordRebuild(coordination.restoring.sources)
        return view_of(await rebuild.rebuild(body.path, dry_run=body.dry_run, accept=body.accept, by=by))

    return router


def view_of(done: RebuiltRecord) -> RebuiltView:
    """As it is answered."""
    return RebuiltView(
        path=done.path,
        fault=done.fault,
        written=done.written,
        records={path: json.loads(value or b"{}") for path, value in done.records.items()},  # some are empty
        owner_epoch=done.owner_epoch,
        reviews=[review_report(each) for each in done.reviews],
        unreadable=list(done.unreadable),
        nodes=list(done.nodes),
        silent=done.silent,
    )
