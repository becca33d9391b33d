"""What tasks of an import do with one file each: read all of it, and later publish what the log lacks of it."""

from collections.abc import Iterator

from oncelog.core.errors import Conflict
from oncelog.pipeline.file_import.files import FileSource, batches_of, checksum_of, open_source, state_of
from oncelog.pipeline.file_import.messages import messages_of
from oncelog.pipeline.file_import.options import ImportOptions
from oncelog.pipeline.file_import.records import FileRecord, SourceFile, producer_of
from oncelog.pipeline.sink.log import SinkLog, connected, send_rows
from oncelog.pipeline.sink.rows import Rows


def check_file(options: ImportOptions, found: SourceFile) -> FileRecord:
    """Read all of a file, so that nothing is published of one that cannot be. Raises InvalidArgument, which names the
    row; Conflict where it changes meanwhile."""
    source = open_source(options.source)
    before = state_of(source, found.path)
    digest = checksum_of(source, found.path)
    rows = sum(map(len, _rows(source, options, found.path)))
    _check_same(before, state_of(source, found.path))
    return FileRecord(found.path, before.size, before.mtime_ns, digest, rows, options.mapped.text)


def import_file(options: ImportOptions, file: FileRecord) -> int:
    """Publish the rows that the log lacks; how many those were. Raises OncelogError."""
    with connected(options.sink) as client:
        return publish_file(SinkLog(client, options.sink), options, file)


def publish_file(log: SinkLog, options: ImportOptions, file: FileRecord) -> int:
    """The file is as it was when it was checked: before, and after. Raises Conflict where it is not."""
    source = open_source(options.source)
    before = SourceFile(file.path, file.size, file.mtime_ns)
    _check_same(before, state_of(source, file.path))
    published = publish_rows(log, options, file, _rows(source, options, file.path))
    _check_same(before, state_of(source, file.path))
    return published


def publish_rows(log: SinkLog, options: ImportOptions, file: FileRecord, pieces: Iterator[Rows]) -> int:
    """Row n of the file gets sequence id n under the file's own name, which older attempts are fenced from."""
    producer = log.producer(options.topic, producer_of(options.name, file.path), "contiguous")
    mark = producer.last_sequence_id
    if mark >= file.rows:
        message = f"the topic holds {mark + 1} rows of {file.path}, which has {file.rows}: it was another file then"
        raise Conflict(f"{message}. Import it under another path, or with another name", field=file.path)
    at = published = 0
    for rows in pieces:
        start = min(len(rows), max(0, mark + 1 - at))
        if start < len(rows):
            send_rows(producer, rows.part(start, len(rows)), range(at + start, at + len(rows)))
            published += len(rows) - start
        at += len(rows)
    producer.close()
    if at != file.rows:
        raise Conflict(f"{file.path} had {file.rows} rows when it was checked, and has {at}", field=file.path)
    return published


def _rows(source: FileSource, options: ImportOptions, path: str) -> Iterator[Rows]:
    return messages_of(path, batches_of(source, path, options.mapped), options.mapped)


def _check_same(before: SourceFile, after: SourceFile) -> None:
    if before != after:
        raise Conflict(
            f"{before.path} has changed while it was read: import files that are whole, and move them in place when "
            "they are",
            field=before.path,
        )
