"""Routes that restore a lost ZooKeeper, try it out, and confirm rights afterwards. For superusers.

A metadata service that waits for the cluster's record serves the routes of the restore, too (`waiting_app`).
"""

import secrets
from collections.abc import Callable

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt

from oncelog.core.access import NO_ROLE
from oncelog.core.address import host_fault
from oncelog.core.era import ERA_MAX
from oncelog.core.errors import InvalidArgument
from oncelog.core.ids import Incarnation
from oncelog.core.rebuild.restore_events import RestoreRequest, RestoreStep
from oncelog.core.rebuild.result import Review
from oncelog.metadata.replica import Coordination
from oncelog.metadata.rest.access import CallerOfRequest
from oncelog.metadata.rest.routers import new_router
from oncelog.metadata.restore.progress import RestoreProgress, RestoreState
from oncelog.metadata.restore.restoring import Restoring, Work
from oncelog.metadata.restore.rights import RightsReport
from oncelog.metadata_store.records.cluster_store import Rights

#: Entries of each list in a request.
LIST_MAX = 1_000
#: Digits of an incarnation that name it, if they are unique.
PREFIX_MIN = 8
INCARNATION_CHARACTERS = 32


class DrillBody(BaseModel):
    """Which storage nodes to ask. The body is optional."""

    model_config = ConfigDict(extra="forbid")

    nodes: list[str] = Field(
        default=[],
        max_length=LIST_MAX,
        description="host:port of storage nodes, of gRPC or of health. Those that ZooKeeper, settings or the notes of "
        "other nodes name are found without it",
    )


class RestoreBody(DrillBody):
    """How to restore. The body is optional."""

    absent: list[str] = Field(
        default=[],
        max_length=LIST_MAX,
        description="Incarnations of storage nodes that will never come back, or whose directory has lost records, or "
        "unique prefixes of at least 8 digits. If "
        "with them more are missing than the ack quorum allows, every topic may have lost something: its owner gives "
        "that up, and rights stay closed until they are confirmed",
    )
    accept: list[str] = Field(
        default=[],
        max_length=LIST_MAX,
        description="Topics, or paths of records, in `reviews` of which you accept what the review says; `all`: of all",
    )
    take_over: StrictBool = Field(
        default=False, description="Restore although topic owners of this cluster answer: they end"
    )
    ends_era: StrictInt = Field(
        default=0,
        ge=0,
        le=ERA_MAX,
        description="The era that serves, which `take_over` ends; another one is refused. Needed unless a storage node "
        "proves that ZooKeeper is older or has lost records: `message` says so",
    )
    dry_run: StrictBool = Field(default=False, description="Only read: raise no era, write nothing")


class NodeReport(BaseModel):
    """A storage node that a restore knows."""

    node: str = Field(description="Incarnation; empty: the address did not say")
    address: str
    state: str = Field(description="used; silent; limbo: its directory has lost records; absent: named so")
    reason: str = Field(description="Why there was no answer")


class SideReport(BaseModel):
    """One side of a gap in a chain of ledgers."""

    first: int = Field(description="First ledger")
    last: int
    ledgers: int
    size_bytes: int = Field(description="That storage nodes hold of them")


class ReviewReport(BaseModel):
    """What cannot be proved, so that an operator must decide."""

    topic: str = Field(description="Full name; the id if it has none")
    topic_id: str
    reason: str
    message: str = Field(description="What was found, and what the records say if it is accepted")
    chain: str | None = Field(description="log, dedup or acks; null: the topic as a whole")
    before: SideReport | None
    behind: SideReport | None


class RestoreView(BaseModel):
    """The newest restore or drill, whichever metadata service performs it."""

    state: RestoreState = Field(
        description="idle: none; running; done; refused: `message` says what to do; failed: repeat it; interrupted: "
        "its metadata service is gone, repeat it"
    )
    step: RestoreStep
    dry_run: bool
    by: str = Field(description="Role of the caller that began it")
    joined: int = Field(
        description="Requests for the same that came while it went on. In the answer to a request: above 0, another "
        "one has begun it"
    )
    era: int = Field(description="That it makes; 0: it raises none")
    restore_id: str
    started_ms: int
    ended_ms: int = Field(description="0: it has not ended")
    message: str
    nodes: list[NodeReport]
    copies: list[str] = Field(description="Copies of the records that were read, too")
    topics: int
    ledgers: int
    deleted_topics: int = Field(description="Topics that stay deleted, of which ledgers are left")
    without_holder: int = Field(
        description="Entries that no asked storage node gives; repair proves whether they are lost"
    )
    records: int = Field(description="Records to write")
    records_written: int
    gives_up: bool = Field(
        description="More storage nodes are missing than the bound, so all topics may have lost something"
    )
    rights_closed: bool = Field(description="No grant is effective until rights are confirmed")
    reviews: list[ReviewReport]
    warnings: list[str]
    differences: list[str] = Field(description="Of a drill: what a restore would change")


class ClosedGrantView(BaseModel):
    """A grant that the confirmation makes effective."""

    namespace: str
    role: str
    rights: list[str]
    now: list[str] = Field(description="Rights that the role was granted after the restore; these stay instead")


class RightsView(BaseModel):
    """Whether rights in namespaces are effective."""

    state: Rights = Field(
        description="closed: after a restore that asked too few storage nodes, until they are confirmed"
    )
    closed: list[ClosedGrantView]


