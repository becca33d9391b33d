"""Offsets of groups: the position of a group in a partition is that of the subscription with its name.

    OffsetCommit   the coordinator says whether the member may commit; then the owners of the partitions write
    OffsetFetch    the owners say; none of them says anything while it is not sure
    OffsetDelete   the coordinator says what the members are subscribed to; then the owners delete

Requests of one connection take effect in their order: an offset that was committed before would else undo a later one.
What an owner does not answer in time the client asks again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from oncelog.client.group_offsets import GroupOffset, GroupResult, NewOffset
from oncelog.core.errors import ConsumerFenced, InvalidArgument, OncelogError, TopicNotFound
from oncelog.core.groups.answers import CommitAnswer, DescribeAnswer, GroupError, GroupState
from oncelog.core.groups.events import CommitChecked, DescribeRequested
from oncelog.core.ids import Generation
from oncelog.core.names import NamespaceName, TopicName, check_part, is_of_doors
from oncelog_doors.core.kafka.assignments import CONSUMER
from oncelog_doors.core.kafka.error_codes import ErrorCode
from oncelog_doors.core.kafka.offset_codes import (
    NO_OFFSET,
    commit_code_of,
    delete_code_of,
    fetch_code_of,
    newest_of,
    whole_code_of,
)
from oncelog_doors.core.kafka.subscribed_topics import topics_in
from oncelog_doors.core.kafka.topic_names import partition_of, topic_of
from oncelog_doors.kafka.asking import LOOKUPS_AT_ONCE, Asking
from oncelog_doors.kafka.codec import Body
from oncelog_doors.kafka.frames import Request
from oncelog_doors.kafka.groups import ASK_MS, group_code_of

_LOG = logging.getLogger(__name__)

OFFSET_REQUESTS = frozenset(("OffsetCommit", "OffsetFetch", "OffsetDelete"))
#: Of a question about all topics of a namespace.
_ALL_MS = 25_000
#: The field of OffsetCommit with the generation of the member.
_GENERATION = "generation_id_or_member_epoch"
#: Topics of one connection whose number of partitions is kept.
_COUNTS_MAX = 1_000
#: From this version on an answer to OffsetFetch has a code of its own.
_WITH_CODE = 2


class _Partition(NamedTuple):
    """As the client names it."""

    topic: str
    index: int  # type: ignore[assignment]  # hides tuple.index, which has no use here


class Offsets:
    """Of one connection. used: called with the namespaces of topics that a client without a group has an offset of."""

    def __init__(self, around: Asking, used: Callable[[NamespaceName], None]) -> None:
        self._around = around
        self._used = used
        #: {topic of a commit: its number of partitions, which only a deletion lowers}
        self._counts: dict[TopicName, int] = {}
        self._turn = asyncio.Lock()
        self._requests: Mapping[str, Callable[[Request, Body], Awaitable[Body]]] = {
            "OffsetCommit": self._commit,
            "OffsetFetch": self._fetch,
            "OffsetDelete": self._delete,
        }

    async def answer(self, request: Request, body: Body) -> Body | None:
        """The body of the answer."""
        async with self._turn:
            return await self._requests[request.api](request, body)

    # --- commits ------------------------------------------------------------------------------------------------------

    async def _commit(self, _request: Request, body: Body) -> Body:
        asked = {
            _Partition(topic["name"], each["partition_index"]): NewOffset(
                each["committed_offset"], each["committed_metadata"] or ""
            )
            for topic in body["topics"]
            for each in topic["partitions"]
        }
        try:
            codes = await self._committed(body, asked)
        except OncelogError as error:
            codes = dict.fromkeys(asked, self._refused("OffsetCommit", body, error))
        if whole := whole_code_of(codes.values()):
            codes = dict.fromkeys(asked, whole)
        return {"topics": _of_topics(body, lambda partition: {"error_code": codes[partition]})}

    async def _committed(self, body: Body, asked: Mapping[_Partition, NewOffset]) -> dict[_Partition, ErrorCode]:
        """Raises OncelogError for what the partitions share."""
        checked = await self._checked(body)
        if checked.error is not GroupError.NONE:
            _LOG.info("a commit to group %.100s is answered %s: %s", body["group_id"], checked.error, checked.reason)
            return dict.fromkeys(asked, ErrorCode(checked.error))
        logs, results = await self._logs(asked, known=True)
        if body[_GENERATION] < 0:
            for namespace in {log.namespace_name for log in logs.values()}:
                self._used(namespace)
        results |= await self._written(body["group_id"], logs, asked, checked.generation)
        missing = [each for each in logs if isinstance(results[each], TopicNotFound | InvalidArgument)]
        if missing:  # the topic may have been deleted and created in another form since it was looked up
            found, refused = await self._logs(missing)
            other = {each: log for each, log in found.items() if log != logs[each]}
            logs |= other
            results |= refused | await self._written(body["group_id"], other, asked, checked.generation)
        fenced = {each: newest_of(error) for each, error in results.items() if isinstance(error, ConsumerFenced)}
        if fenced and body[_GENERATION] < 0:
            # The subscription has had consumers of the SDK, which have raised its generation above the group's.
            checked = await self._checked(body)
            if checked.error is GroupError.NONE:
                generation = Generation(max(checked.generation, *fenced.values()))
                again = {partition: logs[partition] for partition in fenced}
                results |= await self._written(body["group_id"], again, asked, generation)
        return {each: self._code("OffsetCommit", body, result, commit_code_of) for each, result in results.items()}

    async def _checked(self, body: Body) -> CommitAnswer:
        around = self._around
        question = CommitChecked(
            0, check_part(body["group_id"], field="group"), body["member_id"], Generation(body[_GENERATION]),
            body.get("group_instance_id"),
        )  # fmt: skip
        found = await around.cluster.groups.ask(around.namespace, around.caller, question, timeout_ms=ASK_MS)
        assert isinstance(found, CommitAnswer), "it is the answer to this question"
        return found

    async def _written(
        self,
        group: str,
        logs: Mapping[_Partition, TopicName],
        asked: Mapping[_Partition, NewOffset],
        generation: Generation,
    ) -> dict[_Partition, GroupResult]:
        around = self._around
        offsets = {log: asked[partition] for partition, log in logs.items()}
        found = await around.cluster.offsets.commit(around.caller, group, offsets, generation, timeout_ms=ASK_MS)
        return {partition: found[log] for partition, log in logs.items()}

    # --- questions ----------------------------------------------------------------------------------------------------

    async def _fetch(self, request: Request, body: Body) -> Body:
        whole, found = ErrorCode.NONE, dict[_Partition, GroupResult]()
        try:
            found = await (self._fetched_all(body) if body["topics"] is None else self._fetched(body))
        except OncelogError as error:
            whole = self._refused("OffsetFetch", body, error)
        codes = {each: self._code("OffsetFetch", body, result, fetch_code_of) for each, result in found.items()}
        whole = whole or whole_code_of(codes.values())
        if whole and request.version >= _WITH_CODE:
            return {"error_code": whole, "topics": []}

        def one(partition: _Partition) -> Body:
            result = found.get(partition)
            if whole or not isinstance(result, GroupOffset) or result.offset is None:
                return {"committed_offset": NO_OFFSET, "metadata": "", "error_code": whole or codes[partition]}
            return {"committed_offset": result.offset, "metadata": result.metadata, "error_code": ErrorCode.NONE}

        if body["topics"] is not None:
            return {"topics": _of_topics(body, one)}
        names = dict.fromkeys(each.topic for each in found)
        listed = {"topics": [{"name": n, "partition_indexes": [i for t, i in found if t == n]} for n in names]}
        return {"topics": _of_topics(listed, one)}

    async def _fetched(self, body: Body) -> dict[_Partition, GroupResult]:
        asked = [_Partition(topic["name"], index) for topic in body["topics"] for index in topic["partition_indexes"]]
        logs, results = await self._logs(asked)
        results |= await self._ask(body["group_id"], logs, ASK_MS)
        return {each: _known(result) for each, result in results.items()}

    async def _fetched_all(self, body: Body) -> dict[_Partition, GroupResult]:
        """Of all topics of the namespace, those in which the group has an offset."""
        around = self._around
        logs = {}
        for named in await around.cluster.topics_of(around.namespace, around.caller):
            if not is_of_doors(named.local):
                topic = topic_of(named.name, around.namespace)
                for index in range(max(1, named.partitions)):
                    logs[_Partition(named.local, index)] = partition_of(topic, index, named.partitions)
        results = await self._ask(body["group_id"], logs, _ALL_MS)
        known = {each: _known(result) for each, result in results.items()}
        return {each: result for each, result in known.items() if result != GroupOffset(None)}

    async def _ask(
        self, group: str, logs: Mapping[_Partition, TopicName], timeout_ms: int
    ) -> dict[_Partition, GroupResult]:
        around = self._around
        check_part(group, field="group")
        found = await around.cluster.offsets.fetch(around.caller, group, list(logs.values()), timeout_ms=timeout_ms)
        return {partition: found[log] for partition, log in logs.items()}

    # --- deletions ----------------------------------------------------------------------------------------------------

    async def _delete(self, _request: Request, body: Body) -> Body:
        asked = [
            _Partition(topic["name"], each["partition_index"])
            for topic in body["topics"]
            for each in topic["partitions"]
        ]
        try:
            whole, codes = await self._deleted(body, asked)
        except OncelogError as error:
            whole, codes = self._refused("OffsetDelete", body, error), {}
        if whole:
            return {"error_code": whole, "topics": []}
        return {"topics": _of_topics(body, lambda partition: {"error_code": codes[partition]})}

    async def _deleted(self, body: Body, asked: Sequence[_Partition]) -> tuple[ErrorCode, dict[_Partition, ErrorCode]]:
        """(What all partitions are refused with, the code of each). Raises OncelogError."""
        around, group = self._around, check_part(body["group_id"], field="group")
        described: DescribeAnswer | None = None
        try:
            question = DescribeRequested(0, group)
            answer = await around.cluster.groups.ask(around.namespace, around.caller, question, timeout_ms=ASK_MS)
            assert isinstance(answer, DescribeAnswer), "it is the answer to this question"
            described = answer
        except TopicNotFound:
            pass  # no client has ever joined a group
        subscribed: frozenset[str] = frozenset()
        if described is not None and described.error is not GroupError.NONE:
            return ErrorCode(described.error), {}
        if described is not None and described.state not in (GroupState.EMPTY, GroupState.DEAD):
            if described.protocol_type != CONSUMER:
                return ErrorCode.NON_EMPTY_GROUP, {}
            if described.state is not GroupState.STABLE:
                return ErrorCode.REBALANCE_IN_PROGRESS, {}
            subscribed = subscribed.union(*(topics_in(each.metadata) for each in described.members))
        logs, results = await self._logs([each for each in asked if each.topic not in subscribed])
        generation = Generation(0) if described is None else described.generation
        found = await around.cluster.offsets.delete(
            around.caller, group, list(logs.values()), generation, timeout_ms=ASK_MS
        )
        results |= {partition: found[log] for partition, log in logs.items()}
        codes = dict.fromkeys(asked, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
        for partition, result in results.items():
            codes[partition] = self._code("OffsetDelete", body, result, delete_code_of)
        return ErrorCode.NONE, codes

    # --- partitions ---------------------------------------------------------------------------------------------------

    async def _logs(
        self, asked: Iterable[_Partition], *, known: bool = False
    ) -> tuple[dict[_Partition, TopicName], dict[_Partition, GroupResult]]:
        """(The logs of the partitions, why the others have none). known: by an earlier look-up, if there was one. That
        is for questions to which an owner answers that a log is missing, and not that it has no offset."""
        around, places = self._around, asyncio.Semaphore(LOOKUPS_AT_ONCE)
        logs, refused = dict[_Partition, TopicName](), dict[_Partition, GroupResult]()
        indexes: dict[str, list[int]] = {}
        for name, index in asked:
            indexes.setdefault(name, []).append(index)

        async def of_topic(name: str) -> None:
            async with places:
                try:
                    topic = topic_of(name, around.namespace)
                    count = self._counts.get(topic) if known else None
                    if count is None or max(indexes[name]) >= max(1, count):
                        count = await around.cluster.partitions(topic, around.caller, may_create=False)
                        self._keep(topic, count)
                except OncelogError as error:
                    refused.update(dict.fromkeys((_Partition(name, index) for index in indexes[name]), error))
                    return
            for index in indexes[name]:
                try:
                    logs[_Partition(name, index)] = partition_of(topic, index, count)
                except TopicNotFound as error:
                    refused[_Partition(name, index)] = error

        await asyncio.gather(*map(of_topic, indexes))
        return logs, refused

    def _keep(self, topic: TopicName, count: int) -> None:
        if len(self._counts) >= _COUNTS_MAX:
            self._counts.clear()
        self._counts[topic] = count

    # --- codes --------------------------------------------------------------------------------------------------------

    def _code(self, api: str, body: Body, result: object, code_of: Callable[[OncelogError], ErrorCode]) -> ErrorCode:
        if not isinstance(result, OncelogError):
            return ErrorCode.NONE
        _LOG.info("%s of group %.100s: %s", api, body["group_id"], result)
        return code_of(result)

    def _refused(self, api: str, body: Body, error: OncelogError) -> ErrorCode:
        """Of the whole request."""
        _LOG.info("%s of group %.100r is refused: %s", api, body["group_id"], error)
        if error.retriable:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return group_code_of(error)


def _known(result: GroupResult) -> GroupResult:
    """A topic that is not there has no offset of the group: who knows all topics has said so."""
    return GroupOffset(None) if isinstance(result, TopicNotFound) else result


def _of_topics(body: Body, one: Callable[[_Partition], Body]) -> list[Body]:
    """The answer for each partition, in the order of the request."""

    def partitions(topic: Body) -> list[int]:
        if "partition_indexes" in topic:
            return list(topic["partition_indexes"])
        return [each["partition_index"] for each in topic["partitions"]]

    return [
        {
            "name": topic["name"],
            "partitions": [
                {"partition_index": index, **one(_Partition(topic["name"], index))} for index in partitions(topic)
            ],
        }
        for topic in body["topics"]
    ]
