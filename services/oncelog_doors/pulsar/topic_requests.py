"""The requests of one connection about topics, which the cluster answers: how many partitions one has, which ones a
namespace has, and which schemas.

If too many of them wait, the connection is not read until one is answered.
"""

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Protocol

from crc32c import crc32c

from oncelog.core.access import Caller
from oncelog.core.errors import NamespaceNotFound, OncelogError, TopicNotFound
from oncelog.core.names import TopicName
from oncelog.runtime.tasks import BackgroundTasks
from oncelog_doors.core.pulsar.connecting import message_bytes_max
from oncelog_doors.core.pulsar.names import has_no_partitions, namespace_of, topic_of
from oncelog_doors.core.pulsar.schemas import Schema
from oncelog_doors.core.pulsar.server_errors import Refusal, refusal_of
from oncelog_doors.core.pulsar.topic_lists import TopicList, topic_list
from oncelog_doors.pulsar import replies
from oncelog_doors.pulsar.ports import ClusterPort
from oncelog_doors.pulsar.schema_checks import schema_of
from oncelog_doors.wire.pulsar_commands_pb2 import (
    Command,
    GetOrCreateSchema,
    GetPartitions,
    GetSchema,
    GetTopics,
)

#: Of one connection without an answer of the cluster.
LOOKUPS_MAX = 100
_REASON = "look-ups"


class Asking(Protocol):
    """What the requests need of their connection."""

    caller: Caller
    cluster: ClusterPort
    tasks: BackgroundTasks

    def write(self, answer: Command) -> None: ...
    def hold(self, reason: str) -> None: ...
    def release(self, reason: str) -> None: ...


class TopicRequests:
    """Of one connection."""

    def __init__(self, around: Asking) -> None:
        self._around = around
        self._open = 0
        self._handlers: dict[str, Callable[[Any], None]] = {
            "get_partitions": self._get_partitions,
            "get_topics": self._get_topics,
            "get_schema": self._get_schema,
            "get_or_create_schema": self._get_or_create_schema,
        }

    def handles(self, name: str) -> bool:
        """Whether the command of this name is such a request."""
        return name in self._handlers

    def handle(self, name: str, body: Any) -> None:
        self._handlers[name](body)

    def _start(self, answering: Callable[[], Coroutine[Any, Any, Command]], *, what: str) -> None:
        self._open += 1
        if self._open >= LOOKUPS_MAX:
            self._around.hold(_REASON)
        self._around.tasks.start(self._answer(answering), what=what)

    async def _answer(self, answering: Callable[[], Coroutine[Any, Any, Command]]) -> None:
        self._around.write(await answering())
        self._open -= 1
        self._around.release(_REASON)

    # --- partitions ---------------------------------------------------------------------------------------------------

    def _get_partitions(self, asked: GetPartitions) -> None:
        topic = topic_of(asked.topic)
        if isinstance(topic, Refusal):
            self._around.write(replies.partitions_failed(asked.request_id, topic))
        elif has_no_partitions(topic):
            self._around.write(replies.partitions(asked.request_id, 0))
        else:
            counting = partial(self._count, asked.request_id, topic, asked.may_create)
            self._start(counting, what=f"a look-up of {topic}")

    async def _count(self, request_id: int, topic: TopicName, may_create: bool) -> Command:
        """As Pulsar: a missing topic has no partitions for a client that would create it, and is created by a producer
        or a subscription, if that is allowed. This question creates only topics with partitions there, and none here.
        """
        around, count = self._around, 0
        try:
            count = await around.cluster.partitions(topic, around.caller, may_create=False)
        except TopicNotFound as error:
            if not may_create:
                return replies.partitions_failed(request_id, refusal_of(error))
        except OncelogError as error:
            return replies.partitions_failed(request_id, refusal_of(error))
        return replies.partitions(request_id, count)

    # --- lists --------------------------------------------------------------------------------------------------------

    def _get_topics(self, asked: GetTopics) -> None:
        self._start(partial(self._list, asked), what=f"the topics of {asked.namespace[:100]}")

    async def _list(self, asked: GetTopics) -> Command:
        found = await self._topic_list(asked)
        if isinstance(found, Refusal):
            return replies.error(asked.request_id, found)
        return replies.topics(asked.request_id, found)

    async def _topic_list(self, asked: GetTopics) -> TopicList | Refusal:
        around, namespace = self._around, namespace_of(asked.namespace)
        if isinstance(namespace, Refusal):
            return namespace
        try:
            topics = await around.cluster.topics_of(namespace, around.caller)
        except NamespaceNotFound:
            topics = ()  # as Pulsar: a subscription to a pattern may be there before its namespace
        except OncelogError as error:
            return refusal_of(error)
        # Those without storage are not offered, so there are none.
        listed = () if asked.kind == GetTopics.NON_PERSISTENT else topics
        return topic_list(listed, asked.hash, message_bytes_max(around.cluster.batch_bytes_max), crc32c)

    # --- schemas ------------------------------------------------------------------------------------------------------

    def _get_schema(self, asked: GetSchema) -> None:
        topic = topic_of(asked.topic)
        if isinstance(topic, Refusal):
            self._around.write(replies.schema_not_found(asked.request_id, topic))
        else:
            self._start(partial(self._find_schema, asked, topic), what=f"a schema of {topic}")

    async def _find_schema(self, asked: GetSchema, topic: TopicName) -> Command:
        around, version = self._around, asked.version if asked.HasField("version") else None
        try:
            found = await around.cluster.schemas.find(topic, around.caller, version)
        except OncelogError as error:
            return replies.schema_not_found(asked.request_id, refusal_of(error))
        return replies.schema_found(asked.request_id, found)

    def _get_or_create_schema(self, asked: GetOrCreateSchema) -> None:
        topic, schema = topic_of(asked.topic), schema_of(asked.schema)
        if isinstance(topic, Refusal):
            self._around.write(replies.schema_not_stored(asked.request_id, topic))
        elif schema is None:
            self._around.write(replies.schema_stored(asked.request_id, b""))
        else:
            self._start(partial(self._store_schema, asked.request_id, topic, schema), what=f"a schema of {topic}")

    async def _store_schema(self, request_id: int, topic: TopicName, schema: Schema) -> Command:
        around = self._around
        try:
            version = await around.cluster.schemas.store(topic, around.caller, schema)
        except OncelogError as error:
            return replies.schema_not_stored(request_id, refusal_of(error))
        return replies.schema_stored(request_id, version)
