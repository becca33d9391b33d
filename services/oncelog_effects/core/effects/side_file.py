"""The side file of `FileEffects`: who may append to a file, and which of its bytes are effects.

    PATH               the bytes that the application's function appends
    PATH.oncelog       text: one line for the source, then one line for each claim and each batch; the last one counts
    PATH.oncelog.lock  locked for each claim and each batch; the process id of its holder

    a line: CRC32 of the rest as 8 hexadecimal digits, a space, JSON, line feed
    first   an object: format (1), store, effect, topic_id, partition, topic, subscription
    others  [subscription number, redo epoch, generation, claim, position, last message, pending dead, length, CRC of
            the end]

Rules
- A batch is in the file when its line is. The data is synced before the line is written, and the line before anything
  is acknowledged (hazard data-without-its-line).
- Bytes behind the length of the last line are of a batch without a line: they are cut, and the batch comes again.
- The file may be older than its line: a backup of it alone, a disk that lost writes. Then the newest line counts whose
  length the file has and whose bytes are before it. What the file lacks is delivered again.
- No line fits: the file is not the one that the lines were written for. That is an error, never a new beginning.
- The rank is the newest line's, also if an older line has the position: a claim is never taken back.
- A line that cannot be read is none: at the end it was torn by a crash.
- The file of lines is written anew, by rename, at each claim, with the first line and the newest ones: an error of its
  last sync is void then, and it stays small. The first line fits a file that the user has emptied, so that everything
  is delivered again.
"""

import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from oncelog.core.effect_errors import StoreDiverged, StoreSchemaTooNew
from oncelog.core.errors import StoreMismatch
from oncelog_effects.core.effects.ordered import Rank, Source, StoredPosition

FORMAT = 1
#: How much before the length of a line its checksum covers.
TAIL_BYTES = 4096
#: Lines that are kept when the file of lines is written anew, and its size at which a batch does it, too.
LINES_KEPT = 1000
SIDE_BYTES_MAX = 1 << 20


class SideHeader(NamedTuple):
    """Whose effects the file has. topic, subscription: for people."""

    store_id: str
    source: Source
    topic: str
    subscription: str


@dataclass(frozen=True, slots=True)
class SideLine:
    """stored: as of this line. length: bytes of the file. tail_crc: CRC32 of up to TAIL_BYTES before the length."""

    stored: StoredPosition
    length: int
    tail_crc: int


class SideFile(NamedTuple):
    """lines: the oldest first."""

    header: SideHeader
    lines: tuple[SideLine, ...]


def encoded_header(header: SideHeader) -> bytes:
    source = header.source
    fields = {
        "format": FORMAT, "store": header.store_id, "effect": source.effect, "topic_id": source.topic_id,
        "partition": source.partition, "topic": header.topic, "subscription": header.subscription,
    }  # fmt: skip
    return _line(fields)


def encoded_line(line: SideLine) -> bytes:
    stored = line.stored
    row = (stored.claim, stored.position, stored.last_message, stored.pending_dead)
    return _line([*stored.rank, *row, line.length, line.tail_crc])


def shortened(lines: tuple[SideLine, ...]) -> tuple[SideLine, ...]:
    """The first line, which fits a file that was emptied, and the newest ones."""
    return lines if len(lines) <= LINES_KEPT else (lines[0], *lines[1 - LINES_KEPT :])


def encoded(file: SideFile) -> bytes:
    return encoded_header(file.header) + b"".join(map(encoded_line, file.lines))


def decoded(data: bytes, place: str) -> SideFile | None:
    """None: nothing was written yet. Raises StoreDiverged, StoreSchemaTooNew."""
    texts = data.split(b"\n")
    found = [parsed for parsed in map(_parsed, texts[:-1]) if parsed is not None]  # behind the last feed: torn
    if not data:
        return None
    if not found or not isinstance(found[0], dict):
        raise StoreDiverged(
            f"{place} does not begin with a line that can be read: restore it together with its data from a backup"
        )
    fields = found[0]
    if fields["format"] != FORMAT:
        raise StoreSchemaTooNew(
            f"{place} has format {fields['format']}, and this library reads {FORMAT}: upgrade oncelog"
        )
    source = Source(fields["effect"], fields["topic_id"], fields["partition"])
    header = SideHeader(fields["store"], source, fields["topic"], fields["subscription"])
    return SideFile(header, tuple(_side_line(parsed) for parsed in found[1:]))


def check_source(header: SideHeader, wanted: SideHeader, place: str) -> None:
    """Raises StoreMismatch."""
    if (header.store_id, header.source) != (wanted.store_id, wanted.source):
        raise StoreMismatch(
            f"{place} has the effects {header.source.effect} of {header.topic} (topic id {header.source.topic_id}, "
            f"store {header.store_id}), and this process has the effects {wanted.source.effect} of {wanted.topic} "
            f"(topic id {wanted.source.topic_id}, store {wanted.store_id}): use another path; for a topic with "
            "partitions, one with {partition}"
        )


def fitting(file: SideFile, length: int, tail_crc_at: Callable[[int], int], place: str) -> SideLine:
    """The newest line whose bytes the file has, with the rank of the newest line.

    length: of the file now. tail_crc_at: CRC32 of up to TAIL_BYTES before this length. Raises StoreDiverged.
    """
    for line in reversed(file.lines):
        if line.length <= length and tail_crc_at(line.length) == line.tail_crc:
            return replace(line, stored=replace(line.stored, rank=file.lines[-1].stored.rank))
    raise StoreDiverged(
        f"{place} has {length} bytes, and they fit no line of its side file, of which the last one has "
        f"{file.lines[-1].length} bytes: restore both files from one backup; or, to have every effect again, empty the "
        "file, and start again"
    )


def tail_range(length: int) -> tuple[int, int]:
    """Offset and number of the bytes that `tail_crc` covers."""
    first = max(0, length - TAIL_BYTES)
    return first, length - first


def _line(fields: object) -> bytes:
    text = json.dumps(fields, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _parsed(text: bytes) -> Any:
    """None: it is damaged."""
    checksum, _, fields = text.partition(b" ")
    if checksum != b"%08x" % zlib.crc32(fields):
        return None
    return json.loads(fields)


def _side_line(fields: Any) -> SideLine:
    number, redo_epoch, generation, claim, position, last_message, pending_dead, length, tail_crc = fields
    rank = Rank(number, redo_epoch, generation)
    return SideLine(StoredPosition(rank, claim, position, last_message, pending_dead), length, tail_crc)
