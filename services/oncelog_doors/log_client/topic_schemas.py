"""The schemas of topics, in the forms that a door needs (`SchemasPort` of `pulsar.ports` and of `rest.ports`): by the
names of topics, with the rights of the caller."""

from oncelog.client.client import AsyncClient, network_of
from oncelog.core.access import Caller, Right
from oncelog.core.errors import InvariantViolated, TopicNotFound
from oncelog.core.names import NamespaceName, TopicName
from oncelog_doors.core.pulsar.schemas import FoundSchema, Schema, decode_version, encode_version
from oncelog_doors.core.shared.reading_rights import require_right
from oncelog_doors.log_client.namespace_grants import NamespaceGrants
from oncelog_doors.log_client.schema_log import SchemaLog


class TopicSchemas:
    """Of one door. client: with a token of a superuser, if the cluster wants tokens."""

    def __init__(self, client: AsyncClient, grants: NamespaceGrants) -> None:
        self._client, self._grants = client, grants
        #: of namespaces that were asked for
        self._logs: dict[NamespaceName, SchemaLog] = {}

    async def store(self, topic: TopicName, caller: Caller, schema: Schema) -> bytes:
        await self._require(topic, caller, Right.PRODUCE)
        version = await self._log(topic).version_of(await self._topic_id(topic), schema, stores=True)
        if version is None:
            raise InvariantViolated(f"a schema of {topic} was stored, and is not in the log")
        return encode_version(version)

    async def compare(self, topic: TopicName, caller: Caller, schema: Schema) -> bytes | None:
        await self._require(topic, caller, Right.PRODUCE, Right.CONSUME)
        try:
            topic_id = await self._topic_id(topic)
        except TopicNotFound:
            return None  # a topic that does not exist has no schemas
        version = await self._log(topic).version_of(topic_id, schema, stores=False)
        return None if version is None else encode_version(version)

    async def find(self, topic: TopicName, caller: Caller, version: bytes | None) -> FoundSchema:
        await self._require(topic, caller, Right.PRODUCE, Right.CONSUME)
        wanted = None if version is None else decode_version(version)
        return await self._log(topic).schema(await self._topic_id(topic), wanted)

    async def every(self, topic: TopicName, caller: Caller, bytes_max: int) -> list[FoundSchema]:
        await self._require(topic, caller, Right.PRODUCE, Right.CONSUME)
        return await self._log(topic).every_schema(await self._topic_id(topic), bytes_max)

    async def _require(self, topic: TopicName, caller: Caller, *rights: Right) -> None:
        if not caller.superuser:
            namespace = topic.namespace_name
            require_right(caller, await self._grants.of(str(namespace)), namespace, *rights)

    async def _topic_id(self, topic: TopicName) -> str:
        """Of a partition: that of the whole topic, because the partitions have their schemas together."""
        lookup = network_of(self._client).lookup
        try:
            return await lookup.topic_id(TopicName(topic.tenant, topic.namespace, topic.local))
        except TopicNotFound:
            if topic.partition is None:
                raise
            return await lookup.topic_id(topic)

    def _log(self, topic: TopicName) -> SchemaLog:
        namespace = topic.namespace_name
        if namespace not in self._logs:
            self._logs[namespace] = SchemaLog(self._client, namespace)
        return self._logs[namespace]
