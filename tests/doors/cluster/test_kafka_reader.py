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


def test_only_a_batch_that_is_changed_is_made_in_another_thread() -> None:
    """What goes out as it came is only copied, which takes less time than the change of threads."""
    reader = KafkaReader(cast("LogReader", _Sizes()), 1)
    as_it_came = entry(PayloadFormat.KAFKA, columns([b"a", b"b"]))
    cut = WholeEntry(as_it_came.stored._replace(entry=as_it_came.stored.entry._replace(skip_first=1)), None)
    assert reader.size_of(as_it_came) == 0
    assert reader.size_of(cut) == reader.size_of(entry(PayloadFormat.COLUMNS, columns([b"a"]))) == _Sizes.SIZE


class _Sizes:
    SIZE = 1_000

    def size_of(self, _: WholeEntry) -> int:
        return self.SIZE
