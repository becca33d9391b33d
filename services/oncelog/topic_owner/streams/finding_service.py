"""Looking at single messages, for metadata services. They have checked the caller's rights.

What is asked for is read like a subscription's messages, and nothing is remembered about it.
"""

import asyncio
import json
from dataclasses import replace

from oncelog.core.errors import EntriesLost, InvalidArgument, LedgerUnavailable, UnreadableEntry
from oncelog.core.ids import SEQUENCE_ID_MAX, ProducerId, SequenceId
from oncelog.core.publishing.finding import Found, FoundState, find, in_entry, not_given, trimmed
from oncelog.core.search.message_filter import MessageFilter, parse_condition
from oncelog.core.topic.serving import Serving
from oncelog.rpc.codecs.reader_codec import StartIndex, start_from_wire
from oncelog.topic_owner.observe.found_message import found_json
from oncelog.topic_owner.observe.id_look_up import look_up
from oncelog.topic_owner.observe.stored_page import StoredPage
from oncelog.topic_owner.shell.log_view import LogView
from oncelog.topic_owner.shell.message_reads import MessageReads
from oncelog.topic_owner.shell.topic_registry import TopicRegistry
from oncelog.topic_owner.shell.topic_runner import TopicRunner
from oncelog.topic_owner.streams.current_topic import SERVING_TIMEOUT_MS, current_topic, still_served
from oncelog.wire import finding_pb2 as pb

#: Of one page.
MESSAGES_MAX = 200
VALUE_BYTES_MAX = 1 << 20
#: Pages that are in memory; further requests wait.
_PAGES_AT_ONCE = 16


class FindingService:
    """The handlers. They raise NotOwner, TopicLoading and other retriable errors."""

    def __init__(self, topics: TopicRegistry) -> None:
        self._topics = topics
        self._room = asyncio.Semaphore(_PAGES_AT_ONCE)

    async def find(self, request: pb.FindMessageRequest) -> pb.FindMessageAnswer:
        if not 0 <= request.sequence_id <= SEQUENCE_ID_MAX:
            raise InvalidArgument(f"sequence_id={request.sequence_id}: give 0 or more", field="sequence_id")
        runner, serving = await current_topic(self._topics, request.topic, request.topic_id)
        table, number = serving.log.table, SequenceId(request.sequence_id)
        found, problem = find(table, request.producer_name, number), None
        if found.state is FoundState.STORED:
            try:
                found = await runner.explained(_in_its_entry(runner, found, number))
            except (LedgerUnavailable, UnreadableEntry, EntriesLost) as error:
                found, problem = not_given(found), error.message
        elif found.state is FoundState.OLDER_THAN_REMEMBERED:
            found, problem = await _in_the_log(runner, serving, found, number)
        refusals = None
        if found.producer_id is not None:
            refusals = still_served(runner).sessions.refusals.of(found.producer_id, number)
        shown = found_json(found, number, refusals, deduplication=table.dedup_enabled, problem=problem)
        return pb.FindMessageAnswer(found_json=json.dumps(shown))

    async def read(self, request: pb.StoredMessagesRequest) -> pb.StoredMessagesAnswer:
        """Raises InvalidArgument for a limit that is out of range."""
        for name, given, low, high in (
            ("limit", request.limit, 1, MESSAGES_MAX),
            ("value_bytes_max", request.value_bytes_max, 0, VALUE_BYTES_MAX),
        ):
            if not low <= given <= high:
                raise InvalidArgument(f"{name}={given}: give {low} to {high}", field=name, limit=high)
        at = start_from_wire(request.start).at
        runner, serving = await current_topic(self._topics, request.topic, request.topic_id)
        if isinstance(at, StartIndex):
            index = at.number  # a look-up would take the nearest one of a topic that has none
        else:
            index = await runner.explained(LogView(runner.log, timeout_ms=SERVING_TIMEOUT_MS).index_of(at))
        log = serving.subscriptions.log
        wanted = _filter(request.filter, serving)
        begin = max(log.first_index, min(index, log.next_index) - request.back)
        answer = pb.StoredMessagesAnswer(
            first_index=log.first_index, end_index=log.next_index, begin_index=begin, next_index=begin
        )
        page = StoredPage(answer, MessageReads(runner.log), request, wanted)
        async with self._room:
            await (page.fill_backwards() if request.backwards else page.fill())
        _name_producers(answer, still_served(runner))
        return answer


async def _in_its_entry(runner: TopicRunner, found: Found, number: SequenceId) -> Found:
    assert found.position is not None, "what is stored has a position"
    view = LogView(runner.log, timeout_ms=SERVING_TIMEOUT_MS)
    unit = found.batch is not None and found.batch.unit
    entry = await view.entry_at(found.position, headers_only=not unit)
    return trimmed(found) if entry is None else in_entry(found, number, entry)


async def _in_the_log(
    runner: TopicRunner, serving: Serving, found: Found, number: SequenceId
) -> tuple[Found, str | None]:
    """What the log says of an id that the memory does not tell. (What is found, why it may be there although it was not
    found)."""
    assert found.producer_id is not None, "it is remembered"
    log = serving.subscriptions.log
    try:
        looked = await runner.explained(
            look_up(MessageReads(runner.log), log.first_index, log.next_index, found.producer_id, number)
        )
    except LedgerUnavailable as error:
        return found, error.message
    if (place := looked.place) is not None:
        return replace(
            found, state=FoundState.STORED, position=place.position, batch_index=place.batch_index, index=place.index,
            append_time_ms=place.append_time_ms, batch=None,
        ), None  # fmt: skip
    if looked.unreadable:
        return found, f"{looked.unreadable} messages cannot be read now"
    if looked.left:
        return found, f"{looked.left} of {looked.end_index - looked.first_index} messages were not looked at"
    return replace(found, state=FoundState.NOT_FOUND), None


def _filter(wanted: pb.MessageFilter, serving: Serving) -> MessageFilter:
    """Raises InvalidArgument."""
    producer_id = None
    if wanted.producer_name:
        producer_id = serving.log.table.producer_id_of(wanted.producer_name)
        if producer_id is None:
            message = f"no producer has the name {wanted.producer_name}: none was ever opened, or it has expired"
            raise InvalidArgument(message, field="producer_name")
    return MessageFilter(
        key=wanted.key if wanted.HasField("key") else None,
        text=wanted.text,
        condition=parse_condition(wanted.condition) if wanted.condition else None,
        producer_id=producer_id,
    )


def _name_producers(answer: pb.StoredMessagesAnswer, serving: Serving) -> None:
    known = serving.log.table.state.producers
    for one in answer.messages:
        one.producer_name = known.name_of(ProducerId(one.producer_id)) or ""
