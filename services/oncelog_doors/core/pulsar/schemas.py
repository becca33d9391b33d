"""Schemas of topics, as clients of Pulsar register them. A door keeps them; it does not read them.

The schemas of a namespace are messages in one topic of their own, and this module is its fold:

    key                         the id of the topic that has the schema; its partitions have it together
    value                       the type and the bytes of the schema
    version                     0, 1, 2, … of each topic, in the order of the log

The first schema of a topic decides the type of all of them. A schema of another type, or with the bytes of an earlier
one, is passed over. So it does no harm that two doors store the same schema at once, or that one stores it twice: each
door reads the log up to its own message, and both find the same version. That needs no producer of a certain name.

Whether readers of one version can read messages of another one is not judged.
"""

from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple

from oncelog.core.errors import Fatal, LimitReached, NotFound

#: Last element of the topic's name.
SCHEMAS_TOPIC = "__oncelog_schemas"
#: Of one topic. Each takes some hundred bytes at each door.
VERSIONS_MAX = 1_000
_VERSION_BYTES = 8
#: Their numbers are Pulsar's.
TYPES = (
    "NONE", "STRING", "JSON", "PROTOBUF", "AVRO", "BOOLEAN", "INT8", "INT16", "INT32", "INT64", "FLOAT", "DOUBLE",
    "DATE", "TIME", "TIMESTAMP", "KEY_VALUE", "INSTANT", "LOCAL_DATE", "LOCAL_TIME", "LOCAL_DATE_TIME",
    "PROTOBUF_NATIVE", "AUTO_CONSUME",
)  # fmt: skip
#: The type of a consumer that takes any schema.
_AUTO_CONSUME = TYPES.index("AUTO_CONSUME")


class IncompatibleSchema(Fatal):
    """The topic has schemas of another type."""


class Schema(NamedTuple):
    """type: its number in Pulsar's protocol. whole: the schema as the client has sent it, with its name and
    properties. data: the definition in it, which is what clients compare."""

    type: int
    data: bytes
    whole: bytes = b""

    @property
    def digest(self) -> bytes:
        return sha256(self.data).digest()


class FoundSchema(NamedTuple):
    """schema: as its client has sent it. stored_ms: when a door has stored it, since 1970."""

    version: bytes
    schema: bytes
    stored_ms: int = 0


class Stored(NamedTuple):
    """A message of the topic of schemas. number: its index there."""

    topic_id: str
    type: int
    digest: bytes
    number: int


@dataclass(slots=True)
class _OfTopic:
    type: int
    #: {digest: version}
    versions: dict[bytes, int] = field(default_factory=dict)
    #: of the message of each version
    numbers: list[int] = field(default_factory=list)


class Schemas:
    """Of one namespace, as far as its log was read."""

    def __init__(self) -> None:
        self._topics: dict[str, _OfTopic] = {}

    def add(self, stored: Stored) -> None:
        """The next message of the log."""
        found = self._topics.setdefault(stored.topic_id, _OfTopic(stored.type))
        if found.type == stored.type and stored.digest not in found.versions and len(found.numbers) < VERSIONS_MAX:
            found.versions[stored.digest] = len(found.numbers)
            found.numbers.append(stored.number)

    def version_of(self, topic_id: str, schema: Schema) -> int | None:
        """None: the topic has no such schema. Raises IncompatibleSchema, and LimitReached for a new schema above the
        limit."""
        found = self._topics.get(topic_id)
        if found is None:
            return None
        if found.type != schema.type:
            raise IncompatibleSchema(
                f"the schema is of type {type_name(schema.type)}, and the topic has schemas of type "
                f"{type_name(found.type)}: use this type, or another topic"
            )
        version = found.versions.get(schema.digest)
        if version is None and len(found.numbers) >= VERSIONS_MAX:
            raise LimitReached(f"the topic has {VERSIONS_MAX} schemas, the maximum", field="schema", limit=VERSIONS_MAX)
        return version

    def place_of(self, topic_id: str, version: int | None) -> tuple[int, int] | None:
        """(version, number of its message) of a version; None: of the newest. Returns None if there is none."""
        found = self._topics.get(topic_id)
        if found is None:
            return None
        wanted = len(found.numbers) - 1 if version is None else version
        return (wanted, found.numbers[wanted]) if 0 <= wanted < len(found.numbers) else None

    def versions_of(self, topic_id: str) -> int:
        """How many the topic has: 0, 1, 2, … below this number."""
        found = self._topics.get(topic_id)
        return 0 if found is None else len(found.numbers)


def is_compared(schema_type: int) -> bool:
    """Whether a schema of this type says something about the bytes of messages."""
    return schema_type > 0 and schema_type != _AUTO_CONSUME


def type_name(schema_type: int) -> str:
    """As Pulsar writes it."""
    return TYPES[schema_type] if 0 <= schema_type < len(TYPES) else f"number {schema_type}"


def encode_version(version: int) -> bytes:
    """As clients have it: a number of 8 bytes, the highest byte first."""
    return version.to_bytes(_VERSION_BYTES, "big")


def decode_version(data: bytes) -> int:
    """Raises NotFound for bytes that no door has given."""
    if len(data) != _VERSION_BYTES:
        raise NotFound(f"a version of a schema has {_VERSION_BYTES} bytes, not {len(data)}", field="version")
    return int.from_bytes(data, "big")
