"""Files of an import, in any store that Arrow can read: local or NFS paths, other stores by their URI.

Rows are read in the order of the file, by one reader, so the order is always the same.
"""

import codecs
import hashlib
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import csv, fs, parquet

from oncelog.core.errors import Fatal, InvalidArgument, NotFound
from oncelog_spark.file_import.options import ColumnMapping, FileFormat
from oncelog_spark.file_import.records import SourceFile

_PIECE_BYTES = 1024 * 1024
#: Maximum length of a CSV row; rows of one block become messages together.
_BLOCK_BYTES = 8 * 1024 * 1024
_ROWS = 10_000


class FileSource(NamedTuple):
    """base: the directory above all paths of files, as the file system names it."""

    files: Any
    base: str

    def whole(self, path: str) -> str:
        return f"{self.base}/{path}"


def open_source(uri: str) -> FileSource:
    """uri: an absolute path or a URI. Raises InvalidArgument where Arrow does not support it."""
    try:
        files, path = (fs.LocalFileSystem(), uri) if uri.startswith("/") else fs.FileSystem.from_uri(uri)
    except (pa.ArrowInvalid, OSError, UnicodeEncodeError) as error:
        raise InvalidArgument(f"option source: cannot read {uri:.80}: {error}", field="source") from error
    info = files.get_file_info(path)
    if info.type == fs.FileType.NotFound:
        raise NotFound(f"option source: {uri} does not exist", field="source")
    path = path.rstrip("/")
    return FileSource(files, path if info.type == fs.FileType.Directory else path.rpartition("/")[0])


def list_files(uri: str, glob: str, refuse: Callable[[str], object] | None = None) -> list[SourceFile]:
    """Files below a directory whose paths match, by path; or the one file. Names that begin with _ or . are skipped.

    refuse: called with a sentence about each file whose name is not UTF-8; None: raises InvalidArgument for it.
    """
    source = open_source(uri)
    whole = source.files.get_file_info(uri if uri.startswith("/") else fs.FileSystem.from_uri(uri)[1])
    if whole.type != fs.FileType.Directory:
        return [_found(source, whole)]
    infos = source.files.get_file_info(fs.FileSelector(source.base, recursive=True))
    hidden = tuple("_.")
    found = []
    for info in infos:
        try:
            if info.type == fs.FileType.File:
                found.append(_found(source, info))
        except UnicodeDecodeError as error:
            name = bytes(error.object).decode(errors="backslashreplace")
            if fnmatchcase(name, glob) and not name.rpartition("/")[2].startswith(hidden):
                sentence = f"{name}: the name of this file is not UTF-8, rename it"
                if refuse is None:
                    raise InvalidArgument(sentence, field="source") from error
                refuse(sentence)
    return sorted(
        (each for each in found if fnmatchcase(each.path, glob)
         and not any(name.startswith(hidden) for name in each.path.split("/"))),
        key=lambda each: each.path,
    )  # fmt: skip


def state_of(source: FileSource, path: str) -> SourceFile:
    """Raises NotFound."""
    info = source.files.get_file_info(source.whole(path))
    if info.type != fs.FileType.File:
        raise NotFound(f"{path} does not exist any more", field=path)
    return _found(source, info)


def checksum_of(source: FileSource, path: str) -> str:
    """SHA-256 of the bytes, in hex."""
    digest = hashlib.sha256()
    with source.files.open_input_stream(source.whole(path), compression=None) as stream:
        while piece := stream.read(_PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def batches_of(source: FileSource, path: str, mapped: ColumnMapping) -> Iterator[Any]:
    """All rows of a file as Arrow batches. Raises InvalidArgument, with the file and Arrow's error."""
    try:
        if mapped.format is FileFormat.PARQUET:
            yield from _of_parquet(source, path)
        else:
            yield from _of_csv(source, path, mapped)
    except UnicodeDecodeError as error:
        message = f"{path} has a header that is not UTF-8 ({error.object[:40]!r}): convert it, or name its columns"
        raise InvalidArgument(message, field=path) from error
    except pa.ArrowInvalid as error:
        text = str(error)
        if "straddling" in text:
            text = f"a row is longer than {_BLOCK_BYTES} bytes"
        header = "" if mapped.names or "Row #" not in text else " (the header is row 1)"
        raise InvalidArgument(f"{path} is not a readable {mapped.format} file: {text}{header}", field=path) from error
    except pa.ArrowException as error:
        raise Fatal(f"{path} cannot be read: {error}") from error


def _of_parquet(source: FileSource, path: str) -> Iterator[Any]:
    with source.files.open_input_file(source.whole(path)) as file, parquet.ParquetFile(file) as opened:
        yield from opened.iter_batches(batch_size=_ROWS, use_threads=False)


def _of_csv(source: FileSource, path: str, mapped: ColumnMapping) -> Iterator[Any]:
    _check_start(source, path, mapped)
    names = mapped.names or _header(source, path, mapped)
    reading = csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES, column_names=list(mapped.names) or None)
    # Of one column, an empty line is a row with an empty field. Else it would have too few fields, and is none.
    parsing = csv.ParseOptions(delimiter=mapped.delimiter, newlines_in_values=True, ignore_empty_lines=len(names) != 1)
    # Fields are read as bytes, without a conversion: `messages` converts them.
    converting = csv.ConvertOptions(column_types=dict.fromkeys(names, pa.binary()), strings_can_be_null=False)
    if not names:
        return
    with source.files.open_input_stream(source.whole(path), compression="detect") as stream:
        for batch in csv.open_csv(stream, read_options=reading, parse_options=parsing, convert_options=converting):
            for at in range(0, batch.num_rows, _ROWS):
                yield batch.slice(at, _ROWS)


def _check_start(source: FileSource, path: str, mapped: ColumnMapping) -> None:
    """Raises InvalidArgument for UTF-16 and UTF-32, of which Arrow would read bytes as characters, and for an empty
    line before the header, which would be an empty name where it is no row."""
    with source.files.open_input_stream(source.whole(path), compression="detect") as stream:
        head = stream.read(8)
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)) or b"\0" in head:
        message = f"{path} is UTF-16 or UTF-32, not UTF-8: convert it, for example with iconv -f UTF-16 -t UTF-8"
        raise InvalidArgument(message, field=path)
    if not mapped.names and head.removeprefix(codecs.BOM_UTF8).startswith((b"\r", b"\n")):
        raise InvalidArgument(f"{path} begins with an empty line: delete it, the first line is the header", field=path)


def _header(source: FileSource, path: str, mapped: ColumnMapping) -> list[str]:
    """Names of the columns; [] for an empty file."""
    if not state_of(source, path).size:
        return []
    reading = csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES)
    parsing = csv.ParseOptions(delimiter=mapped.delimiter, newlines_in_values=True)
    with (
        source.files.open_input_stream(source.whole(path), compression="detect") as stream,
        csv.open_csv(stream, read_options=reading, parse_options=parsing) as opened,
    ):
        names: list[str] = opened.schema.names
    return names


def _found(source: FileSource, info: Any) -> SourceFile:
    return SourceFile(info.path.removeprefix(f"{source.base}/"), info.size, info.mtime_ns or 0)
