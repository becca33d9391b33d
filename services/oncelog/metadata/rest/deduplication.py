"""Routes for the deduplication of a topic: what its owner knows, a snapshot of it, and the proof that a takeover would
come to the same. For admins of the namespace."""

import json
from typing import Annotated, Any

from fastapi import APIRouter, Body
from pydantic import BaseModel, ConfigDict, Field

from oncelog.core.access import Right
from oncelog.core.ids import TopicId
from oncelog.core.names import TopicName
from oncelog.metadata.replica import Coordination
from oncelog.metadata.rest.access import requires
from oncelog.metadata.rest.routers import new_router
from oncelog.metadata.rest.values import TopicPath
from oncelog.metadata_store.records.registry import LiveOwner
from oncelog.rpc.codecs.deduplication_codec import DESCRIBE_DEDUPLICATION, TAKE_SNAPSHOT
from oncelog.rpc.methods import UnaryMethod
from oncelog.verify.proof_turns import BYTES_PER_S_MIN
from oncelog.wire import deduplication_pb2 as pb

_PATH = "/admin/v2/persistent/{tenant}/{namespace}/{topic}/deduplication"
#: The owner may prove first that it is the current one.
DESCRIBE_TIMEOUT_MS = 10_000
#: The owner answers after 18 s in any case.
SNAPSHOT_TIMEOUT_MS = 20_000
#: Of a verification, where a request states none: some percent of a core at the owner.
BYTES_PER_S = 4 * 1024 * 1024
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


class VerificationLimits(BaseModel):
    """How fast a verification reads."""

    model_config = ConfigDict(extra="forbid")

    bytes_per_second: int = Field(default=BYTES_PER_S, ge=BYTES_PER_S_MIN, le=1 << 30)


class Difference(BaseModel):
    """Where the owner's fold differs from snapshot and log."""

    producer: str = Field(description="empty: of the topic as a whole")
    producer_id: int
    field: str
    expected: str = Field(description="by snapshot and log")
    found: str = Field(description="at the owner")


class VerifiedSnapshot(BaseModel):
    """The snapshot with which a verification began."""

    number: int
    position: str


class SubscriptionDifference(BaseModel):
    """Where the owner's state of a subscription differs from snapshot and ack log."""

    subscription: str = Field(description="empty: of the ack log as a whole")
    field: str
    expected: str = Field(description="by snapshot and ack log")
    found: str = Field(description="at the owner")


class VerifiedSubscriptions(BaseModel):
    """The subscriptions of a verification."""

    compared: int
    count: int
    position: str | None = Field(description="ledger:entry up to which the ack log was folded and compared")
    differences_count: int
    differences: list[SubscriptionDifference] = Field(description="the first 20")


class VerificationView(BaseModel):
    """A verification of a topic's fold, at its owner."""

    id: str
    topic: str
    owner_epoch: int
    state: str = Field(description="queued, running; or its end: equal, different, failed (no verdict), cancelled")
    phase: str | None = Field(
        description="snapshot: it is read; replay: the log behind it; acks: the ack log; done, failed"
    )
    attempts: int = Field(description="It begins again when a ledger leaves the log meanwhile")
    began_ms: int
    ended_ms: int | None
    bytes_per_second: int
    snapshot: VerifiedSnapshot | None = Field(description="null: not read yet, or there is none")
    newest_snapshot_number: int = Field(description="above the number of the snapshot: the newest cannot be read")
    position: str | None = Field(description="ledger:entry up to which the log was folded and compared")
    entries_read: int
    bytes_read: int
    producers_compared: int
    producer_count: int
    differences_count: int
    differences: list[Difference] = Field(description="the first 20")
    subscriptions: VerifiedSubscriptions | None = Field(
        None, description="null: not begun, or the owner is of a version that does not verify them"
    )
    waiting: str | None = Field(description="which entries no storage node gives now")
    error: str | None


def routes(coordination: Coordination) -> APIRouter:
    router = new_router(tags=["topics"], dependencies=[requires(Right.ADMIN)])

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

    _add_verification(router, coordination)
    return router


def _add_verification(router: APIRouter, coordination: Coordination) -> None:
    path = f"{_PATH}/verify"

    async def asked(topic: TopicName, **action: Any) -> VerificationView | None:
        shown = await coordination.folds.asked(topic, **action)
        return None if shown is None else VerificationView.model_validate(shown)

    @router.get(path, summary="Show the verification of a topic", operation_id="get_verification")
    async def get_verification(topic: TopicPath) -> VerificationView | None:
        """The newest one of the present owner, with its progress or its verdict. null: none was begun there."""
        return await asked(topic)

    @router.post(path, summary="Begin to verify the deduplication of a topic", operation_id="verify_deduplication")
    async def verify_deduplication(
        topic: TopicPath, limits: Annotated[VerificationLimits | None, Body()] = None
    ) -> VerificationView | None:
        """Prove in the background that the newest snapshot and the log behind it, read from the storage nodes, give
        the state that the owner has. A verification that goes on is joined. It ends with its owner: if the topic moves,
        begin again."""
        return await asked(topic, begin_bytes_per_s=(limits or VerificationLimits()).bytes_per_second)

    @router.delete(path, summary="Cancel the verification of a topic", operation_id="cancel_verification")
    async def cancel_verification(topic: TopicPath) -> VerificationView | None:
        """One that is over stays as it is."""
        return await asked(topic, cancel=pb.CancelVerification())


async def _asked(coordination: Coordination, topic: TopicName, method: _Method, timeout_ms: int) -> Any:
    async def ask(owner: LiveOwner, topic_id: TopicId) -> pb.DeduplicationAnswer:
        request = pb.DeduplicationTopic(topic=str(topic), topic_id=topic_id)
        return await coordination.calls.ask(owner, method, request, timeout_ms=timeout_ms)

    return json.loads((await coordination.topic_calls.of_owner(topic, ask)).state_json)
