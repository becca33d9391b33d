"""Routes that look at single messages: where one is, by producer name and sequence id, and what is stored. Nothing is
delivered or acknowledged, and no topic gets an owner because of it."""

import json
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from oncelog.core.access import Right
from oncelog.core.errors import InvalidArgument, OncelogError, TopicNotFound
from oncelog.core.formats.message_id import MessageId
from oncelog.core.ids import SEQUENCE_ID_MAX, TopicId
from oncelog.core.names import TopicName, check_producer_name
from oncelog.core.search.message_filter import SEARCHED_BYTES_MAX, parse_condition
from oncelog.metadata.replica import Coordination
from oncelog.metadata.rest.access import requires
from oncelog.metadata.rest.each_partition import each_partition
from oncelog.metadata.rest.routers import new_router
from oncelog.metadata.rest.subscription_values import StoredMessage, text_fields
from oncelog.metadata.rest.values import TopicPath
from oncelog.metadata_store.records.registry import LiveOwner
from oncelog.rpc.codecs.finding_codec import FIND_MESSAGE, READ_STORED_MESSAGES
from oncelog.rpc.codecs.reader_codec import StartAt, StartEdge, StartIndex, StartMessage, StartTime, start_message
from oncelog.wire import finding_pb2 as pb

_MESSAGES = "/admin/v2/persistent/{tenant}/{namespace}/{topic}/messages"
#: An owner may prove first that it is the current one, and read the log.
CALL_TIMEOUT_MS = 10_000
MESSAGES_MAX = 200
VALUE_BYTES_MAX = 1 << 20
#: The state of a partition that did not answer.
UNKNOWN = "unknown"

IndexQuery = Annotated[int | None, Query(description="Begin with the message of this number", ge=0, lt=1 << 62)]
TimeQuery = Annotated[
    int | None, Query(description="Begin with the first message stored at or after it, ms since 1970", ge=0, lt=1 << 53)
]
MessageIdQuery = Annotated[
    str | None,
    Query(
        description="Begin with this message: ledger:entry or ledger:entry:index",
        pattern=r"^[0-9]{1,19}:[0-9]{1,19}(:[0-9]{1,10})?$",
    ),
]
LimitQuery = Annotated[int, Query(description="Messages of this page", ge=1, le=MESSAGES_MAX)]
ValuesQuery = Annotated[bool, Query(description="false: without values, keys and properties")]
ValueBytesQuery = Annotated[int, Query(description="Longer values are cut", ge=0, le=VALUE_BYTES_MAX)]
BackwardsQuery = Annotated[
    bool, Query(description="true: the newest first, of the messages before that place; without one, of all")
]
KeyQuery = Annotated[str | None, Query(description="Only messages with this key", max_length=SEARCHED_BYTES_MAX)]
TextQuery = Annotated[
    str | None, Query(description="Only messages with this text in their value", max_length=SEARCHED_BYTES_MAX)
]
FilterQuery = Annotated[
    str | None,
    Query(
        description='Only messages whose value is JSON for which this holds: `.order == 17`, `.lines[0].sku == "x-1"`, '
        '`.customer.name contains "Ann"`, `.total >= 100`, `.refund` (there is one)',
        max_length=SEARCHED_BYTES_MAX,
    ),
]
OfProducerQuery = Annotated[str | None, Query(description="Only messages of the producer that has this name now")]
NameQuery = Annotated[str, Query(description="Name of the producer")]
SequenceQuery = Annotated[int, Query(description="Sequence id of the message", ge=0, le=SEQUENCE_ID_MAX)]


class RefusalsView(BaseModel):
    """What batches with this id got instead of being stored, since the owner took the topic over. The owner remembers
    the last 100 batches, and runs of batches, of the topic."""

    counts: dict[str, int] = Field(
        description="{verdict: how often}: duplicate, content_differs (these count as duplicate, too: another message "
        "than the stored one), below_mark (not verified), or an error's code"
    )
    possible_counts: dict[str, int] = Field(
        description="Of runs of batches with gaps between their ids: the id may have been in one"
    )
    first_ms: int | None = Field(description="All of these were refused at or after it, ms since 1970")
    last_ms: int | None
    last_from: str | None = Field(description="host:port of the client that sent the last one")
    since_ms: int = Field(description="What was refused before it is not remembered")
    complete: bool = Field(description="false: the owner has dropped older ones; true: it took the topic over then")


