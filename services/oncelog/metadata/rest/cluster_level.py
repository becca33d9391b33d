"""Routes for the level of the cluster: what its processes know, and raising it. For superusers."""

from collections.abc import Sequence

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, StrictBool

from oncelog.core.placement.level import KnownProcess
from oncelog.metadata.cluster.cluster_level import LevelReport
from oncelog.metadata.replica import Coordination
from oncelog.metadata.rest.routers import new_router


class ProcessView(BaseModel):
    """A process that takes part in the cluster, or may again."""

    kind: str = Field(description="owner, storage node or metadata service")
    address: str
    version: int = Field(description="The level that it knows")
    away: bool = Field(description="A storage node that is not registered and may come back with its data")


class LevelView(BaseModel):
    """At what level the cluster acts, and to which it can be raised."""

    level: int = Field(description="The stored level: no process of a lower version starts in this cluster")
    announced: int = Field(description="The level to which it is being raised; 0: none")
    target: int = Field(description="The level of the metadata service that answers: `finalize` raises to it")
    behind: list[ProcessView] = Field(description="Processes that do not know the target")
    processes: list[ProcessView]


class FinalizeBody(BaseModel):
    """The body is optional."""

    model_config = ConfigDict(extra="forbid")

    dry_run: StrictBool = Field(default=False, description="Only tell what would be in the way")


def routes(coordination: Coordination) -> APIRouter:
    """Show the level, and raise it."""
    router = new_router(prefix="/admin/v2/cluster", tags=["cluster"])

    @router.get("/level", summary="Show the level of the cluster", operation_id="get_cluster_level")
    async def get_cluster_level() -> LevelView:
        """What a program must know to take part, and what each process knows."""
        return _view(await coordination.level.report())

    @router.post("/finalize", summary="Raise the level of the cluster", operation_id="finalize_cluster")
    async def finalize_cluster(body: FinalizeBody | None = None) -> LevelView:
        """Ends an upgrade: from now on older programs are refused, so there is no way back to them.

        `conflict` names every process that does not know the level, also storage nodes that are away; nothing is
        changed then. It can be repeated. Before it raises the level it makes a pinned copy of ZooKeeper's records, and
        it raises nothing without it.
        """
        if body is not None and body.dry_run:
            return _view(await coordination.level.report())
        return _view(await coordination.level.finalize())

    return router


def _view(report: LevelReport) -> LevelView:
    def shown(some: Sequence[KnownProcess]) -> list[ProcessView]:
        return [ProcessView(kind=one.kind, address=one.address, version=one.version, away=one.away) for one in some]

    return LevelView(
        level=report.level.stored,
        announced=report.level.announced,
        target=report.target,
        behind=shown(report.behind),
        processes=shown(report.processes),
    )
