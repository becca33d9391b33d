"""The schemas of namespaces in the log: each namespace that has some has a topic for them.

    key           the id of the topic that has the schema
    value         the schema as protobuf (`Schema` in proto/oncelog_doors/wire), as the client has sent it
    properties    format: 1

`core.pulsar.schemas` says which version a message is. A door reads the topic when it is asked for a schema that it does
not know, from where it stopped reading. The topic keeps its messages for ever, whatever the policies of its namespace
say. Who may publish in the namespace may store schemas. So a message that is no schema is passed over, and does no
harm; one of a later format is not, because a version would mean another schema here.
"""

import asyncio

from google.protobuf.message import DecodeError

from oncelog.client.client import AsyncClient, network_of
from oncelog.client.rest_calls import rest, topic_path
from oncelog.client.values.messages import Message
from oncelog.core.errors import LimitReached, NotFound, TopicNotFound
from oncelog.core.format_errors import UnknownFormat
from oncelog.core.formats.message_id import EARLIEST, Index, MessageId
from oncelog.core.names import NamespaceName, TopicName
from oncelog_doors.core.pulsar.schemas import (
    SCHEMAS_TOPIC,
    FoundSchema,
    Schema,
    Schemas,
    Stored,
    encode_version,
)
from oncelog_doors.wire.pulsar_values_pb2 import Schema as SchemaMessage

_FORMAT_PROPERTY, _FORMAT = "format", "1"
#: Of one call of REST.
_TIMEOUT_MS = 20_000
#: In the place of what the namespace says. TTL 0: never.
_KEPT_FOR_EVER = (("retention", {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}), ("messageTTL", 0))


class SchemaLog:
    """Of one namespace, at one door."""

    def __init__(self, client: AsyncClient, namespace: NamespaceName) -> None:
        self._client = client
        self._topic = TopicName(namespace.tenant, namespace.namespace, SCHEMAS_TOPIC)
        self._schemas = Schemas()
        #: of the message that was read last
        self._last: MessageId | None = None
        self._exists = self._is_kept = False
        self._reading = asyncio.Lock()

    async def version_of(self, topic_id: str, schema: Schema, *, stores: bool) -> int | None:
        """stores: a new schema is stored, and has a version when this returns. Else None: the topic has no such schema.
        Raises IncompatibleSchema, LimitReached, and the errors of the SDK."""
        version = self._schemas.version_of(topic_id, schema)
        if version is not None:
            return version
        async with self._reading:
            await self._read_on()
            version = self._schemas.version_of(topic_id, schema)
            if version is None and stores:
                await self._store(topic_id, schema)
                await self._read_on()
                version = self._schemas.version_of(topic_id, schema)
        return version

    async def schema(self, topic_id: str, version: int | None) -> FoundSchema:
        """version: None: the newest. Raises NotFound, and the errors of the SDK."""
        place = None if version is None else self._schemas.place_of(topic_id, version)
        if place is None:
            async with self._reading:
                await self._read_on()
            place = self._schemas.place_of(topic_id, version)
        if place is None:
            raise NotFound("the topic has no schema" if version is None else f"the topic has no schema {version}")
        return await self._at(*place)

    async def every_schema(self, topic_id: str, bytes_max: int) -> list[FoundSchema]:
        """All versions, the oldest first. bytes_max: of all of them. Raises LimitReached above it, NotFound, and the
        errors of the SDK."""
        async with self._reading:
            await self._read_on()
        found: list[FoundSchema] = []
        left = bytes_max
        for version in range(self._schemas.versions_of(topic_id)):
            found.append(await self.schema(topic_id, version))
            left -= len(found[-1].schema)
            if left < 0:
                raise LimitReached(
                    f"the schemas of the topic have more than {bytes_max} bytes: ask for single versions",
                    field="schemas", limit=bytes_max,
                )  # fmt: skip
        return found

    async def _read_on(self) -> None:
        """Read what was acknowledged before this call."""
        if not await self._is_there():
            return
        start = EARLIEST if self._last is None else self._last
        async with await self._client.create_reader(str(self._topic), start=start) as reader:
            while await reader.has_message_available():
                message = await reader.read_next()
                stored = _stored(message)
                if stored is not None:
                    self._schemas.add(stored)
                self._last = message.message_id

    async def _is_there(self) -> bool:
        """A reader would create the topic."""
        if not self._exists:
            try:
                await network_of(self._client).lookup.partitions(self._topic)
            except TopicNotFound:
                return False
            self._exists = True
        return True

    async def _store(self, topic_id: str, schema: Schema) -> None:
        await self._keep_for_ever()
        producer = await self._client.create_producer(str(self._topic))
        async with producer:
            await producer.send(schema.whole, key=topic_id, properties={_FORMAT_PROPERTY: _FORMAT})

    async def _keep_for_ever(self) -> None:
        """Each door that stores a schema does this once: the door that has created the topic may have died then."""
        if self._is_kept:
            return
        path = topic_path(self._topic)
        await rest(self._client, "PUT", path, may_exist=True, timeout_ms=_TIMEOUT_MS)
        for policy, value in _KEPT_FOR_EVER:
            await rest(self._client, "POST", f"{path}/{policy}", value, timeout_ms=_TIMEOUT_MS)
        self._is_kept = self._exists = True

    async def _at(self, version: int, number: int) -> FoundSchema:
        """number: of the message."""
        async with await self._client.create_reader(str(self._topic), start=Index(number)) as reader:
            message = await reader.read_next()
        if message.index != number:
            raise NotFound(f"message {number} of {self._topic} is not kept any more")
        return FoundSchema(encode_version(version), bytes(message.value), message.publish_time_ms)


def _stored(message: Message) -> Stored | None:
    """What a message says; None: it is no schema. Raises UnknownFormat."""
    version, value = message.properties.get(_FORMAT_PROPERTY), message.value
    if version is None or message.key is None or not isinstance(value, bytes):
        return None
    if version != _FORMAT:
        raise UnknownFormat(f"a schema has the format {version[:20]!r}, this door knows {_FORMAT}: update the door")
    try:
        found = SchemaMessage.FromString(value)
    except DecodeError:
        return None
    schema = Schema(found.type, found.data)
    return Stored(message.key.decode("utf-8", "replace"), schema.type, schema.digest, message.index)
