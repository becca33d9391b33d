"""The work of an import's tasks, one file each: check the whole file, and later publish the rows that the log lacks."""

from collections.abc import Iterator

from oncelog.core.errors import Conflict
from oncelog_spark.file_import.files import FileSource, batches_of, checksum_of, open_source, state_of
from oncelog_spark.file_import.messages import messages_of
from oncelog_spark.file_import.options import ImportOptions
from oncelog_spark.file_import.records import FileRecord, SourceFile, producer_of
from oncelog_spark.sink.log import SinkLog, connected, send_rows
from oncelog_spark.sink.rows import Rows


def check_file(options: ImportOptions, found: SourceFile) -> FileRecord:
    """Read a whole file before any of its rows is published. Raises InvalidArgument, which names a row that cannot be a
    message; Conflict where the file changes meanwhile."""
    source = open_source(options.source)
    before = state_of(source, found.path)
    digest = checksum_of(source, found.path)
    rows = sum(map(len, _rows(source, options, found.path)))
    _check_same(before, state_of(source, found.path))
    return FileRecord(found.path, before.size, before.mtime_ns, digest, rows, options.mapped.text)


def import_file(options: ImportOptions, file: FileRecord) -> int:
    """Publish the rows that the log lacks; returns their number. Raises OncelogError."""
    with connected(options.sink) as client:
        return publish_file(SinkLog(client, options.sink), options, file)


def publish_file(log: SinkLog, options: ImportOptions, file: FileRecord) -> int:
    """Raises Conflict where the file differs from when it was checked, before or after publishing."""
    source = open_source(options.source)
    before = SourceFile(file.path, file.size, file.mtime_ns)
    _check_same(before, state_of(source, file.path))
    published = publish_rows(log, options, file, _rows(source, options, file.path))
    _check_same(before, state_of(source, file.path))
    return published


def publish_rows(log: SinkLog, options: ImportOptions, file: FileRecord, pieces: Iterator[Rows]) -> int:
    """Row n of the file gets sequence id n under the file's own name; older attempts are fenced."""
    producer = log.producer(options.topic, producer_of(options.name, file.path), "contiguous")
    last_id = producer.last_sequence_id
    if last_id >= file.rows:
        message = f"the topic holds {last_id + 1} rows of {file.path}, but the file has {file.rows}: it has changed"
        raise Conflict(f"{message}. Import it under another path, or with another name", field=file.path)
    at = published = 0
    for rows in pieces:
        start = min(len(rows), max(0, last_id + 1 - at))
        if start < len(rows):
            send_rows(producer, rows.slice(start, len(rows)), range(at + start, at + len(rows)))
            published += len(rows) - start
        at += len(rows)
    producer.close()
    if at != file.rows:
        raise Conflict(f"{file.path} had {file.rows} rows when it was checked, and has {at} now", field=file.path)
    return published


def _rows(source: FileSource, options: ImportOptions, path: str) -> Iterator[Rows]:
    return messages_of(path, batches_of(source, path, options.mapped), options.mapped)


def _check_same(before: SourceFile, after: SourceFile) -> None:
    if before != after:
        raise Conflict(
            f"{before.path} has changed while it was read: write files elsewhere, and move them to the source when "
            "they are complete",
            field=before.path,
        )
