"""Staged rows of mode batch: tasks write them to a hidden topic, the driver's commit copies those that count.

Each attempt stages its rows under a random name of its own, so rows of a zombie, of an attempt that does not count, or
from before a driver's restart are never taken for others. Staged rows that do not count are never read. With adminUrl
their topic is deleted once the batches that share it are published.
"""

import logging
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from urllib.parse import urlsplit

import numpy as np

from oncelog.client.values.messages import MessageBatch
from oncelog.core.errors import LogHole, OncelogError, UnreadableEntry
from oncelog.core.formats.message_id import MessageId
from oncelog_spark.sink.journal_records import AttemptPages, BatchRecord, StagedAttempt, decode_page, encode_page
from oncelog_spark.sink.log import SinkLog, send_rows
from oncelog_spark.sink.options import SinkOptions
from oncelog_spark.sink.routing import spread
from oncelog_spark.sink.row_digest import rows_digest, sum_of
from oncelog_spark.sink.rows import Rows, gathered

_LOG = logging.getLogger("oncelog")
_ADMIN_TIMEOUT_S = 10.0
#: Attempts that one message lists at most, and about how many bytes they have there.
PAGE_ATTEMPTS = 2_000
PAGE_BYTES = 2 * 1024 * 1024
#: Properties of staged rows with the destination of the row; the copy removes them.
_TOPIC, _PARTITION = "__sink.topic", "__sink.partition"


def stage_rows(log: SinkLog, topic: str, partition: int, attempt: int, pieces: Iterable[Rows]) -> StagedAttempt | None:
    """Store the rows of one attempt; None: it has no rows. Raises OncelogError."""
    name, digest, start = f"staged/{uuid.uuid4().hex}", 0, ""
    counts: Counter[str] = Counter()
    routes: dict[str, int] = {}
    by_columns = False
    producer = None
    for rows in pieces:
        if not len(rows):
            continue
        producer = producer or log.producer(topic, name, "monotonic")
        routes |= log.router.routes_for(rows)
        for destination, numbers in spread(rows, log.router.target, routes).items():
            counts[destination] += len(numbers)
        by_columns = by_columns or rows.topics is not None or rows.partitions is not None
        first = send_rows(producer, _with_destinations(rows), None).first
        if not start:
            if first is None:
                raise UnreadableEntry(f"the log no longer remembers where {name} begins on {topic}: stage it again")
            start = first.to_bytes().hex()
        digest = sum_of((digest, rows_digest(rows)))
    if producer is None:
        return None
    producer.close()
    return StagedAttempt(
        partition, attempt, topic, name, start, counts.total(), digest, routes, dict(sorted(counts.items())), by_columns
    )


def _with_destinations(rows: Rows) -> Rows:
    """Each row with its topic and partition among its properties, where rows name them."""
    if rows.topics is None and rows.partitions is None:
        return rows
    found = []
    for at in range(len(rows)):
        own = dict((rows.properties[at] if rows.properties is not None else None) or {})
        if rows.topics is not None:
            own[_TOPIC] = rows.topics[at]
        if rows.partitions is not None and (number := rows.partitions[at]) is not None:
            own[_PARTITION] = str(number)
        found.append(own)
    return replace(rows, properties=found)


def _destinations_of(rows: Rows) -> Rows:
    """The inverse of `_with_destinations`."""
    listed = [dict(each or {}) for each in rows.properties or ()]
    topics = [each.pop(_TOPIC, None) for each in listed]
    partitions = [each.pop(_PARTITION, None) for each in listed]
    return replace(
        rows,
        properties=listed if any(listed) else None,
        topics=None if None in topics or not topics else [each for each in topics if each is not None],
        partitions=[None if each is None else int(each) for each in partitions] if any(partitions) else None,
    )


def read_staged(log: SinkLog, record: BatchRecord, done: int) -> Iterator[tuple[StagedAttempt, Rows]]:
    """The record's rows in its order, without the first `done`. Raises LogHole when some are gone."""
    for attempt in record.attempts if record.paged is None else _attempts_of(log, record.paged):
        if done >= attempt.count:
            done -= attempt.count
            continue
        for rows in gathered(_rows_of(log, attempt, done)):
            yield attempt, _destinations_of(rows) if attempt.by_columns else rows
        done = 0


