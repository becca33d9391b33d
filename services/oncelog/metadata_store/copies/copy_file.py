"""The file of a copy of ZooKeeper's records: written part by part, and read with bounded memory.

    file     = magic | header | chunk … | manifest          numbers are little-endian
    header   = length u32 | JSON in clear: format, cluster_id, era, restore_id, level, created_ms, key_id
    chunk    = kind 1 u8 | length u32 | sealed (zlib stream of records, at most CHUNK_BYTES_MAX before compression)
    manifest = kind 2 u8 | length u32 | sealed (JSON: chunks, bytes, records by kind, sha256 of all before the manifest)
    record   = version i64 | created i64 | length of the path u16 | length of the value u32 | path | value
    sealed   = nonce of 12 bytes | AES-256-GCM of the content        with a key (`copy_keys`)
             | SHA-256 of what is sealed | the content               without: key_id is empty

What is sealed with each content: the header, the kind, and the number of the part. So no part can be moved, left out,
or taken from another copy.

Rules
- The manifest is last. A file without one is half a copy: the records that it has are sound, and those that it lacks
  mean nothing. It is refused (hazard half-a-copy).
- Without a key the checksums show damage only: whoever can write the file can write any records into it. So a reader
  that has keys refuses such a file, unless it is told to accept it.
- Nothing in a file is believed before its bounds are checked. A part is decompressed up to its limit only.
"""

import json
import os
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from oncelog.core.era import Era
from oncelog.core.errors import CorruptEntry, InvalidArgument
from oncelog.core.formats.record_fields import number, parse_json, text
from oncelog.metadata_store.copies.copy_keys import CopyKey

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import aead

FORMAT = 1
MAGIC = b"ONCECOPY"
#: A chunk is written when the next record would make it larger than CHUNK_BYTES. One record may be larger: ZooKeeper's
#: own limit is 1 MiB, unless an operator has raised it.
CHUNK_BYTES = 1024 * 1024
CHUNK_BYTES_MAX = 4 * CHUNK_BYTES
#: Of a whole file, and of all its records.
FILE_BYTES_MAX = 1024 * CHUNK_BYTES
RECORDS_BYTES_MAX = 4 * FILE_BYTES_MAX
PATH_BYTES_MAX = 4096
_HEADER_BYTES_MAX = 4096
_SEAL_BYTES_MAX = 64
#: zlib's stored blocks make incompressible content longer by less than this.
_PART_BYTES_MAX = CHUNK_BYTES_MAX + 8192
_MANIFEST_BYTES_MAX = 64 * 1024
_CHUNK, _MANIFEST = 1, 2
_LENGTH = struct.Struct("<I")
_PART = struct.Struct("<BI")
_RECORD = struct.Struct("<qqHI")
_NONCE_BYTES = 12
_HASH_BYTES = 32


class CopiedRecord(NamedTuple):
    """path: below the root of the era. version, created: as ZooKeeper has them, -1 where they are not known."""

    path: str
    value: bytes
    version: int = -1
    created: int = -1

    @property
    def kind(self) -> str:
        """The folder: "topics" of /topics/…"""
        return self.path.split("/", 2)[1]


@dataclass(frozen=True, slots=True)
class CopyHeader:
    """created_ms: when the walk began, by the clock of the process that made it. key_id: empty without encryption."""

    cluster_id: str
    era: Era
    level: int
    created_ms: int
    key_id: str = ""

    @property
    def authenticated(self) -> bool:
        return bool(self.key_id)


@dataclass(frozen=True, slots=True)
class CopyManifest:
    """chunks: how many. record_bytes: of all records before compression. records: {kind: how many}."""

    chunks: int
    record_bytes: int
    records: Mapping[str, int]


