"""Administration of a topic's deduplication, for metadata services. They have checked the caller's rights."""

import json

from oncelog.core.errors import InvalidArgument
from oncelog.core.topic_events.events import SnapshotRequested
from oncelog.topic_owner.observe.deduplication_states import deduplication_of, snapshot_of, verification_of
from oncelog.topic_owner.shell.topic_registry import TopicRegistry
from oncelog.topic_owner.streams.current_topic import current_topic
from oncelog.wire import deduplication_pb2 as pb

#: Of a verification: an entry fits into what is read in a second, and faster than any disk is no limit.
BYTES_PER_S_MIN, BYTES_PER_S_MAX = 64 * 1024, 1 << 30
#: The slowest pace, whatever was asked for: an owner verifies one topic at a time, and others wait for it.
PACE_MIN = 1024 * 1024


class DeduplicationService:
    """The handlers. They raise NotOwner, TopicLoading and other retriable errors."""

    def __init__(self, topics: TopicRegistry) -> None:
        self._topics = topics

    async def describe(self, request: pb.DeduplicationTopic) -> pb.DeduplicationAnswer:
        runner, serving = await current_topic(self._topics, request.topic, request.topic_id)
        return pb.DeduplicationAnswer(state_json=json.dumps(deduplication_of(runner, serving)))

    async def take_snapshot(self, request: pb.DeduplicationTopic) -> pb.DeduplicationAnswer:
        """Raises ServiceUnavailable if it is not durable in time."""
        runner, serving = await current_topic(self._topics, request.topic, request.topic_id)
        await runner.consumers.administer(SnapshotRequested(0))
        return pb.DeduplicationAnswer(state_json=json.dumps(snapshot_of(serving)))

    async def verify(self, request: pb.VerifyFoldRequest) -> pb.DeduplicationAnswer:
        """Raises InvalidArgument for a limit that is out of range."""
        runner, _ = await current_topic(self._topics, request.topic, request.topic_id)
        match request.WhichOneof("action"):
            case "begin_bytes_per_s":
                if not BYTES_PER_S_MIN <= request.begin_bytes_per_s <= BYTES_PER_S_MAX:
                    message = f"give a limit of {BYTES_PER_S_MIN} to {BYTES_PER_S_MAX} bytes per second"
                    raise InvalidArgument(message, field="bytes_per_second", limit=BYTES_PER_S_MAX)
                runner.verify(bytes_per_s=max(PACE_MIN, request.begin_bytes_per_s))
            case "cancel":
                if runner.verification is not None:
                    runner.verification.cancel()
        return pb.DeduplicationAnswer(state_json=json.dumps(verification_of(runner)))