def routes(coordination: Coordination) -> APIRouter:
    """Restore, drill, and the confirmation of rights."""
    router = restore_routes(lambda: coordination.restoring)

    @router.get("/rights", summary="Show whether rights are closed", operation_id="get_cluster_rights")
    async def get_cluster_rights() -> RightsView:
        """After a restore with too few storage nodes a revocation may be missing, so no grant is effective but that of
        superusers."""
        return _rights_view(await coordination.rights.report())

    @router.post("/rights/confirm", summary="Make closed rights effective", operation_id="confirm_cluster_rights")
    async def confirm_cluster_rights() -> RightsView:
        """Answers with the grants that were closed. Look at them before: a revocation may be missing."""
        return _rights_view(await coordination.rights.confirm())

    return router


def restore_routes(restoring: Callable[[], Restoring]) -> APIRouter:
    """Of a process that may have no cluster. restoring: raises OncelogError while there is none."""
    router = new_router(prefix="/admin/v2/cluster", tags=["cluster"])

    @router.post("/restore", status_code=202, summary="Restore a lost ZooKeeper", operation_id="restore_cluster")
    async def restore_cluster(caller: CallerOfRequest, body: RestoreBody | None = None) -> RestoreView:
        """Rebuild all records from storage nodes in a new era, which ends every owner and every record of the former
        one. The request begins it and answers at once; show its progress.

        It can be repeated: it then goes on under the same restore id. `conflict` while another metadata service
        performs it.
        """
        asked = body or RestoreBody()
        request = RestoreRequest(
            secrets.token_hex(16),
            absent=tuple(Incarnation(_checked_incarnation(each)) for each in asked.absent),
            accepted=tuple(asked.accept),
            take_over=asked.take_over,
            dry_run=asked.dry_run,
            ends_era=asked.ends_era,
        )
        return await _begin(restoring(), Work.RESTORE, request, asked.nodes, caller.role)

    @router.get("/restore", summary="Show the progress of a restore", operation_id="get_cluster_restore")
    async def get_cluster_restore() -> RestoreView:
        """Of the newest one, until its metadata service ends."""
        return view_of(await restoring().progress(Work.RESTORE))

    @router.post("/drill", status_code=202, summary="Try a restore", operation_id="drill_cluster")
    async def drill_cluster(caller: CallerOfRequest, body: DrillBody | None = None) -> RestoreView:
        """Read what storage nodes hold, and compare what a restore would write with the records in ZooKeeper. Nothing
        is raised or written, and the cluster goes on. The request answers at once; show its progress."""
        asked = body or DrillBody()
        request = RestoreRequest(secrets.token_hex(16), dry_run=True)
        return await _begin(restoring(), Work.DRILL, request, asked.nodes, caller.role)

    @router.get("/drill", summary="Show the result of a drill", operation_id="get_cluster_drill")
    async def get_cluster_drill() -> RestoreView:
        """Of the newest one. `differences` says what a restore would change; what is being written meanwhile may
        differ."""
        return view_of(await restoring().progress(Work.DRILL))

    return router


async def _begin(restoring: Restoring, work: Work, request: RestoreRequest, nodes: list[str], role: str) -> RestoreView:
    given = [checked_address(node) for node in nodes]
    return view_of(await restoring.begin(work, request, given=given, by=role or NO_ROLE))


def checked_address(node: str) -> str:
    """Raises InvalidArgument."""
    host, _, port = node.rpartition(":")
    if host_fault(host) is not None or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise InvalidArgument(f"nodes: {node[:100]!r} is not host:port", field="nodes")
    return node


def _checked_incarnation(node: str) -> str:
    """Raises InvalidArgument."""
    if not PREFIX_MIN <= len(node) <= INCARNATION_CHARACTERS or not set(node) <= set("0123456789abcdef"):
        raise InvalidArgument(
            f"absent: {node[:100]!r} is no incarnation of a storage node: it has {INCARNATION_CHARACTERS} hexadecimal "
            f"digits, of which the first {PREFIX_MIN} are enough",
            field="absent",
        )
    return node


def view_of(progress: RestoreProgress) -> RestoreView:
    """As it is answered."""
    fields = {name: getattr(progress, name) for name in RestoreView.model_fields if name not in ("nodes", "reviews")}
    nodes = [
        NodeReport(node=each.node, address=each.address, state=each.state, reason=each.reason)
        for each in progress.nodes
    ]
    return RestoreView(**fields, nodes=nodes, reviews=[review_report(each) for each in progress.reviews])


def review_report(review: Review) -> ReviewReport:
    sides = [None if side is None else SideReport(**side._asdict()) for side in (review.before, review.behind)]
    return ReviewReport(
        topic=review.name or review.topic_id,
        topic_id=review.topic_id,
        reason=review.reason.value,
        message=review.message,
        chain=None if review.purpose is None else review.purpose.value,
        before=sides[0],
        behind=sides[1],
    )


def _rights_view(report: RightsReport) -> RightsView:
    closed = [
        ClosedGrantView(namespace=each.namespace, role=each.role, rights=list(each.rights), now=list(each.now))
        for each in report.closed
    ]
    return RightsView(state=report.state, closed=closed)
