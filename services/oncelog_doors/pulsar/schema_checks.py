"""SUBSCRIBEs with a schema, of one connection: the schema is compared with those of the topic before the consumer is
opened. Only a producer stores a schema."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from oncelog.core.access import Caller
from oncelog.core.errors import OncelogError
from oncelog.core.names import TopicName
from oncelog.runtime.tasks import BackgroundTasks
from oncelog_doors.core.pulsar.names import topic_of
from oncelog_doors.core.pulsar.schemas import Schema, is_compared
from oncelog_doors.core.pulsar.server_errors import Refusal, refusal_of
from oncelog_doors.pulsar import replies
from oncelog_doors.pulsar.ports import ClusterPort
from oncelog_doors.wire import pulsar_values_pb2 as values
from oncelog_doors.wire.pulsar_commands_pb2 import Command, Subscribe


class Checking(Protocol):
    """What the checks need of their connection."""

    caller: Caller
    cluster: ClusterPort
    tasks: BackgroundTasks

    def write(self, answer: Command) -> None: ...


class SchemaChecks:
    """Of one connection."""

    def __init__(self, around: Checking, then: Callable[[Subscribe], None]) -> None:
        """then: called with each SUBSCRIBE whose schema fits, or that has none."""
        self._around, self._then = around, then
        #: {number of a consumer: the check of its SUBSCRIBE}
        self._open: dict[int, asyncio.Task[None]] = {}

    def subscribe(self, asked: Subscribe) -> None:
        """An earlier SUBSCRIBE of the same consumer that is still compared is dropped."""
        self.forget(asked.consumer_id)
        topic = topic_of(asked.topic)
        schema = schema_of(asked.schema) if asked.HasField("schema") else None
        if schema is None or isinstance(topic, Refusal):
            self._then(asked)
            return
        checking = self._around.tasks.start(self._check(asked, topic, schema), what=f"the schema of {topic}")
        self._open[asked.consumer_id] = checking

    def forget(self, consumer_id: int) -> None:
        """The client closes this consumer."""
        task = self._open.pop(consumer_id, None)
        if task is not None:
            task.cancel()

    def close(self) -> None:
        for consumer_id in list(self._open):
            self.forget(consumer_id)

    async def _check(self, asked: Subscribe, topic: TopicName, schema: Schema) -> None:
        around = self._around
        try:
            await around.cluster.schemas.compare(topic, around.caller, schema)
        except OncelogError as error:
            around.write(replies.error(asked.request_id, refusal_of(error)))
        else:
            self._then(asked)
        self._open.pop(asked.consumer_id, None)


def schema_of(given: values.Schema) -> Schema | None:
    """None: it says nothing about the bytes of messages."""
    return Schema(given.type, given.data, given.SerializeToString()) if is_compared(given.type) else None
