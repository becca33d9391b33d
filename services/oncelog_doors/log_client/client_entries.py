"""An entry as a client of Pulsar has sent it: checked before it is stored, and packed for the log without a change.

Readers count messages by the headers of batches. So what the entry says of itself is compared with the command that it
came in and with its producer, and each of its messages is walked through (hazards batch-that-counts-wrongly,
entry-of-another-producer).
"""

from crc32c import crc32c

from oncelog.client.gateways import PackedEntry
from oncelog.core.errors import CompressionUnavailable, InvalidArgument
from oncelog.core.formats.batch import PayloadFormat
from oncelog.core.formats.pulsar import EXPANSION_MAX, EntryHead, check_entry
from oncelog.core.sdk.producer.sequence_ids import BatchIds, pack_sequence_ids
from oncelog_doors.core.pulsar.verdicts import Ids, Rejected


def packed(entry: bytes, ids: Ids, message_count: int, *, producer_name: str, bytes_max: int) -> PackedEntry | Rejected:
    """ids, message_count: of SEND. bytes_max: the log's limit of a batch."""
    if len(entry) > bytes_max:
        return Rejected(f"a batch of {len(entry)} bytes exceeds the limit of the log, {bytes_max}")
    try:
        found = check_entry(entry, raw_bytes_max=EXPANSION_MAX * bytes_max, checksum=crc32c)
    except (InvalidArgument, CompressionUnavailable) as error:
        return Rejected(f"sequence ids {ids}: {error}")
    refusal = _contradiction(found, ids, message_count, producer_name)
    if refusal is not None:
        return Rejected(f"sequence ids {ids}: {refusal}")
    whole = found.unit or found.ids is None
    numbers = BatchIds(found.first, found.last) if whole else pack_sequence_ids(found.ids or ())
    return PackedEntry(entry, found.count, numbers, PayloadFormat.PULSAR, found.publish_time_ms, unit=found.unit)


def _contradiction(found: EntryHead, ids: Ids, message_count: int, producer_name: str) -> str | None:
    """Between the entry and what it came with; None: there is none."""
    if found.producer_name != producer_name:
        return f"the entry names the producer {found.producer_name[:100]!r}, and was sent by {producer_name!r}"
    if found.count != message_count:
        return f"the entry has {found.count} messages, and its SEND says {message_count}"
    if found.first != ids.sequence_id or (ids.highest is not None and ids.last != found.last):
        return f"the entry has the sequence ids {found.first} to {found.last}"
    return None
