"""The lines beside a file of effects: which of them fits the file."""

import zlib
from dataclasses import replace

import pytest

from oncelog.core.effect_errors import StoreDiverged, StoreSchemaTooNew
from oncelog.core.errors import StoreMismatch
from oncelog_effects.core.effects.ordered import Rank, Source, StoredPosition
from oncelog_effects.core.effects.side_file import (
    LINES_KEPT,
    SideFile,
    SideHeader,
    SideLine,
    check_source,
    decoded,
    encoded,
    encoded_header,
    fitting,
    shortened,
    tail_range,
)

HEADER = SideHeader("5a" * 16, Source("export", "0f" * 16, 3), "persistent/public/default/orders", "export")
DATA = bytes(range(256)) * 40
RANK = Rank(2, 0, 1)


def crc_at(length: int, data: bytes = DATA) -> int:
    first, count = tail_range(length)
    return zlib.crc32(data[first : first + count])


def line(position: int, length: int, rank: Rank = RANK) -> SideLine:
    return SideLine(StoredPosition(rank, "c1" * 16, position, f"({position},0,0)"), length, crc_at(length))


FILE = SideFile(HEADER, tuple(line(position, 100 * position) for position in range(5)))
LARGE = 2**63 - 2


def test_lines_are_read_as_they_were_written() -> None:
    """Also positions that a float would round."""
    file = SideFile(HEADER, (*FILE.lines, line(LARGE, 400, Rank(LARGE, LARGE, LARGE))))
    assert decoded(encoded(file), "side") == file
    assert decoded(b"", "side") is None


@pytest.mark.hazard("data-without-its-line")
def test_torn_last_line_is_none() -> None:
    """At any byte: its data is cut, and the batch comes again."""
    whole = encoded(FILE)
    begin = len(encoded(FILE._replace(lines=FILE.lines[:-1])))
    for end in range(begin, len(whole)):
        found = decoded(whole[:end], "side")
        assert found is not None
        assert fitting(found, 400, crc_at, "data").stored.position == 3


def test_damaged_first_line_is_refused() -> None:
    """Whose effects the file has is not guessed."""
    whole = bytearray(encoded(FILE))
    whole[20] ^= 1
    with pytest.raises(StoreDiverged, match="restore it together with its data"):
        decoded(bytes(whole), "side")


def test_later_format_is_refused() -> None:
    text = encoded_header(HEADER).partition(b" ")[2].rstrip(b"\n").replace(b'"format":1', b'"format":2')
    with pytest.raises(StoreSchemaTooNew, match="format 2"):
        decoded(b"%08x %s\n" % (zlib.crc32(text), text), "side")


@pytest.mark.hazard("data-without-its-line")
@pytest.mark.parametrize(("length", "position"), [(999, 4), (400, 4), (399, 3), (150, 1), (0, 0)])
def test_newest_line_that_the_file_has_counts(length: int, position: int) -> None:
    """More bytes than its last line: they are of a batch without a line. Fewer: a backup, or an emptied file."""
    assert fitting(FILE, length, crc_at, "data") == FILE.lines[position]


def test_claim_is_not_taken_back_with_the_position() -> None:
    newest = line(4, 400, Rank(2, 0, 9))
    file = FILE._replace(lines=(*FILE.lines, newest))
    assert fitting(file, 150, crc_at, "data").stored == replace(FILE.lines[1].stored, rank=newest.stored.rank)


def test_other_bytes_before_the_length_do_not_fit() -> None:
    """The last 4 KiB are compared."""
    changed = bytearray(DATA)
    changed[350] ^= 1
    found = fitting(FILE, 400, lambda length: crc_at(length, bytes(changed)), "data")
    assert found.stored.position == 3
    changed[50] ^= 1
    file = FILE._replace(lines=FILE.lines[1:])
    with pytest.raises(StoreDiverged, match="fit no line"):
        fitting(file, 400, lambda length: crc_at(length, bytes(changed)), "data")


def test_first_line_is_kept_with_the_newest() -> None:
    lines = tuple(line(position, position) for position in range(2 * LINES_KEPT))
    assert shortened(lines) == (lines[0], *lines[LINES_KEPT + 1 :])
    assert shortened(lines[:LINES_KEPT]) == lines[:LINES_KEPT]


@pytest.mark.hazard("two-stores-take-turns")
@pytest.mark.parametrize(
    "other",
    [
        HEADER._replace(store_id="0b" * 16), HEADER._replace(source=HEADER.source._replace(effect="audit")),
        HEADER._replace(source=HEADER.source._replace(topic_id="0e" * 16)),
        HEADER._replace(source=HEADER.source._replace(partition=4)),
    ],
)  # fmt: skip
def test_file_of_other_effects_is_refused(other: SideHeader) -> None:
    with pytest.raises(StoreMismatch, match="use another path"):
        check_source(HEADER, other, "side")
    check_source(HEADER, HEADER._replace(topic="renamed"), "side")
