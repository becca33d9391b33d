"""Routes with figures over time, for plots: of the cluster, an owner, a topic, a subscription. The replica that answers
has sampled them itself, since its start, and keeps them in memory."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from oncelog.core.access import Right
from oncelog.core.history import Key
from oncelog.metadata.observing.history import CLUSTER, LINES, wall_ms
from oncelog.metadata.replica import Coordination
from oncelog.metadata.rest.access import requires
from oncelog.metadata.rest.routers import new_router
from oncelog.metadata.rest.subscription_values import SubscriptionPath
from oncelog.metadata.rest.values import TopicPath

_TOPIC = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"
#: {name of a range: its length}
RANGES = {"10m": 600_000, "1h": 3_600_000, "6h": 21_600_000, "24h": 86_400_000}

RangeQuery = Annotated[Literal["10m", "1h", "6h", "24h"], Query(alias="range", description="How far back")]


class HistoryView(BaseModel):
    """Lines over time, the oldest value first. A rate is the mean of its step; a backlog, an age or a latency is the
    highest of it. null: not sampled, because a topic owner did not answer, the topic has no
    owner, or this replica did not run yet."""

    begin_ms: int = Field(description="Begin of the first step, ms since 1970")
    step_ms: int = Field(description="10 s for ten minutes, a minute for one hour, five minutes for more")
    lines: dict[str, list[float | None]] = Field(description="{line: one value for each step}; rates are per second")
    replica: str = Field(description="host:port of the metadata service that has sampled this")
    since_ms: int | None = Field(description="When it began; null: it has not sampled yet")
    kept: bool = Field(
        description="false: nothing but zeros was sampled of it, nothing at all, or it found no room (see `refused`)"
    )
    series: int = Field(description="Series that this replica keeps, of everything that is not idle")
    bytes: int = Field(description="Memory that they take, about; at most `bytes_max`")
    bytes_max: int
    dropped: int = Field(description="Series that were 0 for ten minutes or longer, and gave their room to others")
    refused: int = Field(description="Samples that found no room")
    left_out: int = Field(description="Topics and subscriptions that owners left out of the last sample, as too many")


def routes(coordination: Coordination) -> APIRouter:
    """All routes of this module."""
    router = new_router()

    def view(key: Key, name: str) -> HistoryView:
        sampler, names = coordination.history, LINES[key[0]]
        history = sampler.history
        found, kept = sampler.lines(key, RANGES[name], wall_ms())
        return HistoryView(
            begin_ms=found.begin_ms,
            step_ms=found.step_ms,
            lines=dict(zip(names, found.values, strict=True)),
            replica=coordination.events.name,
            since_ms=sampler.since_ms,
            kept=kept,
            series=len(history),
            bytes=history.bytes,
            bytes_max=history.bytes_max,
            dropped=history.dropped,
            refused=history.refused,
            left_out=sampler.left_out,
        )

    @router.get(
        "/admin/v2/history", tags=["cluster"], summary="Show figures of the cluster over time",
        operation_id="get_history",
    )  # fmt: skip
    async def cluster_history(range_: RangeQuery = "10m") -> HistoryView:
        """Messages stored, delivered and acknowledged a second, bytes received a second, latencies of publishing, and
        the backlog of all subscriptions together."""
        return view(CLUSTER, range_)

    @router.get(
        f"{_TOPIC}/history", tags=["topics"], summary="Show figures of a topic over time",
        operation_id="get_topic_history", dependencies=[requires(Right.ADMIN, Right.PRODUCE, Right.CONSUME)],
    )  # fmt: skip
    async def topic_history(topic: TopicPath, range_: RangeQuery = "10m") -> HistoryView:
        """Messages stored and delivered a second, and the largest backlog. Of a partitioned topic, ask for one
        partition. A name that no topic has is not told from an idle topic."""
        return view(("topic", str(topic)), range_)

    @router.get(
        f"{_TOPIC}/subscription/{{subscription}}/history", tags=["subscriptions"],
        summary="Show figures of a subscription over time", operation_id="get_subscription_history",
        dependencies=[requires(Right.ADMIN, Right.CONSUME)],
    )  # fmt: skip
    async def subscription_history(
        topic: TopicPath, subscription: SubscriptionPath, range_: RangeQuery = "10m"
    ) -> HistoryView:
        """Its backlog, and the age of its oldest unacknowledged message in seconds."""
        return view(("subscription", str(topic), subscription), range_)

    return router
