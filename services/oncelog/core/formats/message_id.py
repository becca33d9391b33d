"""The identity of one message: where it is, in a form that applications can keep.

A message id names the topic by its topic_id, so an id of a topic that was deleted and created anew is not mistaken for
one of the new topic (hazard 3). Ids are ordered within one topic and part; comparing ids of two topics is a TypeError,
for it has no answer. EARLIEST is below and LATEST above every id.

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
#: The topic id of a message id that was typed, not read: it names a place in whatever topic it is used on.
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
    """The number of a message in its topic, 0 for the first one that was ever stored: where a reader may begin.

    Raises InvalidArgument unless number is an integer from 0 to 2**63 - 1.
    """

    number: int

    def __post_init__(self) -> None:
        if type(self.number) is not int or not 0 <= self.number <= _PLACE_MAX:
            raise InvalidArgument(f"an index is an integer from 0 to 2**63 - 1, not {self.number!r}", field="start")


@dataclass(frozen=True, slots=True)
class MessageId:
    """ledger_id, entry_id: the entry; batch_index: the message in it, 0-based; partition: -1 if the topic has none."""

    topic_id: TopicId
    partition: int
    ledger_id: LedgerId
    entry_id: EntryId
    batch_index: int

    @property
    def position(self) -> Position:
        return Position(self.ledger_id, self.entry_id)

    def to_bytes(self) -> bytes:
        """48 bytes that `from_bytes` reads back, in this and every later version."""
        topic = bytes.fromhex(self.topic_id) if self.topic_id else bytes(16)
        body = _LAYOUT.pack(VERSION, topic, self.partition, self.ledger_id, self.entry_id, self.batch_index)
        return body + _CRC.pack(zlib.crc32(body))

    @classmethod
    def from_bytes(cls, data: bytes) -> "MessageId":
        """Raises InvalidArgument unless `data` is what `to_bytes` gave."""
        if not isinstance(data, bytes | bytearray | memoryview):
            raise InvalidArgument(f"a message id is {ID_BYTES} bytes, not a {type(data).__name__}", field="message_id")
        if len(data) != ID_BYTES:
            raise InvalidArgument(f"a message id has {ID_BYTES} bytes", field="message_id", limit=ID_BYTES)
        body = bytes(data[: _LAYOUT.size])
        if body[0] != VERSION:
            raise InvalidArgument(
                f"a message id of version {body[0]}: this library reads version {VERSION}", field="message_id"
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
        """What is compared, once both are known to be places of one log."""
        if not isinstance(other, MessageId):
            raise TypeError(f"a message id cannot be compared with {type(other).__name__}")
        same_log = self.topic_id == other.topic_id and self.partition == other.partition
        ends = (EARLIEST, LATEST)
        if not same_log and self not in ends and other not in ends:
            raise TypeError("message ids of different topics or parts have no order")
        return (self.ledger_id, self.entry_id, self.batch_index)


#: Before the first message of any topic.
EARLIEST = MessageId(ANY_TOPIC, NO_PARTITION, LedgerId(-1), EntryId(-1), -1)
#: After the last message that is there when it is used.
LATEST = MessageId(ANY_TOPIC, NO_PARTITION, LedgerId(_PLACE_MAX), EntryId(_PLACE_MAX), _INDEX_MAX)


def _check_ranges(found: MessageId) -> None:
    if found.topic_id and _TOPIC_ID.fullmatch(found.topic_id) is None:
        raise InvalidArgument("a message id's topic id is 32 hexadecimal digits", field="message_id")
    in_range = (
        0 <= found.ledger_id < _PLACE_MAX and 0 <= found.entry_id < _PLACE_MAX and 0 <= found.batch_index < _INDEX_MAX
    )
    if not in_range or not NO_PARTITION <= found.partition <= _INDEX_MAX:
        raise InvalidArgument("a number of the message id is out of range", field="message_id")
