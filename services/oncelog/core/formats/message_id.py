"""Message ids: the position of a message in a topic, in a form that applications can store.

A message id contains the topic's topic_id, so an id of a deleted topic is not mistaken for one of a new topic with the
same name (hazard recreated-topic). The ids of one topic or partition are ordered; comparing ids of two topics raises
TypeError. EARLIEST is below and LATEST above every id.

Bytes, little-endian, 48 in all: version 1 (1), zero (3), topic id (16, zeros when not stated), partition (4, -1 none),
ledger id (8), entry id (8), batch index (4), CRC-32 of the 44 before it (4).
"""

import re
import zlib
from dataclasses import dataclass
from struct import Struct

from oncelog.core.errors import InvalidArgument
from oncelog.core.ids import EntryId, LedgerId, Position, TopicId

VERSION = 1
NO_PARTITION = -1
#: The topic id of a message id that was parsed from text: it applies to any topic.
ANY_TOPIC = TopicId("")
_LAYOUT = Struct("<B3x16siqqi")
_CRC = Struct("<I")
ID_BYTES = _LAYOUT.size + _CRC.size
assert ID_BYTES == 48
_PLACE_MAX = 2**63 - 1
_INDEX_MAX = 2**31 - 1
_TEXT = re.compile(r"([0-9]{1,19}):([0-9]{1,19})(?::([0-9]{1,10}))?", re.ASCII)
_TOPIC_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Index:
    """The number of a message in its topic, as the start of a reader. The first message ever stored has number 0.

    Raises InvalidArgument unless number is an integer from 0 to 2**63 - 1.
    """

    number: int

    def __post_init__(self) -> None:
        if type(self.number) is not int or not 0 <= self.number <= _PLACE_MAX:
            raise InvalidArgument(f"Index needs an integer from 0 to 2**63 - 1, not {self.number!r}", field="start")


@dataclass(frozen=True, slots=True)
class MessageId:
    """The position of one message.

    Attributes:
        topic_id: UUID hex of the topic; empty for an id parsed from text.
        partition: the partition's number; -1 for a topic that is not partitioned.
        ledger_id, entry_id: the log entry that holds the message.
        batch_index: the message's index in that entry, from 0.
    """

    topic_id: TopicId
    partition: int
    ledger_id: LedgerId
    entry_id: EntryId
    batch_index: int

    @property
    def position(self) -> Position:
        return Position(self.ledger_id, self.entry_id)

    def to_bytes(self) -> bytes:
        """48 bytes for `from_bytes`, readable by this and all later versions."""
        topic = bytes.fromhex(self.topic_id) if self.topic_id else bytes(16)
        body = _LAYOUT.pack(VERSION, topic, self.partition, self.ledger_id, self.entry_id, self.batch_index)
        return body + _CRC.pack(zlib.crc32(body))

    @classmethod
    def from_bytes(cls, data: bytes) -> "MessageId":
        """The id that `to_bytes` encoded. Raises InvalidArgument for any other bytes."""
        if not isinstance(data, bytes | bytearray | memoryview):
            raise InvalidArgument(f"a message id is {ID_BYTES} bytes, not a {type(data).__name__}", field="message_id")
        if len(data) != ID_BYTES:
            raise InvalidArgument(f"a message id has {ID_BYTES} bytes", field="message_id", limit=ID_BYTES)
        body = bytes(data[: _LAYOUT.size])
        if body[0] != VERSION:
            raise InvalidArgument(
                f"message id of version {body[0]}; this library reads version {VERSION}", field="message_id"
            )
        if _CRC.unpack_from(data, _LAYOUT.size)[0] != zlib.crc32(body):
            raise InvalidArgument("the bytes are not a message id: their checksum differs", field="message_id")
        _version, topic, partition, ledger_id, entry_id, batch_index = _LAYOUT.unpack(body)
        found = cls(TopicId(topic.hex()) if any(topic) else ANY_TOPIC, partition, ledger_id, entry_id, batch_index)
        if found not in (EARLIEST, LATEST):
            _check_ranges(found)
        return found

    @classmethod
    def parse(cls, text: str, *, topic_id: TopicId = ANY_TOPIC, partition: int = NO_PARTITION) -> "MessageId":
        """Read `ledger:entry:batch_index` (or `ledger:entry`, `earliest`, `latest`). Raises InvalidArgument."""
        if text in {"earliest", "latest"}:
            return EARLIEST if text == "earliest" else LATEST
        match = _TEXT.fullmatch(text)
        if match is None:
            raise InvalidArgument(
                "a message id is `ledger:entry:batch_index`, `earliest` or `latest`", field="message_id"
            )
        ledger_id, entry_id, batch_index = int(match[1]), int(match[2]), int(match[3] or 0)
        found = cls(topic_id, partition, LedgerId(ledger_id), EntryId(entry_id), batch_index)
        _check_ranges(found)
        return found

    def __str__(self) -> str:
        if self in (EARLIEST, LATEST):
            return "earliest" if self == EARLIEST else "latest"
        return f"{self.ledger_id}:{self.entry_id}:{self.batch_index}"

    def __lt__(self, other: "MessageId") -> bool:
        return self._place(other) < other._place(self)

    def __le__(self, other: "MessageId") -> bool:
        return self._place(other) <= other._place(self)

    def __gt__(self, other: "MessageId") -> bool:
        return self._place(other) > other._place(self)

    def __ge__(self, other: "MessageId") -> bool:
        return self._place(other) >= other._place(self)

    def _place(self, other: "MessageId") -> tuple[int, int, int]:
        """The values to compare. Raises TypeError when the ids belong to different logs."""
        if not isinstance(other, MessageId):
            raise TypeError(f"a message id cannot be compared with {type(other).__name__}")
        same_log = self.topic_id == other.topic_id and self.partition == other.partition
        ends = (EARLIEST, LATEST)
        if not same_log and self not in ends and other not in ends:
            raise TypeError("message ids of different topics or partitions cannot be compared")
        return (self.ledger_id, self.entry_id, self.batch_index)


#: Before the first message of any topic.
EARLIEST = MessageId(ANY_TOPIC, NO_PARTITION, LedgerId(-1), EntryId(-1), -1)
#: After the last message stored when it is used.
LATEST = MessageId(ANY_TOPIC, NO_PARTITION, LedgerId(_PLACE_MAX), EntryId(_PLACE_MAX), _INDEX_MAX)


def _check_ranges(found: MessageId) -> None:
    if found.topic_id and _TOPIC_ID.fullmatch(found.topic_id) is None:
        raise InvalidArgument("a message id's topic id is 32 hexadecimal digits", field="message_id")
    in_range = (
        0 <= found.ledger_id < _PLACE_MAX and 0 <= found.entry_id < _PLACE_MAX and 0 <= found.batch_index < _INDEX_MAX
    )
    if not in_range or not NO_PARTITION <= found.partition <= _INDEX_MAX:
        raise InvalidArgument("a number of the message id is out of range", field="message_id")
