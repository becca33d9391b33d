"""The file of a copy: what is written is read back, and anything else is refused."""

import io
import os
import struct
import tracemalloc
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.core.era import FIRST_ERA, Era
from oncelog.core.errors import InvalidArgument
from oncelog.metadata_store.copies.copy_file import (
    CHUNK_BYTES,
    CHUNK_BYTES_MAX,
    MAGIC,
    PATH_BYTES_MAX,
    CopiedRecord,
    CopyHeader,
    CopyWriter,
    _Seal,
    read_copy,
)
from oncelog.metadata_store.copies.copy_keys import KEYS_MAX, CopyKey, read_keys

OLD, NEW = CopyKey(b"o" * 32), CopyKey(b"n" * 32)
HEADER = CopyHeader("c" * 32, Era(2, "ab" * 16), 8, 1_700_000_000_000)
RECORDS = [
    CopiedRecord("/cluster", b'{"era":2}', 3, 17),
    CopiedRecord("/names/public/default/päper", b"", 0, 2**40),
    *(CopiedRecord(f"/ledgers/{one}", os.urandom(300)) for one in range(6_000)),
]


def written(records: list[CopiedRecord], key: CopyKey | None, header: CopyHeader = HEADER) -> bytes:
    parts: list[bytes] = []
    writer = CopyWriter(header, key, parts.append)
    writer.add(records)
    writer.finish()
    return b"".join(parts)


def refusal(data: bytes, *keys: CopyKey) -> str:
    with pytest.raises(InvalidArgument) as refused:
        read_copy(io.BytesIO(data), keys)
    return str(refused.value)


@pytest.mark.parametrize("key", [None, NEW])
def test_a_copy_is_read_back(key: CopyKey | None) -> None:
    """Of several chunks; with the newest key, when the reader knows older ones, too."""
    data = written(RECORDS, key)
    copy = read_copy(io.BytesIO(data), () if key is None else (OLD, NEW))
    assert list(copy.records.values()) == RECORDS
    assert copy.header.era == HEADER.era
    assert copy.header.authenticated == (key is not None)
    assert copy.manifest.records == {"cluster": 1, "ledgers": 6_000, "names": 1}
    assert copy.manifest.chunks == 2
    assert (b"ledgers/5999" in data, HEADER.cluster_id.encode() in data) == (False, True)


@pytest.mark.hazard("half-a-copy")
@pytest.mark.parametrize("key", [None, NEW])
def test_half_a_copy_is_refused_wherever_it_ends(key: CopyKey | None) -> None:
    """A walk that stopped in /topics, or an upload that broke, must not say that the other records did not exist."""
    data = written(RECORDS[:4], key)
    keys = () if key is None else (key,)
    for end in range(len(data)):
        assert "half a copy" in refusal(data[:end], *keys)
    assert "bytes follow" in refusal(data + b"\0", *keys)


@pytest.mark.hazard("half-a-copy")
@pytest.mark.parametrize("key", [None, NEW])
def test_a_copy_with_a_part_missing_or_moved_is_refused(key: CopyKey | None) -> None:
    """Chunks are bound to their place and to their file."""
    keys = () if key is None else (key,)
    start, *parts = split(written(RECORDS, key))
    other_start, *other_parts = split(written(RECORDS, key, CopyHeader("d" * 32, FIRST_ERA, 8, 5)))
    assert len(parts) == 3
    assert other_start != start
    for forged in (
        [parts[0], parts[2]],
        [parts[1], parts[0], parts[2]],
        [parts[0], parts[0], parts[1], parts[2]],
        [parts[0], other_parts[1], parts[2]],
        [parts[2]],
    ):
        assert "damaged" in refusal(b"".join([start, *forged]), *keys)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 255), st.booleans())
def test_a_changed_byte_is_noticed(place: int, change: int, encrypted: bool) -> None:
    data = bytearray(written(RECORDS[:30], NEW if encrypted else None))
    data[place % len(data)] ^= change
    refusal(bytes(data), *([NEW] if encrypted else []))


