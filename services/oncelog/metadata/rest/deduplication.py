"""Routes for the deduplication of a topic: what its owner knows, and a snapshot of it. For admins of the namespace."""

import json
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from oncelog.core.access import Right
from oncelog.core.ids import TopicId
from oncelog.core.names import TopicName
from oncelog.metadata.replica import Coordination
from oncelog.metadata.rest.access import requires
from oncelog.metadata.rest.values import TopicPath
from oncelog.metadata_store.records.registry import LiveOwner
from oncelog.rpc.deduplication_codec import DESCRIBE_DEDUPLICATION, TAKE_SNAPSHOT
from oncelog.rpc.methods import UnaryMethod
from oncelog.wire import deduplication_pb2 as pb

_PATH = "/admin/v2/persistent/{tenant}/{namespace}/{topic}/deduplication"
#: The owner may prove first that it is the current one.
DESCRIBE_TIMEOUT_MS = 10_000
#: The owner answers after 18 s in any case.
SNAPSHOT_TIMEOUT_MS = 20_000
_Method = UnaryMethod[pb.DeduplicationTopic, pb.DeduplicationTopic, pb.DeduplicationAnswer, pb.DeduplicationAnswer]


class SnapshotView(BaseModel):
    """The newest durable snapshot of a topic."""

    number: int
    position: str = Field(description="ledger:entry, the last entry of the log that it covers")
    taken_ms: int = Field(description="milliseconds since 1970")
    age_ms: int


class DeduplicationView(BaseModel):
    """The deduplication of a topic, from its owner. Counters start at the takeover by the owner."""

    model_config = ConfigDict(extra="allow")

    topic: str
    owner_epoch: int
    enabled: bool
    source: str = Field(description="Level that switches it: topic, partitioned_topic, namespace, cluster or default")
    producer_count: int
    memory_bytes: int = Field(description="About how much the producers take, with their recent batches")
    duplicates_refused: int = Field(description="Messages that were stored before, or are too old to tell")
    snapshot: SnapshotView | None = Field(description="null: none was written yet")
    replay_entries: int = Field(description="Entries that a takeover would fold behind the snapshot")
    replay_bytes: int


def routes(coordination: Coordination) -> APIRouter:
    router = APIRouter(tags=["topics"], dependencies=[requires(Right.ADMIN)])

    @router.get(_PATH, summary="Show the deduplication of a topic", operation_id="get_deduplication")
    async def get_deduplication(topic: TopicPath) -> DeduplicationView:
        """Whether it is on and which level says so, the producers, the newest snapshot, and how much a takeover would
        replay. A topic without an owner is placed. Of a partitioned topic: ask for one of its partitions."""
        topic_id = (await coordination.lookup.find(topic)).topic_id
        state = await _asked(coordination, topic, DESCRIBE_DEDUPLICATION, DESCRIBE_TIMEOUT_MS)
        applied = (await coordination.policies.effective_of(topic, topic_id)).deduplication
        return DeduplicationView.model_validate({**state, "source": applied.source.value})

    @router.post(f"{_PATH}/snapshot", summary="Write a snapshot of a topic now", operation_id="take_snapshot")
    async def take_snapshot(topic: TopicPath) -> SnapshotView | None:
        """Answered when a snapshot of the present state is durable; it may be one that was being written. null: nothing
        was ever stored. `service_unavailable` if that takes longer than 15 s."""
        taken = await _asked(coordination, topic, TAKE_SNAPSHOT, SNAPSHOT_TIMEOUT_MS)
        return None if taken is None else SnapshotView.model_validate(taken)

    return router


async def _asked(coordination: Coordination, topic: TopicName, method: _Method, timeout_ms: int) -> Any:
    async def ask(owner: LiveOwner, topic_id: TopicId) -> pb.DeduplicationAnswer:
        request = pb.DeduplicationTopic(topic=str(topic), topic_id=topic_id)
        return await coordination.calls.ask(owner, method, request, timeout_ms=timeout_ms)

    return json.loads((await coordination.topic_calls.of_owner(topic, ask)).state_json)