class _Seal:
    """Of one file."""

    def __init__(self, header: bytes, key: CopyKey | None) -> None:
        self._header = sha256(header).digest()
        self._cipher: aead.AESGCM | None = None
        if key is not None:
            # Here, because it is slow to load, and a help text needs none.
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM

            self._cipher = AESGCM(key.secret)

    def close(self, kind: int, number: int, content: bytes) -> bytes:
        context = self._context(kind, number)
        if self._cipher is None:
            return sha256(context + content).digest() + content
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, content, context)

    def open(self, kind: int, number: int, sealed: bytes) -> bytes:
        """Raises InvalidArgument."""
        context = self._context(kind, number)
        if self._cipher is None:
            content = sealed[_HASH_BYTES:]
            if sha256(context + content).digest() == sealed[:_HASH_BYTES]:
                return content
        else:
            from cryptography.exceptions import InvalidTag

            try:
                return self._cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], context)
            except (InvalidTag, ValueError):
                pass
        raise _refused(f"part {number} is damaged, or was changed, or is of another copy")

    def _context(self, kind: int, number: int) -> bytes:
        return self._header + _PART.pack(kind, number)


class CopyWriter:
    """`add` all records, then `finish`. key None: not encrypted. write: gets the file piece by piece."""

    def __init__(self, header: CopyHeader, key: CopyKey | None, write: Callable[[bytes], object]) -> None:
        """header: its key_id is replaced."""
        fields = {
            "format": FORMAT,
            "cluster_id": header.cluster_id,
            "era": header.era.number,
            "restore_id": header.era.restore_id,
            "level": header.level,
            "created_ms": header.created_ms,
            "key_id": "" if key is None else key.key_id,
        }
        encoded = json.dumps(fields, separators=(",", ":")).encode()
        self._seal = _Seal(encoded, key)
        self._write = write
        self._sha = sha256()
        self._chunk = bytearray()
        self._chunks = 0
        self._record_bytes = 0
        self._records: Counter[str] = Counter()
        self._put(MAGIC + _LENGTH.pack(len(encoded)) + encoded)

    def add(self, records: Iterable[CopiedRecord]) -> None:
        """Raises InvalidArgument for a record that no file may have."""
        for record in records:
            path = record.path.encode()
            size = _RECORD.size + len(path) + len(record.value)
            if not _is_path(path) or size > CHUNK_BYTES_MAX:
                limit = f"{PATH_BYTES_MAX} bytes of path and {CHUNK_BYTES_MAX} in all"
                message = f"record {record.path[:200]!r} of {size} bytes cannot be copied: the limit is {limit}"
                raise InvalidArgument(message, field="path", limit=CHUNK_BYTES_MAX)
            if self._chunk and len(self._chunk) + size > CHUNK_BYTES:
                self._flush()
            self._chunk += _RECORD.pack(record.version, record.created, len(path), len(record.value))
            self._chunk += path
            self._chunk += record.value
            self._records[record.kind] += 1
            self._record_bytes += size

    def finish(self) -> CopyManifest:
        """Write what is left, and the manifest."""
        if self._chunk:
            self._flush()
        manifest = CopyManifest(self._chunks, self._record_bytes, dict(sorted(self._records.items())))
        fields = {
            "chunks": manifest.chunks,
            "bytes": manifest.record_bytes,
            "records": manifest.records,
            "sha256": self._sha.hexdigest(),
        }
        self._part(_MANIFEST, json.dumps(fields, separators=(",", ":")).encode())
        return manifest

    def _flush(self) -> None:
        self._part(_CHUNK, zlib.compress(bytes(self._chunk), 6))
        self._chunks += 1
        self._chunk.clear()

    def _part(self, kind: int, content: bytes) -> None:
        sealed = self._seal.close(kind, self._chunks, content)
        self._put(_PART.pack(kind, len(sealed)) + sealed)

    def _put(self, data: bytes) -> None:
        self._sha.update(data)
        self._write(data)


def copy_of(header: CopyHeader, keys: Sequence[CopyKey], records: Iterable[CopiedRecord]) -> bytes:
    """A whole file of records in memory, encrypted with the first key, if there is any. Raises InvalidArgument."""
    parts: list[bytes] = []
    writer = CopyWriter(header, keys[0] if keys else None, parts.append)
    writer.add(records)
    writer.finish()
    return b"".join(parts)