def test_a_copy_of_an_unknown_key_is_refused_with_the_id_of_the_key() -> None:
    assert f"encrypted with key {NEW.key_id}, and the given keys are: {OLD.key_id}" in refusal(written([], NEW), OLD)


def test_a_reader_with_keys_refuses_a_copy_that_anybody_can_write() -> None:
    """Otherwise whoever can write to the directory of copies replaces rights."""
    data = written(RECORDS[:3], None)
    assert "it may be forged" in refusal(data, NEW)
    assert len(read_copy(io.BytesIO(data), (NEW,), accept_unauthenticated=True).records) == 3


def test_a_hostile_file_is_refused_with_little_memory() -> None:
    """A chunk that decompresses to 128 MiB, lengths of 4 GiB, and what is no copy at all."""
    start = split(written([], None))[0]
    seal = _Seal(start[len(MAGIC) + 4 :], None)
    squeezer = zlib.compressobj()
    bomb = b"".join(squeezer.compress(bytes(CHUNK_BYTES)) for _ in range(128)) + squeezer.flush()
    tracemalloc.start()
    try:
        assert f"more than {CHUNK_BYTES_MAX} bytes" in refusal(start + part(seal, bomb))
        assert "4294967295 bytes" in refusal(start + struct.pack("<BI", 1, 2**32 - 1))
        assert "4294967295 bytes" in refusal(MAGIC + b"\xff" * 4)
        assert "is not a copy" in refusal(bytes(10_000))
        assert tracemalloc.get_traced_memory()[1] < 32 * CHUNK_BYTES
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("path", ["", "/", "a", "//a", "/a/../b", "/a/.", "/a\0", "/" + "a" * PATH_BYTES_MAX])
def test_a_record_with_an_impossible_path_is_neither_written_nor_read(path: str) -> None:
    with pytest.raises(InvalidArgument, match="cannot be copied"):
        written([CopiedRecord(path, b"")], None)
    start = split(written([], None))[0]
    seal = _Seal(start[len(MAGIC) + 4 :], None)
    record = struct.pack("<qqHI", 0, 0, len(path), 0) + path.encode()
    assert "without a valid path" in refusal(start + part(seal, zlib.compress(record)))


def test_a_path_that_comes_twice_is_refused() -> None:
    assert "two records of '/a'" in refusal(written([CopiedRecord("/a", b"1"), CopiedRecord("/a", b"2")], None))


def test_a_copy_of_a_later_format_names_what_to_use() -> None:
    data = written([], None).replace(b'"format":1', b'"format":2')
    assert "this version reads format 1: use a newer one" in refusal(data)


def test_keys_are_read_newest_first(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# of November\n{NEW.secret.hex()}\n\n{OLD.secret.hex().upper()}\n")
    assert read_keys(file) == (NEW, OLD)
    assert NEW.secret.hex() not in repr(read_keys(file))
    assert read_keys(None) == ()


@pytest.mark.parametrize(
    "content", ["", "# nothing", "ab" * 31, "zz" * 32, "é" * 64, f"{'ab' * 32}\n" * (KEYS_MAX + 1)]
)
def test_a_file_without_valid_keys_is_refused_without_showing_it(tmp_path: Path, content: str) -> None:
    file = tmp_path / "keys"
    file.write_text(content)
    with pytest.raises(InvalidArgument) as refused:
        read_keys(file)
    assert str(file) in str(refused.value)
    assert "abab" not in str(refused.value)


def split(data: bytes) -> list[bytes]:
    """The beginning with the header, then each part."""
    place = len(MAGIC) + 4 + struct.unpack_from("<I", data, len(MAGIC))[0]
    found = [data[:place]]
    while place < len(data):
        end = place + 5 + struct.unpack_from("<BI", data, place)[1]
        found.append(data[place:end])
        place = end
    return found


def part(seal: _Seal, content: bytes) -> bytes:
    sealed = seal.close(1, 0, content)
    return struct.pack("<BI", 1, len(sealed)) + sealed
