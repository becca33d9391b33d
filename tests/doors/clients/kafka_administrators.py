"""Administrators by client libraries of Kafka, in one form for all of them. They block: run them in a thread.

Each call returns Kafka's error code, 0 for success.
"""

import asyncio
import re
import warnings
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from aiokafka import TopicPartition as AioPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewPartitions as AioPartitions
from aiokafka.admin import NewTopic as AioTopic
from aiokafka.admin.config_resource import ConfigResource as AioResource
from aiokafka.admin.config_resource import ConfigResourceType as AioResourceType
from aiokafka.admin.records_to_delete import RecordsToDelete
from aiokafka.errors import BrokerResponseError
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it does not declare what it exports
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

with warnings.catch_warnings():
    # Of importlib.resources, where kafka-python reads its definitions.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient
    from kafka import TopicPartition as PythonPartition
    from kafka.admin import ConfigResource as PythonResource
    from kafka.admin import ConfigResourceType as PythonResourceType
    from kafka.admin import NewPartitions as PythonPartitions
    from kafka.admin import NewTopic as PythonTopic
    from kafka.errors import KafkaError as PythonError

DEADLINE_S = 60


class Administrator(Protocol):
    def create(self, topic: str, partitions: int, configs: Mapping[str, str] = {}) -> int: ...

    def partitions(self, topic: str) -> int: ...

    def configs(self, topic: str) -> Mapping[str, str]: ...

    def set_config(self, topic: str, name: str, value: str) -> int: ...

    def grow(self, topic: str, partitions: int) -> int: ...

    def delete_records(self, topic: str, offset: int) -> int:
        """The first offset of partition 0 afterwards."""

    def delete(self, topic: str) -> int: ...

    def close(self) -> None: ...


class WithConfluent:
    def __init__(self, servers: str) -> None:
        self._client = AdminClient({"bootstrap.servers": servers})

    @staticmethod
    def _code(futures: Mapping[Any, Any]) -> int:
        [future] = futures.values()
        try:
            future.result(DEADLINE_S)
        except KafkaException as error:
            return int(error.args[0].code())
        return 0

    def create(self, topic: str, partitions: int, configs: Mapping[str, str] = {}) -> int:
        return self._code(self._client.create_topics([NewTopic(topic, partitions, 3, config=dict(configs))]))

    def partitions(self, topic: str) -> int:
        return len(self._client.list_topics(timeout=DEADLINE_S).topics[topic].partitions)

    def configs(self, topic: str) -> Mapping[str, str]:
        [future] = self._client.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
        return {name: entry.value for name, entry in future.result(DEADLINE_S).items()}

    def set_config(self, topic: str, name: str, value: str) -> int:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        return self._code(self._client.incremental_alter_configs([resource]))

    def grow(self, topic: str, partitions: int) -> int:
        return self._code(self._client.create_partitions([NewPartitions(topic, partitions)]))

    def delete_records(self, topic: str, offset: int) -> int:
        [future] = self._client.delete_records([TopicPartition(topic, 0, offset)]).values()
        return int(future.result(DEADLINE_S).low_watermark)

    def delete(self, topic: str) -> int:
        return self._code(self._client.delete_topics([topic]))

    def close(self) -> None:
        pass


class WithKafkaPython:
    def __init__(self, servers: str) -> None:
        self._client = KafkaAdminClient(bootstrap_servers=servers)

    @staticmethod
    def _code(ask: Callable[[], Any]) -> int:
        try:
            ask()
        except PythonError as error:
            return int(error.errno)
        return 0

    def create(self, topic: str, partitions: int, configs: Mapping[str, str] = {}) -> int:
        new = PythonTopic(topic, partitions, 3, topic_configs=dict(configs))
        return self._code(lambda: self._client.create_topics([new]))

    def partitions(self, topic: str) -> int:
        [found] = self._client.describe_topics([topic])
        return len(found["partitions"])

    def configs(self, topic: str) -> Mapping[str, str]:
        resource = PythonResource(PythonResourceType.TOPIC, topic)
        found = self._client.describe_configs([resource], config_filter="all")
        return {name: each["value"] for name, each in found["topic"][topic].items()}

    def set_config(self, topic: str, name: str, value: str) -> int:
        resource = PythonResource(PythonResourceType.TOPIC, topic, configs={name: value})
        found = self._client.alter_configs([resource], raise_on_unknown=False)
        result = found["topic"][topic]
        refused = re.match(r"\[Error ([0-9]+)\]", result)
        assert result == "OK" or refused is not None, result
        return int(refused[1]) if refused else 0

    def grow(self, topic: str, partitions: int) -> int:
        return self._code(lambda: self._client.create_partitions({topic: PythonPartitions(partitions)}))

    def delete_records(self, topic: str, offset: int) -> int:
        partition = PythonPartition(topic, 0)
        return int(self._client.delete_records({partition: offset})[partition]["low_watermark"])

    def delete(self, topic: str) -> int:
        return self._code(lambda: self._client.delete_topics([topic]))

    def close(self) -> None:
        self._client.close()


class WithAiokafka:
    """A client for each call: its event loop ends with it."""

    def __init__(self, servers: str) -> None:
        self._servers = servers

    def _asked(self, ask: Callable[[AIOKafkaAdminClient], Awaitable[Any]]) -> Any:
        async def steps() -> Any:
            client = AIOKafkaAdminClient(bootstrap_servers=self._servers)
            await client.start()
            try:
                return await ask(client)
            finally:
                await client.close()

        return asyncio.run(steps())

    def create(self, topic: str, partitions: int, configs: Mapping[str, str] = {}) -> int:
        new = AioTopic(topic, partitions, 3, topic_configs=dict(configs))
        return int(self._asked(lambda client: client.create_topics([new])).topic_errors[0][1])

    def partitions(self, topic: str) -> int:
        [found] = self._asked(lambda client: client.describe_topics([topic]))
        return len(found["partitions"])

    def configs(self, topic: str) -> Mapping[str, str]:
        resource = AioResource(AioResourceType.TOPIC, topic)
        [answer] = self._asked(lambda client: client.describe_configs([resource]))
        return {each[0]: each[1] for each in answer.resources[0][4]}

    def set_config(self, topic: str, name: str, value: str) -> int:
        """It replaces all."""
        resource = AioResource(AioResourceType.TOPIC, topic, configs={name: value})
        answer = self._asked(lambda client: client.alter_configs([resource]))[0]
        return int(answer.resources[0][0])

    def grow(self, topic: str, partitions: int) -> int:
        try:
            self._asked(lambda client: client.create_partitions({topic: AioPartitions(partitions)}))
        except BrokerResponseError as error:
            return int(error.errno)
        return 0

    def delete_records(self, topic: str, offset: int) -> int:
        partition = AioPartition(topic, 0)
        return int(self._asked(lambda client: client.delete_records({partition: RecordsToDelete(offset)}))[partition])

    def delete(self, topic: str) -> int:
        answer = self._asked(lambda client: client.delete_topics([topic]))
        return int(answer.topic_error_codes[0][1])

    def close(self) -> None:
        pass


ADMINISTRATORS: Mapping[str, Callable[[str], Administrator]] = {
    "confluent-kafka": WithConfluent,
    "kafka-python": WithKafkaPython,
    "aiokafka": WithAiokafka,
}
