"""Administration of subscriptions, for metadata services. They have checked the caller's rights."""

import json
import time
from collections.abc import Iterable

from oncelog.core.delivery.events import (
    AdminRequest,
    CreateRequested,
    DeleteRequested,
    PropertiesRequested,
    ReadMessages,
    SeekRequested,
    SkipRequested,
    StoredEntry,
)
from oncelog.core.delivery.store_binding.events import RebindRequested
from oncelog.core.errors import (
    InvalidArgument,
    NotFound,
    ServiceUnavailable,
)
from oncelog.core.formats.entry import body_of
from oncelog.core.ids import NOT_DEDUPLICATED, ProducerId, SubscriptionNumber
from oncelog.core.names import check_part
from oncelog.core.policies.retention_rules import ClockCheck
from oncelog.core.topic.serving import Serving
from oncelog.rpc.codecs.consumer_codec import check_store_id
from oncelog.rpc.codecs.reader_codec import StartTime, start_from_wire
from oncelog.topic_owner.observe.subscription_states import subscription_of
from oncelog.topic_owner.shell.message_reads import MessageReads
from oncelog.topic_owner.shell.topic_registry import TopicRegistry
from oncelog.topic_owner.shell.topic_runner import TopicRunner
from oncelog.topic_owner.streams.current_topic import current_topic, index_of, seek_index, subscription_named
from oncelog.wire import subscriptions_pb2 as pb
from oncelog.wire.consumer_pb2 import SubscriptionProperty

#: A message further back in the backlog is found with a reader.
PEEK_MAX = 10_000


class SubscriptionService:
    """The handlers."""

    def __init__(self, topics: TopicRegistry) -> None:
        self._topics = topics

    async def describe(self, request: pb.DescribeSubscriptionsRequest) -> pb.DescribeSubscriptionsAnswer:
        _, serving = await current_topic(self._topics, request.topic, request.topic_id)
        if not request.subscription:
            return pb.DescribeSubscriptionsAnswer(names=sorted(each.state.name for each in serving.subscriptions))
        subscription = subscription_named(serving, request.subscription)
        consumed_from = request.consumed_from if request.HasField("consumed_from") else None
        shown = subscription_of(subscription, serving, consumed_from=consumed_from)
        return pb.DescribeSubscriptionsAnswer(statistics_json=json.dumps(shown))

    async def change(self, request: pb.ChangeSubscriptionRequest) -> pb.ChangeSubscriptionAnswer:
        """Raises the error that the core answers with; SubscriptionNotFound; InvalidArgument."""
        check_part(request.subscription, field="subscription")
        runner, serving = await current_topic(self._topics, request.topic, request.topic_id)
        await runner.consumers.administer(await self._event(runner, serving, request))
        return pb.ChangeSubscriptionAnswer()

    async def peek(self, request: pb.PeekMessageRequest) -> pb.PeekMessageAnswer:
        runner, serving = await current_topic(self._topics, request.topic, request.topic_id)
        if not 1 <= request.number <= PEEK_MAX:
            message = f"message {request.number} of the backlog: give 1 to {PEEK_MAX}"
            raise InvalidArgument(message, field="number", limit=PEEK_MAX)
        state = subscription_named(serving, request.subscription).state
        next_index = serving.log.table.state.next_index
        if request.number > next_index - state.acks.mark_delete - state.acks.acked_count:
            message = f"the backlog of subscription {request.subscription} has fewer than {request.number} messages"
            raise NotFound(message)
        index = state.acks.after_unacked(request.number, next_index) - 1
        return await _peeked(runner, serving, state.number, index)

    async def _event(
        self, runner: TopicRunner, serving: Serving, request: pb.ChangeSubscriptionRequest
    ) -> AdminRequest:
        """The core's event. Places are looked up before it is made, so none is made for a place that is not known."""
        name = request.subscription
        match request.WhichOneof("change"):
            case "create":
                index = await index_of(runner, start_from_wire(request.create.start).at)
                create = request.create
                return CreateRequested(0, name, index, create.role, _properties(create.properties))
            case "delete":
                subscription_named(serving, name)
                return DeleteRequested(0, name, force=request.delete.force)
            case "seek" | "redo" as kind:
                number = subscription_named(serving, name).state.number
                at = start_from_wire(request.redo if kind == "redo" else request.seek).at
                return SeekRequested(0, number, await seek_index(runner, at), redo=kind == "redo")
            case "rebind":
                check_store_id(request.rebind.store_id, empty=False)
                return RebindRequested(0, subscription_named(serving, name).state.number, request.rebind.store_id)
            case "skip":
                return SkipRequested(0, subscription_named(serving, name).state.number, count=request.skip)
            case "skip_all":
                below = serving.log.table.state.next_index
                return SkipRequested(0, subscription_named(serving, name).state.number, below=below)
            case "expire_after_ms":
                subscription = subscription_named(serving, name)
                until_ms = await _trusted_now_ms(runner) - request.expire_after_ms
                below = await index_of(runner, StartTime(max(0, until_ms)))
                return SkipRequested(0, subscription.state.number, below=below)
            case "properties":
                number = subscription_named(serving, name).state.number
                return PropertiesRequested(0, number, _properties(request.properties.properties))
        raise InvalidArgument("a change of a subscription is of an unknown kind", field="change")


def _properties(given: Iterable[SubscriptionProperty]) -> tuple[tuple[str, str], ...]:
    return tuple((each.name, each.value) for each in given)


async def _trusted_now_ms(runner: TopicRunner) -> int:
    """Now, if the own clock agrees with ZooKeeper's: a clock that is ahead would acknowledge young messages.

    Raises ServiceUnavailable, and StoreUnavailable if ZooKeeper does not answer.
    """
    checked = await runner.parts.clock.compare()
    now_ms = time.time_ns() // 1_000_000
    if not ClockCheck(checked.answered_ms, checked.modified_ms).agrees(now_ms):
        apart_s = abs(checked.answered_ms - checked.modified_ms) // 1000
        message = (
            f"the clocks of the topic's owner and of ZooKeeper are {apart_s} s apart: nothing expires until they agree"
        )
        raise ServiceUnavailable(message)
    return now_ms


async def _peeked(
    runner: TopicRunner, serving: Serving, number: SubscriptionNumber, index: int
) -> pb.PeekMessageAnswer:
    read = await MessageReads(runner.log).read(ReadMessages(number, index, bytes_max=1))
    entry = read.entries[0] if read.entries else None
    if entry is None or not entry.base_index <= index < entry.base_index + entry.count:
        raise NotFound(f"message {index} was given up with a lost ledger")
    return pb.PeekMessageAnswer(
        entry=bytes(entry.data), message_index=index, producer_name=_producer_name(serving, entry)
    )


def _producer_name(serving: Serving, entry: StoredEntry) -> str:
    """Empty for a message that was stored without deduplication, and for a producer that is forgotten."""
    producer_id = ProducerId(int.from_bytes(body_of(entry.data)[8:16], "little"))
    known = None if producer_id == NOT_DEDUPLICATED else serving.log.table.state.producers.name_of(producer_id)
    return known or ""