class FoundMessage(BaseModel):
    """Where the message is in a topic or partition. null: there is none, or it is not known."""

    model_config = ConfigDict(extra="allow")

    topic: str = Field(description="The topic, or the partition")
    state: str = Field(
        description="stored, in_flight (not durable yet), not_stored (above all ids of the producer), never_stored "
        "(between stored ids), not_found (older, and not in what is kept of the log), older_than_remembered (the "
        "search did not reach all of it), trimmed (stored, and deleted since then), unknown_producer or "
        "unknown (the partition did not answer, or the one entry that would tell cannot be read now)"
    )
    explanation: str = Field(description="The same in words")
    message_id: str | None = None
    index: int | None = Field(None, description="Number of the message in the topic")
    append_time_ms: int | None = Field(None, description="When it was stored, ms since 1970")
    deduplication: bool | None = Field(
        None, description="false: it is switched off now, so the message may also be stored at further places"
    )
    producer_id: int | None = None
    mode: str | None = Field(None, description="monotonic, contiguous or epoched")
    accepted: int | None = Field(None, description="The highest sequence id that was handed to the log; -1: none")
    persisted: int | None = Field(None, description="The highest sequence id that is durable; -1: none")
    recent_floor: int | None = Field(None, description="Ids at or below it are older than what is remembered; -1: none")
    refusals: RefusalsView | None = None


class MessageRow(StoredMessage):
    """One message of a page, as it is stored."""

    append_time_ms: int = Field(description="The clock of the topic's owner when it was stored, ms since 1970")
    value_bytes: int = Field(description="Of the whole value")
    in_chunks: bool = Field(description="The value is in chunks, and not shown: read it with the SDK")
    null_value: bool = Field(description="The message has no value, which is not the same as an empty one")
    encrypted: bool = Field(description="A client has encrypted the value: only a program with the key can read it")
    truncated: bool = Field(
        description="The value is cut after value_bytes_max, the key after 1 KiB, or the properties after 16 KiB"
    )


class UnreadableMessages(BaseModel):
    """Messages that no storage node can give."""

    first_index: int
    count: int
    reason: str


class MessagePage(BaseModel):
    """Messages by index. A page of large messages has fewer than its limit."""

    messages: list[MessageRow]
    unreadable: UnreadableMessages | None = Field(
        description="Instead of messages: these cannot be read now; the next page goes on behind them"
    )
    first_index: int = Field(description="Of the oldest message that is kept")
    end_index: int = Field(description="One above that of the newest message")
    looked_from: int = Field(description="This page has looked at messages from this index on")
    looked_to: int = Field(description="One above the last index that it has looked at")
    previous_index: int | None = Field(
        description="`index` of the page of older messages; null: there are none, or none that a filter could want"
    )
    next_index: int | None = Field(description="`index` of the page of newer messages; null: there are none")


def routes(coordination: Coordination) -> APIRouter:
    """Find one message, show messages."""
    router = new_router(tags=["topics"])

    @router.get(
        f"{_MESSAGES}/find", summary="Find a message", operation_id="find_message",
        dependencies=[requires(Right.ADMIN, Right.CONSUME)],
    )  # fmt: skip
    async def find_message(
        topic: TopicPath, producer_name: NameQuery, sequence_id: SequenceQuery
    ) -> list[FoundMessage]:
        """Whether and where the message of a producer name and a sequence id is stored, and how often it was refused;
        of a partitioned topic, in each partition.

        The answer is what the owner would decide about a batch with this id, and one entry of the log. `conflict` while
        the topic has no owner.
        """
        check_producer_name(producer_name)
        count = await coordination.subscriptions.partitions(topic)

        async def of(each: TopicName) -> FoundMessage:
            try:
                return await _found(coordination, each, producer_name, sequence_id)
            except TopicNotFound:
                raise
            except OncelogError as error:
                if each == topic:
                    raise
                said = {"topic": str(each), "state": UNKNOWN, "explanation": f"unknown: {error.message}"}
                return FoundMessage.model_validate(said)

        found = await each_partition(topic, count, of)
        return [found[each] for each in sorted(found, key=lambda each: each.partition or 0)]

    @router.get(
        _MESSAGES, summary="Show stored messages", operation_id="list_messages", dependencies=[requires(Right.CONSUME)]
    )
    async def list_messages(
        topic: TopicPath,
        index: IndexQuery = None,
        time_ms: TimeQuery = None,
        message_id: MessageIdQuery = None,
        limit: LimitQuery = 50,
        values: ValuesQuery = True,
        value_bytes_max: ValueBytesQuery = 4096,
        backwards: BackwardsQuery = False,
        key: KeyQuery = None,
        text: TextQuery = None,
        filter: FilterQuery = None,  # noqa: A002 - the name of the parameter
        producer_name: OfProducerQuery = None,
    ) -> MessagePage:
        """A page of messages from an index, a time or a message id on; without one of these, the newest. Of a
        partitioned topic, ask for one partition.

        With `key`, `text`, `filter` or `producer_name` it is a search: a page has the messages for which all of them
        hold, from the oldest on, or from the newest on with `backwards`. It looks at some megabytes of the log, and
        says from where to where; go on with `index` = `next_index`, or `previous_index` with `backwards`.

        A place that retention has deleted is the oldest message that is kept. `conflict` while the topic has no owner.
        """
        searched = _searched(key, text, filter, producer_name)
        wanted = pb.StoredMessagesRequest(
            limit=limit, with_content=values, value_bytes_max=value_bytes_max, filter=searched, backwards=backwards
        )
        start = _start(index, time_ms, message_id)
        if searched is not None and start is StartEdge.LATEST and not backwards:
            start = StartEdge.EARLIEST
        wanted.start.CopyFrom(start_message(start))
        wanted.back = limit if start is StartEdge.LATEST and not backwards else 0
        return _page(await _read(coordination, topic, wanted), wanted)

    return router


