"""What operators look at, for metadata services. They have checked the caller's rights.

A look at statistics is answered by an owner that may have lost the topic a moment ago, as all statistics are: so pages
of operators show what the owner knows while ZooKeeper does not answer.
"""

import json

from oncelog.core.ids import TopicId
from oncelog.core.topic.listing import ListPosition
from oncelog.core.topic.serving import Serving
from oncelog.rpc.codecs.inspection_codec import DESCRIBE_ACK_STATE, LIST_SUBSCRIPTIONS, PREVIEW_SEEK
from oncelog.rpc.codecs.reader_codec import start_from_wire
from oncelog.rpc.server import Server
from oncelog.topic_owner.observe.subscription_looks import ack_state_of, seek_preview, subscription_page
from oncelog.topic_owner.shell.topic_registry import TopicRegistry
from oncelog.topic_owner.streams.current_topic import current_topic, seek_index, still_served, subscription_named
from oncelog.wire import inspection_pb2 as pb


class InspectionService:
    """The handlers. They raise NotOwner, TopicLoading, SubscriptionNotFound and InvalidArgument."""

    def __init__(self, topics: TopicRegistry) -> None:
        self._topics = topics

    def serve(self, server: Server) -> None:
        server.unary(LIST_SUBSCRIPTIONS, self.subscriptions)
        server.unary(DESCRIBE_ACK_STATE, self.ack_state)
        server.unary(PREVIEW_SEEK, self.preview_seek)

    async def subscriptions(self, request: pb.ListSubscriptionsRequest) -> pb.InspectionAnswer:
        serving = self._served(request.topic, request.topic_id)
        after = ListPosition.parse(request.after) if request.after else None
        page = subscription_page(serving, by_backlog=request.by_backlog, after=after, limit=request.limit)
        return pb.InspectionAnswer(json=json.dumps(page))

    async def ack_state(self, request: pb.AckStateRequest) -> pb.InspectionAnswer:
        serving = self._served(request.topic, request.topic_id)
        state = ack_state_of(subscription_named(serving, request.subscription), serving, request.buckets)
        return pb.InspectionAnswer(json=json.dumps(state))

    async def preview_seek(self, request: pb.PreviewSeekRequest) -> pb.InspectionAnswer:
        """Also raises the errors of a read."""
        runner, _ = await current_topic(self._topics, request.topic, request.topic_id)
        index = await seek_index(runner, start_from_wire(request.place).at)
        serving = still_served(runner)
        preview = seek_preview(subscription_named(serving, request.subscription), serving, index)
        return pb.InspectionAnswer(json=json.dumps(preview))

    def _served(self, topic: str, topic_id: str) -> Serving:
        return still_served(self._topics.runner(TopicId(topic_id), topic))
