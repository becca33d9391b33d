"""What the REST port of a door needs of the cluster."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from oncelog.core.access import Caller
from oncelog.core.ids import Position
from oncelog.core.names import TopicName
from oncelog_doors.core.pulsar.deliveries import Delivery
from oncelog_doors.core.pulsar.message_ids import DeliveredId
from oncelog_doors.core.pulsar.schemas import FoundSchema, Schema


class RestAnswer(NamedTuple):
    """Of this cluster's REST. headers: lower-case names."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = {}


class RestPort(Protocol):
    """REST of the cluster."""

    async def ask(
        self, method: str, target: str, body: bytes, *, headers: Mapping[str, str], authorization: str | None
    ) -> RestAnswer:
        """One request with the rights of this header, and no others. Raises OncelogError."""


class EntriesPort(Protocol):
    """Entries of topics without partitions, as clients of Pulsar are sent them. All raise PermissionDenied for a caller
    that may not read, and OncelogError."""

    async def at(self, topic: TopicName, caller: Caller, position: Position) -> Delivery | None:
        """None: no message is stored there."""

    async def last_id(self, topic: TopicName, caller: Caller) -> DeliveredId | None:
        """Of the last message; None: the topic has none."""


class SchemasPort(Protocol):
    """The schemas of topics, which the partitions of a topic have together. A version has eight bytes. All raise
    PermissionDenied, TopicNotFound and OncelogError."""

    async def store(self, topic: TopicName, caller: Caller, schema: Schema) -> bytes:
        """The version of a schema, which is stored if it is new. Raises IncompatibleSchema, LimitReached."""

    async def compare(self, topic: TopicName, caller: Caller, schema: Schema) -> bytes | None:
        """The version of a schema; None: the topic does not have it. Raises IncompatibleSchema."""

    async def find(self, topic: TopicName, caller: Caller, version: bytes | None) -> FoundSchema:
        """version: None: the newest. Raises NotFound."""

    async def every(self, topic: TopicName, caller: Caller, bytes_max: int) -> Sequence[FoundSchema]:
        """All of them, the oldest first. Raises LimitReached if they have more bytes together."""


class LogPort(Protocol):
    """The log, with the rights of the door: each call names the caller, whose rights apply."""

    @property
    def entries(self) -> EntriesPort: ...

    @property
    def schemas(self) -> SchemasPort: ...