def _searched(
    key: str | None, text: str | None, condition: str | None, producer_name: str | None
) -> pb.MessageFilter | None:
    """None: no search. Raises InvalidArgument, InvalidName."""
    if key is None and text is None and condition is None and producer_name is None:
        return None
    for field, given in (("text", text), ("filter", condition), ("producer_name", producer_name)):
        if given == "":
            raise InvalidArgument(f"{field}: is empty; leave it out to search without it", field=field)
    if condition is not None:
        parse_condition(condition)
    return pb.MessageFilter(
        key=None if key is None else key.encode(),
        text=(text or "").encode(),
        condition=condition or "",
        producer_name="" if producer_name is None else check_producer_name(producer_name),
    )


def _start(index: int | None, time_ms: int | None, message_id: str | None) -> StartAt:
    if sum(each is not None for each in (index, time_ms, message_id)) > 1:
        raise InvalidArgument("give at most one of index, time_ms and message_id", field="index")
    if index is not None:
        return StartIndex(index)
    if time_ms is not None:
        return StartTime(time_ms)
    if message_id is not None:
        found = MessageId.parse(message_id)
        return StartMessage(found.position, found.batch_index, inclusive=True)
    return StartEdge.LATEST


async def _found(coordination: Coordination, topic: TopicName, producer_name: str, sequence_id: int) -> FoundMessage:
    async def ask(owner: LiveOwner, topic_id: TopicId) -> pb.FindMessageAnswer:
        request = pb.FindMessageRequest(
            topic=str(topic), topic_id=topic_id, producer_name=producer_name, sequence_id=sequence_id
        )
        return await coordination.calls.ask(owner, FIND_MESSAGE, request, timeout_ms=CALL_TIMEOUT_MS)

    answer = await coordination.topic_calls.of_owner(topic, ask, placed=False)
    return FoundMessage.model_validate({"topic": str(topic), **json.loads(answer.found_json)})


async def _read(
    coordination: Coordination, topic: TopicName, wanted: pb.StoredMessagesRequest
) -> pb.StoredMessagesAnswer:
    async def ask(owner: LiveOwner, topic_id: TopicId) -> pb.StoredMessagesAnswer:
        wanted.topic, wanted.topic_id = str(topic), topic_id
        return await coordination.calls.ask(owner, READ_STORED_MESSAGES, wanted, timeout_ms=CALL_TIMEOUT_MS)

    return await coordination.topic_calls.of_owner(topic, ask, placed=False)


def _page(answer: pb.StoredMessagesAnswer, wanted: pb.StoredMessagesRequest) -> MessagePage:
    first, begin, bad = answer.first_index, answer.begin_index, None
    back = 0 if wanted.backwards else wanted.limit
    if answer.HasField("unreadable"):
        one = answer.unreadable
        bad = UnreadableMessages(first_index=one.first_index, count=one.count, reason=one.reason)
    return MessagePage(
        messages=[_row(one, wanted.with_content) for one in answer.messages],
        unreadable=bad,
        first_index=first,
        end_index=answer.end_index,
        looked_from=begin,
        looked_to=answer.next_index,
        previous_index=max(first, begin - back) if begin > first else None,
        next_index=answer.next_index if answer.next_index < answer.end_index else None,
    )


def _row(one: pb.StoredMessage, values: bool) -> MessageRow:
    value = one.value if values and not (one.in_chunks or one.null_value or one.encrypted) else None
    fields: dict[str, Any] = {
        **text_fields("value", value, cut=len(one.value) < one.value_bytes),
        **text_fields("key", one.key if one.HasField("key") else None, cut=one.truncated),
    }
    return MessageRow(
        index=one.index,
        message_id=f"{one.ledger_id}:{one.entry_id}:{one.batch_index}",
        producer_id=one.producer_id or None,
        producer_name=one.producer_name or None,
        sequence_id=one.sequence_id,
        publish_time_ms=one.publish_time_ms,
        event_time_ms=one.event_time_ms if one.HasField("event_time_ms") else None,
        properties=dict(one.properties),
        append_time_ms=one.append_time_ms,
        value_bytes=one.value_bytes,
        in_chunks=one.in_chunks,
        null_value=one.null_value,
        encrypted=one.encrypted,
        truncated=one.truncated,
        **fields,
    )
