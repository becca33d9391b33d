"""Administration of a topic's deduplication, for metadata services. They have checked the caller's rights."""

import json

from oncelog.core.topic_events.events import SnapshotRequested
from oncelog.topic_owner.observe.deduplication_states import deduplication_of, snapshot_of
from oncelog.topic_owner.shell.topic_registry import TopicRegistry
from oncelog.topic_owner.streams.current_topic import current_topic
from oncelog.wire import deduplication_pb2 as pb


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
