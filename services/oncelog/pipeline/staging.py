"""Staged rows of mode batch: tasks write them to a hidden topic, the driver's commit copies those that count.

Each attempt stages under a name of its own, made up at random, so that rows of a zombie, of an attempt that lost, or of
a driver's former life are never taken for others. What is staged and does not count is never read; with adminUrl given
it goes with its topic, once the batches that share it are published.
"""

import logging
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from urllib.parse import urlsplit

import numpy as np

from oncelog.client.messages import MessageBatch
from oncelog.core.errors import LogHole, OncelogError, UnreadableEntry
from oncelog.core.message_id import MessageId
from oncelog.pipeline.sink_digest import rows_digest, sum_of
from oncelog.pipeline.sink_log import SinkLog, send_rows
from oncelog.pipeline.sink_options import SinkOptions
from oncelog.pipeline.sink_records import Attempt, Paged, WinnersRecord, decode_page, encode_page
from oncelog.pipeline.sink_rows import Rows, gathered

_LOG = logging.getLogger("oncelog")
_ADMIN_TIMEOUT_S = 10.0
#: Attempts, of some 300 bytes each, that one message lists.
PAGE_ATTEMPTS = 2_000


def stage(log: SinkLog, topic: str, partition: int, attempt: int, pieces: Iterable[Rows]) -> Attempt | None:
    """Store the rows of one attempt; None: it has none. Raises OncelogError."""
    name, count, digest, start = f"staged/{uuid.uuid4().hex}", 0, 0, ""
    producer = None
    for rows in pieces:
        if not len(rows):
            continue
        producer = producer or log.producer(topic, name, "monotonic")
        first = send_rows(producer, rows, None).first
        if not start:
            if first is None:
                raise UnreadableEntry(f"the log no longer knows where {name} begins on {topic}: stage it again")
            start = first.to_bytes().hex()
        count += len(rows)
        digest = sum_of((digest, rows_digest(rows)))
    if producer is None:
        return None
    producer.close()
    return Attempt(partition, attempt, topic, name, start, count, digest)


def staged(log: SinkLog, record: WinnersRecord, done: int) -> Iterator[Rows]:
    """The record's rows in its order, but for the first `done`. Raises LogHole when some are gone."""
    for attempt in record.attempts if record.paged is None else _attempts_of(log, record.paged):
        if done >= attempt.count:
            done -= attempt.count
            continue
        yield from gathered(_rows_of(log, attempt, done))
        done = 0


def paged(log: SinkLog, topic: str, record: WinnersRecord) -> WinnersRecord:
    """The record as it fits a message: with many attempts these are stored on pages in the topic, before the record.

    Raises OncelogError.
    """
    if len(record.attempts) <= PAGE_ATTEMPTS:
        return record
    producer = log.producer(topic, f"pages/{uuid.uuid4().hex}", "monotonic")
    ids = []
    for start in range(0, len(record.attempts), PAGE_ATTEMPTS):
        data = encode_page(record.attempts[start : start + PAGE_ATTEMPTS])
        result = producer.send(data, sequence_id=start)
        if result.message_id is None:
            raise UnreadableEntry(f"the log no longer knows where a page of {record.batch} is on {topic}: try again")
        ids.append(result.message_id.to_bytes().hex())
    producer.close()
    return replace(record, attempts=(), paged=Paged(tuple(ids), topic, record.count, record.digest))


def _attempts_of(log: SinkLog, pages: Paged) -> Iterator[Attempt]:
    for place in pages.ids:
        try:
            page = next(log.read_from(MessageId.from_bytes(bytes.fromhex(place)), pages.topic))
        except OncelogError as error:
            if error.retriable:
                raise
            raise LogHole(f"a list of staged rows on {pages.topic} cannot be read: {error.message}") from error
        yield from decode_page(page.value)


def _rows_of(log: SinkLog, attempt: Attempt, done: int) -> Iterator[Rows]:
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
        raise LogHole(f"{attempt.name} on {attempt.topic} has {at} rows, {attempt.count} were told")


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
    """Delete staging topics that nobody needs any more. A failure is logged: nothing rests on them but space."""
    if options.admin_url is None or not topics:
        return
    import httpx  # once in 64 batches; see `sink`

    topic, credentials = topics[0], options.connection.credentials()
    place = urlsplit(options.admin_url)
    try:
        credentials.check_address(f"{place.hostname}:{place.port}")
        authorization = credentials.authorization
        with httpx.Client(
            timeout=_ADMIN_TIMEOUT_S, trust_env=False, verify=credentials.ssl_context() or True
        ) as client:
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
