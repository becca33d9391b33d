"""Administration of a topic's deduplication, for metadata services. They have checked the caller's rights."""

import json

from oncelog.core.errors import TopicLoading
from oncelog.core.ids import OwnerEpoch, TopicId
from oncelog.core.topic.serving import Serving
from oncelog.core.topic_events.events import SnapshotRequested
from oncelog.topic_owner.observe.deduplication_states import deduplication_of, snapshot_of
from oncelog.topic_owner.shell.topic_registry import TopicRegistry
from oncelog.topic_owner.shell.topic_runner import TopicRunner
from oncelog.wire import deduplication_pb2 as pb

#: Below the metadata service's timeout of a call, so that the caller learns why there is no answer.
SERVING_TIMEOUT_MS = 3_000


class DeduplicationService:
    """The handlers. They raise NotOwner, TopicLoading and other retriable errors."""

    def __init__(self, topics: TopicRegistry) -> None:
        self._topics = topics

    async def describe(self, request: pb.DeduplicationTopic) -> pb.DeduplicationAnswer:
        runner, serving = await self._serving(request)
        return pb.DeduplicationAnswer(state_json=json.dumps(deduplication_of(runner, serving)))

    async def take_snapshot(self, request: pb.DeduplicationTopic) -> pb.DeduplicationAnswer:
        """Raises ServiceUnavailable if it is not durable in time."""
        runner, serving = await self._serving(request)
        await runner.consumers.administer(SnapshotRequested(0))
        return pb.DeduplicationAnswer(state_json=json.dumps(snapshot_of(serving)))

    async def _serving(self, request: pb.DeduplicationTopic) -> tuple[TopicRunner, Serving]:
        """The topic, once this owner has proved that it is the current one."""
        runner = self._topics.runner(TopicId(request.topic_id), request.topic)
        await runner.ownership_proofs.until_current(OwnerEpoch(0), serving_timeout_ms=SERVING_TIMEOUT_MS)
        serving = runner.core.serving
        if serving is None:
            raise TopicLoading("the topic is moving to another owner: try again")
        return runner, serving