class CopyReader:
    """Reads the header at once. `records` must be read to its end: only then was the copy whole, and `manifest` is set.

    Holds one chunk at a time in memory.
    """

    def __init__(self, source: BinaryIO, keys: Sequence[CopyKey] = (), *, accept_unauthenticated: bool = False) -> None:
        """Raises InvalidArgument that says why the file is refused."""
        self._source = source
        self._sha = sha256()
        self._bytes = 0
        self.manifest: CopyManifest | None = None
        if self._take(len(MAGIC), "its header") != MAGIC:
            raise _refused("it is not a copy of Oncelog's records")
        length = _LENGTH.unpack(self._take(_LENGTH.size, "its header"))[0]
        if length > _HEADER_BYTES_MAX:
            raise _refused(f"its header states {length} bytes, and the limit is {_HEADER_BYTES_MAX}")
        encoded = self._take(length, "its header")
        self.header = _decode_header(encoded)
        key = {one.key_id: one for one in keys}.get(self.header.key_id)
        if key is None and self.header.authenticated:
            known = ", ".join(one.key_id for one in keys) or "none"
            raise _refused(
                f"it is encrypted with key {self.header.key_id}, and the given keys are: {known}. Give its key to the "
                "command (--key-file), and for a restore to the metadata service, too (ONCELOG_BACKUP_KEY_FILE)"
            )
        if keys and not self.header.authenticated and not accept_unauthenticated:
            raise _refused(
                "it is not encrypted, so it may be forged, and the metadata service has keys: start it without "
                "ONCELOG_BACKUP_KEY_FILE to accept it"
            )
        self._seal = _Seal(encoded, key)

    def records(self) -> Iterator[CopiedRecord]:
        """Raises InvalidArgument for a damaged, forged or half file: then nothing that was read may be used."""
        chunks, record_bytes = 0, 0
        counts: Counter[str] = Counter()
        while True:
            so_far = self._sha.hexdigest()
            kind, length = _PART.unpack(self._take(_PART.size, f"part {chunks}"))
            if kind not in (_CHUNK, _MANIFEST) or length > _SEAL_BYTES_MAX + _PART_BYTES_MAX:
                raise _refused(f"part {chunks} has kind {kind} and {length} bytes: it is damaged")
            content = self._seal.open(kind, chunks, self._take(length, f"part {chunks}"))
            if kind == _MANIFEST:
                break
            expanded = _expand(content, chunks)
            record_bytes += len(expanded)
            if record_bytes > RECORDS_BYTES_MAX:
                raise _refused(f"its records have more than {RECORDS_BYTES_MAX} bytes")
            for record in _decode_records(expanded, chunks):
                counts[record.kind] += 1
                yield record
            chunks += 1
        if self._source.read(1):
            raise _refused("bytes follow its manifest")
        manifest = CopyManifest(chunks, record_bytes, dict(sorted(counts.items())))
        if _decode_manifest(content) != (manifest, so_far):
            raise _refused("its manifest does not match its records")
        self.manifest = manifest

    def _take(self, count: int, what: str) -> bytes:
        data = self._source.read(count)
        if len(data) < count:
            raise _refused(f"it ends in {what}, before its manifest: it is half a copy, use another one")
        self._bytes += count
        if self._bytes > FILE_BYTES_MAX:
            raise _refused(f"it has more than {FILE_BYTES_MAX} bytes")
        self._sha.update(data)
        return data


@dataclass(frozen=True, slots=True)
class RecordCopy:
    """A whole, checked copy. records: {path: record}."""

    header: CopyHeader
    manifest: CopyManifest
    records: Mapping[str, CopiedRecord]

    def sharing(self, known: dict[str, CopiedRecord]) -> "RecordCopy":
        """The same, with the records of `known` in place of equal ones, and `known` gets all others: of the copies of
        many days most records are the same, and a large cluster has 100 MB of them."""
        shared = {}
        for path, record in self.records.items():
            if known.get(path) != record:
                known[path] = record
            shared[known[path].path] = known[path]
        return RecordCopy(self.header, self.manifest, shared)


