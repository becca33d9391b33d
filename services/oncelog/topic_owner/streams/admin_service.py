"""Unary calls: last message and producer names for readers; topic states, assign, unload, truncate and
entries in memory for metadata services."""

import json
import re
from collections.abc import Iterable

from oncelog.core.access import Caller, Right
from oncelog.core.errors import InvalidArgument, NotOwner, TopicLoading
from oncelog.core.ids import EntryId, Incarnation, LedgerId, OwnerEpoch, ProducerId, TopicId
from oncelog.core.topic.topic_rates import TopicRates
from oncelog.rpc.codecs.reader_codec import start_from_wire
from oncelog.topic_owner.observe import topic_states
from oncelog.topic_owner.observe.rates import OwnerRates
from oncelog.topic_owner.observe.subscription_states import ack_state
from oncelog.topic_owner.shell.log_view import LogView
from oncelog.topic_owner.shell.topic_registry import TopicRegistry
from oncelog.topic_owner.shell.topic_runner import TopicRunner
from oncelog.topic_owner.streams.authorization import authorize
from oncelog.topic_owner.streams.current_topic import still_served
from oncelog.wire import owner_pb2 as pb
from oncelog.wire import truncation_pb2

#: A topic id becomes a path in ZooKeeper. Any other text could name another record.
_TOPIC_ID = re.compile(r"[0-9a-f]{32}")
#: More than the entries of one ledger, so more than the producers that a reader of it meets.
PRODUCER_IDS_MAX = 65_536
#: Of one answer to repair.
CACHED_ENTRIES_MAX = 4096
CACHED_ENTRIES_BYTES = 1 << 20
#: Below the client's timeout of the call, so that the client learns why there is no answer.
LAST_MESSAGE_TIMEOUT_MS = 3_000


