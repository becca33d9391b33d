"""The route that shows metadata services, ZooKeeper and Redis as this replica sees them, also while they are away."""

from fastapi import APIRouter
from pydantic import BaseModel, Field

from oncelog.core.address import join_address
from oncelog.metadata.observing.dependencies import KeysState, StoreState
from oncelog.metadata.replica import Coordination
from oncelog.metadata.rest.routers import new_router


class MetadataReplica(BaseModel):
    """A metadata service that has a ZooKeeper session."""

    address: str = Field(description="host:port of its gRPC")
    elected: bool = Field(description="It balances topics and repairs ledgers")


class ZooKeeperView(BaseModel):
    """The session of the metadata service that answers."""

    state: StoreState = Field(
        description="connected; suspended: no server is reached; lost: the session has ended; silent: connected, but a "
        "read has no answer"
    )
    since_ms: int = Field(description="Since when this service sees this state")
    reason: str | None = Field(description="Why the read has no answer; null: it has one, or was not tried")


class RedisView(BaseModel):
    """The server of idempotency keys, by a read."""

    state: KeysState = Field(description="off: not configured; ok; failed: keys are refused")
    since_ms: int = Field(description="When this service first found it in this state. It looks on request only")
    reason: str | None = Field(description="Why keys are refused")


class DependenciesView(BaseModel):
    """What the metadata service that answers sees of the others, of ZooKeeper and of Redis."""

    metadata: list[MetadataReplica] | None = Field(
        description="Metadata services, as ZooKeeper listed them at `as_of_ms`; null: it never has"
    )
    as_of_ms: int | None = Field(description="When `metadata` was read")
    zookeeper: ZooKeeperView
    redis: RedisView


def routes(coordination: Coordination) -> APIRouter:
    """Show what the cluster depends on."""
    router = new_router(prefix="/admin/v2", tags=["cluster"])

    @router.get("/dependencies", summary="Show metadata services, ZooKeeper and Redis", operation_id="get_dependencies")
    async def get_dependencies() -> DependenciesView:
        """Answers within about a second, also while ZooKeeper and Redis do not: then with what was seen last."""
        seen = await coordination.dependencies.seen()
        found, first = seen.replicas.value, min(seen.replicas.value or (), default=None)
        return DependenciesView(
            metadata=None
            if found is None
            else [
                MetadataReplica(address=join_address(each.host, each.ports["grpc"]), elected=name == first)
                for name, each in sorted(found.items())
            ],
            as_of_ms=seen.replicas.as_of_ms,
            zookeeper=ZooKeeperView(**seen.zookeeper._asdict()),
            redis=RedisView(**seen.redis._asdict()),
        )

    return router