def read_copy(source: BinaryIO, keys: Sequence[CopyKey] = (), *, accept_unauthenticated: bool = False) -> RecordCopy:
    """Read a whole copy into memory. Raises InvalidArgument that says why the file is refused."""
    reader = CopyReader(source, keys, accept_unauthenticated=accept_unauthenticated)
    records: dict[str, CopiedRecord] = {}
    for record in reader.records():
        if records.setdefault(record.path, record) is not record:
            raise _refused(f"it has two records of {record.path[:200]!r}")
    assert reader.manifest is not None, "`records` ended, so it has read the manifest"
    return RecordCopy(reader.header, reader.manifest, records)


def _decode_header(encoded: bytes) -> CopyHeader:
    try:
        fields = parse_json(encoded)
        form = number(fields, "format")
        if form != FORMAT:
            raise _refused(f"it has format {form}, and this version reads format {FORMAT}: use a newer one")
        return CopyHeader(
            text(fields, "cluster_id"),
            Era.checked(number(fields, "era"), text(fields, "restore_id")),
            number(fields, "level"),
            number(fields, "created_ms"),
            text(fields, "key_id"),
        )
    except (ValueError, KeyError, TypeError, CorruptEntry) as error:
        raise _refused(f"its header cannot be read: {error!r:.200}") from error


def _decode_manifest(content: bytes) -> tuple[CopyManifest, str]:
    if len(content) > _MANIFEST_BYTES_MAX:
        raise _refused(f"its manifest has more than {_MANIFEST_BYTES_MAX} bytes")
    try:
        fields = parse_json(content)
        counts = fields["records"]
        if not isinstance(counts, dict):
            raise _refused("its manifest cannot be read: it has no counts")
        manifest = CopyManifest(number(fields, "chunks"), number(fields, "bytes"), counts)
        return manifest, text(fields, "sha256")
    except (ValueError, KeyError, TypeError, CorruptEntry) as error:
        raise _refused(f"its manifest cannot be read: {error!r:.200}") from error


def _expand(content: bytes, chunk: int) -> bytes:
    decompressor = zlib.decompressobj()
    try:
        expanded = decompressor.decompress(content, CHUNK_BYTES_MAX + 1)
    except zlib.error as error:
        raise _refused(f"part {chunk} cannot be decompressed: {error}") from error
    if not decompressor.eof or decompressor.unused_data or len(expanded) > CHUNK_BYTES_MAX:
        raise _refused(f"part {chunk} has more than {CHUNK_BYTES_MAX} bytes, or is cut off")
    return expanded


def _decode_records(expanded: bytes, chunk: int) -> Iterator[CopiedRecord]:
    place = 0
    while place < len(expanded):
        body = place + _RECORD.size
        if body > len(expanded):
            raise _refused(f"part {chunk} ends inside a record")
        version, created, path_length, value_length = _RECORD.unpack_from(expanded, place)
        place = body + path_length + value_length
        path = expanded[body : body + path_length]
        if place > len(expanded) or not _is_path(path):
            raise _refused(f"part {chunk} has a record without a valid path or length")
        try:
            yield CopiedRecord(path.decode(), expanded[body + path_length : place], version, created)
        except UnicodeDecodeError as error:
            raise _refused(f"part {chunk} has a path that is not UTF-8") from error


def _is_path(path: bytes) -> bool:
    """Whether ZooKeeper can have it: absolute, no empty element, no `.` and no `..`."""
    elements = path.split(b"/")
    valid = elements[0] == b"" and len(elements) > 1 and 0 < len(path) <= PATH_BYTES_MAX and b"\0" not in path
    return valid and not any(one in (b"", b".", b"..") for one in elements[1:])


def _refused(reason: str) -> InvalidArgument:
    return InvalidArgument(f"the copy is refused: {reason}", field="copy")