class AdminService:
    """The handlers. A request whose answer depends on the process names the incarnation that it is meant for."""

    def __init__(self, topics: TopicRegistry, incarnation: Incarnation, rates: OwnerRates) -> None:
        self._topics = topics
        self._incarnation = incarnation
        self._rates = rates

    async def states(self, request: pb.TopicStatesRequest) -> pb.TopicStatesAnswer:
        wanted = set(request.topic_ids)
        runners = [runner for runner in self._topics if not wanted or runner.topic_id in wanted]
        return pb.TopicStatesAnswer(states=[_state(runner, self._rates.of(runner), request) for runner in runners])

    async def last_message(self, request: pb.LastMessageRequest, caller: Caller) -> pb.LastMessageAnswer:
        runner = self._topics.runner(TopicId(request.topic_id), request.topic)
        await authorize(runner, caller, Right.CONSUME)
        await runner.ownership_proofs.until_current(OwnerEpoch(request.owner_epoch_seen))
        last = await runner.explained(LogView(runner.log, timeout_ms=LAST_MESSAGE_TIMEOUT_MS).last_message())
        next_index = still_served(runner).log.table.state.next_index
        if last is None:
            return pb.LastMessageAnswer(present=False, next_index=next_index, owner_epoch=runner.owner_epoch)
        position, header = last
        return pb.LastMessageAnswer(
            present=True,
            ledger_id=position.ledger_id,
            entry_id=position.entry_id,
            batch_index=header.skip_first + header.count - 1,
            next_index=next_index,
            owner_epoch=runner.owner_epoch,
        )

    async def find_index(self, request: pb.FindIndexRequest, caller: Caller) -> pb.FindIndexAnswer:
        """Where a place of the topic begins, as a message index: for consumers, who seek by index."""
        start = start_from_wire(request.start)
        runner = self._topics.runner(start.topic_id, start.topic)
        await authorize(runner, caller, Right.CONSUME)
        await runner.ownership_proofs.until_current(start.owner_epoch_seen)
        index = await runner.explained(LogView(runner.log, timeout_ms=LAST_MESSAGE_TIMEOUT_MS).index_of(start.at))
        log = still_served(runner).subscriptions.log
        return pb.FindIndexAnswer(
            begins_at=max(log.first_index, min(index, log.next_index)),
            first_index=log.first_index,
            next_index=log.next_index,
            owner_epoch=runner.owner_epoch,
        )

    async def producer_names(self, request: pb.ProducerNamesRequest, caller: Caller) -> pb.ProducerNamesAnswer:
        runner = self._topics.runner(TopicId(request.topic_id), request.topic)
        await authorize(runner, caller, Right.CONSUME)
        if len(request.producer_ids) > PRODUCER_IDS_MAX:
            message = f"{len(request.producer_ids)} producer ids in one request, at most {PRODUCER_IDS_MAX}"
            raise InvalidArgument(message, field="producer_ids", limit=PRODUCER_IDS_MAX)
        seen, answer = OwnerEpoch(request.owner_epoch_seen), _names_known(runner, request.producer_ids)
        if answer is None or len(answer.names) < len({*request.producer_ids}) or seen > runner.owner_epoch:
            # A known name stays right, because an id is given once: consumers need not wait for a proof of ownership.
            # That a name is missing needs one.
            await runner.ownership_proofs.until_current(seen)
            answer = _names_known(runner, request.producer_ids)
        if answer is None:
            # Without a name a message would look as if it had been stored without deduplication.
            raise TopicLoading(
                "the topic is moving to another owner and its producer names are not known yet: try again"
            )
        return answer

    async def assign(self, request: pb.AssignRequest) -> pb.AssignAnswer:
        self._require(request.target)
        if _TOPIC_ID.fullmatch(request.topic_id) is None:
            raise InvalidArgument("topic_id must have 32 hexadecimal digits", field="topic_id")
        self._topics.assign(TopicId(request.topic_id))
        return pb.AssignAnswer()

    async def unload(self, request: pb.UnloadRequest) -> pb.UnloadAnswer:
        self._require(request.target)
        await self._topics.unload(TopicId(request.topic_id))
        return pb.UnloadAnswer()

    async def truncate(self, request: truncation_pb2.TruncateRequest) -> truncation_pb2.TruncateAnswer:
        self._require(request.target)
        runner = self._topics.runner(TopicId(request.topic_id))
        return truncation_pb2.TruncateAnswer(first_index=await runner.retention.truncate())

    async def trim(self, request: truncation_pb2.TrimRequest) -> truncation_pb2.TrimAnswer:
        self._require(request.target)
        runner = self._topics.runner(TopicId(request.topic_id))
        below = request.before_index if request.HasField("before_index") else None
        return truncation_pb2.TrimAnswer(first_index=await runner.retention.trim_below(below))

    async def cached_entries(self, request: pb.CachedEntriesRequest) -> pb.CachedEntriesAnswer:
        """What this owner has in memory of these ids, without reading any storage node."""
        self._require(request.target)
        cache, following = self._topics.runner(TopicId(request.topic_id)).cache, request.first_entry
        if not 1 <= request.entries_max <= CACHED_ENTRIES_MAX:
            message = f"entries_max is {request.entries_max}: give 1 to {CACHED_ENTRIES_MAX}"
            raise InvalidArgument(message, field="entries_max", limit=CACHED_ENTRIES_MAX)
        answer, size = pb.CachedEntriesAnswer(), 0
        while following < request.first_entry + request.entries_max and size < CACHED_ENTRIES_BYTES:
            parts = cache.get(LedgerId(request.ledger_id), EntryId(following))
            if parts is not None:
                answer.entries.append(b"".join(parts))
                size += len(answer.entries[-1])
            following += 1
        answer.next_entry = following
        return answer

    def _require(self, target: str) -> None:
        if target != self._incarnation:
            raise NotOwner(f"this is owner {self._incarnation}, not {target}: look the owner up again")


def _state(runner: TopicRunner, rates: TopicRates | None, request: pb.TopicStatesRequest) -> pb.TopicState:
    shown = request.producers_max or topic_states.PRODUCERS_SHOWN_MAX
    after = request.producers_after if request.HasField("producers_after") else None
    serving = runner.core.serving
    acks = ack_state(serving) if request.with_acks and serving is not None else None
    return pb.TopicState(
        topic=runner.name,
        topic_id=runner.topic_id,
        owner_epoch=runner.owner_epoch,
        phase=runner.core.phase.value,
        stats_json=json.dumps(topic_states.stats(runner, rates, subscriptions=not request.without_subscriptions)),
        internal_stats_json=json.dumps(topic_states.internal_stats(runner, shown, after)) if request.internal else "",
        ack_state_json="" if acks is None else json.dumps(acks),
    )


def _names_known(runner: TopicRunner, producer_ids: Iterable[int]) -> pb.ProducerNamesAnswer | None:
    """None: the topic is not served here, or not yet."""
    serving = runner.core.serving
    if serving is None:
        return None
    answer = pb.ProducerNamesAnswer(owner_epoch=runner.owner_epoch)
    known = serving.log.table.state.producers
    for producer_id in dict.fromkeys(producer_ids):
        name = known.name_of(ProducerId(producer_id))
        if name is not None:
            answer.names.add(producer_id=producer_id, name=name)
    return answer
