"""What a client of Kafka is sent of entries that it cannot read: an error, and never nothing."""

from typing import cast

import pytest

from oncelog.client.gateways import WholeEntry
from oncelog.client.values.messages import StoredBatch
from oncelog.core.errors import CorruptEntry
from oncelog.core.formats.batch import PayloadFormat
from oncelog_doors.core.kafka.error_codes import ErrorCode, code_of
from oncelog_doors.log_client.kafka_cluster import KafkaReader
from oncelog_doors.log_client.log_reader import LogReader
from tests.doors.core.pulsar.stored_batches import columns, stored


def entry(payload_format: PayloadFormat, data: bytes) -> WholeEntry:
    raw = stored(data)
    batch = raw.batch._replace(payload_format=payload_format)
    return WholeEntry(StoredBatch(raw.entry, batch, memoryview(raw.body)), "importer")


@pytest.mark.parametrize("payload_format", [PayloadFormat.CHUNKED, PayloadFormat.PULSAR])
def test_an_entry_that_cannot_be_read_is_an_error_that_clients_show(payload_format: PayloadFormat) -> None:
    """At a code that clients try again they would wait for ever."""
    reader = KafkaReader(cast("LogReader", None), 1)
    with pytest.raises(CorruptEntry, match="cannot be read") as raised:
        reader.prepare(entry(payload_format, columns([b"a", b"b"])))
    assert code_of(raised.value) is ErrorCode.CORRUPT_MESSAGE
