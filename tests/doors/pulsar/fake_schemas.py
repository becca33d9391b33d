"""The schemas of topics in memory."""

import asyncio

from oncelog.core.access import Caller
from oncelog.core.errors import LimitReached, NotFound, OncelogError
from oncelog.core.names import TopicName
from oncelog_doors.core.pulsar.schemas import FoundSchema, Schema, Schemas, Stored, decode_version, encode_version

STORED_MS = 1_764_000_000_000


class FakeSchemas:
    """Has the form of `SchemasPort`, of Pulsar's protocol and of REST. refusal: raised by each call. answers: calls
    wait until it is set."""

    def __init__(self) -> None:
        self._fold = Schemas()
        self._log: list[bytes] = []
        self.refusal: OncelogError | None = None
        self.answers = asyncio.Event()
        self.answers.set()
        self.comparisons = self.cancelled = 0

    async def store(self, topic: TopicName, caller: Caller, schema: Schema) -> bytes:
        await self._answer()
        if self._fold.version_of(str(topic), schema) is None:
            self._fold.add(Stored(str(topic), schema.type, schema.digest, len(self._log)))
            self._log.append(schema.whole)
        version = self._fold.version_of(str(topic), schema)
        assert version is not None
        return encode_version(version)

    async def compare(self, topic: TopicName, caller: Caller, schema: Schema) -> bytes | None:
        self.comparisons += 1
        await self._answer()
        version = self._fold.version_of(str(topic), schema)
        return None if version is None else encode_version(version)

    async def find(self, topic: TopicName, caller: Caller, version: bytes | None) -> FoundSchema:
        await self._answer()
        place = self._fold.place_of(str(topic), None if version is None else decode_version(version))
        if place is None:
            raise NotFound("the topic has no schema")
        return FoundSchema(encode_version(place[0]), self._log[place[1]], STORED_MS + place[1])

    async def every(self, topic: TopicName, caller: Caller, bytes_max: int) -> list[FoundSchema]:
        await self._answer()
        versions = range(self._fold.versions_of(str(topic)))
        found = [await self.find(topic, caller, encode_version(version)) for version in versions]
        if sum(len(each.schema) for each in found) > bytes_max:
            raise LimitReached("too many bytes", field="schemas", limit=bytes_max)
        return found

    async def _answer(self) -> None:
        try:
            await self.answers.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.refusal is not None:
            raise self.refusal