def store_pages(log: SinkLog, topic: str, record: BatchRecord) -> BatchRecord:
    """The record in a form that fits into one message: many attempts are stored on pages in the topic, before the
    record.

    Raises OncelogError.
    """
    pages = list(_pages(record.attempts))
    if len(pages) <= 1:
        return record
    producer = log.producer(topic, f"pages/{uuid.uuid4().hex}", "monotonic")
    ids = []
    for number, page in enumerate(pages):
        result = producer.send(encode_page(page), sequence_id=number)
        if result.message_id is None:
            raise UnreadableEntry(
                f"the log no longer remembers where a page of {record.batch} is on {topic}: try again"
            )
        ids.append(result.message_id.to_bytes().hex())
    producer.close()
    return replace(record, attempts=(), paged=AttemptPages(tuple(ids), topic, record.digest, record.counts))


def _pages(attempts: Sequence[StagedAttempt]) -> Iterator[Sequence[StagedAttempt]]:
    """Attempts that fit into one message each time: an attempt is larger, the more destinations it has."""
    start = weight = 0
    for at, attempt in enumerate(attempts):
        own = 400 + sum(len(topic) + 16 for topic in (*attempt.counts, *attempt.routes))
        if at > start and (at - start >= PAGE_ATTEMPTS or weight + own > PAGE_BYTES):
            yield attempts[start:at]
            start, weight = at, 0
        weight += own
    if start < len(attempts):
        yield attempts[start:]


def _attempts_of(log: SinkLog, pages: AttemptPages) -> Iterator[StagedAttempt]:
    for message_id in pages.ids:
        try:
            page = next(log.read_from(MessageId.from_bytes(bytes.fromhex(message_id)), pages.topic))
        except OncelogError as error:
            if error.retriable:
                raise
            raise LogHole(f"a list of staged rows on {pages.topic} cannot be read: {error.message}") from error
        yield from decode_page(page.value)


def _rows_of(log: SinkLog, attempt: StagedAttempt, done: int) -> Iterator[Rows]:
    at = 0
    start = MessageId.from_bytes(bytes.fromhex(attempt.start))
    try:
        with log.client.create_reader(attempt.topic, start=start, inclusive=True) as reader:
            while at < attempt.count:
                batch = reader.read_batch(timeout=log.timeout_s)
                if batch.producer_name != attempt.name:
                    continue
                skip = min(len(batch), max(0, done - at))
                at += len(batch)
                if skip < len(batch):
                    yield _rows(batch, skip)
    except OncelogError as error:
        if error.retriable:
            raise
        message = f"staged rows of partition {attempt.partition} on {attempt.topic} cannot be read: {error.message}"
        raise LogHole(message) from error
    if at != attempt.count:
        raise LogHole(f"{attempt.name} on {attempt.topic} has {at} rows instead of {attempt.count}")


def _rows(batch: MessageBatch, skip: int) -> Rows:
    keys, times, properties = batch.keys, batch.event_times_ms, batch.properties
    values = list(batch.values[skip:])
    return Rows(
        values,
        None if keys is None else keys[skip:],
        None if times is None else times[skip:],
        None if properties is None else properties[skip:],
        np.fromiter(map(len, values), np.int64, len(values)),
    )


def remove_stage(options: SinkOptions, topics: Sequence[str]) -> None:
    """Delete staging topics that are not needed any more. A failure is only logged: they only take space."""
    if options.admin_url is None or not topics:
        return
    import httpx  # needed once in 64 batches; see `writer`

    topic, credentials = topics[0], options.connection.credentials()
    address = urlsplit(options.admin_url)
    try:
        credentials.check_address(f"{address.hostname}:{address.port}")
        authorization = credentials.authorization
        verify = credentials.verification(options.admin_url)
        with httpx.Client(timeout=_ADMIN_TIMEOUT_S, trust_env=False, verify=verify) as client:
            for topic in topics:
                answer = client.delete(
                    f"{options.admin_url.rstrip('/')}/admin/v2/persistent/{topic}",
                    headers={"Authorization": authorization} if authorization else None,
                    extensions={"sni_hostname": credentials.expected_name} if credentials.expected_name else None,
                )
                if answer.status_code not in {204, 404}:
                    _LOG.warning(
                        "staging topic %s was not deleted: %s %s", topic, answer.status_code, answer.text[:200]
                    )
    except (httpx.HTTPError, httpx.InvalidURL, OncelogError) as error:
        _LOG.warning("staging topics from %s on were not deleted: %s", topic, error)
